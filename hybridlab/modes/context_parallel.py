"""Context parallelism: a long sequence is sharded by its positions, in every layer of the model.

Everything except attention treats each position separately: norms, matrices and the loss need no message. For their
weights, a rank's positions are one more part of the batch, so gradients are added over the ranks along cp as over
replicas (the layout's record says so: `core.where.rules`). In attention, a query looks at all positions before it.
There are four ways to bring queries and keys together (`attend`):

  gather   keys and values are all-gathered; each rank has its queries and all keys, and computes its rows of scores
  ring     keys and values pass around the ranks; no rank ever has all of them (`ring_attention`)
  ulysses  an all-to-all turns some positions of all heads into all positions of some heads; a second one reverses it
  usp      both: Ulysses inside groups of `ulysses` neighbours, then a ring through the groups for a rank's heads. Its
           all-to-alls are exposed and its hops are hidden, so the neighbours should be in one node

In each layer, each of p ranks sends these numbers in the forward, for b·s·h numbers of queries and b·s·k of keys:

  gather                       2·b·s·k·(p-1)/p           backward the same: the gradients are scattered and added
  ring                         2·b·s·k·(p-1)/p           backward 2·b·s·k·(2p-1)/p: keys, values, and their gradients
  ulysses                      (2·b·s·h + 2·b·s·k)/p·(p-1)/p   backward the same
  usp                          of u ranks in each of r groups: (2·b·s·h + 2·b·s·k)/p·(u-1)/u + 2·b·s·k/u·(r-1)/r
                               backward (2·b·s·h + 2·b·s·k)/p·(u-1)/u + 2·b·s·k/u·(2r-1)/r

Source: Liu et al. 2023, arXiv:2310.01889 (ring); Jacobs et al. 2023, arXiv:2309.14509 (Ulysses); Llama Team 2024,
arXiv:2407.21783, 3.3.2 (gathered keys and values); Fang and Zhao 2024, arXiv:2405.07719 (USP). Relatives:
`sequence_parallel`, which cuts positions only between the matrices; `modes.parts.ring_attention`; notebook 33.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from hybridlab.core.what.seams import Attends, Positions
from hybridlab.core.where.attended import seen
from hybridlab.core.where.chunks import Chunks
from hybridlab.modes.mode import Mode, Option, around
from hybridlab.modes.parts.ring_attention import ring_attention
from hybridlab.predict.bytes.context import ATTEND, hops
from hybridlab.predict.plans import divisions
from hybridlab.runtime import masks
from hybridlab.world.talk.typed import all_gather, all_to_all

OVER = ("documents", "row")  # in a zigzag, of which the parts are


def gathered(q_BNTH, k_BKTH, v_BKTH, comm, chunks: Chunks):
    """Attention of this rank's queries to the keys and values of all positions."""
    lengths = [chunks.length(rank) for rank in range(len(chunks.of))]
    k_BKSH, v_BKSH = (all_gather(comm, x, "cp", 2, to="R", sizes=lengths) for x in (k_BKTH, v_BKTH))
    seen_TS = masks.of_all(chunks, comm.coordinates["cp"], q_BNTH.device)
    return functional.scaled_dot_product_attention(q_BNTH, k_BKSH, v_BKSH, attn_mask=seen_TS, enable_gqa=True)


def by_heads(q_BNTH, k_BKTH, v_BKTH, comm, chunks: Chunks, attend):
    """Attention over all positions for this rank's part of the heads; `attend` is the attention of a single device."""
    positions = [chunks.length(rank) for rank in range(len(chunks.of))]
    return _exchanged(q_BNTH, k_BKTH, v_BKTH, comm, "cp", positions, attend)


