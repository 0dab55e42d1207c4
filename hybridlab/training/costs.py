"""The predicted times of a job's actions on a machine from the catalog, by formula."""

from collections.abc import Iterator

from hybridlab.core.added import added
from hybridlab.core.what.catalog import Machine
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.bytes.context import ATTEND
from hybridlab.predict.bytes.experts import DISPATCH
from hybridlab.predict.plans.kinds import Rank
from hybridlab.predict.plans.performance import pieces
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.slicing import shares
from hybridlab.predict.time.costs import Costs
from hybridlab.training.job import Job
from hybridlab.training.models.slices import Sliced
from hybridlab.training.models.vocabulary_pieces import Pieced
from hybridlab.training.stages import parameters_of_layers

DIGITS = 9


def costs_of(job: Job, machine: Machine) -> Costs:
    """Costs in seconds for a transformer, from the performance model. For another model, or one with parallel blocks,
    costs in units of an average stage's forward, from its weights alone."""
    shape = getattr(job.model, "shape", None)
    return by_weights(job) if shape is None or shape.parallel else _by_machine(job, shape, machine)


def _by_machine(job: Job, shape, machine: Machine) -> Costs:
    mesh, stages, slices = job.mesh, len(job.bounds), job.schedule.slices
    sizes = (mesh["pp"], mesh["tp"], mesh["dp"], job.rows / mesh["ep"], max(1, stages // slices // mesh["pp"]))
    more = {name: bool(job[name]) for name in ("sequence", "overlap", "scatter", "zigzag")}
    more |= {"directions": job["directions"], "x": mesh["x"], "cp": mesh["cp"], "ep": mesh["ep"]}
    more |= {
        "attend": ATTEND.index(job["attend"]),
        "ulysses": job["ulysses"],
        "dispatch": DISPATCH.index(job["dispatch"]),
    }
    more |= {"fold": job["fold"], "recompute": RECOMPUTE.index(job["recompute"]), "zero": job["zero"]}
    more |= {"two_levels": job["two_levels"] and job["zero"] == 3, "secondary": job["secondary"]}
    plan = Plan(*sizes, n=slices, z=(job["owners"] or 0) * (job["zero"] == 3), **more)
    batch = job.rows * job.microbatches
    found = pieces(shape, plan, batch, machine)
    forward, backward, head, hop = found[:4]
    third = float(head) / 3  # of the head: one of its three matmuls belongs to the forward
    parts = list(_parts(job, shape))
    F, B = (
        [
            blocks.sum(float(sum(usual)), float(sum(plain))) * share + thirds * heads * third
            for blocks, share, heads in parts
        ]
        for usual, plain, thirds in zip((forward, backward), found.plain, (1, 2))
    )
    return _costs(F, B, post=round(float(hop) / 2, DIGITS), swap=_swaps(job, machine), unit="s")


def _swaps(job: Job, machine: Machine) -> float | tuple[float, ...]:
    """The seconds to move what a forward of each stage saves: to the host, or to the rank that lends its memory."""
    if not job.room:
        return 0
    lent = any(action.lent for program in job.schedule.program for action in program)
    speed = (machine.across if job.mesh.size > machine.node else machine.inside) if lent else machine.host
    if not speed:
        raise ValueError(
            f"the host link of {machine.name} is not known: choose another machine, or leave out copies to the host"
        )
    return tuple(round(size / speed, DIGITS) for size in job.room.keeps)


def _parts(job: Job, shape) -> Iterator[tuple[Rank, float, float]]:
    """(blocks, share, heads) of each stage; a block on a slice counts as the slice's fraction of its FLOPs."""
    sliced = isinstance(job.model, Sliced)
    every, lengths = (job.model.cut, job.model.lengths) if sliced else (job.bounds, (shape.context,))
    for layers in every:
        plain, heads = added(layer - 1 in shape.plain for layer in layers), _heads(job, shape, layers)
        blocks = Rank(added(0 < layer <= shape.layers for layer in layers), plain, 0)
        for share, length in zip(shares(shape, lengths), lengths):
            yield blocks, share, heads * length / shape.context


def _heads(job: Job, shape, layers: range) -> float:
    """The fraction of the head in these layers."""
    if not isinstance(job.model, Pieced):
        return float(shape.layers < max(layers))
    pieces = [one - job.model.body for one in layers]
    return sum(len(job.model.spans[one]) for one in pieces if 0 <= one < job.model.number) / shape.vocabulary


def by_weights(job: Job) -> Costs:
    """Costs in units of an average stage's forward, from the weights of the stages alone."""
    weights = parameters_of_layers(job.model, module=job.whole)
    of_stage = [sum(weights[layer] for layer in layers) for layers in job.bounds]
    F = [one * len(of_stage) / max(1, sum(weights)) for one in of_stage]
    return _costs(F, [2 * one for one in F])


def _costs(F, B, **more) -> Costs:
    """Costs with a backward split in two equal halves."""
    half = tuple(round(one / 2, DIGITS) for one in B)
    return Costs(tuple(round(one, DIGITS) for one in F), half, half, **more)
