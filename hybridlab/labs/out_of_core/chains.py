"""A chain of blocks on one device: a forward takes 1, a backward 2, a copy any time; and the length of a plan for it.

A *plan* has a word for each block, first block first: "keep" its saved activations on the device, "swap" them to the
host and back, or "recompute" them. `room` is memory in blocks: a block is the saved activations of one forward.
"""

from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.labs.rows import Table
from hybridlab.labs.rows import table as rows_of
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.out_of_core import AGAIN, AWAY, STAY, Mixture, mixed, planned
from hybridlab.predict.time.simulate import simulate

BLOCKS, ROOM = 12, 5
KEEP, SWAP, RECOMPUTE = "keep", "swap", "recompute"
CHOICE = {KEEP: STAY, SWAP: AWAY, RECOMPUTE: AGAIN}
WORD = {choice: word for word, choice in CHOICE.items()}
SHORT = {KEEP: "k", SWAP: "s", RECOMPUTE: "r"}


def chain(blocks: int = BLOCKS) -> Schedule:
    """All forwards, then all backwards, on one rank: a block is a stage.

    >>> print(chain(2))
    rank 0: 0F0 1F0 1B0 0B0
    """
    text = [f"{block}F0" for block in range(blocks)] + [f"{block}B0" for block in reversed(range(blocks))]
    return Schedule.from_csv(",".join(text), name="chain")


def costs(swap: float, unit: float = 1.0) -> Costs:
    """A forward takes one unit, a backward two, a copy `swap` units."""
    return Costs(F=unit, B=2 * unit, swap=swap * unit, unit="units" if unit == 1 else "s")


def mixture(plan: list[str], room: float, swap: float) -> Mixture:
    """The schedule and length of a plan.

    raises  ValueError for a word other than these three
    """
    if wrong := [word for word in plan if word not in CHOICE]:
        raise ValueError(f"{wrong[0]!r} is not a choice: choose from {', '.join(CHOICE)}")
    return mixed(chain(len(plan)), tuple(CHOICE[word] for word in plan), Room(room), costs(swap))


def length(plan: list[str], room: float = ROOM, swap: float = 1) -> float:
    """The predicted length of a step by this plan; infinite if it does not fit into memory.

    plan  a word for each block;  room  in blocks;  swap  one copy, in forwards

    >>> length(["keep"] * 12, room=12), length(["keep"] * 12, room=5), length(["recompute"] * 12, room=5)
    (36.0, inf, 48.0)
    """
    return mixture(plan, room, swap).length


def step(plan: list[str], room: float = ROOM, swap: float = 1) -> Timeline:
    """The predicted step of a plan; the arguments are those of `length`.

    raises  ValueError if it does not fit
    """
    one = mixture(plan, room, swap)
    if one.length == float("inf"):
        raise ValueError(f"this plan does not fit into memory for {room:g} blocks: keep fewer")
    return simulate(one.schedule, costs(swap), room=Room(room))


def best(blocks: int = BLOCKS, room: float = ROOM, swap: float = 1) -> list[str]:
    """The best plan that the package's search finds.

    >>> " ".join(best(5, room=2, swap=3))
    'swap recompute recompute keep keep'
    """
    return [WORD[choice] for choice in planned(chain(blocks), Room(room), costs(swap)).choice]


def early(blocks: int, room: int, swap: float) -> list[list[str]]:
    """Plans that follow one rule, for each number of swaps: keep the last blocks, swap the first, recompute the
    rest."""
    free = blocks - room
    return [[SWAP] * first + [RECOMPUTE] * (free - first) + [KEEP] * room for first in range(free + 1)]


def table(swaps=(0.5, 1, 2, 3, 6), blocks: int = BLOCKS, room: int = ROOM) -> Table:
    """Lengths of some simple plans and of the best plan found, for several durations of a copy."""
    free, rows = blocks - room, []
    habits = ([SWAP] * blocks, [RECOMPUTE] * blocks, [SWAP] * free + [KEEP] * room, [RECOMPUTE] * free + [KEEP] * room)
    for swap in swaps:
        found = best(blocks, room, swap)
        lengths = [length(plan, room, swap) for plan in (*habits, found)]
        rows.append((f"{swap:g}", *lengths, "".join(SHORT[word] for word in found)))
    kept = f"last {room} kept, rest"
    heads = (
        "a copy",
        "all swapped",
        "all recomputed",
        f"{kept} swapped",
        f"{kept} recomputed",
        "best found",
        "its plan",
    )
    return rows_of(heads, rows)
