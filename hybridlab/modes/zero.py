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

The gathers of stage 3 are actions of the program, so the schedule decides when weights are gathered ahead, and the
picture shows it (`scheduling.sharded`).

Bytes on each rank's wire in a step, of Ψ parameters over p ranks: a reduce-scatter and a gather, 2Ψ(p-1)/p, as the
all-reduce of plain data parallelism; with stage 3 another gather for the backward, 3Ψ(p-1)/p.

Source: Rajbhandari et al. 2020, arXiv:1910.02054; hybrid: Zhao et al. 2023, arXiv:2304.11277. Relatives:
`core.where.layout`, `modes.data_parallel`, notebook 22.
"""

import math

import torch

from hybridlab.core.where.layout import Layout
from hybridlab.modes.data_parallel import DataParallel
from hybridlab.modes.mode import Option
from hybridlab.modes.parts.replicated import Replicated
from hybridlab.predict.plans import divisions
from hybridlab.runtime.pending import Arrival, Sum
from hybridlab.scheduling.registry import options_of
from hybridlab.scheduling.sharded import sharded
from hybridlab.scheduling.sums import sooner

STAGES = (0, 1, 2, 3)


def shared(layout: Layout, stage: int, owners: int, along: tuple[str, ...] = ("dp",)) -> Layout:
    """The layout with every parameter sharded between steps among `owners` neighbours, for this ZeRO stage.

    along  axes along which ranks see different data; along those of them that cut it, a parameter has no copies
    """

    def at_rest(param):
        over = tuple(axis for axis in along if axis in param.partial)
        copies = math.prod(layout.mesh[axis] for axis in over)
        return {"owners": min(owners, copies), "rest": stage, "over": over}

    return layout.with_params(at_rest)


class Sharded(Replicated):
    """The weights of a rank's stages, of which it owns a shard between steps; the arguments are those of `Replicated`.

    comm, layout, stages, named, program, early, policy  as in `Replicated`
    """

    def _shares(self) -> dict:
        layout = self.layout
        packs = sorted({layout[name].pack for name in self.by_name})
        self.rest = max((layout[name].rest for name in self.by_name), default=0)
        self.values = {pack: self._moved(pack) for pack in packs}
        self.pieces = {pack: self._kept(pack) for pack in packs}
        self.in_use, self.gathering = dict.fromkeys(packs, 0), {}
        for pack in packs if self.rest == 3 else ():
            self._let_go(pack)
        inside = {name: self.pieces[layout[name].pack][slice(*self._inside(name))] for name in self.by_name}
        return {name: torch.nn.Parameter(self._shaped(name, share)) for name, share in inside.items()}

    def _shaped(self, name, share):
        """A shard as other code sees it: flat, or with the parameter's shape if it is the full parameter."""
        return share.view_as(self.by_name[name]) if self.layout[name].owners == 1 else share

    # one buffer for each pack

    def _own(self, pack, flat):
        """This rank's piece of a buffer."""
        piece = self.layout.piece(pack, self.comm.rank)
        start = piece * self.layout.share_number(self.layout.packs[pack][0], self.comm.rank)
        return flat[start : start + piece]

    def _kept(self, pack):
        """This rank's piece of the weights, kept between steps: a view of the full buffer, if there is one."""
        own = self._kept_as(self._own(pack, self.values[pack]))
        return own.clone() if self.rest == 3 and not self.policy.host else own

    def _inside(self, name) -> tuple[int, int]:
        """The range of this rank's shard of a parameter within its piece."""
        layout, rank = self.layout, self.comm.rank
        share, start = layout.share(name, rank), layout.offset(name, rank)
        piece = layout.share_number(name, rank) * layout.piece(layout[name].pack, rank)
        return (start + share.start - piece, start + share.stop - piece) if share.stop > share.start else (0, 0)

    def _moved(self, pack):
        """The buffer that now stores the weights of a pack."""
        weights = {name: self.by_name[name] for name in self.layout.packs[pack]}
        flat = self._flat(pack, {name: weight.detach() for name, weight in weights.items()})
        for name, weight in weights.items():
            start = self.layout.offset(name, self.comm.rank)
            weight.data = flat[start : start + weight.numel()].view_as(weight)
        return flat

    # gradients: a reduce-scatter, and an all-reduce of the shard between groups of owners

    def reduce(self, comm, action):
        """Reduce this stage's gradients; the buffers of reductions that have started are freed before the next are
        packed.
        """
        for one in self.sent.values():
            one.message.wait()
        return super().reduce(comm, action)

    def _started(self, pack, names, flat):
        rank, twins = self.comm.rank, self.layout.twins(names[0], self.comm.rank)
        for name in names:
            self.by_name[name].grad = None
            self.summed.pop(name, None)
        whole = [] if self.rest >= 2 else [flat]  # what a rank keeps beside its own
        message = self.comm.ireduce_scatter(flat, self.layout.sharers(names[0], rank))
        return Sum(message, lambda piece: self._take(names, self.comm.all_reduce(piece, twins), *whole))

    def _take(self, names, piece, whole=None):
        if whole is not None:
            piece = self._own(self.layout[names[0]].pack, whole).copy_(piece)
        for name in names:
            self._give(self.shares[name], self._shaped(name, piece[slice(*self._inside(name))]))

    def _meets(self, name) -> bool:
        return True  # a shard is cut out of every gradient, even if no other rank adds to it

    # weights: gathered after the update, or before every use

    @torch.no_grad()
    def publish(self):
        if self.rest < 3:
            for pack in self.pieces:
                self.values[pack].copy_(self._gather(pack).wait())

    def _gather(self, pack):
        first, piece = self.layout.packs[pack][0], self.pieces[pack]
        return self.comm.iall_gather(
            self._used_as(piece, self.values[pack]), self.layout.sharers(first, self.comm.rank)
        )

    def unshard(self, stage) -> Arrival:
        """Start to gather the weights of a stage, except those that another stage has already gathered."""
        for pack in self._packs(stage):
            if not self.in_use[pack]:
                self.gathering[pack] = self._gather(pack)
            self.in_use[pack] += 1
        return Arrival(self, [pack for pack in self._packs(stage) if pack in self.gathering])

    def arrive(self, pack):
        """Wait for the weights of a pack, and point its parameters to them."""
        if pack in self.gathering:
            whole, values = self.gathering.pop(pack).wait(), self.values[pack]
            values.untyped_storage().resize_(values.nbytes)
            values.copy_(whole)

    def reshard(self, stage):
        """Free the weights of a stage, except this rank's shard."""
        for pack in self._packs(stage):
            self.in_use[pack] -= 1
            if not self.in_use[pack]:
                self._let_go(pack)

    def _let_go(self, pack):
        self.values[pack].untyped_storage().resize_(0)

    def _packs(self, stage):
        return sorted({self.layout[name].pack for name in self.named[stage]})


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
    }
    factors = {"zero": ("0", "1", "2", "3", "1 of 2", "2 of 2", "3 of 2")}  # "of 2": hybrid, two owners

    def takes_part(self, mesh, chosen):
        return bool(chosen["zero"]) and not rests_on_hosts(chosen)

    def completed(self, mesh, chosen, dtype):
        return {"sums": "buckets"} if chosen["zero"] else {"owners": 1}

    def title(self, job):
        return "reductions and all-gathers of shards"

    def said(self, job):
        among = f" among {job['owners']}" if (job["owners"] or job.copies) < job.copies else ""
        return f"zero={job['zero']}{among}" + ", offload" * job["offload"]

    def refuse(self, job):
        if job["zero"] not in STAGES:
            raise ValueError(f"there is no ZeRO stage {job['zero']}: choose 0, 1, 2 or 3")
        divisions.refuse(job.sizes, job.division, "zero")

    def meant(self, name, chunks, mesh, chosen, layers):
        """With stage 3 and one pipeline rank, a loop over single layers: few at a time then have gathered weights."""
        loops = chosen["zero"] == 3 and mesh["pp"] == 1 and chunks is None and "slices" not in options_of(name)
        return ("looped_bfs", layers) if loops else (name, chunks)

    def scheduled(self, schedule, chosen, active):
        write = {2: sooner, 3: lambda schedule: sharded(schedule, active)}.get(chosen["zero"])
        return write(schedule) if write else schedule

    def keeper(self, job):
        return Replicated if job["owners"] == 1 else Sharded

    def placed(self, layout, job):
        return shared(layout, job["zero"], job["owners"] or job.mesh.size, _along(job))

    def limits(self, job):
        """With ZeRO 3, one pack for all weights that a pipeline stage gathers at once."""
        return (float("inf"), float("inf")) if job["zero"] == 3 else super().limits(job)

    def gathers(self, job, pack, rank):
        """With ZeRO 3, as often as the schedule requires."""
        if job["zero"] < 3:
            return None
        program = job.schedule.program[job.mesh.line(rank).index(rank)]
        return job.accumulate * _opened(program, job.homes[job.layout.packs[pack][0]])


def _along(job) -> tuple[str, ...]:
    """The axes along which ranks see different data, in the order of the mesh."""
    return tuple(axis for axis in job.mesh.axes if axis == "dp" or axis in job.sharing_the_batch)


def rests_on_hosts(chosen: dict) -> bool:
    """Whether every host stores the full weights, see `modes.on_host`."""
    return chosen["zero"] == 3 and chosen["offload"] and chosen["owners"] == 1


def _opened(program, stages) -> int:
    """The number of times that a program gathers the shared weights of these stages, except while one has them."""
    opened = in_use = 0
    for action in program:
        if action.stage in stages and action.kind in ("UNSHARD", "RESHARD"):
            opened += action.kind == "UNSHARD" and not in_use
            in_use += 1 if action.kind == "UNSHARD" else -1
    return opened


MODE = Zero()
