"""The flags that several commands share, in groups; and what is meant by what was typed.

`add_…` gives a command a group of flags; `read_…` makes of their values what the package works with.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from hybridlab.core.files import writable
from hybridlab.core.where.mesh import PLAYED, Mesh

MODEL_SIZES = (
    *("layers", "width", "heads", "kv_heads", "per_head", "context", "vocabulary", "inner"),
    *("experts", "chosen", "shared", "latent", "query_latent", "rotary"),
)
ROUTING = {"scores": str, "balance": str, "pace": float, "capacity": float}  # of a transformer with experts
TRANSFORMERS = {None: {}, "gpt": {}, "modern": {"style": "llama"}, "parallel": {"parallel": True}}  # --model: its shape
SCHEDULE = {"schedule": "1f1b", "microbatches": 8, "dp": 1}  # what is meant where neither a flag nor a file says it


class Parser(argparse.ArgumentParser):
    """A parser that says in one sentence what is wrong, without the list of all flags."""

    def error(self, message):
        sys.stderr.write(f"{self.prog}: {message}; see {self.prog} --help\n")
        sys.exit(2)


# --- a layout: the mesh, and the schedule on it -----------------------------------------------------------------


def add_layout(one, microbatches=4):
    one.add_argument("--schedule", default=SCHEDULE["schedule"], help=f"its name (default {SCHEDULE['schedule']})")
    one.add_argument("--dp", type=int, default=SCHEDULE["dp"], help="data-parallel copies (default 1)")
    one.add_argument("--pp", type=int, help="pipeline ranks (default 4; 1 beside --dp or another axis)")
    one.add_argument("--microbatches", type=int, default=microbatches, help="microbatches of one pipeline")
    one.add_argument("--chunks", type=int, help="stages on each rank, where the schedule leaves the choice")
    one.add_argument("--copies", type=_copies, help="ranks of each stage, as 3,1: of pipedream")


def _copies(text):
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} are no copies: give a whole number for each stage, as 3,1"
        ) from None


def add_modes(one):
    """A flag for each axis inside a stage, and for each option of a mode."""
    from hybridlab.modes.registry import modes

    for mode in modes():
        for axis in (one for one in mode.axes if one not in PLAYED):
            one.add_argument(f"--{axis}", type=int, default=1, help=f"ranks of {mode.name} (default 1)")
        for name, option in mode.options.items():
            how = {"action": "store_true"} if option.kind is bool else {"type": option.kind}
            one.add_argument(f"--{name.replace('_', '-')}", default=option.usual, help=option.help, **how)


def read_modes(chosen) -> dict:
    from hybridlab.modes.registry import options

    for name, option in options().items():
        if option.beside and getattr(chosen, name) != option.usual and not _given(chosen, option.beside):
            flag, beside = (one.replace("_", "-") for one in (name, option.beside))
            raise ValueError(f"--{flag} means nothing without --{beside}: give both, or leave it out")
    return {name: getattr(chosen, name) for name in options()}


def _given(chosen, name: str) -> bool:
    """Whether an option was chosen, or an axis has more than one rank."""
    from hybridlab.modes.registry import options

    usual = options()[name].usual if name in options() else 1
    return getattr(chosen, name) != usual


def read_mesh(chosen) -> Mesh:
    from hybridlab.modes.registry import modes

    axes = [axis for mode in modes() for axis in mode.axes if axis not in PLAYED]
    inside = {axis: getattr(chosen, axis) for axis in axes}
    inside = {axis: length for axis, length in inside.items() if length != 1}
    return Mesh(dp=chosen.dp, pp=_pipeline_ranks(chosen, default=1 if chosen.dp > 1 or inside else 4), **inside)


def _pipeline_ranks(chosen, default=4):
    ranks = getattr(chosen, "ranks", None)
    if ranks is not None and chosen.pp is not None and ranks != chosen.pp:
        raise ValueError(f"--ranks {ranks} and --pp {chosen.pp} both name the pipeline's ranks: give one of them")
    copies = getattr(chosen, "copies", None)
    return next((n for n in (ranks, chosen.pp, sum(copies) if copies else None) if n is not None), default)


# --- a schedule ------------------------------------------------------------------------------------------------


def add_schedule(one):
    add_layout(one, microbatches=SCHEDULE["microbatches"])
    one.add_argument("--ranks", type=int, help="pipeline ranks (default 4)")


def read_schedule(chosen):
    from hybridlab.scheduling.registry import schedule as make

    said = ((name, getattr(chosen, name)) for name in ("chunks", "copies"))
    more = {name: value for name, value in said if value is not None}
    return make(chosen.schedule, ranks=_pipeline_ranks(chosen), microbatches=chosen.microbatches, dp=chosen.dp, **more)


def add_schedule_or_file(one):
    add_schedule(one)
    one.set_defaults(**dict.fromkeys(SCHEDULE))  # beside --from, only what was typed counts as given
    one.add_argument("written", nargs="?", metavar="FILE", help="a schedule of your own, text or JSON; - reads stdin")
    one.add_argument("--from", dest="file", metavar="FILE", help="the same, as an option")


def read_schedule_or_file(chosen):
    given = [f"--{name}" for name in ("ranks", "pp", *SCHEDULE) if getattr(chosen, name) is not None]
    if chosen.file and chosen.written:
        raise ValueError(f"{chosen.written} and --from {chosen.file} are two schedules: give one of them")
    file = chosen.file or chosen.written
    if file is None:
        vars(chosen).update({name: value for name, value in SCHEDULE.items() if f"--{name}" not in given})
        return read_schedule(chosen)
    if given:
        raise ValueError(f"{file} gives the whole schedule: leave {given[0]} out")
    from hybridlab.core.when.schedule import Schedule
    from hybridlab.scheduling.validate import validate

    return validate(Schedule.load(sys.stdin.buffer if file == "-" else file))


# --- costs, and training ----------------------------------------------------------------------------------------


def add_costs(one, F, B):
    one.add_argument("--F", type=float, default=F, help=f"duration of one forward (default {F})")
    one.add_argument("--B", type=float, help=f"duration of one backward (default I + W, or {B})")
    for half, what in (("I", "input"), ("W", "weight")):
        one.add_argument(f"--{half}", type=float, help=f"of its {what} half, where it is split (default the rest of B)")
    one.set_defaults(backward=B)
    one.add_argument("--latency", type=float, default=0.0, help="of one message; for real ones, at least")


def read_costs(chosen, **more):
    """The costs of a schedule's actions; what is not given of B, I and W follows from the others, halves equal."""
    from hybridlab.predict.time.costs import Costs

    B, I, W = chosen.B, chosen.I, chosen.W
    if B is None:
        B = I + W if None not in (I, W) else chosen.backward
    I = I if I is not None else B / 2 if W is None else B - W
    W = W if W is not None else B - I
    if min(I, W) < 0:
        raise ValueError(f"a backward of {B:g} has no half of {max(I, W):g}: give a longer --B, or both --I and --W")
    return Costs(F=chosen.F, B=B, I=I, W=W, **more)


