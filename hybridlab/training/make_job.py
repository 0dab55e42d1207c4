"""From arguments to a job: defaults are filled in, and invalid arguments raise an error in one sentence."""

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import fields, replace

import torch

from hybridlab.core.afford import refuse_actions
from hybridlab.core.files import looked_at
from hybridlab.core.what import seams
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes import registry
from hybridlab.modes.data_parallel import DTYPES
from hybridlab.predict.plans import slicing
from hybridlab.runtime.message_driven import one_chain
from hybridlab.scheduling.dispatched import PARTS
from hybridlab.scheduling.lower import lower, posted_ahead
from hybridlab.scheduling.norms import posted_before_valid, with_norm
from hybridlab.scheduling.registry import schedule as named
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.sharded import without_gathers
from hybridlab.scheduling.sums import with_sums, without_sums
from hybridlab.scheduling.validate import validate
from hybridlab.signatures import spelled
from hybridlab.training import asked, placing, stages
from hybridlab.training.first_weights import refuse_other_weights
from hybridlab.training.job import Job
from hybridlab.training.models.gallery import model_of
from hybridlab.training.models.model import Model
from hybridlab.training.models.slices import Sliced, refuse_no_slices
from hybridlab.training.models.vocabulary_pieces import Pieced, refuse_no_pieces
from hybridlab.training.optimizers import OPTIMIZERS
from hybridlab.training.out_of_core import moving, within
from hybridlab.training.rates import ANNEALED, LARGEST, refuse_rate
from hybridlab.training.shards import refuse_other_shards
from hybridlab.training.split_backward import refuse_other_halves
from hybridlab.training.unused import refuse_other_numbers, refuse_other_rows, refuse_unused
from hybridlab.training.validated import refuse_other_norms

PREPARED = 30.0  # maximum seconds to prepare the actions of a job: with messages it takes twice as long
FIELDS = {one.name for one in fields(Job)} & asked.OWN.keys() - {"mesh", "schedule", "model", "rows"}  # as given


@spelled(asked.arguments, positional=asked.FIRST)
def job_of(**given) -> Job:
    """The job for these arguments. None means the default.

    {arguments}

    raises  ValueError if numbers do not fit together, or the schedule would hang
    """
    given = {name: value for name, value in given.items() if value is not None}
    of = {name: one.usual for name, one in asked.OWN.items()} | given
    _refuse_numbers(of)
    mesh = asked.mesh_of(given)
    model = _model(of, given)
    chosen = _chosen(mesh, of, given)
    modes = registry.taking_part(mesh, chosen | {"optimizer": of["optimizer"]})
    whole = model.made(of["seed"], getattr(torch, of["dtype"]), {})
    seams.refuse(whole)
    layers = len(model.layers(whole)) - sum(model.ends)
    played = _played(mesh, of, given, modes, chosen, layers)
    _refuse_other_slices(played, of)
    if played.pieces:
        refuse_no_pieces(model, played.name)
        model = Pieced(model, played.pieces)
        whole = model.made(of["seed"], getattr(torch, of["dtype"]), {})
    bounds = _bounds(model, whole, played, of["cut"], layers)
    if lengths := _lengths(model, played, of):
        model = Sliced(model, lengths, bounds)
        whole, bounds = model.made(of["seed"], getattr(torch, of["dtype"]), {}), model.bounds
    same = {name: of[name] for name in FIELDS} | {"weights": _found_from_anywhere(of["weights"])}
    job = Job(mesh, played, bounds, model, modes, chosen, _rows(mesh, played, of, model, "rows" in given), **same)
    vars(job)["whole"] = whole  # keep the inspected module
    if job.weights is not None:
        refuse_other_weights(job.weights, whole)
    _refuse_misfits(job)
    refuse_unused(job, of)
    for mode in modes:
        mode.refuse(job)
    refuse_other_halves(job)
    job = job.with_(schedule=posted_before_valid(posted_ahead(_fitted(job, of), of["ahead"])))
    refuse_other_norms(job, of["validated"])
    job.layout.validate()
    refuse_other_shards(job)
    moved = moving(job)
    return moved if moved["device_memory"] is None else within(moved)


