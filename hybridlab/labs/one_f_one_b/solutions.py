"""Solutions of notebook 12."""

import hybridlab as hl
from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.one_f_one_b.letters import from_letters

GAME = "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3"
GAME_LETTERS = ["FFFBFBBB", "FFBFBFBB", "FBFBFBFB"]
GPIPE_LETTERS = ["FFFFBBBB"] * 3
DESIGN = ["FFF" + "BF" * 9 + "BBB", "FFF" + "BBFBFF" * 3 + "BBB", "FFFBBB" + "FFBFBB" * 3, "FB" * 12]
IN_TURNS = ["FFF" + "BF" * 9 + "BBB", "FFF" + "BF" * 9 + "BBB", "FF" + "BF" * 10 + "BB", "FB" * 12]
IN_LETTERS = ["F" * (3 - rank) + "FB" * (12 - (3 - rank)) + "B" * (3 - rank) for rank in range(4)]


def _order(*lines: str) -> Cell:
    """A cell whose function has these lines."""
    body = "\n".join(f"    {line}" for line in lines)
    return Cell(f'def my_order(rank, ranks, microbatches):\n{body}\n\nlabs.answer("1f1b.order", my_order)')


def _phases(warm_up: str) -> Cell:
    return _order(f"w = {warm_up}", 'return "F" * w + "FB" * (microbatches - w) + "B" * w')


ENGINE = Cell("""\
def my_play(comm, stage, program, data):
    before, after, m = comm.rank - 1, comm.rank + 1, len(data)
    first, last = comm.rank == 0, after == comm.size
    kept, sent = {}, []
    for kind, k in program[comm.rank]:
        if kind == "F":
            x, target = data[k]
            if not first:
                x = comm.recv(torch.empty_like(x), before, tag=k).requires_grad_()
            y = stage(x)
            if last:
                y = toy.loss(y, target) / m
            else:
                sent.append(comm.isend(y.detach(), after, tag=k))
            kept[k] = x, y
        else:
            x, y = kept.pop(k)
            y.backward(None if last else comm.recv(torch.empty_like(y), after, tag=m + k))
            if not first:
                sent.append(comm.isend(x.grad, before, tag=m + k))
    for message in sent:
        message.wait()

labs.answer("1f1b.engine", my_play)""")
BLOCKING = ENGINE.but("sent.append(comm.isend(y.detach(), after, tag=k))", "comm.send(y.detach(), after, tag=k)").but(
    "sent.append(comm.isend(x.grad, before, tag=m + k))", "comm.send(x.grad, before, tag=m + k)"
)

AGAIN = ENGINE.but("my_play", "my_blocking").but("1f1b.engine", "1f1b.blocking")
BLOCKED = BLOCKING.but("my_play", "my_blocking").but("1f1b.engine", "1f1b.blocking")

MENDED = ENGINE.but("my_play", "mended").but('("1f1b.engine", mended)', '("1f1b.clinic", ("c", mended))')

