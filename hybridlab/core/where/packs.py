"""Packs, the package's buckets: parameters that are sent together. DDP's buckets, ZeRO's flat buffers and FSDP's units
are packs of different sizes.

Gradients come from the last layer to the first, so packs are filled in that order; the first is small, so that
reductions begin early. Read next: `modes.data_parallel`.

Source: the sizes are those of PyTorch's DDP, Li et al. 2020, arXiv:2006.15704.
"""

from hybridlab.core.where.layout import Layout

FIRST_BYTES, PACK_BYTES = 1 << 20, 25 << 20


def packed(
    layout: Layout, homes: dict[str, tuple], limits: tuple[float, float] = (FIRST_BYTES, PACK_BYTES), width: int = 4
) -> Layout:
    """The layout with its parameters in packs: neighbouring parameters with the same groups of ranks, up to a number of
    bytes. Parameters that have one owner each share one pack for each kind of group, since a few of them could not be
    distributed evenly.

    homes   {name: the stages that use it}: packs never join different stages
    limits  bytes of the first pack of a stage, and of the others; 0: every parameter in a separate pack
    width   bytes of one element

    >>> from hybridlab.core.where.layout import Mesh, Param
    >>> three = Layout(Mesh(dp=2), tuple(Param(name, (10,), partial=("dp",)) for name in "abc"))
    >>> packed(three, dict.fromkeys("abc", (0,)), limits=(40, 80)).packs
    {1: ['a', 'b'], 0: ['c']}
    """
    ways, bytes_of = {}, {param.name: width * param.largest for param in layout.params}
    for param in reversed(layout.params):
        shared = param.owners, param.groups, param.secondary, param.rest, param.whole
        ways.setdefault((homes[param.name], layout.peers(param.name).sums, shared), []).append(param.name)
    dealt = lambda name: layout[name].whole and layout[name].owners > 1
    limits_of = lambda name: (float("inf"), float("inf")) if dealt(name) else limits
    runs = [run for names in ways.values() for run in _runs(names, bytes_of, *limits_of(names[0]))]
    number = {name: pack for pack, run in enumerate(runs) for name in run}
    return layout.with_params(lambda param: {"pack": number[param.name]})


def _runs(names, bytes_of, first, other):
    """Names in order, cut where a pack is full."""
    run, room = [], first
    for name in names:
        if run and bytes_of[name] > room:
            yield run
            run, room = [], other
        run.append(name)
        room -= bytes_of[name]
    yield run