def add_training(one, dtype="float32"):
    from hybridlab.training.models.gallery import GALLERY

    one.add_argument("--batch", type=int, help="rows of the global batch: sequences, images (default 2 per microbatch)")
    one.add_argument("--dtype", default=dtype, help=f"float32, float64 or bfloat16 (default {dtype})")
    one.add_argument("--data", metavar="FILE", help="text to learn from; default: Python's standard library")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--cut", type=_cut, default="layers", help="layers, parameters, time, or blocks per stage: 3,1")
    one.add_argument("--ahead", type=int, default=0, help="receives posted before their turn (default 0)")
    one.add_argument("--driven", action="store_true", help="no written order: ranks do what has arrived")
    one.add_argument("--clip", type=float, help="the largest norm of the whole gradient")
    one.add_argument("--accumulate", type=int, default=1, help="plays of the schedule for one optimizer step")
    add_modes(one)
    one.add_argument("--decay", type=float, default=0.0, help="weight decay, not of norms and biases (default 0)")
    one.add_argument(
        "--model",
        metavar="NAME",
        help=f"{', '.join(GALLERY)}, one of the catalog such as gpt3-175b, or FILE.py:name (default gpt)",
    )
    one.add_argument("--dropout", type=float, default=0.0, help="of the model (default 0)")
    one.add_argument("--tied", action="store_true", help="the head shares the weights of the embedding")
    one.add_argument("--skips", action="store_true", help="a U-shaped model: early blocks feed late ones")
    for size in MODEL_SIZES:
        one.add_argument(f"--{size.replace('_', '-')}", type=int, help=f"of a transformer: {size}")
    for name, kind in ROUTING.items():
        one.add_argument(f"--{name}", type=kind, help=f"of a transformer with experts: {name} of its routing")


