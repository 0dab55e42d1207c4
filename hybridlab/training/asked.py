"""The arguments of a job: all arguments of `check`, `train`, `run` and `dry_run`, described once.

A signature, a docstring, a flag of the command line and a page of the reference are made from these tables. The options
of all modes belong to them, also of modes from outside the package, since each mode describes its own
(`modes.mode.Option`).

Relatives: `signatures.spelled`, which puts a table into a function; `training.make_job`, which makes the job;
`cli.flags`, which makes flags.
"""

from hybridlab.core.where.mesh import Mesh
from hybridlab.modes import registry
from hybridlab.modes.data_parallel import DTYPES
from hybridlab.modes.mode import Option
from hybridlab.signatures import Argument
from hybridlab.training.job import OPTIMIZERS

FIRST = 4  # arguments that may be given by position


def mesh_of(given: dict) -> Mesh:
    """The mesh that was asked for, or the usual one.

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
    "mesh": Argument("Mesh | None", None, "ranks along named axes, as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks"),
    "schedule": Argument("str | Schedule", "1f1b", "a name from hl.schedules(), or a schedule of your own"),
    "microbatches": Argument("int", 4, "microbatches of one pipeline in one play of the schedule"),
    "batch": Argument("int | None", None, "rows of the global batch (sequences, images); None: `rows` per microbatch"),
    "chunks": Argument("int | None", None, "stages on each rank, where the schedule leaves the choice"),
    "copies": Argument("tuple[int, ...] | None", None, "ranks of each stage, such as (3, 1); for pipedream"),
    "cut": Argument(
        "str | Sequence",
        "layers",
        "the layers of each stage: cut by 'layers', 'parameters' or 'time', or a list of numbers or ranges",
    ),
    "ahead": Argument("int", 0, "receives that are posted before their turn"),
    "active": Argument("int", 2, "stages whose gathered weights a rank holds at a time, with zero=3"),
    "driven": Argument("bool", False, "no written order: each rank computes the microbatch that has arrived"),
}
MODEL = {
    "model": Argument(
        "nn.Module | Model | Shape | Callable | str | None",
        None,
        "your own module (with loss and data), a Model, a Shape, the name of a reference model, or 'FILE.py:name'; "
        "None: the transformer of `shape`",
    ),
    "loss": Argument("Callable | None", None, "loss(output, target), the sum over a microbatch; for your own module"),
    "data": Argument("Any", None, "batches, data(step, rows) -> (inputs, targets); for a transformer a text file"),
    "shape": Argument("Shape | None", None, "sizes of the transformer that is trained without a model"),
    "skips": Argument("dict[int, int] | None", None, "{layer: the earlier layer whose output it takes too}"),
    "takes": Argument("dict | None", None, "{layer: the earlier layers whose outputs it takes}: branches and joins"),
    "dims": Argument("dict[str, str] | None", None, "{parameter: the names of its dims, such as 'F D'}"),
    "sizes": Argument("dict[str, int] | None", None, "{letter: length} of joined dims"),
    "terms": Argument("int | None", None, "summands of the loss in one row (default 1)"),
    "enters": Argument("str | None", None, "names of the dims of inputs (default 'B'); of pictures 'B C Y X'"),
    "targets": Argument("str | None", None, "names of the dims of targets (default 'B')"),
}
TRAINING = {
    "steps": Argument("int", 3, "optimizer steps"),
    "rows": Argument("int", 2, "rows of one microbatch, where no batch is given"),
    "accumulate": Argument("int", 1, "plays of the schedule for one optimizer step"),
    "optimizer": Argument(one_of(OPTIMIZERS), "sgd", "the optimizer"),
    "rate": Argument("float", 0.1, "the learning rate"),
    "decay": Argument("float", 0.0, "weight decay; norms and biases do not decay"),
    "clip": Argument("float | None", None, "the largest norm of the whole gradient"),
    "stash": Argument("bool", True, "False: an asynchronous schedule keeps one version of its weights"),
    "seed": Argument("int", 0, "of the first weights, of dropout and of the batches"),
    "dtype": Argument(one_of(DTYPES), "float32", "of the computation"),
}
OWN = LAYOUT | MODEL | TRAINING
OF_A_MODULE = ("skips", "takes", "dims", "sizes", "terms", "enters", "targets")  # of a module without a Model


def of_modes() -> dict[str, Argument]:
    """The options of all modes, as arguments."""
    return {name: Argument(_type(one), one.usual, one.help) for name, one in registry.options().items()}


def arguments() -> dict[str, Argument]:
    """All arguments of a job, by name."""
    return OWN | of_modes()


def measured() -> dict[str, Argument]:
    """The same without those that a schedule of one's own settles: what `run` is asked for beside it."""
    settled = ("schedule", "microbatches", "chunks", "copies")
    return {name: one for name, one in arguments().items() if name not in settled}


def _type(option: Option) -> str:
    kind = one_of(option.choices) if option.choices else getattr(option.kind, "__name__", "str")
    kind = kind if option.choices or option.kind in (bool, int, float, str) else "str | float"
    return f"{kind} | None" if option.usual is None else kind
