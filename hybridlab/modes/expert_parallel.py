"""Expert parallelism: each rank has some of the experts, and its own rows of every microbatch. Tokens are sent to their
experts.

For all parameters except the experts, ep is one more axis of data parallelism: each rank holds the full parameters and
sees other rows, so gradients are added over ep. An expert is on one rank along ep and receives tokens from all ranks.
So its gradient is complete there, and is only reduced over its copies along dp. Both follow from two tables: {E: ep}
for parameters and {B: ep} for the batch.

Systems that average gradients have divided those of experts by the wrong number of ranks at least five times
(pytorch/pytorch#160285; databricks/megablocks#86; deepspeedai/DeepSpeed#5259; NVIDIA/Megatron-LM#5956, #7160). Here the
loss is divided by the number of tokens in the global batch, and gradients are only added.

  parameter            what a rank has     its gradient
  experts              some of them        complete: the tokens of all ranks along ep came here
  router, all else     all                 a partial sum

Tensor parallelism cuts every expert by its hidden units: see `cut_experts`.

With `fold`, experts are distributed over the ranks of tp and cp too, each expert whole on one rank: for attention these
ranks shard heads and positions, for experts they are further ranks of ep. The table {E: "ep+cp+tp"} expresses this, in
the order of the mesh. Each rank dispatches the tokens that only it has: of its rows, its positions along cp and, along
tp, its part of a sharded stream, or of a full one (`cut_experts.divided`).

  what each rank sends in a layer's forward           for T tokens of the ranks along tp, k choices each, width h
  experts sharded along tp, sharded stream            2·k·T·h·(1 - 1/(ep·tp)): a part along ep, the rest along tp
  folded                                              2·k·T/tp·h·(1 - 1/(ep·tp)), exactly 1/tp of it

Memory is the same, and GEMMs are wider. The price is balance: the ranks of tp share the tokens of a popular expert that
is sharded, while a folded expert has one rank.

Source: Lepikhin et al. 2020, arXiv:2006.16668; folding, Liu et al. 2025, arXiv:2504.14960. Relatives: `dispatch`, which
sends tokens there and back; `training.models.experts`; notebook 32.
"""

from collections.abc import Iterator
from functools import partial
from math import ceil

from hybridlab.core.what.seams import Dispatches, Routes
from hybridlab.core.where.layout import even
from hybridlab.modes.mode import Mode, Option
from hybridlab.modes.parts.dispatch import Exchanges, by_all_gather, by_all_to_all, with_slots
from hybridlab.modes.parts.lent_experts import dealt, number_of, slots_of
from hybridlab.modes.parts.routed import routed_first, routed_in, seams_in
from hybridlab.predict.bytes.experts import DISPATCH, exchanged
from hybridlab.predict.plans import divisions

FOLDED = "ep", "cp", "tp"  # the axes whose ranks see different tokens
COUNT = 8  # bytes of one count of tokens, or of the index of an expert


