"""Tensor parallelism: the matrices of a block are sharded, so each rank computes some heads and some hidden units.

Two matrices form a pair: the first is sharded by its outputs, the second by its inputs, and the operations between them
(heads of attention, GELU) need no message. A pair begins with f: no message forward, an all-reduce backward. It ends
with g: an all-reduce of the partial sums forward, no message backward. So a block of two pairs costs four all-reduces
of b·s·h. The residual stream between the pairs is the same on all ranks, or sharded along the sequence: see
`sequence_parallel`.

  parameter                        a rank holds               its gradient
  q, k, v, mlp.up                  rows: heads, hidden units  complete
  k, v if there are too few heads  the same as neighbours     a partial sum: from each rank's own queries
  out.weight, mlp.down.weight      columns                    complete
  embed.token, head.scores         rows: tokens               complete
  norms, positions, other biases   all                        the same; with a sharded sequence, a partial sum
  anything inside a pair           all                        a partial sum: from each rank's own heads

A table of rules (`RULES`) selects these matrices: hidden units F (W of a plain block), heads N, heads of keys K and
tokens V are sharded along tp, in every model with dims of these names. A matrix with sharded outputs reads from the
stream, one with sharded inputs writes to it, and a module with both has one f for all its matrices.

Source: Shoeybi et al. 2019, arXiv:1909.08053. Relatives: `world.talk.typed`, `core.where.rules`, `crossings`,
`sequence_parallel`, `overlapped`, `vocabulary_parallel` (embedding and loss), `narrowed` (messages between stages),
`predict.bytes.traffic.tensor` (the bytes in closed form), notebook 30.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from torch import nn
from torch.nn import functional

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import placed
from hybridlab.modes.mode import Mode, Option
from hybridlab.modes.parts import cut_experts, inner_draws, overlapped
from hybridlab.modes.parts.plain_layers import before, refuse_more
from hybridlab.modes.parts.scatter_gather import narrowed
from hybridlab.modes.parts.sequence_parallel import CutStream, uncut
from hybridlab.modes.parts.tp_boundaries import (
    Crossing,
    beside,
    crossings,
    readers,
    refuse_open_cuts,
    refuse_other_biases,
)
from hybridlab.modes.parts.vocabulary_parallel import VocabularyEmbedding, token_loss
from hybridlab.predict.plans import divisions
from hybridlab.predict.plans.divisions import Division
from hybridlab.world.talk.typed import all_reduce, enter

# hidden units, those of plain blocks, heads, heads of keys and values, tokens
RULES = dict.fromkeys("FWNKV", "tp")
FURTHER = "cp+tp"  # the positions of a cp rank, or all
COPIED = "K"  # fewer KV heads than ranks: neighbouring ranks hold the same one


def place(param: Param, shape: Shape, ways: int, sequence: bool = False) -> dict:
    """The changes that tensor parallelism makes to the record of one parameter of a model with this shape.

    ways      the length of tp;  sequence  whether the stream between the matrices is sharded along the sequence

    >>> place(Param("blocks.0.mlp.down.weight", (32, 128)), Shape(), ways=2)
    {'shard': {'tp': Cut(dim=1, spans=((0, 64), (64, 128)))}}
    >>> place(Param("blocks.0.mlp.down.bias", (32,)), Shape(), ways=2, sequence=True)
    {'partial': ('tp',)}
    """
    named = replace(param, dims=shape.dims(param.name))
    return placed(named, RULES, Mesh(tp=ways), shape.sizes, data=["tp"] if sequence else [], copied=COPIED)


def refuse_misfits(sizes: dict[str, int], ways: int, sequence: bool = False):
    """Raise an error unless a model whose dims have these sizes can be sharded over this number of ranks.

    raises  ValueError if a head would be split between ranks, or a rank would hold nothing
    """
    divisions.refuse(sizes, Division(tp=ways, sequence=sequence), "tp")


# --- the model's part on a rank: its reads from the stream, and its writes to it ------------------------------------


class WholeStream:
    """The residual stream, the same on all ranks along tp: how sharded modules read from it and write to it."""

    def __init__(self, comm):
        self.comm = comm

    def enter(self, module):
        """Mark a module's input, which ranks use for different work, with Megatron's f."""
        before(module, lambda x: enter(self.comm, x, "tp"))

    def leave(self, summand_BTD):
        """All-reduce the partial sums: Megatron's g."""
        return all_reduce(self.comm, summand_BTD, "tp", to="I")

    def multiplied(self, x_BTF, weight_DF):
        """The output of a linear layer sharded by its inputs, all-reduced for the stream."""
        return self.leave(functional.linear(x_BTF, weight_DF))