def by_heads_and_positions(q_BNTH, k_BKTH, v_BKTH, comm, chunks: Chunks, ways: int):
    """Attention over the positions of all groups for this rank's part of the heads of its group: Ulysses inside a group
    of `ways` neighbours, ring attention with the ranks at the same place in other groups.

    chunks  the positions of each group, which its ranks share out in their order (`Chunks.among`)
    """
    number, place = divmod(comm.coordinates["cp"], ways)
    inner, outer = (every[which] for every, which in zip(_groups(comm.group("cp").ranks, ways), (number, place)))
    positions = [chunks.length(number) // ways] * ways
    around = partial(ring_attention, comm=comm, axis=outer, chunks=chunks)
    return _exchanged(q_BNTH, k_BKTH, v_BKTH, comm, inner, positions, around)


def _exchanged(q_BNTH, k_BKTH, v_BKTH, comm, axis, positions, attend):
    turned = partial(all_to_all, comm, axis=axis, cut=1, join=2, received=positions)
    out_BNTH = attend(*(turned(x) for x in (q_BNTH, k_BKTH, v_BKTH)))
    return all_to_all(comm, out_BNTH, axis, cut=2, join=1, sent=positions)


def _groups(ranks: tuple[int, ...], ways: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """(the groups that exchange heads, the rings through the groups) of the ranks along cp.

    >>> _groups((0, 1, 2, 3), 2)
    ([(0, 1), (2, 3)], [(0, 2), (1, 3)])
    """
    inner = [ranks[place : place + ways] for place in range(0, len(ranks), ways)]
    return inner, list(zip(*inner))


class ContextParallel(Mode):
    """The runtime part of this mode."""

    name, axis, purpose, core = "context parallelism", "cp", "context", True
    options = {
        "attend": Option("gather", "with cp: how keys and values reach the queries", str, ATTEND, beside="cp"),
        "ulysses": Option(
            1,
            "with attend usp: the number of ranks that exchange heads, inside a node; a ring connects these groups; if "
            "not given, usp takes 2",
            int,
            least=1,
            beside="attend",
        ),
        "zigzag": Option(
            False,
            "with cp: each rank has one part from the front and one from the back, which balances causal attention",
            beside="cp",
        ),
        "zigzag_over": Option(
            OVER[0],
            "with zigzag: distribute the parts of each packed document, or of the full row",
            str,
            OVER,
            beside="zigzag",
        ),
    }
    factors = {"attend": ("gather", "ring", "usp"), "zigzag": (False, True)}  # Ulysses: test_context_parallel.py

    def completed(self, mesh, chosen, dtype):
        return {"ulysses": 2} if chosen["attend"] == "usp" else {}

    def said(self, job):
        return f"attend {job['attend']}" + f" of {job['ulysses']}" * _mixed(job) + ", zigzag" * job["zigzag"]

    def refuse(self, job):
        ways = job.mesh["cp"]
        if job.schedule.exchanges:
            raise ValueError(
                f"{job.schedule.name} has its all-to-alls between layers, where positions are not sharded: leave out cp"
            )
        if any("T" not in one for one in (job.sizes, job.model.enters.split(), job.model.targets.split())):
            raise ValueError(
                f"cp={ways} shards the positions T, but no dimension of this model has that name: leave out cp, or "
                'give enters="B T", targets="B T" and sizes={"T": …}'
            )
        divisions.refuse(job.sizes, job.division, "cp")
        if not (job.model.by_place and _attending(job.whole)):
            _refuse_mixing(job)

    def data(self, job):
        return {"T": "cp"}

    def order(self, job):
        return {"T": chunks_of(job).order} if job["zigzag"] else {}

    def fit(self, module, comm, job):
        if _mixed(job):
            comm.open(
                *(one for line in job.mesh.groups("cp") for some in _groups(line, job["ulysses"]) for one in some)
            )
        _place(module, chunks_of(job).positions(comm.coordinates["cp"]), comm.device)
        for layer in _attending(module):
            its = parts_of(job)._replace(documents=layer.documents)
            layer.attend = self._attend(comm, its, job, layer.attend)

    def _attend(self, comm, chunks, job, alone):
        if _mixed(job):
            return partial(by_heads_and_positions, comm=comm, chunks=chunks, ways=job["ulysses"])
        if job["attend"] == "ring":
            return partial(ring_attention, comm=comm, axis="cp", chunks=chunks)
        if job["attend"] == "ulysses":
            return partial(by_heads, comm=comm, chunks=chunks, attend=alone)
        return partial(gathered, comm=comm, chunks=chunks)

    # its messages

    def sends(self, job, layer, when, here) -> Iterator[tuple[str, float]]:
        ways, each, positions = job.mesh["cp"], here["B"] * job.widths.value, job.sizes["T"]  # "T": all
        for one in _attending(job.layers[layer]) if when != "again" else ():
            queries, keys, values, found = (
                each * width * here.get(heads, 1) // job.sizes.get(heads, 1) for width, heads in zip(one.widths, "NKKN")
            )
            if job["attend"] == "gather":
                filled, op = ways * -(-positions // ways), "all_gather" if when == "forward" else "reduce_scatter"
                yield from [(op, filled * size) for size in (keys, values)]  # uneven parts are padded
            if job["attend"] in ("ulysses", "usp"):
                yield from [("all_to_all", positions * size / ways) for size in (queries, keys, values, found)]
            if job["attend"] in ("ring", "usp"):  # each part of keys and values makes this many hops
                yield "isend", positions / ways * (keys + values) * hops(ways // job["ulysses"], when)

    def together(self, job, op, group):
        if not _mixed(job):
            return super().together(job, op, group)
        inner, outer = _groups(group, job["ulysses"])
        return inner if op == "all_to_all" else [pair for ring in outer for pair in around(ring)]


def chunks_of(job) -> Chunks:
    """The positions of each rank along cp."""
    return parts_of(job).among(job["ulysses"]) if _mixed(job) else parts_of(job)


def parts_of(job) -> Chunks:
    """The positions of each rank along cp; with usp those of each group, which goes around the ring as one."""
    length, parts = job.sizes["T"], job.mesh["cp"] // job["ulysses"]
    if not job["zigzag"]:
        return Chunks.in_order(length, parts)
    packed = (layer.documents for layer in _attending(job.whole) if layer.documents)
    return Chunks.zigzag(length, parts, next(packed, ()) if job["zigzag_over"] == OVER[0] else ())


def _mixed(job) -> bool:
    return job["attend"] == "usp"


def _attending(module) -> list:
    return [layer for layer in module.modules() if isinstance(layer, Attends)]


def _place(module, positions: list[int], device=None):
    """Tell the layers that depend on positions which positions are here: the first one, with an offset for each
    position.
    """
    places = torch.tensor(positions, device=device)
    for layer in module.modules():
        if isinstance(layer, Positions):
            layer.first = places - torch.arange(len(places), device=device)


@torch.no_grad()
def _refuse_mixing(job):
    """Raise an error unless attention is causal and all other layers, and the loss, treat every position separately.
    This is tested by running the model: a rank's positions go through it, and attention returns its part of the output
    for the full sequence, if its queries, keys and values are those of the full sequence too.
    """
    wide = lambda x: x.double() if x.is_floating_point() else x
    inputs, targets = (_each(wide, one[0]) for one in job.batch(0))
    whole, chunks, found = job.model.made(job.seed, torch.float64), chunks_of(job), []
    for layer in _attending(whole):
        layer.attend = partial(_kept, layer, layer.attend, found, chunks._replace(documents=layer.documents))
    output, ways = job.model.through(whole, inputs), job.mesh["cp"]
    _refuse_few_heads(job, {x.shape[1] for qkv, _ in found for x in qkv})
    for rank in (0, ways - 1):
        here, its = chunks.positions(rank), iter(found)
        part = job.model.made(job.seed, torch.float64)
        _place(part, here)
        for layer in _attending(part):
            layer.attend = partial(_recalled, its, here)
        try:
            mine = job.model.through(part, _at(here, inputs))
            torch.testing.assert_close(mine, _at(here, output), rtol=1e-9, atol=1e-12)
        except Exception as error:
            raise ValueError(
                f"cp={ways} shards positions, but a layer that does not declare it reads other positions or "
                "position numbers: declare Attends or Positions, as in class YourAttention(nn.Module, "
                "hl.seams.Attends), or leave out cp"
            ) from error
    _refuse_other_sum(job.model.loss, output, targets, [chunks.positions(rank) for rank in range(ways)])


def _refuse_few_heads(job, heads: set[int]):
    """Raise an error unless every rank that exchanges heads gets equally many; a model need not have named them."""
    ways = {"ulysses": job.mesh["cp"], "usp": job["ulysses"]}.get(job["attend"], 1)
    for number in sorted(heads):
        if number % ways:
            raise ValueError(
                f"attend={job['attend']!r} distributes heads over {ways} ranks, but attention has {number}: choose "
                "'ring' or 'gather'"
            )


def _refuse_other_sum(loss, output, targets, parts: list[list[int]]):
    """Raise an error unless the losses of the ranks' positions add up to the loss of the sequence."""
    try:
        found = sum(loss(_at(here, output), _at(here, targets)) for here in parts)
        torch.testing.assert_close(found, loss(output, targets), rtol=1e-9, atol=1e-12)
    except Exception as error:
        raise ValueError(
            f"cp={len(parts)} shards positions, but the losses of the parts of a sequence do not add up to its loss: "
            "compare each position with its own target, and shift targets in the data, not in the loss; or leave out cp"
        ) from error


def _at(here: list[int], x):
    """These positions of a tensor, or of each tensor of a tuple."""
    return _each(lambda one: one[:, here], x)


def _each(function, x):
    """A function applied to a tensor, or to each tensor of a tuple."""
    return tuple(_each(function, one) for one in x) if isinstance(x, tuple) else function(x)


def _recalled(calls, here: list[int], *qkv):
    """The recorded attention at these positions, if queries, keys and values are the recorded ones."""
    recorded, output = next(calls)
    for one, other in zip(qkv, recorded):
        torch.testing.assert_close(one, other[:, :, here], rtol=1e-9, atol=1e-12)
    return output[:, :, here]


def _kept(layer, attend, found: list, chunks: Chunks, *qkv):
    """The recorded inputs and output of a layer's own attention. The ways above may replace it only if theirs is
    equal."""
    seen_TS = seen(torch.from_numpy(chunks.looks), torch.arange(len(chunks.looks)))
    made = attend(*qkv)
    expected = functional.scaled_dot_product_attention(*qkv, attn_mask=seen_TS, enable_gqa=True)
    if made.shape != expected.shape or not torch.allclose(made, expected, rtol=1e-9, atol=1e-12):
        raise ValueError(
            f"{type(layer).__name__}.attend does not compute causal attention, softmax(q·k/√H)·v, and cp would replace "
            "it: change attend, or leave out cp"
        )
    found.append((qkv, made))
    return made


MODE = ContextParallel()
