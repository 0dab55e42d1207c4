"""The flags that several commands share, in groups, and their values from the command line.

`add_…` gives a command a group of flags; `read_…` turns their values into objects of the package.
"""

import os
import sys
from dataclasses import replace

from hybridlab.cli import lists
from hybridlab.cli.parser import ADDED, add, reader
from hybridlab.cli.sizes import OF_A_TRANSFORMER, OF_ROUTING
from hybridlab.core.where.mesh import PLAYED, Mesh
from hybridlab.signatures import Argument

ROUTING = {"scores": str, "balance": str, "pace": float, "capacity": float}  # of a transformer with experts
TRANSFORMERS = {None: {}, "gpt": {}, "modern": {"style": "llama"}, "parallel": {"parallel": True}}  # --model: its shape
SCHEDULE = {"schedule": "1f1b", "microbatches": 8, "dp": 1}  # the default if neither a flag nor a file gives a value
OF_A_JOB = (  # see `training.asked`
    *("data", "seed", "dtype", "cut", "ahead", "driven", "clip", "validated", "accumulate", "decay"),
    *("warmup", "anneal", "betas", "weights", "slicing", "predict_weights"),
)
OF_WAITS = ("F", "B", "I", "W", "latency", "jitter")
OR_ONE = "1 if --dp or another axis is above 1"  # stages of a job, if they are not given
LEARNING = ("steps", "optimizer", "rate")

# --- a layout: the mesh, and the schedule on it -----------------------------------------------------------------


def add_layout(one, microbatches=4, stages=f"4; {OR_ONE}"):
    name, whole = {"metavar": "NAME"}, {"type": int, "metavar": "N"}
    told = f"name of the schedule (default {SCHEDULE['schedule']})"
    one.flag("--schedule", default=SCHEDULE["schedule"], help=told, **name)
    told = f"microbatches in one pipeline (default {microbatches})"
    one.flag("--microbatches", default=microbatches, help=told, **whole)
    one.flag("--dp", default=SCHEDULE["dp"], help="data-parallel replicas (default 1)", **whole)
    one.flag("--pp", help=f"pipeline-parallel ranks (default {stages})", **whole)
    one.flag("--chunks", help="stages on each rank, for schedules with this option", **whole)
    told = "token slices of each row, or their lengths, such as 12,9,7; for seq1f1b and terapipe"
    one.flag("--slices", type=lists.slices, metavar="N", help=told)
    one.flag("--copies", type=lists.numbers, metavar="N,N", help="ranks of each stage, such as 3,1; only for pipedream")
    told = "the lost ranks, numbered from 0 to dp·pp-1; the other copies of their stages take over their work"
    one.flag("--lost", type=lists.numbers, metavar="N,N", default=(), help=told)


def add_modes(one):
    """Add a flag for each axis inside a stage, and for each option of a mode."""
    from hybridlab.modes.registry import modes, options
    from hybridlab.training.asked import of_modes

    for mode in modes():
        for axis in (one for one in mode.axes if one not in PLAYED):
            told = f"ranks of {mode.name}" + f" along {axis}" * (len(axis) == 1)
            add(one, axis, Argument("int", 1, told), otherwise=ADDED)
    named = {"device_memory": {"metavar": "SIZE"}}
    for name, argument in of_modes().items():
        kind = {} if options()[name].kind is bool else {"type": reader(options()[name].kind)}
        add(one, name, argument, otherwise=ADDED, **kind, **named.get(name, {}))


def read_modes(chosen) -> dict:
    from hybridlab.modes.registry import missing, options, too

    mesh, said = read_mesh(chosen), {name: getattr(chosen, name) for name in options()}
    for name, value in said.items():
        if value != options()[name].usual and (lacking := missing(name, mesh, said)):
            flag, beside = (one.replace("_", "-").replace(" or ", " or --") for one in (name, lacking))
            raise ValueError(f"--{flag} has no effect without --{beside}: {too(lacking)}, or leave it out")
    return {name: value for name, value in said.items() if value != options()[name].usual}  # others follow from these


def read_mesh(chosen) -> Mesh:
    from hybridlab.modes.registry import modes

    axes = [axis for mode in modes() for axis in mode.axes if axis not in PLAYED]
    inside = {axis: getattr(chosen, axis) for axis in axes}
    inside = {axis: length for axis, length in inside.items() if length != 1}
    pipeline = _pipeline_ranks(chosen, default=1 if chosen.dp > 1 or inside else 4)
    if chosen.lost:  # the copies are no longer alike
        return Mesh(pp=chosen.dp * pipeline, **inside)
    return Mesh(dp=chosen.dp, pp=pipeline, **inside)


def ranks_of_a_pipeline(chosen) -> int:
    """The number of ranks of one pipeline in the mesh that `read_mesh` returns."""
    return read_mesh(chosen)["pp"] // (chosen.dp if chosen.lost else 1)