def _model(of: dict, given: dict) -> Model:
    """The given model, ready for training."""
    about = {name: given[name] for name in asked.OF_A_MODULE if name in given}
    if of["model"] is not None and of["shape"] is not None:
        raise ValueError("model and shape each describe a model: leave one out")
    said = next((one for one in (of["model"], of["shape"]) if one is not None), Shape())
    if isinstance(said, str) and (file := said.rpartition(":")[0]):
        looked_at(file)  # a file that cannot be read raises a separate error
    model = model_of(said, of["loss"], of["data"], **about)
    if model.terms < 1:
        raise ValueError(
            f"terms={model.terms} is not a valid number of loss terms: give the number in one row, 1 or more"
        )
    if isinstance(of["schedule"], Schedule) and of["schedule"].exchanges:
        model = model.in_parts()
    model.refuse()
    return model


def _found_from_anywhere(weights):
    """Initial weights with an absolute path, so that ranks find them from any folder."""
    return os.path.abspath(weights) if isinstance(weights, str | os.PathLike) else weights


def _chosen(mesh: Mesh, of: dict, given: dict) -> dict:
    """The options of all modes."""
    for name, choices in (("optimizer", OPTIMIZERS), ("dtype", DTYPES), ("anneal", ANNEALED)):
        if of[name] not in choices:
            raise ValueError(f"there is no {name} {of[name]!r}: choose one of {', '.join(choices)}")
    said = {name: value for name, value in given.items() if name in registry.options()}
    return registry.chosen_of(mesh, said, of["dtype"])


