"""The layout: the placement of all parameters on the ranks, one record for each parameter.

Slicing, gradient reduction, clipping, the optimizer's shards, checkpoints, counted bytes and pictures all read the same
record. It has two placements. While computing, a rank holds a *box*: the parameter's slice at its coordinates, or
nothing. Between steps, the ranks that hold the same box may shard it: each owns a *share*.

Along an axis a parameter's gradient has one of three types (see `world.talk.typed`): V where boxes differ (the axis
*shards* it); R where copies see different data, so that their gradients are *partial* sums; I where copies do the same
work.

Read next: `core.where.rules` (writes the records), `core.where.peers` (the ranks with the same part), `modes.zero`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from hybridlab.core.where import legal
from hybridlab.core.where.dealing import deal
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.peers import Peers
from hybridlab.doors import AMOUNT, guarded, intervals


@guarded(dim=AMOUNT, spans=intervals)
class Cut(NamedTuple):
    """How an axis shards a parameter: along `dim`, with a span (from, to) for each coordinate.

    Coordinates with equal spans hold copies.

    >>> Cut(0, even(10, 4))
    Cut(dim=0, spans=((0, 3), (3, 6), (6, 8), (8, 10)))
    """

    dim: int
    spans: tuple[tuple[int, int], ...]


def even(length: int, parts: int, whole: int = 1) -> tuple[tuple[int, int], ...]:
    """Nearly equal spans that cut `length` into `parts`, each a multiple of `whole`; longer spans come first.

    >>> even(6, 4, whole=2)
    ((0, 2), (2, 4), (4, 6), (6, 6))
    """
    units, ends = length // whole, [0]
    for part in range(parts):
        ends.append(ends[-1] + whole * (units // parts + (part < units % parts)))
    return tuple(zip(ends, ends[1:]))


@guarded()
@dataclass(frozen=True)
class Param:
    """The record of one parameter.

    name     of the parameter in the model
    shape    the shape of the full parameter, never padded;  dims  the names of its dims, see `core.where.rules`
    shard    {axis: Cut}; two axes may act as one, "y+z";  at  {axis: the coordinates that hold it}, if not all do: a
             stage, the ends of a tied model
    partial  the axes over which the local gradients still have to be reduced
    pack     the index of the buffer in which it is sent
    owners   the number of neighbouring ranks that shard a box between steps; 1: not sharded
    over     the axes along which they are neighbours; the last axis varies fastest
    rest     what is sharded, as in ZeRO's stages: 1 the optimizer's state, 2 also the gradient, 3 also the value
    whole    whether a box has one owner between steps, because its optimizer needs full matrices
    groups   of owners; each group shards the full value into owners/groups pieces, each with a share of every group
    secondary  the number of neighbours that shard a second copy of the value, from which they gather it; 0: none
    """

    name: str
    shape: tuple[int, ...]
    shard: dict[str, Cut] = field(default_factory=dict)
    at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    partial: tuple[str, ...] = ()
    pack: int = 0
    owners: int = 1
    rest: int = 0
    dims: str = ""
    over: tuple[str, ...] = ("dp",)
    whole: bool = False
    groups: int = 1
    secondary: int = 0

    def __hash__(self) -> int:
        return hash(self.name)

    def box(self, mesh: Mesh, rank: int) -> tuple[slice, ...] | None:
        """The slices of the parameter that a rank computes with; None: it holds no part of it."""
        if any(mesh.place(rank, axis) not in held for axis, held in self.at.items()):
            return None
        spans = {cut.dim: cut.spans[mesh.place(rank, axis)] for axis, cut in self.shard.items()}
        return tuple(slice(*spans.get(dim, (0, length))) for dim, length in enumerate(self.shape))

    @property
    def largest(self) -> int:
        """The number of elements of the largest box."""
        longest = {cut.dim: max(high - low for low, high in cut.spans) for cut in self.shard.values()}
        return math.prod(longest.get(dim, length) for dim, length in enumerate(self.shape))

    @property
    def pattern(self) -> tuple:
        """A key that is equal for parameters sharded in the same way, even if their sizes differ."""
        numbered = lambda cut: tuple(cut.spans.index(span) for span in cut.spans)
        shard = tuple(sorted((axis, numbered(cut)) for axis, cut in self.shard.items()))
        return shard, tuple(sorted(self.at.items())), self.partial, self.owners, self.over, self.groups, self.secondary


@guarded()
@dataclass(frozen=True, eq=False)
class Layout:
    """The records of all parameters of a model on a mesh.

    mesh    of the ranks
    params  a record for each parameter

    raises  ValueError if the records do not fit the mesh, see `validate`

    >>> weight = Param("w", (4, 6), shard={"tp": Cut(0, even(4, 2))}, partial=("dp",), owners=2, rest=1)
    >>> layout = Layout(Mesh(dp=2, tp=2), (weight,))
    >>> layout.box("w", 1), layout.share("w", 1), layout.copies("w", 1), layout.summed("w", 1)
    ((slice(2, 4, None), slice(0, 6, None)), slice(0, 6, None), (1,), (1, 3))
    """

    mesh: Mesh
    params: tuple[Param, ...]

    @cached_property
    def named(self) -> dict[str, Param]:
        """The records by name, in model order."""
        return {param.name: param for param in self.params}

    def __getitem__(self, name: str) -> Param:
        return self.named[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def box(self, name: str, rank: int) -> tuple[slice, ...] | None:
        """The slices of a parameter that `rank` computes with; None: it holds no part of it."""
        if (name, rank) not in self._boxes:  # asked for in every step, for every share
            self._boxes[name, rank] = self.named[name].box(self.mesh, rank)
        return self._boxes[name, rank]

    @cached_property
    def _boxes(self) -> dict[tuple[str, int], tuple[slice, ...] | None]:
        return {}

    def held(self, rank: int) -> list[str]:
        """The parameters of which `rank` holds a part, in model order."""
        return [name for name in self.named if self.box(name, rank) is not None]

    def size(self, name: str, rank: int) -> int:
        """The number of elements of a rank's box; 1 for a parameter without dims."""
        box = self.box(name, rank)
        return 0 if box is None else math.prod(span.stop - span.start for span in box)

    # which ranks have the same part, and which add gradients

    def peers(self, name: str) -> Peers:
        """The ranks that hold the same part of a parameter, and those that reduce its gradients."""
        return self._peers[self.named[name].pattern]

    @cached_property
    def _peers(self) -> dict[tuple, Peers]:
        patterns = dict.fromkeys(param.pattern for param in self.params)
        return {one: Peers(self.mesh, dict(one[0]), dict(one[1]), *one[2:]) for one in patterns}

    def same_box(self, name: str, rank: int) -> tuple[int, ...]:
        """The ranks that compute with the same box as `rank`, itself included."""
        return self.peers(name).same_box(rank)

    def summed(self, name: str, rank: int) -> tuple[int, ...]:
        """The ranks that all-reduce the gradient of this box: those with the same box that differ along `partial`."""
        return self.peers(name).summed(rank)

    def sharers(self, name: str, rank: int) -> tuple[int, ...]:
        """The neighbouring ranks that gather this rank's box from their pieces: the owners, or one group of them."""
        return self.peers(name).sharers(rank)

    def across(self, name: str, rank: int) -> tuple[int, ...]:
        """The ranks, one in each group of owners, whose shares are parts of this rank's piece."""
        return self.peers(name).across(rank)

    def near(self, name: str, rank: int) -> tuple[int, ...]:
        """The neighbours that gather this rank's box from second copies of its parts."""
        return self.peers(name).near(rank)

    def share_number(self, name: str, rank: int) -> int:
        """The index of this rank's share."""
        return self.peers(name).share_number(rank)

    def copies(self, name: str, rank: int) -> tuple[int, ...]:
        """The ranks that own the same share of the same box."""
        return self.peers(name).copies(rank)

    def twins(self, name: str, rank: int) -> tuple[int, ...]:
        """The ranks that all-reduce this share after the reduce-scatters."""
        return self.peers(name).twins(rank)

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """Every group of ranks that reduces gradients or gathers shares, in the order in which groups are opened."""
        found = set().union(*(peers.groups for peers in self._peers.values()))
        return sorted(group for group in found if len(group) > 1)

    def counts(self, name: str, rank: int, among: Collection[int] | None = None) -> bool:
        """Whether this rank counts its share in the norm and in a checkpoint, so that every element counts once.

        among  the ranks that count together; None: all
        """
        if self.box(name, rank) is None:
            return False
        return next(one for one in self.copies(name, rank) if among is None or one in among) == rank

    # packs: the parameters that are sent as one buffer, and the places of their shares in it

    @cached_property
    def packs(self) -> dict[int, list[str]]:
        """The parameters of each pack, in the order of its buffer."""
        packs = {}
        for param in self.params:
            packs.setdefault(param.pack, []).append(param.name)
        return packs

    @cached_property
    def dealt(self) -> dict[str, int]:
        """{parameter with one owner: the index of the share that has all of it}, see `core.where.dealing`.

        The largest boxes determine the owner, so ranks with smaller boxes of the same parameters choose the same.
        """
        whole = [names for names in self.packs.values() if self[names[0]].whole]
        sizes = [{name: self[name].largest for name in names} for names in whole]
        return {name: owner for its in sizes for name, owner in deal(its, self[next(iter(its))].owners).items()}

    def offset(self, name: str, rank: int) -> int:
        """The offset of a rank's box in the buffer of its pack."""
        pack, owner = self.named[name].pack, self.dealt.get(name)
        names = [one for one in self.packs[pack] if self.dealt.get(one) == owner]
        before = sum(self.size(one, rank) for one in names[: names.index(name)])
        return before + (owner * self.piece(pack, rank) if owner else 0)

    def piece(self, pack: int, rank: int) -> int:
        """The length of one share of a pack's buffer, which is padded to `owners` times this length."""
        names, lengths = self.packs[pack], {}
        for name in names:
            owner = self.dealt.get(name)
            lengths[owner] = lengths.get(owner, 0) + self.size(name, rank)
        return -(-lengths[None] // self[names[0]].owners) if None in lengths else max(lengths.values())

    def owns(self, name: str, rank: int) -> bool:
        """Whether a rank has, or may have, elements of this parameter between steps: pieces can end inside it."""
        return self.dealt.get(name, self.share_number(name, rank)) == self.share_number(name, rank)

    def share(self, name: str, rank: int, number: int | None = None) -> slice:
        """The elements of the flattened box that `rank` owns, or that the sharer with this index owns."""
        number = self.share_number(name, rank) if number is None else number
        offset, piece, size = self.offset(name, rank), self.piece(self[name].pack, rank), self.size(name, rank)
        return slice(*(min(max(end - offset, 0), size) for end in (number * piece, (number + 1) * piece)))

    # the layout as a whole

    def with_params(self, change: Callable[[Param], dict[str, Any]]) -> "Layout":
        """The same layout with `change(param)`, a dict of new fields, applied to every record."""
        return replace(self, params=tuple(replace(param, **change(param)) for param in self.params))

    @cached_property
    def fingerprint(self) -> str:
        """A short text that is the same only for equal layouts: ranks compare it before the first step."""
        records = [asdict(param) for param in self.params]
        for record in records:
            del record["dims"]  # a name places nothing
            for name in ("over", "whole", "groups", "secondary"):  # layouts older than these fields keep their text
                if record[name] == getattr(Param, name):
                    del record[name]
        text = json.dumps([list(self.mesh.axes.items()), records], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def elements(self, rank: int) -> dict[str, int]:
        """The elements of weights, gradients and optimizer state that a rank keeps *between steps*, with padding.

        returns {"value": …, "gradient": …, "optimizer": …, "owned": the optimizer's, without padding; "whole": of
                these, the elements of parameters with one owner; "alone": values of which the optimizer has no copy}
        """
        counted: dict[str, int] = dict.fromkeys(("optimizer", "gradient", "value", "owned", "whole", "alone"), 0)
        for pack, names in self.packs.items():
            first, piece = self.named[names[0]], self.piece(pack, rank)
            for level, what in enumerate(("optimizer", "gradient", "value"), start=1):
                counted[what] += piece * (1 if first.rest >= level else first.owners)
            if first.rest == 3:
                counted["value"] += piece * (first.groups - 1)
                counted["value"] += piece * first.owners // first.secondary if first.secondary else 0
                counted["alone"] += piece if first.groups == 1 else 0
            shares = [self.share(name, rank) if first.rest else slice(0, self.size(name, rank)) for name in names]
            counted["owned"] += sum(share.stop - share.start for share in shares)
            counted["whole"] += sum(share.stop - share.start for share in shares if first.whole)
        return counted

    def validate(self) -> "Layout":
        """The layout itself, if every element of every parameter is on some rank, and the records agree.

        raises  ValueError that names the parameter
        """
        for param in self.params:
            legal.refuse(param, self.mesh)
        for names in self.packs.values():
            every = [self[name] for name in names]
            shared = lambda one: (one.owners, one.groups, one.secondary, one.rest, one.whole, self.peers(one.name).sums)
            if len(set(map(shared, every))) > 1:
                raise ValueError(
                    f"{', '.join(names)} have different owners or are reduced over different ranks: put them in "
                    "separate packs"
                )
        return self