class RowParallel(nn.Module):
    """A linear layer sharded by its inputs: every rank computes a partial sum of each output.

    The bias is added once, after the all-reduce.

    linear  the layer whose parameters it takes over, together with the input hooks of other modes
    stream  the residual stream that takes the output
    """

    def __init__(self, linear: nn.Linear, stream):
        super().__init__()
        self.weight, self.bias, self.stream = linear.weight, linear.bias, stream
        for enters in linear._forward_pre_hooks.values():  # `before` has registered them
            self.register_forward_pre_hook(enters, with_kwargs=True)

    def forward(self, x_BTF):
        y_BTD = self.stream.multiplied(x_BTF, self.weight)
        return y_BTD if self.bias is None else y_BTD + self.bias


def fit(module: nn.Module, comm, layout: Layout, context: int | None = None, overlap: int = 0):
    """Turn a model whose parameters are this rank's boxes into this rank's part of it, in place.

    context  the positions of a sequence, if the stream is sharded along them; None if it is not
    overlap  the directions of messages that overlap with the matmuls next to them; 0: none does
    """
    found = crossings(module, layout)
    stream = WholeStream(comm) if context is None else CutStream(comm, context)
    if overlap:
        stream = overlapped.OverlappedStream(comm, context, readers(module, layout, found), overlap)
    entered = [one.name for one in found if one.kind == "enter"]
    if context is not None:
        stream.place(module, entered)
    lengths = {id(weight): layout[name].shape[0] for name, weight in module.named_parameters()}
    for kind, name, *_ in found:
        around, _, last = name.rpartition(".")
        layer = module.get_submodule(name)
        if kind == "enter":
            stream.enter(layer)
        elif kind == "leave":
            setattr(module.get_submodule(around), last, RowParallel(layer, stream))
        else:
            rows = VocabularyEmbedding(layer, comm, lengths[id(layer.weight)], stream)
            setattr(module.get_submodule(around), last, rows)


def split(module: nn.Module, comm, layout: Layout, context: int | None = None, overlap: int = 0):
    """Turn a full model into this rank's part of it, in place: parameters keep their identity and their names.

    Layers of other stages, whose parameters are not here, stay unsharded and must not be called.
    """
    for name, weight in module.named_parameters():
        if box := layout.box(name, comm.rank):
            weight.data = weight.data[box].clone()
    fit(module, comm, layout, context, overlap)


# --- the mode -------------------------------------------------------------------------------------------------------


