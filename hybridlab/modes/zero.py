"""ZeRO: replicas compute with the same weights; between steps each keeps only a shard of the optimizer's state, the
gradients and the weights.

Three stages, each of which shards one more kind of state (`Param.rest`):

  1  optimizer   a reduce-scatter leaves a shard on each rank, which updates its shard; the shards are gathered
  2  gradients   the same, and the other ranks' shards are freed as soon as their reduction has started
  3  weights     gathered before use (UNSHARD), freed after it (RESHARD), and gathered again for the backward

A pack is one buffer, cut into equal pieces regardless of parameter boundaries; the last piece is padded. `owners` is
the number of neighbours that shard a pack: all ranks with the same weights and other data (fully sharded), one
(replicated), or some, with an all-reduce over the other groups (hybrid). Ranks along cp and ep see other data too, like
copies along dp; an expert, which ep shards, has fewer owners than other weights.

Two more forms exploit the faster links inside a node (`modes.parts.two_levels`): with `two_levels`, the optimizer's
state is sharded over all replicas, and only weights are replicated between the groups of owners; with `secondary`,
weights are sharded over all owners, and neighbours keep a second copy of them for the later gathers of a step.

The gathers of stage 3 are actions of the program, so the schedule determines when weights are gathered ahead, and the
picture shows it (`scheduling.sharded`).

Bytes on each rank's wire in a step, of Ψ parameters over p ranks: a reduce-scatter and a gather, 2Ψ(p-1)/p, like the
all-reduce of plain data parallelism; with stage 3 another gather for the backward, 3Ψ(p-1)/p. Between O groups of i
owners, a rank sends 2Ψ/i (O-1)/O, also with two levels: half for gradients, half for weights.

Source: Rajbhandari et al. 2020, arXiv:1910.02054; hybrid: Zhao et al. 2023, arXiv:2304.11277. Relatives:
`core.where.layout`, `modes.data_parallel`, notebook 22.
"""

import math

from hybridlab.core.where.layout import Layout
from hybridlab.modes.data_parallel import DataParallel
from hybridlab.modes.mode import Option
from hybridlab.modes.parts.replicated import Replicated
from hybridlab.modes.parts.sharded import Sharded
from hybridlab.modes.parts.two_levels import Secondary, TwoLevels
from hybridlab.predict.plans import divisions
from hybridlab.scheduling.registry import options_of
from hybridlab.scheduling.sharded import sharded
from hybridlab.scheduling.sums import sooner

STAGES = (0, 1, 2, 3)


def shared(
    layout: Layout,
    stage: int,
    owners: int,
    along: tuple[str, ...] = ("dp",),
    two_levels: bool = False,
    secondary: int = 0,
) -> Layout:
    """The layout with every parameter sharded between steps among `owners` neighbours, for this ZeRO stage.

    along       axes along which ranks see different data; along those of them that cut it, a parameter has no copies
    two_levels  shard the optimizer's state over all groups of owners
    secondary   neighbours that shard a second copy of the weights, unless a parameter has no more owners than that
    """

    def at_rest(param):
        over = tuple(axis for axis in along if axis in param.partial)
        copies = math.prod(layout.mesh[axis] for axis in over)
        inside = min(owners, copies)
        groups = copies // inside if two_levels else 1
        second = secondary if secondary < inside else 0
        return {"owners": inside * groups, "groups": groups, "secondary": second, "rest": stage, "over": over}

    return layout.with_params(at_rest)


