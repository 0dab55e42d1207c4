"""Notebook 34, tables without ranks: the memory of one large picture, words of strips, tiles and channel splits."""

from functools import cache

from hybridlab.core.what.catalog import MACHINES
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.rows import Table, table
from hybridlab.predict.bytes.convolution import Conv, ranked, sent
from hybridlab.predict.plans.branches import compared

GB, MB, WIDTH = 1e9, 1e6, 4  # bytes of a number in single precision
SIDE = 8192  # pixels of the large picture, each way
VGG = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # VGG-16: (convolutions, their filters) of each block
PICTURE = Conv(samples=1, channels=64, filters=64, rows=1024, columns=1024)  # the convolution in the question
GRIDS = {4: (2, 2), 16: (4, 4), 64: (8, 8)}
FORMS = {"X stays": Mesh(c=4), "Y stays": Mesh(f=4), "W stays": Mesh(c=2, f=2)}
LAYERS = {  # of convolution.grid
    "A, 3×3, 512 → 512 channels, 16 × 16 pixels": Conv(1, 512, 512, 16, 16),
    "B, 1×1, 64 → 512 channels, 14 × 14 pixels": Conv(1, 64, 512, 14, 14, kernel=1, padding=0),
    "C, 3×3, 3 → 64 channels, 512 × 512 pixels": Conv(1, 3, 64, 512, 512),
    "D, 1×1, 512 → 64 channels, 14 × 14 pixels": Conv(1, 512, 64, 14, 14, kernel=1, padding=0),
}


# --- one picture --------------------------------------------------------------------------------------------------


def convolutions(side: int = SIDE) -> list[list[Conv]]:
    """VGG-16's convolutions, block by block, for one square picture of `side` pixels; pooling halves its sides."""
    enter, blocks = 3, []
    for number, (count, filters) in enumerate(VGG):
        rows = side >> number
        blocks.append([Conv(1, filters if one else enter, filters, rows, rows) for one in range(count)])
        enter = filters
    return blocks


def memory(side: int = SIDE) -> Table:
    """Activations of VGG-16's convolutions for one picture, in GB, and their weights, in MB, block by block."""
    blocks, count = convolutions(side), lambda convs, name: sum(conv.numbers(name) for conv in convs) * WIDTH
    rows = [_memory(f"block {number}", block, count) for number, block in enumerate(blocks)]
    rows.append(_memory("all", sum(blocks, []), count, told=False))
    rows += [(f"for comparison: {card}", "", "", f"{MACHINES[card].memory / GB:.0f}", "") for card in ("v100", "h100")]
    return table("| pixels | convolutions × filters | their outputs, GB | their weights, MB", rows)


def _memory(name, convs, count, told=True):
    its = (f"{convs[0].rows:,} × {convs[0].columns:,}", f"{len(convs)} × {convs[0].filters}") if told else ("", "")
    return name, *its, f"{count(convs, 'Y') / GB:.1f}", f"{count(convs, 'W') / MB:.1f}"


# --- strips or tiles ----------------------------------------------------------------------------------------------


def shapes(conv: Conv = PICTURE) -> Table:
    """Words of halos in the forward, for strips and for tiles: those of the busiest rank, and those of all ranks."""
    rows = []
    for ranks, grid in GRIDS.items():
        (strip, strips), (tile, tiles) = halos(conv, Mesh(h=ranks)), halos(conv, Mesh(h=grid[0], w=grid[1]))
        rows.append((ranks, strip, tile, strips, tiles, f"{strip / tile:.2f}"))
    heads = "ranks | a strip sends at most | a tile | all strips | all tiles | strip over tile"
    return table(heads, rows)


@cache
def halos(conv: Conv, mesh: Mesh) -> tuple[int, int]:
    """(words of the busiest rank, words of all ranks) in the forward.

    >>> halos(PICTURE, Mesh(h=4)), halos(PICTURE, Mesh(h=2, w=2))
    ((131072, 393216), (65600, 262400))
    """
    every = [sent(conv, mesh, rank)["halo"].forward for rank in range(mesh.size)]
    return max(every), sum(every)


# --- channels and filters -----------------------------------------------------------------------------------------


def forms(layers: dict[str, Conv]) -> Table:
    """Words that the busiest of four ranks sends, forward and backward, for strips and for the three ways to cut
    channels."""
    ways = {"strips": Mesh(h=4)} | FORMS
    found = {name: {mesh: words for words, mesh in ranked(conv, 4, ("h", "c", "f"))} for name, conv in layers.items()}
    rows = [(name, *(_words(found[name].get(mesh)) for mesh in ways.values())) for name in layers]
    return table(("", *ways), rows)


def _words(count) -> str:
    return "cannot" if count is None else f"{count:,.0f}"


# --- branches -----------------------------------------------------------------------------------------------------


def ways(branches, stem: float, join: float, every=(1, 3, 12), reduce: float = 6.0) -> Table:
    """Length of a step in units, for each way to parallelize and several numbers of microbatches."""
    found = {m: compared(branches, stem, join, m, reduce=reduce) for m in every}
    names = list(found[every[-1]])
    length = lambda m, name: f"{found[m][name].length:g}" if name in found[m] else "cannot"
    rows = [(m, *(length(m, name) for name in names)) for m in every]
    return table(("microbatches", *names), rows)
