"""Solutions of notebook 40."""

from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.hybrid.build_solutions import BUILD_SOLUTIONS


def _groups(**axes) -> dict:
    return {axis: [list(group) for group in Mesh(**axes).groups(axis)] for axis in ("tp", "dp", "pp")}


def _design(zero=2, **axes) -> dict:
    return {"mesh": Mesh(**axes), "zero": zero}


def _builder(step: str) -> Cell:
    return Cell(f"""\
def data_groups(p, t, d):
    groups = []
    for stage in range(p):
        for part in range(t):
            first = stage * d * t + part
            groups.append(list(range(first, first + d * t, {step})))
    return groups

labs.answer("hybrid.builder", data_groups)""")


GROUPS = _groups(pp=2, dp=2, tp=2)

MOVES = Cell("""\
from collections import Counter

def my_moves(have, want):
    sent, messages = Counter(), []
    for to, (first, last) in enumerate(want):
        for span in sorted(set(have) - {have[to]}):
            low, high = max(span[0], first), min(span[1], last)
            if low < high:
                sender = min((r for r in range(len(have)) if have[r] == span), key=lambda r: sent[r])
                sent[sender] += high - low
                messages.append((sender, to, low, high))
    return messages

labs.answer("hybrid.moves", my_moves)""")

SOLUTIONS: dict[str, Solution] = {
    "hybrid.moves": Solution(
        MOVES,
        "Each receiver needs the intersection of its new span with every other old span, from one rank that has it.",
        (
            (MOVES.but(" - {have[to]}", ""), "which has it already"),
            (MOVES.but("key=lambda r: sent[r]", "key=lambda r: r"), "have the same span"),
            (MOVES.but("sent[sender] += high - low", "sent[sender] += 1"), "but they send 16 and 2 elements"),
            (MOVES.but("min(span[1], last)", "span[1]"), "does not need it"),
            (MOVES.but("max(span[0], first)", "first"), "so it cannot send"),
            (MOVES.but("high = max(span[0], first), min(span[1], last)", "high = span"), "does not need it"),
            (MOVES.but("low, high))", "low + 1, high))"), "is sent to rank 1 0 times"),
            (
                MOVES.but("messages.append((sender, to, low, high))", "messages += 2 * [(sender, to, low, high)]"),
                "2 times",
            ),
            (MOVES.but("(sender, to, low, high)", "(sender, to)"), "(sender, receiver, from, to)"),
            (MOVES.but("(sender, to, low, high)", "(sender, to, high, low)"), "is not a message"),
            (MOVES.but("return messages", "return None"), "return a list of messages"),
            (MOVES.but("set(have)", "set(had)"), "it raised NameError"),
            ([(0, 1, 4, 6)], "your function itself"),
        ),
    ),
    **BUILD_SOLUTIONS,
    "hybrid.groups": Solution(
        """\
labs.answer("hybrid.groups", {
    "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "dp": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "pp": [[0, 4], [1, 5], [2, 6], [3, 7]],
})""",
        "rank = 4·stage + 2·copy + part: along each axis one of the three varies, and the others are fixed.",
        (
            (_groups(tp=2, dp=2, pp=2), "pipeline fastest"),
            (_groups(dp=2, pp=2, tp=2), "Your groups for dp are those of pp"),
            ({**GROUPS, "pp": [[0, 4]]}, "Along pp every rank 0 to 7"),
            ({**GROUPS, "dp": [[0, 3], [1, 2], [4, 7], [5, 6]]}, "The groups along dp are wrong"),
            ({"tp": GROUPS["tp"]}, "Answer with"),
            ({**GROUPS, "tp": 3}, "The groups along tp are wrong"),
            ({**GROUPS, "tp": [[0, 1.5], *GROUPS["tp"][1:]]}, "The groups along tp are wrong"),
        ),
        also=(GROUPS, {axis: [tuple(reversed(one)) for one in its] for axis, its in GROUPS.items()}),
    ),
    "hybrid.cuts": Solution(
        'labs.answer("hybrid.cuts", {32: (6, 1, 2), 128: (3, 1, 4)})',
        "Parts of a layer send the most. Messages between stages grow with the batch, gradients do not.",
        (
            ({32: (6, 1, 2), 128: (6, 1, 2)}, "With 128 sequences, p=6, t=1, d=2 sends 2.55 GB; 2.28 GB are possible"),
            ({32: (3, 1, 4), 128: (3, 1, 4)}, "With 32 sequences, p=3, t=1, d=4 sends 1.48 GB"),
            ({32: (3, 2, 2), 128: (3, 1, 4)}, "3.09 GB"),
            ({32: (6, 2, 2), 128: (3, 1, 4)}, "24 devices"),
            ({32: (12, 1, 1), 128: (3, 1, 4)}, "no cut p=12"),
            ({32: (6, 1, 2)}, "Answer with"),
            ({32: (6, 2), 128: (3, 1, 4)}, "Answer with"),
        ),
        also=({32: [6, 1, 2], 128: [3, 1, 4]},),
    ),
    "hybrid.count": Solution(
        """\
twos = ($gpus).bit_length() - 1
labs.answer("hybrid.count", (twos + 2) * (twos + 1) // 2)""",
        "The factors 2 of the number of GPUs are distributed over three axes: stars and bars.",
        ((7, "divisors"), (168, "orders"), (64, "exponent"), (30, "large"), (20, "small")),
        also=(28, "28"),
    ),
    "hybrid.scatter": Solution(
        'labs.answer("hybrid.scatter", 2 * 2048 * 12288 * 2 / 1e6)',
        "The parts of all t ranks make up one tensor, and one goes in each direction.",
        ((805.3, "without"), (50.33, "gradient comes back"), (12.58, "one rank sends"), (1, "small")),
        also=(100.66, 100.7),
    ),
    "hybrid.lost": Solution(
        'labs.answer("hybrid.lost", [2, 6])',
        "Two copies of one stage are lost: the third one does the work of all three.",
        (
            ([2, 5], "Other pairs make it longer"),
            ([0, 1], "Other pairs make it longer"),
            ([2], "a list of two ranks"),
            ([2.5, 6], "a list of two ranks"),
            (5, "a list of two ranks"),
            ([2, 14], "The ranks are 0 to 11"),
        ),
        also=([0, 4], (11, 3), {1, 5}),
    ),
    "hybrid.builder": Solution(
        _builder("t"),
        "Copies of one part are t ranks apart; the test could not detect the mistake, because t and d were equal.",
        (
            (_builder("d"), "With p=1, t=4, d=2 it builds [[0, 2, 4, 6]"),
            (Cell('labs.answer("hybrid.builder", lambda p, t, d: 1 / 0)'), "ZeroDivisionError"),
            (_builder("1"), "it builds"),
            (
                Cell(_builder("t").replace("for part in range(t)", "for part in range(d)")),
                "it builds 2 groups; one for each stage and part makes 4",
            ),
            (Cell(_builder("t").replace("groups.append", "return groups.append")), "it builds None; one data group is"),
            ([[0, 2]], "function itself"),
        ),
        also=(lambda p, t, d: Mesh(pp=p, dp=d, tp=t).groups("dp"),),
    ),
    "hybrid.design": Solution(
        'labs.answer("hybrid.design", dict(mesh=hl.Mesh(dp=2, pp=4, tp=2), zero=2))',
        "Tensor groups and consecutive stages are in one node; two copies with sharded gradients and state just fit.",
        (
            (_design(dp=2, pp=8), "A rank stores 704,640 bytes"),
            (_design(dp=2, pp=4, tp=2, zero=1), "640,000 are allowed"),
            (_design(dp=2, pp=2, tp=4), "are possible"),
            (_design(pp=4, dp=2, tp=2), "are possible"),
            (_design(dp=2, pp=2, tp=2), "has 8 ranks; there are 16"),
            (_design(pp=16, zero=0), "16 stages need at least 16 layers"),
            (_design(pp=4, tp=4), "dp=1 has only one"),
            ({"mesh": (2, 4, 2), "zero": 2}, "Answer with dict"),
            (_design(dp=2, pp=4, tp=2, zero=3), "zero from 0 to 2"),
        ),
        also=(_design(dp=2, pp=4, tp=2),),
    ),
}
