"""Define the legal ways to divide a model, and the error messages for all others.

Modes use these rules before anything runs. The planner uses them for all plans at once: then the fields are arrays, and
so is the result of a rule. So the planner never plans a division that a rank would reject. The planner also requires
equal parts, see `predict.plans.plan`.

Relatives: `modes.mode.Mode.refuse`, `predict.plans.space`, `predict.plans.plan.check_plan`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.predict.bytes.activations import NONE, SELECTIVE
from hybridlab.predict.bytes.context import GATHER, ULYSSES, USP


class Division(NamedTuple):
    """How a model is divided, and the properties of the model that matter in addition to the lengths of its dims.

    copies  ranks with the same weights and different data;  owners  how many of them shard them; 0: all
    attend, recompute  indices in the lists of their names;  ulysses  ranks that exchange heads with usp, otherwise 1
    attends  whether it has attention;  routed  number of routed experts;  slots  number of experts with a capacity
    fold  whether whole experts are distributed over tp and cp too;  gathered  whether tokens reach experts by an
          all-gather;  tied_pieces  whether a tied embedding is made of pieces of the head
    two_levels  whether the optimizer's state is sharded over all copies;  secondary  neighbours with a second copy of
          the weights; 0: none;  slices  token slices of a row, in turn on the same ranks;  local  with local steps
    """

    tp: int = 1
    x: int = 1
    cp: int = 1
    copies: int = 1
    zero: int = 0
    owners: int = 0
    sequence: bool = False
    scatter: bool = False
    attend: int = GATHER
    ulysses: int = 1
    zigzag: bool = False
    recompute: int = NONE
    attends: bool = True
    routed: bool = False
    slots: bool = False
    fold: bool = False
    gathered: bool = False
    tied_pieces: bool = False
    two_levels: bool = False
    secondary: int = 0
    slices: int = 1
    local: bool = False

    @property
    def narrow(self) -> Amount:
        """Whether positions are also sharded along tp, inside a stage or between stages."""
        return np.logical_or(self.sequence, self.scatter) & (self.tp > 1)

    def keys(self, sizes: dict) -> Amount:
        """The number of KV heads on each tp rank; if there are fewer KV heads than ranks, they are replicated."""
        return np.maximum(sizes.get("K", 0) // self.tp, 1)

    @property
    def sharers(self) -> Amount:
        """The number of copies that shard the weights."""
        return np.where(self.owners, self.owners, self.copies)


class Rule(NamedTuple):
    """A rule for divisions.

    asks   the axis or option that the rule belongs to
    holds  holds(sizes, division): whether one or many divisions satisfy it;  sizes  {letter: length of the dim}
    said   said(sizes, division): the error message if a division does not
    """

    asks: str
    holds: Callable
    said: Callable


def _shares_heads(heads: int, keys: int, ways):
    return (heads == 0) | (heads % ways == 0) & ((keys % ways == 0) | (ways % max(keys, 1) == 0))


def _heads(sizes, one):
    heads = sizes.get("N", 0)
    return heads, sizes.get("K", heads)


def _which_heads(sizes, one) -> str:
    heads, keys = _heads(sizes, one)
    fits = [ways for ways in range(1, heads + 1) if _shares_heads(heads, keys, ways)]
    return (
        f"tp={one.tp} cannot share out heads={heads} and kv_heads={keys}: it must divide heads, and divide kv_heads or "
        f"be a multiple of it, choose one of {fits}"
    )


def _at_least(axis: str, letter: str, what: str, where=lambda one: True) -> Rule:
    """Every rank gets a part."""
    return Rule(
        axis,
        lambda sizes, one: np.logical_not(where(one)) | (sizes.get(letter, np.inf) >= getattr(one, axis)),
        lambda sizes, one: (
            f"{axis}={getattr(one, axis)} cannot divide {what.format(sizes.get(letter))}: choose {axis} up to "
            f"{sizes.get(letter)}"
        ),
    )


def _whole_sequences(axis: str, parts: Callable) -> Rule:
    return Rule(
        axis,
        lambda sizes, one: np.logical_not(one.slots & parts(one)),
        lambda sizes, one: (
            "an expert's capacity counts tokens of full sequences, but here positions are sharded: leave out capacity, "
            "or cp, sequence and fold"
        ),
    )


RULES = (
    Rule("tp", lambda sizes, one: _shares_heads(*_heads(sizes, one), one.tp), _which_heads),
    _at_least("tp", "V", "{} tokens of the vocabulary"),
    _at_least("tp", "F", "{} hidden units"),
    _at_least("tp", "W", "{} hidden units of plain blocks"),
    _at_least("tp", "T", "{} positions", lambda one: one.sequence),
    Rule(
        "tp",
        lambda sizes, one: np.logical_not(one.narrow) | (one.cp == 1) | (sizes.get("T", 0) % (one.cp * one.tp) == 0),
        lambda sizes, one: (
            f"cp={one.cp} and tp={one.tp} need {one.cp * one.tp} equal parts of {sizes['T']} positions: give a "
            f"multiple of {one.cp * one.tp}, or leave out sequence and scatter"
        ),
    ),
    _whole_sequences("tp", lambda one: np.logical_and(one.sequence, one.tp > 1)),
    Rule(
        "tp",
        lambda sizes, one: np.equal(one.slices, 1) | np.logical_not(one.narrow),
        lambda sizes, one: (
            f"{'sequence' if one.sequence else 'scatter'}=True is invalid: slices={one.slices} cuts the positions of a "
            "row already, one slice after another. Leave sequence, scatter or slices out"
        ),
    ),
    _at_least("x", "D", "a width of {}"),
    Rule(
        "x",
        lambda sizes, one: np.logical_not(one.routed) | (one.x == 1),
        lambda sizes, one: f"x={one.x} shards the width, but experts need full tokens: give x=1, or one MLP",
    ),
    Rule(
        "x",
        lambda sizes, one: np.logical_not(one.tied_pieces) | (one.x == 1),
        lambda sizes, one: (
            f"x={one.x} shards the rows of an embedding, but vocabulary parallelism makes a tied one of pieces: leave "
            "out x or tied"
        ),
    ),
    _at_least("cp", "T", "{} positions"),
    Rule(
        "cp",
        lambda sizes, one: (one.attend != ULYSSES) | ("K" not in sizes) | (one.keys(sizes) % one.cp == 0),
        lambda sizes, one: (
            f"attend='ulysses' exchanges positions for heads, but cp={one.cp} does not divide the {one.keys(sizes)} "
            "KV heads on a rank: choose 'ring' or 'gather', or fewer ranks"
        ),
    ),
    Rule(
        "cp",
        lambda sizes, one: np.logical_not(one.zigzag & np.equal(one.attend, ULYSSES)),
        lambda sizes, one: (
            "zigzag=True has no effect with attend='ulysses', which is already balanced: leave out zigzag"
        ),
    ),
    Rule(
        "cp",
        lambda sizes, one: np.equal(one.attend, USP) | (one.ulysses == 1),
        lambda sizes, one: f"ulysses={one.ulysses} has no effect without attend='usp': give both, or leave out ulysses",
    ),
    Rule(
        "cp",
        lambda sizes, one: (
            np.not_equal(one.attend, USP) | ((one.ulysses > 1) & (one.ulysses < one.cp) & (one.cp % one.ulysses == 0))
        ),
        lambda sizes, one: (
            f"attend='usp' divides cp={one.cp} ranks into groups, but not into several of ulysses={one.ulysses}: give "
            "a divisor of cp between 1 and cp, or choose 'ring' or 'ulysses'"
        ),
    ),
    Rule(
        "cp",
        lambda sizes, one: np.not_equal(one.attend, USP) | ("K" not in sizes) | (one.keys(sizes) % one.ulysses == 0),
        lambda sizes, one: (
            f"attend='usp' exchanges positions for heads, but ulysses={one.ulysses} does not divide the "
            f"{one.keys(sizes)} KV heads on a rank: give a smaller group, or choose 'ring' or 'gather'"
        ),
    ),
    Rule(
        "cp",
        lambda sizes, one: np.not_equal(one.attend, USP) | (sizes.get("T", 0) % one.cp == 0),
        lambda sizes, one: (
            f"attend='usp' needs {one.cp} equal parts of {sizes['T']} positions: give a multiple of {one.cp}, or "
            "choose 'ring' or 'gather'"
        ),
    ),
    Rule(
        "cp",
        lambda sizes, one: np.equal(one.slices, 1) | np.equal(one.cp, 1),
        lambda sizes, one: (
            f"cp={one.cp} is invalid: slices={one.slices} cuts the positions of a row already, one slice after "
            "another. Leave cp or slices out"
        ),
    ),
    Rule(
        "slices",
        lambda sizes, one: np.equal(one.slices, 1) | one.attends,
        lambda sizes, one: (
            f"slices={one.slices} is invalid: a model without attention has nothing that joins them. Leave slices out"
        ),
    ),
    Rule(
        "slices",
        lambda sizes, one: np.equal(one.slices, 1) | np.logical_not(one.slots),
        lambda sizes, one: (
            f"slices={one.slices} is invalid: a capacity counts the tokens of whole rows, and an expert would see a "
            "slice of them. Leave capacity out, or choose 1f1b"
        ),
    ),
    _whole_sequences("cp", lambda one: one.cp > 1),
    _whole_sequences("fold", lambda one: one.fold),
    Rule(
        "fold",
        lambda sizes, one: np.logical_not(one.fold) | np.logical_not(one.gathered),
        lambda sizes, one: "dispatch='all_gather' gathers full rows, and fold=True has parts of rows: leave one out",
    ),
    Rule(
        "recompute",
        lambda sizes, one: np.not_equal(one.recompute, SELECTIVE) | one.attends,
        lambda sizes, one: "recompute='selective' recomputes attention, but this model has none: choose 'full'",
    ),
    Rule(
        "sums",
        lambda sizes, one: np.equal(one.zero, 0) | np.logical_not(one.local),
        lambda *about: "sums=local keeps all weights in every copy: leave out zero, or choose other sums",
    ),
    Rule(
        "zero",
        lambda sizes, one: np.equal(one.zero, 0) | (one.copies > 1),
        lambda sizes, one: f"zero={one.zero} shards over data-parallel ranks, but dp=1 has only one: give dp=2 or more",
    ),
    Rule(
        "zero",
        lambda sizes, one: np.equal(one.zero, 0) | (one.owners <= one.copies),
        lambda sizes, one: (
            f"owners={one.owners} is more than the {one.copies} data-parallel ranks: give {one.copies} or fewer"
        ),
    ),
    Rule(
        "zero",
        lambda sizes, one: np.not_equal(one.zero, 3) | np.not_equal(one.owners, 1),
        lambda sizes, one: "zero=3 with owners=1 shards nothing: give owners=2 or more, or offload=True",
    ),
    Rule(
        "zero",
        lambda sizes, one: np.logical_not(one.two_levels) | ((one.sharers > 1) & (one.sharers < one.copies)),
        lambda sizes, one: (
            f"two_levels=True needs several groups of several owners, but owners={one.owners} of {one.copies} ranks: "
            "give owners=2 or more, and dp a larger multiple of it, or leave out two_levels"
        ),
    ),
    Rule(
        "zero",
        lambda sizes, one: np.equal(one.secondary, 0) | (np.equal(one.zero, 3) & np.logical_not(one.two_levels)),
        lambda sizes, one: (
            f"secondary={one.secondary} is a second copy of sharded weights: give zero=3 without two_levels, or leave "
            "out secondary"
        ),
    ),
    Rule(
        "zero",
        lambda sizes, one: (
            np.equal(one.secondary, 0)
            | (one.secondary > 1) & (one.secondary < one.sharers) & (one.sharers % np.maximum(one.secondary, 1) == 0)
        ),
        lambda sizes, one: (
            f"secondary={one.secondary} cannot divide the {one.sharers} owners into groups of neighbours: give a "
            f"divisor between 1 and {one.sharers}"
        ),
    ),
)


def holds(sizes: dict, division: Division, *asks: str) -> Amount:
    """Whether all rules are satisfied, or all rules of the given axes and options; an array if the division has arrays.

    >>> holds({"N": 8, "K": 2}, Division(tp=np.array([1, 3, 4])))
    array([ True, False,  True])
    """
    kept = True
    for rule in RULES:
        if rule.asks in asks or not asks:
            kept = kept & np.asarray(rule.holds(sizes, division), bool)
    return kept


def refuse(sizes: dict, division: Division, *asks: str) -> None:
    """Check the rules of these axes and options; without names, check all rules.

    raises  ValueError that says what to change

    >>> refuse({"T": 8}, Division(cp=4))
    >>> refuse({"T": 3}, Division(cp=4))
    Traceback (most recent call last):
    ValueError: cp=4 cannot divide 3 positions: choose cp up to 3
    """
    for rule in RULES:
        if (rule.asks in asks or not asks) and not np.all(rule.holds(sizes, division)):
            raise ValueError(rule.said(sizes, division))
