"""Compute the bytes that a step sends to reduce gradients, also among groups of owners, and to gather weights.

Only this module has the formula: `modes.data_parallel` sums it for the ledgers, and the labs show it by name, by axis
and by node.

Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7; hybrid: Zhao et al. 2023, arXiv:2304.11277. See also
`core.where.layout`, `modes.data_parallel`, `modes.zero`, `predict.bytes.memory`.
"""

from functools import partial

from hybridlab.core.where.layout import Layout
from hybridlab.predict.bytes.memory import SINGLE, Widths
from hybridlab.predict.bytes.transfer import Transfer, transfer


def transfers(
    layout: Layout, pack: int, rank: int, widths: Widths = SINGLE, gathers: int | None = None
) -> list[Transfer]:
    """The transfers of one rank in one step for one pack; none if the rank does not hold the pack.

    gathers  how often the weights are gathered; by default once, after the update; twice with ZeRO's stage 3

    >>> from hybridlab.core.where.layout import Mesh, Param
    >>> one = Param("w", (10,), partial=("dp",), owners=2, rest=3)
    >>> for one in transfers(Layout(Mesh(dp=4), (one,)), 0, 0): print(*one)
    gradients dp reduce_scatter (0, 1) 40
    shares dp all_reduce (0, 2) 20
    weights dp all_gather (0, 1) 40
    weights dp all_gather (0, 1) 40
    """
    first, sent = layout[layout.packs[pack][0]], partial(transfer, layout.mesh)
    if layout.box(first.name, rank) is None:
        return []
    piece, sharers = layout.piece(pack, rank), layout.sharers(first.name, rank)
    if first.owners == 1:
        added = layout.summed(first.name, rank)
        return [sent("gradients", "all_reduce", added, piece * widths.gradient)] if len(added) > 1 else []
    twins, whole = layout.twins(first.name, rank), piece * first.owners
    found = [sent("gradients", "reduce_scatter", sharers, whole * widths.gradient)]
    if first.groups > 1:
        across, part = layout.across(first.name, rank), piece * first.groups
        found.append(sent("parts", "reduce_scatter", across, part * widths.gradient))
        found.append(sent("parts", "all_gather", across, part * widths.value))
    if len(twins) > 1:
        found.append(sent("shares", "all_reduce", twins, piece * widths.gradient))
    times = (2 if first.rest == 3 else 1) if gathers is None else gathers
    again = max(times - 1, 0) if first.secondary else 0
    near = layout.near(first.name, rank) if first.secondary else sharers
    found += [sent("weights", "all_gather", sharers, whole * widths.value)] * (times - again)
    return found + [sent("weights", "all_gather", near, whole * widths.value)] * again
