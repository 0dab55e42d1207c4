"""Rules: how a mode cuts tensors, as a table {dim: axis}. A mode shards dims by letter, and uses no layer's name.

The dims of a tensor have names, the letters that the code's suffixes use: a matrix from width D to hidden units F is
"F D", a tensor of sequences, positions and features "B T D". Two letters joined, "NH", are one dim of N groups of H; it
is cut between groups. A dot is a dim without a name. A rule says along which axis of the mesh a letter is cut.

Two things are illegal: one axis that cuts two dims of a tensor, and two rules for one letter. A letter may be sharded
along two joined axes, "y+z": a mode that cuts the parts of another one, "y", further. A *leading* letter has its axes
for itself: {E: "ep+tp"} and {F: "tp"}, with E leading, shard experts by their number, and an MLP by its hidden units.

All else follows: the box of a parameter, and whether its local gradients are partial sums: they are if ranks along the
axis see different data and hold the same box.

Source: the layout rules of Mesh-TensorFlow, Shazeer et al. 2018, arXiv:1811.02084, section 3. Relatives:
`core.where.layout`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from hybridlab.core.where.layout import Cut, Param, even
from hybridlab.core.where.mesh import Mesh

Rules = dict[str, str]


def placed(
    param: Param,
    rules: Rules,
    mesh: Mesh,
    sizes: dict[str, int],
    data: Iterable[str] = (),
    copied: str = "",
    leading: str = "",
) -> dict:
    """The changes that a table of rules makes to one record.

    rules   {letter: axis, or a product of axes};  sizes  {letter: its length}
    data    the axes along which ranks see different data: gradients of parameters that they do not shard are partial
            sums
    copied  letters that may be shorter than their axis: neighbours then hold the same
    leading  letters along whose axes no other letter of the parameter is cut

    raises  ValueError when an axis would cut two dims of the parameter

    >>> placed(Param("w", (128, 32), dims="F D"), {"F": "tp"}, Mesh(tp=2), {"F": 128})
    {'shard': {'tp': Cut(dim=0, spans=((0, 64), (64, 128)))}}
    >>> placed(Param("b", (32,), dims="D"), {"F": "ep"}, Mesh(ep=2), {}, data=["ep"])
    {'partial': ('ep',)}
    >>> rules = {"E": "ep+tp", "F": "tp"}
    >>> placed(Param("w", (4, 8, 2), dims="E F D"), rules, Mesh(ep=2, tp=2), {"F": 8}, leading="E")
    {'shard': {'ep+tp': Cut(dim=0, spans=((0, 1), (1, 2), (2, 3), (3, 4)))}}
    """
    shard, partial, every = {}, list(param.partial), list(cuts(param.dims, rules, mesh))
    taken = {axis for _, letter, axes in every if letter in leading for axis in axes.split("+")}
    for dim, letter, axes in every:
        if letter not in leading and axes in taken:
            continue
        if twice := {axis for other in shard for axis in other.split("+")} & set(axes.split("+")):
            raise ValueError(
                f"{param.name} ({param.dims}) would be sharded twice along {', '.join(sorted(twice))}: leave out the "
                f"rule for {letter}"
            )
        groups = sizes.get(letter, param.shape[dim])
        found = spans(groups, mesh.length(axes), param.shape[dim] // groups, letter in copied)
        shard[axes] = Cut(dim, found)
        if len(set(found)) < len(found):
            partial += axes.split("+")
    cut = {axis for axes in shard for axis in axes.split("+")}
    partial += [axis for axis in data if axis not in cut and mesh[axis] > 1]
    changed = {"shard": {**param.shard, **shard}} if shard else {}
    return changed | ({"partial": tuple(partial)} if len(partial) > len(param.partial) else {})


def cuts(dims: str, rules: Rules, mesh: Mesh) -> Iterator[tuple[int, str, str]]:
    """(dim, letter, axes) of every dim of a tensor that a table of rules cuts on this mesh.

    >>> list(cuts("NH D", {"N": "tp", "D": "x"}, Mesh(tp=2)))
    [(0, 'N', 'tp')]
    """
    for dim, letters in enumerate(dims.split()):
        axes = rules.get(letters[0])
        if axes is not None and mesh.length(axes) > 1:
            yield dim, letters[0], axes


def spans(length: int, ways: int, whole: int = 1, copied: bool = False) -> tuple[tuple[int, int], ...]:
    """The spans of `length` groups of `whole` elements on `ways` ranks. If there are too few groups and they may be
    copied, neighbours hold the same group.

    >>> spans(2, 4, whole=8, copied=True)
    ((0, 8), (0, 8), (8, 16), (8, 16))
    """
    different = min(ways, length) if copied else ways
    return tuple(span for span in even(length * whole, different, whole) for _ in range(ways // different))


def part(x: Any, dims: str, rules: Rules, mesh: Mesh, rank: int) -> Any:
    """A rank's part of a tensor or array whose dims have these names: a view.

    >>> import numpy
    >>> part(numpy.arange(10).reshape(2, 5), "B T", {"T": "cp"}, Mesh(cp=2), 1).tolist()
    [[3, 4], [8, 9]]
    """
    for dim, _, axes in cuts(dims, rules, mesh):
        low, high = even(x.shape[dim], mesh.length(axes))[mesh.place(rank, axes)]
        x = x[(slice(None),) * dim + (slice(low, high),)]
    return x


def arranged(x: Any, dims: str, orders: dict[str, list[int]]) -> Any:
    """A tensor or array whose dims have these names, in another order along some of them.

    >>> import numpy
    >>> arranged(numpy.arange(8).reshape(2, 4), "B T", {"T": [0, 3, 1, 2]}).tolist()
    [[0, 3, 1, 2], [4, 7, 5, 6]]
    """
    for dim, letter in enumerate(dims.split()):
        if letter in orders:
            x = x[(slice(None),) * dim + (orders[letter],)]
    return x


def joined(tables: Iterable[tuple[str, Rules]]) -> Rules:
    """The tables of several modes as one; each comes with the name of its mode.

    raises  ValueError where two modes cut one letter

    >>> joined([("tensor", {"F": "tp"}), ("experts", {"E": "ep"})])
    {'F': 'tp', 'E': 'ep'}
    >>> joined([("context", {"T": "cp"}), ("sequence", {"T": "cp+tp"})])
    {'T': 'cp+tp'}
    """
    found, said = {}, {}
    for name, table in tables:
        for letter, axes in table.items():
            if letter in found and not axes.startswith(f"{found[letter]}+"):
                raise ValueError(
                    f"{said[letter]} shards {letter} along {found[letter]}, but {name} shards it along {axes}: leave "
                    "one of them out"
                )
            found[letter], said[letter] = axes, name
    return found


def sizes_of(params: Iterable[Param], said: dict[str, int]) -> dict[str, int]:
    """{letter: its length}, taken from the records; `said` gives those of joined letters, such as the N of "NH".

    raises  ValueError when a record does not have as many dims as names, or a letter has two lengths

    >>> sizes_of([Param("w", (128, 32), dims="F D"), Param("q", (32, 32), dims="NH D")], {"N": 4})
    {'N': 4, 'F': 128, 'D': 32}
    """
    found, source = dict(said), dict.fromkeys(said, "what was said")
    for param in params:
        letters = param.dims.split()
        if param.dims and len(letters) != len(param.shape):
            raise ValueError(
                f"{param.name} has shape {param.shape}, but its dims {param.dims!r} name {len(letters)} dimensions: "
                "name as many as the shape has"
            )
        for letter, length in zip(letters, param.shape):
            if len(letter) > 1 and letter[0] not in said:
                raise ValueError(
                    f"{param.name} has a dimension {letter}, whose number of groups {letter[0]} is not known: give the "
                    f"size of {letter[0]}, sizes={{{letter[0]!r}: …}}"
                )
            if len(letter) > 1 or letter == ".":
                continue
            if found.setdefault(letter, length) != length:
                raise ValueError(
                    f"{letter} is {found[letter]} in {source[letter]}, but {length} in {param.name}: give the two "
                    "dimensions different names"
                )
            source.setdefault(letter, param.name)
    return found