class TensorParallel(Mode):
    """The runtime part of this mode."""

    name, axis, purpose, copied = "tensor parallelism", "tp", "inside", COPIED
    options = {
        "sequence": Option(False, "with tp: shard norms and residuals along the sequence", beside="tp"),
        "overlap": Option(
            False, "with sequence: send in pieces, each during the matmul of another piece", beside="sequence"
        ),
        "directions": Option(
            1,
            "with overlap: send pieces to the next rank (1), or to both neighbours (2)",
            int,
            least=1,
            beside="overlap",
        ),
        "scatter": Option(False, "with tp: send only a shard of each activation between stages", beside="tp"),
    }
    factors = {"stream": ("whole", "scatter", "sequence", "overlap")}

    def refuse(self, job):
        sizes, ways = job.sizes, job.mesh["tp"]
        if not RULES.keys() & sizes.keys():
            has = f"only {', '.join(sizes)}" if sizes else "none"
            remedy = job.model.uncut or 'name its dimensions, dims={"0.weight": "F D"}'
            raise ValueError(
                f"tp={ways} shards dimensions called {', '.join(RULES)}, but this model has {has}: {remedy}"
            )
        for option in (one for one in ("sequence", "scatter") if job[one] and uncut(job, one)):
            raise ValueError(f"{option}=True shards the positions T, but {uncut(job, option)}: leave it out")
        if job.schedule.exchanges:
            raise ValueError(
                f"{job.schedule.name} has its all-to-alls between layers, where tokens are not sharded: leave out tp"
            )
        divisions.refuse(sizes, job.division, "tp")
        found = job.once(_crossings)
        refuse_open_cuts(found, job.model.scores)
        refuse_other_biases(job.layout)
        refuse_more(job.whole, job.layout, "tp")
        if job["overlap"]:
            overlapped.refuse(job, lambda module: readers(module, job.layout, found))
        if job["sequence"] and not (found and found[0].kind == "rows" and job.model.scores):
            raise ValueError(
                "sequence=True shards positions from an embedding with a sharded vocabulary to a loss with one, but "
                "this model has only its own loss: leave out sequence"
            )

    def rules(self, job):
        return RULES

    def between(self, job):
        return RULES | ({"T": FURTHER} if job["sequence"] else {})

    def stream(self, job):
        return RULES | ({"T": FURTHER} if job["sequence"] or job["scatter"] else {})

    def fit(self, module, comm, job):
        overlap = job["overlap"] * job["directions"]
        fit(module, comm, job.layout, _positions(job) if job["sequence"] else None, overlap)
        inner_draws.place(module, comm, job.once(_crossings), job)
        for layer in cut_experts.routed(module).values():
            (cut_experts.fold if job["fold"] else cut_experts.cut)(layer, comm, job["sequence"])

    def placed(self, layout, job):
        found = {*cut_experts.behind(layout), *_read_in_pairs(job, layout)}
        summand = lambda param: param.name in found and "tp" not in param.partial
        return layout.with_params(lambda param: {"partial": (*param.partial, "tp")} if summand(param) else {})

    def around(self, stage, comm, job):
        return narrowed(stage, comm, _positions(job)) if self._scatters(job) else stage

    def loss(self, comm, job, whole):
        return token_loss(comm, job.sizes["V"]) if self._cuts_scores(job) else whole

    def _scatters(self, job) -> bool:
        return job["scatter"] and not job["sequence"]

    def _cuts_scores(self, job) -> bool:
        return job.model.scores in RULES

    # its messages

    def sends(self, job, layer, when, here) -> Iterator[tuple[str, int]]:
        ways, positions = job.mesh["tp"], here.get("T", 1)
        filled = ways * -(-positions // ways) if job["sequence"] else positions  # uneven parts are padded
        for kind, letter, row, wanted in job.once(_by_layer).get(layer, ()):
            in_pieces = job["overlap"] and kind != "rows"  # hops need no padding
            # multiply before dividing: a module may work on fewer positions than a sequence has
            whole = job.sizes.get("T", 1) * job.sizes.get(letter, 1)
            part = row * (positions if in_pieces else filled) * here.get(letter, 1) // whole
            size = here["B"] * part * job.widths.value
            back = kind != "rows" and (wanted or job.stage_of(layer) > 0)
            for op in _operations(kind, when, job["sequence"], back):
                yield ("isend", size * (ways - 1) / ways) if in_pieces else (op, size)
        yield from cut_experts.sends(job, layer, when, here)
        if when == "forward" and self._cuts_scores(job) and layer in job.model.scored(len(job.layers)):
            # numbers of the loss: the largest logit; Σ exp and the target's logit
            yield "all_reduce", 3 * here["B"] * positions * job.widths.value

    def sends_around(self, job, stage, when, here):
        """The gathers of a tensor after it was sent in parts across a cut."""
        tensors = {"forward": job.links.into, "backward": job.links.out_of}
        if self._scatters(job) and when in tensors:
            ways = job.mesh["tp"]
            for layers in tensors[when](stage):
                for layer in layers:
                    _, _, *features = job.between[layer].shape
                    features = [here.get(letter, one) for letter, one in zip(job.leaving[layer].split()[2:], features)]
                    filled = here["B"] * ways * -(-here["T"] // ways) * math.prod(features)
                    yield "all_gather", filled * job.widths.value


def _operations(kind: str, when: str, cut: bool, back: bool) -> list[str]:
    """The operations of a crossing. cut: the stream is sharded; back: the crossing's input requires a gradient."""
    if kind == "enter":
        does = {"backward": ["all_reduce"] * back}
        with_parts = {"forward": ["all_gather"], "backward": ["reduce_scatter"] * back, "again": ["all_gather"]}
    else:
        does = {"forward": ["all_reduce"]}
        with_parts = {"forward": ["reduce_scatter"], "backward": ["all_gather"]}
    return (with_parts if cut else does).get(when, [])


def _positions(job) -> int:
    """The positions that ranks along tp divide: all, or an equal part along cp (`predict.plans.divisions`)."""
    return job.sizes["T"] // job.mesh["cp"]


def _crossings(job) -> list[Crossing]:
    return crossings(job.whole, job.layout)


def _read_in_pairs(job, layout) -> list[str]:
    """The parameters that every rank holds in full, and that only its own heads or hidden units read."""
    found = beside(job.whole, layout)
    turn = {name: number for number, name in enumerate(job.passed)} if found else {}
    return [name for name, last in found.items() if _turn(name.rpartition(".")[0], turn) < turn[last]]


def _turn(module: str, turn: dict[str, int]) -> int:
    """The turn at which a module has finished; if it is never called itself, the turn of the module around it."""
    return turn[module] if module in turn or not module else _turn(module.rpartition(".")[0], turn | {"": len(turn)})


def _by_layer(job) -> dict[int, list[tuple[str, str, int, bool]]]:
    """{layer: (kind, letter of the dim that crosses, its numbers for one row, whether it has a gradient)}."""
    found = {}
    for one in job.once(_crossings):
        passed = job.passed[one.name]
        crossing = passed.entered if one.kind == "enter" else passed.left
        for layer in passed.layers:
            found.setdefault(layer, []).append((one.kind, one.stream, crossing.numel(), passed.wanted))
    return found


MODE = TensorParallel()