def _cut(text: str):
    return [int(part) for part in text.split(",")] if text[:1].isdigit() else text


def read_training(chosen) -> dict:
    names = ("data", "seed", "dtype", "cut", "ahead", "driven", "clip", "accumulate", "decay")
    return {"model": _read_model(chosen)} | {name: getattr(chosen, name) for name in names} | read_modes(chosen)


def _read_model(chosen):
    """A transformer of the sizes that were typed, beside those of the catalog; or the name of another model, which has
    sizes of its own."""
    from hybridlab.core.what.catalog import MODELS
    from hybridlab.core.what.shape import Routing, Shape

    typed = {size: getattr(chosen, size) for size in (*MODEL_SIZES, "data") if getattr(chosen, size) is not None}
    typed |= {name: getattr(chosen, name) for name in ("dropout", "tied", "skips") if getattr(chosen, name)}
    if routing := {name: getattr(chosen, name) for name in ROUTING if getattr(chosen, name) is not None}:
        typed["routing"] = Routing(**routing)
    if chosen.model in TRANSFORMERS:
        typed.pop("data", None)
        return Shape(**typed, **TRANSFORMERS[chosen.model])
    if chosen.model in MODELS:
        typed.pop("data", None)
        return replace(MODELS[chosen.model].shape, **typed)
    if typed:
        flag = next(iter(typed)).replace("_", "-")
        raise ValueError(
            f"--{flag} is of a transformer, and --model {chosen.model} has sizes and data of its own: leave it out"
        )
    return chosen.model


def add_learning(one, steps, optimizer, rate):
    one.add_argument("--steps", type=int, default=steps, help=f"optimizer steps (default {steps})")
    one.add_argument("--optimizer", default=optimizer, help=f"adamw or sgd (default {optimizer})")
    one.add_argument("--rate", type=float, default=rate, help=f"learning rate (default {rate})")


def read_learning(chosen) -> dict:
    names = ("steps", "optimizer", "rate", "chunks", "copies")
    return {name: getattr(chosen, name) for name in names} | read_training(chosen)


# --- checkpoints ------------------------------------------------------------------------------------------------


def add_saving(one):
    one.add_argument("--checkpoint", metavar="FOLDER", help="save there at the end, and when interrupted")
    one.add_argument("--every", type=int, default=0, help="save after every so many steps too")
    one.add_argument("--resume", action="store_true", help="go on from the newest checkpoint, under any layout")


def read_saving(chosen) -> dict:
    if chosen.checkpoint is None and (chosen.every or chosen.resume):
        raise ValueError("--every and --resume need a folder of checkpoints: give --checkpoint FOLDER")
    return {name: getattr(chosen, name) for name in ("checkpoint", "every", "resume")}


# --- files to write ---------------------------------------------------------------------------------------------


def _svg(timeline, path):
    from hybridlab.show.timelines.svg import svg

    Path(path).write_text(svg(timeline), encoding="utf-8")


def _html(timeline, path):
    from hybridlab.show.live.report import report

    report(path, timeline.schedule.name, [("Timeline", timeline.summary, [timeline])])


EXPORTS = {  # what a file holds, and how a timeline is written to it
    "csv": ("write the schedule as text", lambda t, path: t.schedule.to_csv(path)),
    "pytorch": ("write the schedule as PyTorch loads it", lambda t, path: t.schedule.to_pytorch(path)),
    "save": ("save the timeline as JSON", lambda t, path: t.save(path)),
    "chrome": ("write a Chrome trace, for Perfetto", lambda t, path: t.to_chrome(path)),
    "svg": ("write a still picture", _svg),
    "html": ("write a page that holds the live picture", _html),
}


def add_exports(one, *names):
    for name in names:
        one.add_argument(f"--{name}", metavar="FILE", help=EXPORTS[name][0])


def open_exports(chosen):
    """Raise ValueError where what comes out cannot be written, before the work whose result it is."""
    for name in EXPORTS:
        if path := getattr(chosen, name, None):
            writable(path)


def write_exports(chosen, timeline):
    for name, (_, write) in EXPORTS.items():
        if path := getattr(chosen, name, None):
            try:
                write(timeline, path)
            except OSError as error:
                raise ValueError(f"cannot write {path}: {error.strerror}") from None
