"""The bug clinic of notebook 33: a GPT on two ranks whose chunks are in zigzag order, with a wrong loss.

`symptoms` shows it. The broken program is `positions`, which forgets the zigzag; the notebook prints its source.
"""

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.chunks import Chunks
from hybridlab.labs.rows import Table, table

SHAPE = Shape(layers=2, width=16, heads=4, context=16)
LARGER = 30  # initial weights are small; without this factor, so are the differences that positions make in the loss


def positions(rank: int, ranks: int, context: int) -> list[int]:
    """The positions that a rank has."""
    length = context // ranks
    return list(range(rank * length, (rank + 1) * length))


def symptoms(pool, told=positions) -> Table:
    """The first loss on one device and on the ranks: with chunks in order, in a zigzag, and without positional
    embeddings."""
    forms = {
        "in order": (False, False),
        "zigzag": (True, False),
        "zigzag, all embeddings of positions are 0": (True, True),
    }
    rows = []
    for form, (zigzag, without) in forms.items():
        alone, together = pool.run(_losses, zigzag, without, told)[0]
        rows.append((form, f"{alone:.6f}", f"{together:.6f}"))
    return table(("chunks", "loss on one device", f"on {pool.size} ranks"), rows)


def _losses(comm, zigzag, without, told):
    """(the mean loss of one device, that of all ranks together)."""
    import torch

    from hybridlab.training.models.gpt import GPT, token_loss

    draw = torch.Generator().manual_seed(0)
    tokens, targets = torch.randint(256, (2, 2, SHAPE.context), generator=draw)
    model = GPT(SHAPE, dtype=torch.float64)
    with torch.no_grad():
        model.embed.position.weight.mul_(0 if without else LARGER)
        model.head.scores.weight.mul_(LARGER)
        alone = token_loss(model(tokens), targets)
        chunks = (Chunks.zigzag if zigzag else Chunks.in_order)(SHAPE.context, comm.size)
        own = chunks.positions(comm.rank)
        _fit(model, comm, chunks, told(comm.rank, comm.size, SHAPE.context) if zigzag else own)
        together = comm.all_reduce(token_loss(model(tokens[:, own]), targets[:, own]).reshape(1))
    return alone.item() / tokens.numel(), together.item() / tokens.numel()


def _fit(model, comm, chunks, places):
    """Give a model its positions and another attention, as `modes.context_parallel` does."""
    from functools import partial

    import torch

    from hybridlab.core.what.seams import Attends, Positions
    from hybridlab.modes.parts.ring_attention import ring_attention

    for layer in model.modules():
        if isinstance(layer, Positions):
            layer.first = torch.tensor(places) - torch.arange(len(places))
        if isinstance(layer, Attends):
            layer.attend = partial(ring_attention, comm=comm, axis=None, chunks=chunks)
