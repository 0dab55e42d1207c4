"""Tensor parallelism: the matrices of a block are cut, so that each rank computes some heads and some hidden units.

Two matrices make a pair: the first is cut by its outputs, the second by its inputs, and what is between them (heads of
attention, GELU) needs no message. A pair is *entered* by f: no message, a sum on the way back. It is *left* by g: a sum
of the summands, no message on the way back. So a block of two pairs costs four sums of b·s·h. What stands between
the pairs, the residual stream, is the same on all ranks, or cut along the sequence: see `sequence_parallel`.

  parameter                        what a rank has            its gradient
  q, k, v, mlp.up                  rows: heads, hidden units  its own
  k, v where heads are too few     the same as neighbours     a summand: each rank's own queries asked
  out.weight, mlp.down.weight      columns                    its own
  embed.token, head.scores         rows: tokens               its own
  norms, positions, other biases   all                        the same; where the sequence is cut, a summand

Source: Shoeybi et al. 2019, arXiv:1909.08053; the narrowed boundaries, Narayanan et al. 2021, arXiv:2104.04473, 4.1.
Relatives: `world.typed`, `core.layout`, `vocabulary_parallel` (embedding and loss), `predict.traffic.tensor` (bytes).
"""

from torch import nn
from torch.nn import functional

from hybridlab.core.layout import Cut, Layout, Param, even
from hybridlab.core.shape import Shape
from hybridlab.modes.sequence_parallel import CutStream, part_sizes
from hybridlab.modes.vocabulary_parallel import VocabularyEmbedding, token_loss
from hybridlab.world.typed import all_gather, all_reduce, enter
from hybridlab.world.typed import split as part

__all__ = ["narrowed", "narrowed_rooms", "place", "refuse_misfits", "split", "token_loss"]


def place(param: Param, shape: Shape, ways: int, sequence: bool = False) -> dict:
    """What tensor parallelism changes in one parameter's record.

    ways      the length of tp;  sequence  whether the stream between the matrices is cut along the sequence

    >>> place(Param("blocks.0.mlp.down.weight", (32, 128)), Shape(), ways=2)
    {'shard': {'tp': Cut(dim=1, spans=((0, 64), (64, 128)))}}
    >>> place(Param("blocks.0.mlp.down.bias", (32,)), Shape(), ways=2, sequence=True)
    {'partial': ('tp',)}
    """
    cut, summand = _cuts(shape, ways).get(param.name.split(".")[-2]), {"partial": (*param.partial, "tp")}
    if cut is None or cut.dim == len(param.shape):  # a bias has no inputs to be cut by
        return summand if sequence else {}
    copied = len(set(cut.spans)) < ways
    return {"shard": {**param.shard, "tp": cut}} | (summand if copied else {})