def _pipeline_ranks(chosen, default=4):
    ranks = getattr(chosen, "ranks", None)
    if ranks is not None and chosen.pp is not None and ranks != chosen.pp:
        raise ValueError(
            f"--ranks {ranks} and --pp {chosen.pp} both set the number of pipeline ranks: give only one of them"
        )
    copies = getattr(chosen, "copies", None)
    return next((n for n in (ranks, chosen.pp, sum(copies) if copies else None) if n is not None), default)


# --- a schedule ------------------------------------------------------------------------------------------------


def add_schedule(one, stages="4"):
    add_layout(one, microbatches=SCHEDULE["microbatches"], stages=stages)
    one.flag("--ranks", type=int, metavar="N", help="the same as --pp (default 4)")


def read_schedule(chosen, ranks=None):
    """The schedule; `ranks` is the number of ranks of one pipeline, if the flags do not determine it."""
    from hybridlab.predict.plans.slicing import number_of
    from hybridlab.scheduling.registry import schedule as make

    if isinstance(chosen.slices, tuple) and not hasattr(chosen, "model"):
        raise ValueError(
            "--slices gives lengths in tokens, but this command runs without a model: give a number of slices, or use "
            "check, train or dry-run"
        )
    said = {"chunks": chosen.chunks, "copies": chosen.copies, "slices": number_of(chosen.slices)}
    more = {name: value for name, value in said.items() if value is not None}
    of = {"ranks": ranks or _pipeline_ranks(chosen), "microbatches": chosen.microbatches, **more}
    if not chosen.lost:
        return make(chosen.schedule, dp=chosen.dp, **of)
    from hybridlab.scheduling.rerouted import rerouted

    return rerouted(make(chosen.schedule, **of), chosen.dp, chosen.lost)


def read_played(chosen) -> dict:
    """The schedule of a job, as arguments: its name and its options, or with lost ranks the schedule itself."""
    if chosen.lost:
        made = read_schedule(chosen, ranks_of_a_pipeline(chosen))
        return {"schedule": made, "slices": chosen.slices}
    return {name: getattr(chosen, name) for name in ("schedule", "microbatches", "chunks", "copies", "slices")}


def add_schedule_or_file(one):
    add_schedule(one)
    one.set_defaults(**dict.fromkeys(SCHEDULE))  # beside --from, only what was typed counts as given
    told = "the same as --schedule, or a file with your own schedule, as text or JSON; - reads stdin"
    one.flag("written", nargs="?", metavar="NAME|FILE", help=told)
    one.flag("--from", dest="file", metavar="FILE", help="the file, as an option")


def read_schedule_or_file(chosen):
    from hybridlab.scheduling.registry import GENERATORS
    from hybridlab.signatures import nearest

    if chosen.schedule is None and chosen.file is None and chosen.written in GENERATORS:
        chosen.schedule, chosen.written = chosen.written, None
    given = [f"--{name}" for name in ("ranks", "pp", *SCHEDULE) if getattr(chosen, name) is not None]
    if chosen.file and chosen.written:
        raise ValueError(f"{chosen.written} and --from {chosen.file} both name a schedule: give only one of them")
    file = chosen.file or chosen.written
    if file is None:
        vars(chosen).update({name: value for name, value in SCHEDULE.items() if f"--{name}" not in given})
        return read_schedule(chosen)
    if given:
        raise ValueError(f"{file} already contains the schedule: leave out {given[0]}")
    if file == chosen.written != "-" and not os.path.exists(file):
        raise ValueError(f"there is no schedule and no file {file!r}: give another name; {nearest(file, GENERATORS)}")
    from hybridlab.core.when.schedule import Schedule
    from hybridlab.scheduling.validate import validate

    return validate(Schedule.load(sys.stdin.buffer if file == "-" else file))


# --- costs, and training ----------------------------------------------------------------------------------------


def add_costs(one, F, B, unit: str, latency: str):
    """The flags for the durations of actions; `unit` is their unit, and `latency` is the help text of --latency."""
    one.flag("--F", type=float, metavar="X", default=F, help=f"duration of one forward, in {unit} (default {F})")
    one.flag("--B", type=float, metavar="X", help=f"duration of one backward, in {unit} (default I + W, or {B})")
    for half, what in (("I", "input"), ("W", "weight")):
        one.flag(
            f"--{half}",
            type=float,
            metavar="X",
            help=f"duration of the {what}-gradient half, in {unit} (default the rest of B)",
        )
    one.set_defaults(backward=B)
    one.flag("--latency", type=float, metavar="X", default=0.0, help=latency)


def read_costs(chosen, **more):
    """The costs of a schedule's actions."""
    from hybridlab.predict.time.costs import Costs

    usual = None if None not in (chosen.I, chosen.W) else chosen.backward
    B = usual if chosen.B is None else chosen.B
    return Costs(F=chosen.F, B=B, I=chosen.I, W=chosen.W, **more)


