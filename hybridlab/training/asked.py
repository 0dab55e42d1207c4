"""The arguments of a job: all those of `check`, `train`, `run` and `dry_run`, each described once.

Signatures, docstrings, command-line flags and a page of the reference are made from these tables. They include the
options of all modes, including modes from outside the package, since each mode describes its own (`modes.mode.Option`).

Relatives: `signatures.spelled`, which puts a table into a function; `training.make_job`, which makes the job;
`cli.flags`, which makes flags.
"""

import inspect

from hybridlab.core.where.mesh import Mesh
from hybridlab.modes import registry
from hybridlab.modes.data_parallel import DTYPES
from hybridlab.modes.mode import Option
from hybridlab.scheduling.norms import VALIDATED
from hybridlab.signatures import Argument
from hybridlab.training.optimizers import OPTIMIZERS
from hybridlab.training.rates import ANNEALED

FIRST = 4  # arguments that may be given by position


def mesh_of(given: dict) -> Mesh:
    """The given mesh, or the default one.

    >>> mesh_of({}), mesh_of({"mesh": Mesh(dp=2)})
    (Mesh(pp=4), Mesh(dp=2))
    """
    return given.get("mesh") or Mesh(pp=4)


def one_of(names) -> str:
    """The type of an argument that is one of these names.

    >>> one_of(["sgd", "adamw"])
    "Literal['sgd', 'adamw']"
    """
    return f"Literal{[*names]}"