SOLUTIONS: dict[str, Solution] = {
    "1f1b.clinic": Solution(
        MENDED,
        "The latest forward is the right one only where all ranks hold the same microbatches: in the naive order and "
        "in GPipe.",
        (
            (MENDED.but("kept.pop(k)", "kept.popitem()[1]"), "That is the cause. But: Rank 0 did F0 F1 F2 B2"),
            (MENDED.but('"c"', '"a"'), "fail too"),
            (MENDED.but('"c"', '"b"'), "by the same factor"),
            (("c", "kept.pop(k)"), "Now fix it"),
            (("d", len), "one of a, b, c"),
            (len, "Answer with the letter of the cause"),
        ),
    ),
    "1f1b.engine": Solution(
        ENGINE,
        "The list gives the order, and the messages determine the times. The function itself contains no schedule.",
        (
            (BLOCKING, "deadlock: rank 1 waits in send"),
            (BLOCKING, "isend returns at once"),
            (
                ENGINE.but("program[comm.rank]", '[(kind, k) for kind in "FB" for k in range(m)]'),
                "its list says F0 F1 F2 B0",
            ),
            (ENGINE.but("kept.pop(k)", "kept.popitem()[1]"), "did F0 F1 F2 B2"),
            (
                ENGINE.but("kept.pop(k)", "kept[k]").but("y.backward(", "y.backward(retain_graph=True, gradient="),
                "held 4",
            ),
            (ENGINE.but(" / m", ""), "4 times too large"),
            (ENGINE.but(" / m", " / m ** 2"), "4 times too small"),
            (ENGINE.but(".requires_grad_()", ""), "was not marked with requires_grad_()"),
            (ENGINE.but("comm.isend(x.grad, before", "comm.isend(x.detach(), before"), "different gradients"),
            (ENGINE.but("== comm.size", "== 3"), "Right on 3 ranks with the lists of 1f1b, m = 4. On 2 ranks"),
            ("FBFB", "your function itself"),
        ),
    ),
    "1f1b.blocking": Solution(
        BLOCKED,
        "In the steady phase one rank sends an activation while the next one sends a gradient: each waits for the "
        "other to receive.",
        (
            (AGAIN, "Both runs end"),
            (BLOCKED.but(" / m", ""), "With the lists of gpipe: Rank 0 has gradients 4 times too large"),
            (BLOCKED.but("kept.pop(k)", "kept.pop(m - 1 - k)"), "With the lists of gpipe: Rank 0 did"),
            (
                BLOCKED.but("sent = {}, []", "sent = {}, []\n    assert program[0][3] == ('F', 3)"),
                "fails, but not because",
            ),
            ("deadlock", "your function itself"),
        ),
    ),
    "1f1b.warmup": Solution(
        'labs.answer("1f1b.warmup", (4 - 1 - 1, 4 - 1))',
        "Rank 1 does three forwards before its first backward; the third is already half of the first steady pair.",
        (
            ((3, 2), "The two are swapped"),
            ((2, 2), "They differ"),
            ((1, 2), "begins with 3 forwards"),
            (2, "two whole numbers"),
        ),
        also=([2, 3], (2.0, 3.0)),
    ),
    "1f1b.game": Solution(
        f'''mine = """
{GAME}
""".strip()

labs.answer("1f1b.game", mine)''',
        "Warm-up of p-1-r forwards, then a forward and a backward in turn: the last rank never waits, and rank r holds "
        "p-r activations.",
        (
            (GPIPE_LETTERS, "rank 0 holds 4 activations at once; 3 would be enough"),
            (["FB" * 4] * 3, "It takes 36 units, idle / total 66.7%; 18 are possible"),
            (GAME.replace("2F0,2B0", "2B0,2F0"), "waits on itself"),
            (GAME.replace(",2B3", ""), "add 2B3"),
            (["FB"] * 3, "Make it 3, 3, 4"),
            ("0X0,0B0", "is not an action"),
            (["FX"], "list of strings of F and B"),
            ("0F0," * 10_000, "far too long"),
            (from_letters(GAME_LETTERS).replace("0B0", "0I0,0W0"), "F and B"),
        ),
        also=(GAME, GAME_LETTERS, hl.schedule("1f1b", ranks=3, microbatches=4)),
    ),
    "1f1b.play": Solution(
        """\
labs.answer("1f1b.play", [
    "FFF" + "BF" * 3 + "BBB",
    "FFF" + "BBFBFF" + "BBB",
    "FFFBBB" + "FFBFBB",
    "FB" * 6,
])""",
        "Three microbatches are in flight, and each round takes 12 units. Every rank does a ready action, a backward "
        "first.",
        (
            (["F" * 6 + "B" * 6] * 4, "27 units, but rank 0 holds 6 activations; 3 are allowed"),
            (hl.schedule("1f1b", ranks=4, microbatches=6), "27 units, but rank 0 holds 4 activations; 3 are allowed"),
            (["F" * w + "BF" * (6 - w) + "B" * w for w in (3, 3, 2, 1)], "But it takes longer than 30 units"),
            (["FB" * 6] * 4, "But it takes longer than 30 units"),
            (["FFFB" + "FB" * 3 + "BB"] * 4, "waits"),
            (["FB" * 8] * 4, "Make it 4, 4, 6"),
            (hl.schedule("zb_h1", ranks=4, microbatches=6), "only F and B"),
            (30, "Answer with text"),
        ),
        also=(["FFF" + "BF" * 3 + "BBB", "FFF" + "BBFBFF" + "BBB", "FFBFBB" * 2, "FB" * 6],),
    ),
    "1f1b.held": Solution(
        'labs.answer("1f1b.held", [min(6 - r, 4) for r in range(6)])',
        "Rank r can have p-r microbatches in flight, but never more than m.",
        (
            ([6, 5, 4, 3, 2, 1], "only 4 microbatches"),
            ([4] * 6, "That is GPipe"),
            ([1, 2, 3, 4, 4, 4], "The order is reversed"),
            ([4, 4, 3, 3, 2, 1], "Look at rank 2"),
            ([4, 3, 2, 1], "6 numbers"),
        ),
        also=([4, 4, 4, 3, 2, 1], (4, 4, 4, 3, 2, 1)),
    ),
    "1f1b.order": Solution(
        _phases("min(ranks - 1 - rank, microbatches)"),
        "Warm-up, pairs, cool-down; with few microbatches the warm-up ends when there are no more of them.",
        (
            (_order('return "F" * microbatches + "B" * microbatches'), "rank 0 holds 8 activations at once"),
            (_phases("min(ranks - rank, microbatches)"), "activations at once"),
            (_phases("ranks - 1 - rank"), "With 4 ranks and 2 microbatches"),
            (_order('return "B" * microbatches + "F" * microbatches'), "waits on itself"),
            (Cell('labs.answer("1f1b.order", lambda rank: "FB")'), "raised TypeError"),
            (_order('return ["F"] * microbatches'), "return a string"),
            (_order("while True: rank += 1"), "no result after"),
            ("FFFB", "your function itself"),
        ),
    ),
    "1f1b.deadlock": Solution(
        'labs.answer("1f1b.deadlock", ("2SEND_F1", "3SEND_B0"))',
        "Rank 2 sends its second activation before it receives a gradient, rank 3 sends its first gradient before it "
        "receives a second activation.",
        (
            (("0SEND_F3", "1SEND_F2"), "a rank that waits for another rank"),
            (("2SEND_F1", "0SEND_F0"), "No rank hangs at '0SEND_F0'"),
            (("2RECV_B0", "3RECV_F1"), "Name the sends"),
            ("2SEND_F1", "two messages"),
        ),
        also=(["3SEND_B0", "2SEND_F1"],),
    ),
    "1f1b.design": Solution(
        """\
room = [
    "FFF" + "BF" * 9 + "BBB",
    "FFF" + "BBFBFF" * 3 + "BBB",
    "FFFBBB" + "FFBFBB" * 3,
    "FB" * 12,
]
labs.answer("1f1b.design", room)""",
        "Only three microbatches can be in flight, and each takes 12 units to come back: the others follow this "
        "rhythm and do the actions that are ready.",
        (
            (from_letters(IN_LETTERS), "rank 0 holds 4 activations and has memory for 3"),
            (IN_TURNS, "rank 0 holds 3. It takes 72 units; 54 are possible"),
            (["FB" * 12] * 4, "144 units; 54 are possible"),
            (["FB" * 8] * 4, "Make it 4, 4, 12"),
            ([*DESIGN[:3], "BF" * 12], "waits on itself"),
        ),
        also=(DESIGN, from_letters(DESIGN), hl.Schedule.from_csv(from_letters(DESIGN))),
    ),
}
