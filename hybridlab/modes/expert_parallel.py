"""Expert parallelism: each rank has some of the experts, and its own rows of every microbatch. Tokens are sent to their
experts.

For all parameters except the experts, ep is one more axis of data parallelism: each rank holds the full parameters and
sees other rows, so gradients are added over ep. An expert is on one rank along ep and receives the tokens of all ranks.
So its gradient is complete there, and is only reduced over its copies along dp. Both follow from two tables: {E: ep}
for parameters and {B: ep} for the batch.

Systems that average gradients have divided those of experts by the wrong number of ranks at least five times
(pytorch/pytorch#160285; databricks/megablocks#86; deepspeedai/DeepSpeed#5259; NVIDIA/Megatron-LM#5956, #7160). Here the
loss is divided by the tokens of the global batch, and gradients are only added.

  parameter            what a rank has     its gradient
  experts              some of them        complete: the tokens of all ranks along ep came here
  router, all else     all                 a partial sum

Tensor parallelism cuts every expert by its hidden units: see `cut_experts`.

Source: Lepikhin et al. 2020, arXiv:2006.16668. Relatives: `dispatch`, which sends tokens there and back;
`training.models.experts`; notebook 32.
"""

from collections.abc import Iterator
from functools import partial
from math import ceil

from hybridlab.core.what.seams import ByExpert, Dispatches, Routes
from hybridlab.core.where.layout import even
from hybridlab.modes.mode import Mode, Option
from hybridlab.modes.parts.dispatch import Exchanges, by_all_gather, by_all_to_all, with_slots
from hybridlab.predict.bytes.experts import DISPATCH, exchanged

EXPERTS = Dispatches, Routes, ByExpert  # a layer with experts, complete or split in parts
COUNT = 8  # bytes of one count of tokens, or of one expert's number


class ExpertParallel(Mode):
    """The runtime part of this mode."""

    name, axis, purpose = "expert parallelism", "ep", "experts"
    options = {
        "dispatch": Option("all_to_all", "with ep: how tokens are sent to their experts", str, DISPATCH, beside="ep")
    }
    factors = {"dispatch": DISPATCH}

    def said(self, job):
        return f"dispatch {job['dispatch']}"

    def refuse(self, job):
        ways, experts = job.mesh["ep"], job.sizes.get("E")
        if job.schedule.exchanges and job["dispatch"] != "all_to_all":
            raise ValueError(f"{job.schedule.name} already has its all-to-alls between stages: leave dispatch out")
        if experts is None or not any(isinstance(module, Dispatches) for module in job.whole.modules()):
            raise ValueError(f"ep={ways} distributes experts, but this model has none: leave ep out, or give experts=…")
        for size, what in ((experts, "experts"), (job.rows, "rows of a microbatch")):
            if size < ways:
                raise ValueError(f"ep={ways} cannot distribute {size} {what}: choose ep up to {size}")

    def rules(self, job):
        return {"E": "ep"}

    def data(self, job):
        return {"B": "ep"}

    def fit(self, module, comm, job):
        for layer in module.modules():
            if isinstance(layer, Dispatches):
                layer.dispatch = self._dispatch(comm, job)

    def exchange(self, comm, job):
        return Exchanges(comm, _shares(job.sizes["E"], job.mesh["ep"]))

    def _dispatch(self, comm, job):
        owned, rows = (_shares(length, job.mesh["ep"]) for length in (job.sizes["E"], job.rows))
        if job["dispatch"] == "all_gather":
            return partial(by_all_gather, comm=comm, owned=owned, rows=rows)
        if slots := _slots(job):
            return partial(with_slots, comm=comm, owned=owned, slots=[slots * its for its in rows])
        return partial(by_all_to_all, comm=comm, owned=owned)

    # its messages

    def sends(self, job, layer, when, here) -> Iterator[tuple[str, float]]:
        """The mean over ranks of the tokens that travel to their experts: the destinations depend on the data."""
        found = {seam for module in job.layers[layer].modules() for seam in EXPERTS if isinstance(module, seam)}
        if when == "again" or not found:
            return
        shape, ways, width = job.model.shape, job.mesh["ep"], job.widths.value
        rows = here["B"] / ways
        if job["dispatch"] == "all_to_all" and (slots := _slots(job)):
            yield from [("all_to_all", rows * slots * shape.experts * shape.width * width)] * 2
            return
        if job["dispatch"] == "all_gather":
            rows = ceil(rows)  # uneven ranks are padded
        moves = exchanged(shape, rows * here["T"], ways, job["dispatch"], when)
        if Dispatches not in found:  # split in parts: rows leave after the router, and return after the experts
            moves = moves[:-1] if Routes in found else moves[-1:]
        for operation, what, numbers in moves:
            yield operation, numbers * (COUNT if what in ("counts", "choices") else width)


def _shares(length: int, ways: int) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in even(length, ways))


def _slots(job) -> int:
    """The maximum number of tokens of one sequence that an expert takes; 0 where there is no capacity."""
    shape = job.model.shape
    if shape.routing.capacity is None:
        return 0
    return shape.routing.slots(shape.context, shape.experts, shape.chosen)


MODE = ExpertParallel()