LAYOUT = {
    "mesh": Argument(
        "Mesh | None", None, "ranks along named axes, such as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks"
    ),
    "schedule": Argument("str | Schedule", "1f1b", "a name from hl.schedules(), or your own schedule"),
    "microbatches": Argument("int", 4, "microbatches of one pipeline in one run of the schedule"),
    "batch": Argument(
        "int | None", None, "rows (sequences or images) in the global batch; None: `rows` per microbatch"
    ),
    "chunks": Argument("int | None", None, "stages on each rank, for schedules with this option"),
    "copies": Argument("tuple[int, ...] | None", None, "ranks of each stage, such as (3, 1); only for pipedream"),
    "slices": Argument(
        "int | Sequence[int] | None",
        None,
        "token slices of each row, or their lengths, such as (12, 9, 7); for seq1f1b and terapipe",
    ),
    "slicing": Argument(
        "Literal['equal', 'cost'] | None",
        None,
        "with a number of slices: 'equal' lengths (default), or lengths of equal 'cost', later slices shorter",
    ),
    "cut": Argument(
        "str | Sequence",
        "layers",
        "how layers are divided into stages: equal 'layers', 'parameters' or 'time', a list of numbers or ranges, or "
        "Megatron-LM's letters such as 'Ett|tL'",
    ),
    "ahead": Argument("int", 0, "number of receives posted in advance"),
    "active": Argument("int", 2, "with zero=3: stages whose gathered weights a rank holds at the same time"),
    "driven": Argument(
        "bool", False, "message-driven: each rank computes a microbatch as soon as it has arrived, in no fixed order"
    ),
}
MODEL = {
    "model": Argument(
        "nn.Module | Model | Shape | Callable | str | None",
        None,
        "your own module (with loss and data), a Model, a Shape, the name of a reference model, or 'FILE.py:name'; "
        "None: the transformer of `shape`",
    ),
    "loss": Argument("Callable | None", None, "loss(output, target), the sum over a microbatch; for your own module"),
    "weights": Argument(
        "str | Path | dict | None",
        None,
        "initial weights: a state dict, or files that hl.weights reads; None: the model's",
    ),
    "data": Argument(
        "Any",
        None,
        "data(step, rows) -> (inputs, targets), a Dataset, DataLoader or list of batches; for a GPT, a text file",
    ),
    "shape": Argument("Shape | None", None, "sizes of the transformer to train when no model is given"),
    "skips": Argument(
        "dict[int, int] | None", None, "skip connections, {layer: earlier layer whose output it also takes}"
    ),
    "takes": Argument("dict | None", None, "branches and joins, {layer: earlier layers whose outputs it takes}"),
    "dims": Argument("dict[str, str] | None", None, "names of the dimensions of parameters, {parameter: 'F D'}"),
    "sizes": Argument("dict[str, int] | None", None, "lengths of combined dimensions, {letter: length}"),
    "terms": Argument("int | None", None, "loss terms in one row (default 1)"),
    "enters": Argument("str | None", None, "names of the dimensions of inputs (default 'B'); for images 'B C Y X'"),
    "targets": Argument("str | None", None, "names of the dimensions of targets (default 'B')"),
}
TRAINING = {
    "steps": Argument("int", 3, "optimizer steps"),
    "rows": Argument("int", 2, "rows in one microbatch, if no batch is given"),
    "accumulate": Argument("int", 1, "runs of the schedule for one optimizer step (gradient accumulation)"),
    "optimizer": Argument(one_of(OPTIMIZERS), "sgd", "the optimizer"),
    "rate": Argument("float | Callable", 0.1, "the learning rate, or a function of the step that returns it"),
    "warmup": Argument("int", 0, "steps in which the learning rate grows linearly to its full size"),
    "anneal": Argument(
        one_of(ANNEALED), "constant", "the rate after the warm-up; 'cosine' and 'linear' fall to 0 by the last step"
    ),
    "betas": Argument("tuple[float, ...]", (0.9, 0.999), "decay rates of AdamW's two running averages"),
    "decay": Argument("float", 0.0, "weight decay; not applied to norms and biases"),
    "clip": Argument("float | None", None, "gradient clipping: the largest global gradient norm"),
    "validated": Argument(
        one_of(VALIDATED) + " | None",
        None,
        "with clip: ranks learn the norm 'before' the optimizer step, or 'after' it, and then undo a step that must be "
        "clipped",
    ),
    "stash": Argument(
        "bool", True, "weight stashing; False: an asynchronous schedule keeps only one version of its weights"
    ),
    "predict_weights": Argument(
        "bool",
        False,
        "an asynchronous schedule computes with weights predicted for the time of its update: the last update is "
        "repeated once for each update that is still missing",
    ),
    "seed": Argument("int", 0, "random seed of the initial weights, dropout and batches"),
    "dtype": Argument(one_of(DTYPES), "float32", "data type of the computation"),
}
OWN = LAYOUT | MODEL | TRAINING
NOT_OF_A_LAYER = (
    "schedule", "chunks", "copies", "slices", "slicing", "cut", "driven", "validated", "stash", "predict_weights",
)  # fmt: skip
OF_A_MODULE = ("skips", "takes", "dims", "sizes", "terms", "enters", "targets")  # only for a module that is not a Model


def of_modes() -> dict[str, Argument]:
    """The options of all modes, as arguments."""
    return {name: Argument(_type(one), one.usual, one.help) for name, one in registry.options().items()}


def arguments() -> dict[str, Argument]:
    """All arguments of a job, by name."""
    return OWN | of_modes()


def measured() -> dict[str, Argument]:
    """All arguments except those that a given schedule determines: the arguments that `run` takes with a schedule."""
    settled = ("schedule", "microbatches", "chunks", "copies")
    return {name: one for name, one in arguments().items() if name not in settled}


def of_a_layer() -> dict[str, Argument]:
    """All arguments except those about a pipeline's order and stages, which do not apply to one layer."""
    return {name: one for name, one in arguments().items() if name not in NOT_OF_A_LAYER}


def _type(option: Option) -> str:
    kind = one_of(option.choices) if option.choices else getattr(option.kind, "__name__", "str")
    if inspect.isfunction(option.kind):
        kind = str(next(iter(inspect.signature(option.kind).parameters.values())).annotation)
    return f"{kind} | None" if option.usual is None else kind