class ExpertParallel(Mode):
    """The runtime part of this mode."""

    name, axis, purpose, leading = "expert parallelism", "ep", "experts", "E"
    options = {
        "dispatch": Option("all_to_all", "with ep: how tokens are sent to their experts", str, DISPATCH, beside="ep"),
        "fold": Option(
            False, "with tp or cp: distribute whole experts over these ranks too, as over ep", beside="tp or cp"
        ),
    }
    factors = {"dispatch": DISPATCH, "fold": (False, True)}

    def takes_part(self, mesh, chosen):
        return chosen["fold"] or super().takes_part(mesh, chosen)

    def met(self, job):
        """The axes over which experts are distributed, in mesh order; a rank's place is its position in that group."""
        along = FOLDED if job["fold"] else self.axes
        return tuple(axis for axis, length in job.mesh.axes.items() if axis in along and length > 1)

    def title(self, job):
        return f"tokens to folded experts, along {'+'.join(self.met(job))}" if job["fold"] else super().title(job)

    def said(self, job):
        return f"dispatch {job['dispatch']}" + ", folded" * job["fold"]

    def refuse(self, job):
        rows, experts, asked = job.mesh["ep"], job.sizes.get("E"), "·".join(self.met(job))
        ways = job.mesh.length(self._product(job))
        if job.schedule.exchanges and job["dispatch"] != "all_to_all":
            raise ValueError(f"{job.schedule.name} already has its all-to-alls between stages: leave out dispatch")
        if experts is None or not any(isinstance(module, Dispatches) for module in job.whole.modules()):
            said = "fold=True" if job["fold"] else f"ep={ways}"
            remedy = f"leave out {'fold' if job['fold'] else 'ep'}, or give experts=…"
            raise ValueError(f"{said} distributes experts, but this model has none: {remedy}")
        divisions.refuse(job.sizes, job.division, "fold")
        memory = job["device_memory"] is not None
        if memory or job.schedule.moves:
            what = "device_memory" if memory else job.schedule.name
            raise ValueError(
                f"{what} needs to know how much a forward saves, but experts that are distributed over ranks save as "
                f"many tokens as arrive: leave out {'device_memory' if memory else 'ep and fold, or choose 1f1b'}"
            )
        if experts < ways:
            raise ValueError(f"{asked}={ways} cannot distribute {experts} experts: choose {asked} up to {experts}")
        if job.rows < rows:
            raise ValueError(f"ep={rows} cannot distribute {job.rows} rows of a microbatch: choose ep up to {job.rows}")

    def rules(self, job):
        return {"E": self._product(job)}

    def data(self, job):
        return {"B": "ep"}

    def fit(self, module, comm, job):
        dispatch = self._dispatch(comm, job)
        for layer in module.modules():
            if isinstance(layer, Dispatches):
                layer.dispatch = dispatch

    def exchange(self, comm, job):
        return Exchanges(comm, self._owned(job))

    def _group(self, comm, job) -> tuple[int, ...]:
        """The ranks of this rank's group, over which the experts are distributed."""
        comm.open(*job.mesh.groups(self.met(job)))
        return job.mesh.group(comm.rank, self.met(job))

    def _product(self, job) -> str:
        return "+".join(self.met(job))

    def _owned(self, job) -> tuple[int, ...]:
        return _shares(job.sizes["E"], job.mesh.length(self._product(job)))

    def _dispatch(self, comm, job):
        owned, rows = self._owned(job), _shares(job.rows, job.mesh["ep"])
        if job["dispatch"] == "all_gather":
            return partial(by_all_gather, comm=comm, owned=owned, rows=rows)
        if slots := _slots(job):
            return partial(with_slots, comm=comm, owned=owned, slots=[slots * its for its in rows])
        group = self._group(comm, job)
        if not job["expert_copies"]:
            return partial(by_all_to_all, comm=comm, owned=owned, axis=group)
        every = slots_of(job)
        to_slots = partial(by_all_to_all, comm=comm, owned=every.sizes, axis=group)
        return partial(dealt, to_slots, every.holders, group.index(comm.rank))

    # its messages

    def sends(self, job, layer, when, here) -> Iterator[tuple[str, float]]:
        """The mean over ranks of the tokens that travel to their experts: the destinations depend on the data."""
        if when == "again":
            return
        seams, ways, width = seams_in(job, layer), job.mesh.length(self._product(job)), job.widths.value
        for one in routed_in(job, layer):
            rows = here["B"] / ways
            if job["dispatch"] == "all_to_all" and (slots := _slots(job)):
                yield from [("all_to_all", rows * slots * one.experts * one.width * width)] * 2
                continue
            if job["dispatch"] == "all_gather":
                rows = ceil(rows)  # uneven ranks are padded
            counted = one._replace(experts=one.experts + number_of(job))  # each copy is counted as one more expert
            moves = exchanged(counted, rows * one.here(job, here), ways, job["dispatch"], when)
            if Dispatches not in seams:  # split in parts: rows leave after the router, and return after the experts
                moves = moves[:-1] if Routes in seams else moves[-1:]
            for operation, what, numbers in moves:
                yield operation, numbers * (COUNT if what in ("counts", "choices") else width)


def _shares(length: int, ways: int) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in even(length, ways))


def _slots(job) -> int:
    """The maximum number of tokens of one sequence that an expert takes; 0 if there is no capacity."""
    routing = next((one.routing for one in job.whole.modules() if isinstance(one, Routes)), None)
    if routing is None or routing.capacity is None:
        return 0
    first = routed_first(job)
    return routing.slots(first.tokens, first.experts, first.chosen)


MODE = ExpertParallel()