def _cuts(shape: Shape, ways: int) -> dict[str, Cut]:
    """{module: how its weight is cut}; where there are fewer heads of keys than ranks, neighbours hold the same one."""
    hidden, tokens = even(shape.inside, ways), even(shape.vocabulary, ways)
    cuts = {"up": Cut(0, hidden), "down": Cut(1, hidden), "token": Cut(0, tokens), "scores": Cut(0, tokens)}
    if shape.heads:
        queries, different = even(shape.width, ways, whole=shape.head_width), min(ways, shape.key_heads)
        heads = even(shape.key_heads * shape.head_width, different, whole=shape.head_width)
        keys = tuple(span for span in heads for _ in range(ways // different))
        cuts |= {"q": Cut(0, queries), "k": Cut(0, keys), "v": Cut(0, keys), "out": Cut(1, queries)}
    return cuts


def refuse_misfits(shape: Shape, ways: int, sequence: bool = False):
    """Nothing, if a model can be cut over so many ranks.

    raises  ValueError when heads are not whole on a rank, or a rank would have nothing
    """
    heads, keys = shape.heads, shape.key_heads
    fits = lambda t: heads % t == 0 and (keys % t == 0 or t % keys == 0)
    if heads and not fits(ways):
        raise ValueError(
            f"tp={ways} cannot share out heads={heads} and kv_heads={keys}: it must divide heads, and divide kv_heads "
            f"or be a multiple of it, choose one of {[t for t in range(1, heads + 1) if fits(t)]}"
        )
    shared = {"tokens of the vocabulary": shape.vocabulary, "hidden units": shape.inside}
    shared |= {"positions": shape.context} if sequence else {}
    for what, number in shared.items():
        if number < ways:
            raise ValueError(f"tp={ways} cannot share out {number} {what}: choose tp up to {number}")


class WholeStream:
    """The residual stream, the same on all ranks along tp: how modules that are cut read from it and write to it."""

    def __init__(self, comm):
        self.comm = comm

    def enter(self, module):
        """Make a module's input one that ranks use for different work: Megatron's f."""
        module.register_forward_pre_hook(lambda _, arrived: enter(self.comm, arrived[0], "tp"))

    def leave(self, summand_BTD):
        """Add the ranks' summands: Megatron's g."""
        return all_reduce(self.comm, summand_BTD, "tp", to="I")


class RowParallel(nn.Module):
    """A linear layer cut by its inputs: every rank has a summand of each output, and the bias is added once, behind the
    sum.

    linear  whose parameters it takes over;  stream  where the output goes
    """

    def __init__(self, linear: nn.Linear, stream):
        super().__init__()
        self.weight, self.bias, self.stream = linear.weight, linear.bias, stream

    def forward(self, x_BTF):
        return self.stream.leave(functional.linear(x_BTF, self.weight)) + self.bias


def split(model, comm, layout: Layout, sequence: bool = False):
    """Turn a full GPT into this rank's part of it, in place: parameters keep their identity and their names.

    Layers whose parameters are not here at all, those of other stages, keep them whole and must not be called.
    """
    for name, weight in model.named_parameters():
        if box := layout.box(name, comm.rank):
            weight.data = weight.data[box].clone()
    context, width = layout["embed.position.weight"].shape
    stream = CutStream(comm, context) if sequence else WholeStream(comm)
    for block in model.blocks:
        if block.attends:
            stream.enter(block.attention)
            block.attention.out = RowParallel(block.attention.out, stream)
        stream.enter(block.mlp)
        block.mlp.down = RowParallel(block.mlp.down, stream)
    stream.enter(model.head.scores)
    model.embed.token = VocabularyEmbedding(model.embed.token, comm, layout["embed.token.weight"].shape[0], stream)
    if sequence:
        stream.place(model)


# between stages: each rank sends its part over the slow link, and the parts are joined over the fast one


class Narrowed(nn.Module):
    """A stage whose neighbours are reached in parts: what arrives is this rank's part along the sequence, and is
    joined; what leaves is the same everywhere, and is cut.

    sizes  the length of each rank's part
    """

    def __init__(self, stage, comm, sizes):
        super().__init__()
        self.stage, self.comm, self.sizes = stage, comm, sizes

    def forward(self, *arrived):
        leaving = self.stage(*(self._joined(x) if x.is_floating_point() else x for x in arrived))
        if not self.stage.leaves:
            return leaving
        return tuple(tuple(part(self.comm, x, "tp", 1, of="I", sizes=self.sizes) for x in edge) for edge in leaving)

    def _joined(self, part_BTD):
        return all_gather(self.comm, part_BTD, "tp", 1, to="I", sizes=self.sizes)


def narrowed(stage, comm, shape: Shape) -> Narrowed:
    """A stage that sends and receives 1/t of every tensor on each of t ranks, where each would send the whole.

    Without sequence parallelism: with it, the stream is cut anyway.
    """
    return Narrowed(stage, comm, part_sizes(shape.context, comm))


def narrowed_rooms(rooms: dict, comm) -> dict:
    """The same examples of what travels on each edge (see `stages.rooms_of`), as long as this rank's parts."""
    here = comm.coordinates["tp"]
    return {edge: [x.split(part_sizes(x.shape[1], comm), 1)[here] for x in tensors] for edge, tensors in rooms.items()}
