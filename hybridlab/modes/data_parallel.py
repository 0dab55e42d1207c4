"""Data parallelism: every replica holds the same weights and sees its own data, and gradients are all-reduced.

Why a sum and not a mean: each rank's loss is already divided by the tokens of the *global* batch (see
`runtime.work.scaled`), so the sum over the replicas is the gradient that one device would have computed. The same sum
serves every weight with copies on several ranks: a copy of the pipeline, the other direction of a bidirectional
schedule, an embedding shared with the last stage. The layout's record lists the ranks.

The three forms of the lectures differ in the size of the messages and in their time (`FORMS`):

  after    one all-reduce for each weight, when the backward has ended
  each     one all-reduce for each weight as soon as its gradient is complete, overlapped with the rest of the backward
  buckets  one all-reduce for each bucket of gradients; the first bucket is small, so that communication begins early

In a fourth form, *local*, gradients are not all-reduced: each copy takes optimizer steps alone, see
`modes.local_steps`.

Source: Li et al. 2020, arXiv:2006.15704 (PyTorch DDP). Relatives: `core.where.layout`, the record; `core.where.packs`;
`modes.parts.replicated`, which reduces; `modes.zero`, which keeps a shard of each sum; `modes.local_steps`;
`scheduling.sums`, which places the reductions in the program; notebook 21.

An all-reduce of n bytes over d ranks costs each rank's wire 2 n (d-1)/d bytes.
"""

from collections.abc import Iterator

import torch

from hybridlab.core.where.packs import FIRST_BYTES, PACK_BYTES
from hybridlab.modes.mode import Mode, Option
from hybridlab.modes.parts.replicated import Policy, Replicated
from hybridlab.predict.bytes import sharing
from hybridlab.predict.bytes.transfer import Transfer
from hybridlab.runtime import tallies

FORMS, LOCAL = ("after", "each", "buckets"), "local"
DTYPES = ("float32", "float64", "bfloat16")


class DataParallel(Mode):
    """The runtime part of this mode. It is always active, unless ZeRO is: tied weights need it too."""

    name, axis, purpose = "data parallelism", "dp", "sums"
    options = {
        "sums": Option(
            None,
            "when gradients are all-reduced; None: after the backward, or in buckets with zero; local: "
            "never, since copies update on their own and exchange their updates only occasionally",
            str,
            (*FORMS, LOCAL),
        ),
        "sum_dtype": Option(
            None, "data type of gradient reductions; None: dtype, or float32 if that is bfloat16", str, DTYPES
        ),
        "master_dtype": Option(
            None, "data type of the optimizer's weights; None: dtype, or float32 if that is bfloat16", str, DTYPES
        ),
        "offload": Option(False, "keep the optimizer and its state in host memory"),
    }
    factors = {"sums": FORMS}
    besides = 0  # numbers that it keeps for each weight, in addition to the optimizer's

    def takes_part(self, mesh, chosen):
        return not chosen["zero"] and chosen["sums"] != LOCAL

    def completed(self, mesh, chosen, dtype):
        wide = "float32" if dtype == "bfloat16" else dtype
        return {"sums": "after", "sum_dtype": wide, "master_dtype": wide}

    def title(self, job):
        return "all-reduces d·Ψ" if job.flushes and not job.mesh.inside else "all-reduces of gradients"

    def kept(self, job, comm, stages: dict, named: dict, program) -> Replicated:
        """The weights of a rank, as this mode keeps them; the arguments are those of `Replicated`."""
        return self.keeper(job)(comm, job.layout, stages, named, program, job["sums"] != "after", self.policy(job))

    def policy(self, job) -> Policy:
        """The dtypes of reductions and of the optimizer's weights, where they differ from that of the computation."""
        other = lambda dtype: None if dtype == job.dtype else getattr(torch, dtype)
        return Policy(other(job["sum_dtype"]), other(job["master_dtype"]), job["offload"])

    def alone(self, job) -> int:
        """The number of copies that update their own weights: one, the model, unless copies train alone."""
        return 1

    def busiest(self, job, rank: int) -> int:
        """The index of one of the steps after which a rank sends the most."""
        return 0

    def one_model(self, job, rank: int) -> tuple[int, ...] | None:
        """The ranks that hold one model together with a rank; None: all."""

    def keeper(self, job) -> type[Replicated]:
        """The object that holds a rank's weights."""
        return Replicated

    def limits(self, job) -> tuple[float, float]:
        """Maximum bytes of the first bucket (pack) of a stage, and of the others; a bucket is sent as one buffer."""
        return (FIRST_BYTES, PACK_BYTES) if job["sums"] == "buckets" else (0, 0)

    def gathers(self, job, pack: int, rank: int) -> int | None:
        """The number of times that a step gathers a bucket on a rank; None for the usual number."""
        return None

    def published(self, job, pack: int, rank: int) -> int:
        """The number of times that a step copies a rank's share of a pack to its device, if the optimizer is on the
        host."""
        return self.gathers(job, pack, rank) or 1

    def transfers(self, job) -> Iterator[Transfer]:
        """One transfer per bucket and update of its stage, listed at the bucket's first rank; and the tallies."""
        layout = job.layout
        for pack, names in layout.packs.items():
            updates = job.updates(job.homes[names[0]][0])
            for rank in range(job.mesh.size):
                found = sharing.transfers(layout, pack, rank, job.widths, self.gathers(job, pack, rank))
                yield from (one for one in found for _ in range(updates) if one.ranks[0] == rank)
        yield from tallies.transfers(layout, tallies.tallying(job.whole))

    def moved(self, job) -> int:
        """Bytes that one step moves to an optimizer in the host's memory, and back: the gradients of all shards, and
        their new values, padded, once for each gather."""
        layout, down, up = job.layout, 0, 0
        for pack, names in layout.packs.items():
            for rank in range(job.mesh.size):
                if layout.box(names[0], rank) is None:
                    continue
                shares = [layout.share(name, rank) for name in names]
                down += sum(share.stop - share.start for share in shares)
                up += layout.piece(pack, rank) * self.published(job, pack, rank)
        return down * job.widths.gradient + up * job.widths.value


MODE = DataParallel()