def _played(mesh: Mesh, of: dict, given: dict, modes, chosen: dict, layers: int) -> Schedule:
    """The schedule with its copies, for all ranks of a pipeline of the mesh, numbered as the mesh numbers them."""
    schedule, chunks = of["schedule"], of["chunks"]
    if isinstance(schedule, str):
        for mode in modes:
            schedule, chunks = mode.meant(schedule, chunks, mesh, chosen, layers)
    if isinstance(schedule, str):
        least = {"ranks": mesh["pp"], "microbatches": of["microbatches"], "chunks": chunks or 1}
        refuse_actions(2 * math.prod(least.values()), PREPARED, **least)  # before seconds are spent on a list
        said = {"chunks": chunks, "copies": of["copies"], "slices": slicing.number_of(of["slices"])}
        said = {name: value for name, value in said.items() if value is not None}
        one = named(schedule, ranks=mesh["pp"], microbatches=of["microbatches"], **said)
        schedule = replicate(one, mesh.played) if mesh["dp"] > 1 else one
    refuse_other_mesh(mesh, schedule)
    _refuse_other_order(mesh, schedule)
    refuse_other_numbers(schedule, given)
    most = {"microbatches": len(schedule.replica_of) // schedule.replicas, "stages": schedule.stages}
    refuse_actions(len(schedule.rows), PREPARED, **most)
    return schedule


def _bounds(model: Model, whole, schedule: Schedule, cut, layers: int) -> tuple[range, ...]:
    """The layers of each stage. For a schedule with branches, the model is cut where its own branches begin."""
    if schedule.exchanges and schedule.stages != layers:
        blocks = schedule.stages // PARTS
        raise ValueError(f"{schedule.name} needs a block on every stage: give a model of {blocks} blocks")
    if schedule.pieces:
        body = stages.cut(model, schedule.stages - schedule.pieces - 1, cut, whole, model.body)
        return (*body, *(range(one, one + 1) for one in range(model.body, model.body + model.number + 1)))
    if schedule.breaks and cut == "layers" and schedule.slices == 1:
        return stages.cut_at_branches(model, whole, schedule)
    return stages.cut(model, schedule.stages // schedule.slices, cut, whole)


def _refuse_other_slices(schedule: Schedule, of: dict):
    """Raise ValueError if slices, or a way to slice, were given for a schedule that has another number, or none."""
    said = of["slices"]
    if said is not None and slicing.number_of(said) != schedule.slices:
        raise ValueError(
            f"slices={said!r} is invalid: {schedule.name} was made with slices={schedule.slices}. Leave slices out, or "
            "make the schedule with this number"
        )
    if of["slicing"] is not None and schedule.slices == 1:
        raise ValueError(
            f"slicing={of['slicing']!r} is invalid: {schedule.name} runs whole rows. Leave slicing out, or give "
            "schedule='seq1f1b' with slices"
        )


def _lengths(model: Model, schedule: Schedule, of: dict) -> tuple[int, ...]:
    """The lengths of the slices of a row; none for whole rows."""
    said, context = of["slices"], model.terms
    if schedule.slices == 1 and not isinstance(said, Sequence):
        return ()
    refuse_no_slices(model, schedule.slices)
    if not isinstance(said, Sequence):
        return slicing.lengths(model.shape, schedule.slices, of["slicing"] or "equal")
    if of["slicing"] is not None:
        raise ValueError(f"slicing={of['slicing']!r} is invalid: slices has the lengths already. Leave slicing out")
    if any(type(one) is not int or one < 1 for one in said) or sum(said) != context:
        raise ValueError(
            f"slices={tuple(said)} is invalid: a row of {context} tokens has {schedule.slices} slices. Give "
            f"{schedule.slices} lengths, 1 or more, that add up to {context}"
        )
    return tuple(said)


def _rows(mesh: Mesh, schedule: Schedule, of: dict, model: Model, said: bool) -> int:
    """The rows of one microbatch, `said` by the user or not; batches that exist already have a given number of rows."""
    microbatches, own = len(schedule.replica_of) * of["accumulate"], getattr(model.data, "rows", None)
    batch = own if of["batch"] is None and not said else of["batch"]
    total = of["rows"] * microbatches if batch is None else batch
    if own is not None and own != total:
        raise ValueError(f"data has batches of {own} rows, but a step needs {total}: give batch={own}")
    if batch is None:
        return of["rows"]
    if batch < 1 or batch % microbatches:
        m, d = microbatches // mesh["dp"], mesh["dp"]
        raise ValueError(
            f"batch {batch} is not divisible by dp × microbatches = {d} × {m}: choose a multiple of {d * m}"
        )
    refuse_other_rows(batch, of["rows"] if said else None, microbatches)
    return batch // microbatches


def _fitted(job: Job, of: dict) -> Schedule:
    """The schedule with the model's stage graph and ties, and with its reductions, gathers and messages written out; it
    is checked to reach its end."""
    schedule, skips, breaks = job.schedule, job.links.skips, job.links.breaks
    if job["zero"] < 3:
        schedule = without_gathers(schedule)  # PyTorch's runtime skips them without FSDP
    tied = _tied(job.homes.values())
    for a, b in sorted(set(schedule.breaks) - set(breaks)):
        raise ValueError(
            f"{schedule.name} has stages {a} and {b} in different branches, but with this cut, stage {b} of the model "
            f"takes the output of stage {a}: cut the model between its branches, or choose another schedule"
        )
    if schedule.lowered and (schedule.skips, schedule.breaks, schedule.tied) != (skips, breaks, tied):
        raise ValueError(
            f"{schedule.name} already has its messages, with skips {list(schedule.skips)}, breaks "
            f"{list(schedule.breaks)} and ties {list(schedule.tied)}, but this model has {list(skips)}, "
            f"{list(breaks)} and {list(tied)}: give the schedule without messages"
        )
    if schedule.lowered:
        return validate(schedule)
    if alone := job.keeper.alone(job) > 1:
        schedule = without_sums(schedule)
    schedule = replace(schedule, skips=skips, breaks=breaks, tied=tied)
    summed = with_sums(schedule, placing.sums_inside(job), alone)
    for mode in job.modes:
        summed = mode.scheduled(summed, job.chosen, of["active"])
    if of["validated"]:
        summed = with_norm(summed, of["validated"])
    return validate(lower(summed))


def _tied(homes: Collection[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The groups of stages that share weights, directly or through other stages."""
    groups: list[set[int]] = []
    for home in (set(home) for home in homes if len(home) > 1):
        met = [group for group in groups if group & home]
        groups = [group for group in groups if not group & home] + [home.union(*met)]
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def refuse_other_mesh(mesh: Mesh, schedule: Schedule):
    """Raise ValueError if a mesh has different numbers of ranks and copies from those of a schedule."""
    if (schedule.dp, schedule.ranks) != (mesh["dp"], mesh.played.size):
        has, pp = f"{schedule.ranks} ranks in {schedule.dp} copies", schedule.ranks // schedule.dp
        raise ValueError(
            f"{schedule.name} has {has}, but {mesh} has {mesh.played.size} in {mesh['dp']}: give dp={schedule.dp}, "
            f"pp={pp}"
        )


def _refuse_other_order(mesh: Mesh, schedule: Schedule):
    """Raise ValueError if the schedule's copies are not numbered as the mesh numbers its ranks."""
    line, each = mesh.line(0), schedule.replicas // schedule.dp
    for (_, replica), rank in schedule.place.items():
        if mesh.coordinates(line[rank]).get("dp", 0) != replica // each:
            raise ValueError(
                f"{schedule.name} numbers its replicas differently from {mesh}: give the schedule by its name, or "
                "replicate it with hl.orders.replicate and this mesh"
            )


def _refuse_numbers(of: dict):
    for name in ("steps", "accumulate", "rows"):
        if of[name] < 1:
            raise ValueError(f"{name}={of[name]} is not positive: give 1 or more")
    refuse_rate(of["steps"], of["rate"])
    for name in ("decay", "seed"):
        if not 0 <= of[name] < LARGEST:
            raise ValueError(
                f"{name}={of[name]} is not possible: give a number, at least 0 and less than {LARGEST:.2g}"
            )
    if of["warmup"] < 0:
        raise ValueError(f"warmup={of['warmup']} is not a number of steps: give 0 or more")
    if len(of["betas"]) != 2 or not all(0 <= beta < 1 for beta in of["betas"]):
        raise ValueError(
            f"betas={of['betas']} is not a valid pair: give two numbers, at least 0 and less than 1, such as "
            "(0.9, 0.999)"
        )
    if of["optimizer"] == "sgd" and of["betas"] != asked.TRAINING["betas"].usual:
        raise ValueError("betas belong to adamw and muon, but the optimizer is sgd: leave them out")
    if of["optimizer"] != "muon" and of.get("muon") not in (None, registry.options()["muon"].usual):
        raise ValueError(f"muon={of['muon']!r} has no effect with {of['optimizer']}: give optimizer='muon' too")
    if of["clip"] is not None and not of["clip"] > 0:
        raise ValueError(f"clip={of['clip']} is not a valid norm: give a number above 0")


def _refuse_misfits(job: Job):
    if job.predict_weights and (job.flushes or not job.stash):
        what = "stash=False" if job.stash is False else job.schedule.name
        raise ValueError(
            f"predict_weights=True needs several versions of the weights, which {what} does not keep: give an "
            "asynchronous schedule, such as 'pipedream', with stash=True"
        )
    shares = job.schedule.dp > 1 or job.mesh.inside or any(len(home) > 1 for home in job.homes.values())
    if not job.flushes and (shares or job.accumulate > 1 or job.clip is not None or job["offload"]):
        raise ValueError(
            f"{job.schedule.name} updates every stage independently: leave out dp, tp, tied weights, accumulate, clip "
            "and offload"
        )
    whole = [name for name, weight in job.whole.named_parameters() if not weight.is_floating_point()]
    if whole and (job["zero"] or job["offload"]):
        raise ValueError(
            f"{whole[0]} holds integers, but ranks shard only floating-point parameters: make it a buffer, "
            "register_buffer(name, tensor), or leave out zero and offload"
        )
    if job.driven:
        one_chain(job.schedule)
        if job.mesh.inside or job["zero"] == 3:
            raise ValueError("driven=True cannot run ranks that share a stage: give driven=False")