class Zero(DataParallel):
    """The runtime part of this mode: its differences from plain data parallelism."""

    name, purpose = "ZeRO", "shares"
    options = {
        "zero": Option(
            0, "ZeRO stage 0 to 3: what is sharded over replicas (1 optimizer state, 2 gradients, 3 weights)", int
        ),
        "owners": Option(
            None,
            "with zero: number of ranks in each sharding group; None: all replicas",
            int,
            least=1,
            beside="zero",
        ),
        "two_levels": Option(
            False,
            "with owners: shard the optimizer state over all replicas, the weights over the owners",
            beside="owners",
        ),
        "secondary": Option(
            0,
            "with zero=3: neighbours that keep a second copy of the weights, for a step's gathers after the first",
            int,
            least=0,
            beside="zero",
        ),
    }
    factors = {  # "of 2": hybrid, two owners; "twice": on two levels; "near 2": with second copies
        "zero": (*"0123", *(f"{zero} of 2{levels}" for levels in ("", " twice") for zero in (1, 2, 3)), "3 near 2")
    }

    def takes_part(self, mesh, chosen):
        return bool(chosen["zero"]) and not rests_on_hosts(chosen)

    def completed(self, mesh, chosen, dtype):
        return {"sums": "buckets"} if chosen["zero"] else {"owners": 1}

    def title(self, job):
        return "reductions and all-gathers of shards"

    def said(self, job):
        among = f" among {job['owners']}" if (job["owners"] or job.copies) < job.copies else ""
        among += " on two levels" * job["two_levels"]
        among += f", secondary={job['secondary']}" * (job["secondary"] > 0)
        return f"zero={job['zero']}{among}" + ", offload" * job["offload"]

    def refuse(self, job):
        if job["zero"] not in STAGES:
            raise ValueError(f"there is no ZeRO stage {job['zero']}: choose 0, 1, 2 or 3")
        if job["zero"] and job.copies == 1 and not all(job.schedule.program):
            raise ValueError(
                f"zero={job['zero']} is invalid: {job.schedule.name} has lost ranks, and they take their shards of the "
                "state with them. Leave zero out, or restart from a checkpoint"
            )
        divisions.refuse(job.sizes, job.division, "zero")

    def meant(self, name, chunks, mesh, chosen, layers):
        """With stage 3 and one pipeline rank, a loop over single layers, so that only a few have gathered weights at a
        time."""
        loops = chosen["zero"] == 3 and mesh["pp"] == 1 and chunks is None and "slices" not in options_of(name)
        return ("looped_bfs", layers) if loops else (name, chunks)

    def scheduled(self, schedule, chosen, active):
        write = {2: sooner, 3: lambda schedule: sharded(schedule, active)}.get(chosen["zero"])
        return write(schedule) if write else schedule

    def keeper(self, job):
        if job["owners"] == 1:
            return Replicated
        return TwoLevels if job["two_levels"] else Secondary if job["secondary"] else Sharded

    def placed(self, layout, job):
        levels = job["two_levels"], job["secondary"]
        return shared(layout, job["zero"], job["owners"] or job.mesh.size, _along(job), *levels)

    def limits(self, job):
        """With ZeRO 3, one pack for all weights that a pipeline stage gathers at once."""
        return (float("inf"), float("inf")) if job["zero"] == 3 else super().limits(job)

    def gathers(self, job, pack, rank):
        """With ZeRO 3, as often as the schedule requires."""
        if job["zero"] < 3:
            return None
        program = job.schedule.program[job.mesh.line(rank).index(rank)]
        return job.accumulate * _opened(program, job.homes[job.layout.packs[pack][0]])

    def published(self, job, pack, rank):
        """One copy serves all later gathers, if the device keeps more of a pack than this rank's share."""
        first = job.layout[job.layout.packs[pack][0]]
        return 1 if first.groups > 1 or first.secondary else super().published(job, pack, rank)


def _along(job) -> tuple[str, ...]:
    """The axes along which ranks see different data, in the order of the mesh."""
    return tuple(axis for axis in job.mesh.axes if axis == "dp" or axis in job.sharing_the_batch)


def rests_on_hosts(chosen: dict) -> bool:
    """Whether every host stores the full weights, see `modes.on_host`."""
    return chosen["zero"] == 3 and chosen["offload"] and chosen["owners"] == 1


def _opened(program, stages) -> int:
    """The number of times that a program gathers the shared weights of these stages; while one of the stages has them,
    they are not gathered again.
    """
    opened = in_use = 0
    for action in program:
        if action.stage in stages and action.kind in ("UNSHARD", "RESHARD"):
            opened += action.kind == "UNSHARD" and not in_use
            in_use += 1 if action.kind == "UNSHARD" else -1
    return opened


MODE = Zero()