def add_training(one, **usual):
    """The flags of a job: its model, its data and its training; `usual` values where a command has others."""
    from hybridlab.training import asked
    from hybridlab.training.models.gallery import GALLERY

    add(
        one,
        "batch",
        asked.LAYOUT["batch"],
        help="rows (sequences or images) in the global batch (default 2 per microbatch)",
    )
    named = {"data": {"metavar": "FILE", "help": "text file to train on, instead of the built-in text"}}
    named |= {
        "cut": {
            "type": lists.cut,
            "metavar": "HOW",
            "help": "how to divide the model into stages: layers, parameters, time, blocks per stage such as 3,1, or "
            "Megatron-LM's layout such as 'Ett|tL'",
        }
    }
    named |= {"betas": {"type": lists.betas, "metavar": "X,X"}}
    named |= {"weights": {"metavar": "FOLDER", "help": "initial weights: an earlier run, safetensors, or DCP"}}
    for name in OF_A_JOB:
        how = {"default": usual[name]} if name in usual else {}
        add(one, name, asked.OWN[name], **how, **named.get(name, {}))
    add_modes(one)
    told = f"{', '.join(GALLERY)}, one from the catalog such as gpt3-175b, FILE.py:name, or config.json (default gpt)"
    one.flag("--model", metavar="NAME", help=told)
    one.flag("--dropout", type=float, default=0.0, metavar="X", help="dropout probability (default 0)")
    one.flag("--tied", action="store_true", help="share the weights of the embedding with the output head")
    one.flag("--skips", action="store_true", help="U-shaped model: early blocks feed late ones")
    for size, told in OF_A_TRANSFORMER.items():
        one.flag(f"--{size.replace('_', '-')}", type=int, metavar="N", help=told)
    for name, kind in ROUTING.items():
        told = f"with --experts: {OF_ROUTING[name]}"
        one.flag(f"--{name}", type=kind, metavar="X" if kind is float else "NAME", help=told)


def read_training(chosen) -> dict:
    return {"model": _read_model(chosen)} | {name: getattr(chosen, name) for name in OF_A_JOB} | read_modes(chosen)


def refuse_of_a_model(chosen):
    """Check that no flag was given that applies only to the training of a model.

    raises  ValueError that names the flag
    """
    from hybridlab.modes.registry import modes, options

    axes = [axis for mode in modes() for axis in mode.axes if axis not in PLAYED]
    sizes = ("batch", "model", "dropout", "tied", "skips", *OF_A_TRANSFORMER, *ROUTING)
    its = {*OF_A_JOB, *sizes, *options(), *axes, "hang_s"} - {"ahead", "driven"}
    _refuse(chosen, its, "a model", "emulated work", "model")


def refuse_of_waits(chosen):
    """Check that no flag was given that applies only to emulated work."""
    _refuse(chosen, {*OF_WAITS}, "emulated work", "a model", "emulated")


def _refuse(chosen, names: set[str], owner: str, has_none: str, work: str):
    for action in chosen.parser.flagged:
        if action.dest in names and getattr(chosen, action.dest) != action.default:
            flag = action.option_strings[0]
            raise ValueError(f"{flag} belongs to {owner}, not to {has_none}: leave it out, or give --work {work}")


def _read_model(chosen):
    """A transformer with the given sizes, the others from the catalog; or the name of another model, with its own
    sizes."""
    from hybridlab.core.what.catalog import MODELS
    from hybridlab.core.what.shape import Routing, Shape

    typed = {size: getattr(chosen, size) for size in (*OF_A_TRANSFORMER, "data") if getattr(chosen, size) is not None}
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
        flag = next(name for name in (*typed, *routing) if name != "routing").replace("_", "-")
        raise ValueError(f"--{flag} applies only to a transformer, not to --model {chosen.model}: leave it out")
    return chosen.model


def add_learning(one, **usual):
    from hybridlab.training.asked import TRAINING

    typed = TRAINING | {"rate": TRAINING["rate"]._replace(meaning="the learning rate")}  # no function can be typed
    for name in LEARNING:
        add(one, name, typed[name], default=usual.get(name, TRAINING[name].usual))


def read_learning(chosen) -> dict:
    said = {"mesh": read_mesh(chosen), "batch": chosen.batch, **read_played(chosen)}
    return said | {name: getattr(chosen, name) for name in LEARNING} | read_training(chosen)


def add_patience(one):
    told = "seconds that one layer, or one wait for another rank, may take (default 60); it is for large layers"
    one.flag("--hang-s", type=float, metavar="X", help=told)


# --- checkpoints ------------------------------------------------------------------------------------------------


def add_saving(one):
    one.flag(
        "--checkpoint",
        metavar="FOLDER",
        help="save a checkpoint here at the end, and after an interrupt or a closed terminal",
    )
    kept = "also save every N steps; only the two newest checkpoints are kept (default 0: at the end only)"
    one.flag("--every", type=int, metavar="N", default=0, help=kept)
    one.flag("--resume", action="store_true", help="continue from the newest checkpoint, under any layout")
    one.flag("--async-save", action="store_true", help="continue training while files are written")
    one.flag("--log", metavar="FOLDER", help="write TensorBoard event files here")


def read_saving(chosen) -> dict:
    if chosen.checkpoint is None and (chosen.every or chosen.resume or chosen.async_save):
        raise ValueError("--every, --resume and --async-save need a checkpoint folder: give --checkpoint FOLDER")
    return {name: getattr(chosen, name) for name in ("checkpoint", "every", "resume", "async_save", "log")}
