"""Solutions of notebook 11."""

from hybridlab.labs.exercises.solution import Cell, Solution

ENGINE = Cell("""\
def my_gpipe(comm, stage, data):
    before, after = comm.rank - 1, comm.rank + 1
    first, last = comm.rank == 0, after == comm.size
    kept = {}
    for k, (x, target) in enumerate(data):
        if not first:
            x = comm.recv(torch.empty_like(x), before).requires_grad_()
        y = stage(x)
        if last:
            y = toy.loss(y, target) / len(data)
        else:
            comm.send(y.detach(), after)
        kept[k] = x, y
    for k in range(len(data)):
        x, y = kept.pop(k)
        if last:
            y.backward()
        else:
            y.backward(comm.recv(torch.empty_like(y), after))
        if not first:
            comm.send(x.grad, before)

labs.answer("gpipe.engine", my_gpipe)""")
AT_ONCE = Cell("""\
def my_gpipe(comm, stage, data):
    for x, target in data:
        if comm.rank > 0:
            x = comm.recv(torch.empty_like(x), comm.rank - 1).requires_grad_()
        y = stage(x)
        if comm.rank == comm.size - 1:
            (toy.loss(y, target) / len(data)).backward()
        else:
            comm.send(y.detach(), comm.rank + 1)
            y.backward(comm.recv(torch.empty_like(y), comm.rank + 1))
        if comm.rank > 0:
            comm.send(x.grad, comm.rank - 1)

labs.answer("gpipe.engine", my_gpipe)""")

MENDED = ENGINE.but("my_gpipe", "mended").but('("gpipe.engine", mended)', '("gpipe.clinic", ("b", mended))')

SOLUTIONS: dict[str, Solution] = {
    "gpipe.clinic": Solution(
        MENDED,
        "Autograd saves the received tensor, not a copy: the next message into the same tensor changes the values "
        "that the "
        "backward reads.",
        (
            (
                MENDED.but("torch.empty_like(x), before", "room, before").but(
                    "kept = {}", "kept, room = {}, data[0][0].clone()"
                ),
                "That is the cause. But: Rank 1 received into a tensor that was still in use",
            ),
            (MENDED.but('"b"', '"a"'), "by the same factor"),
            (MENDED.but('"b"', '"c"'), "needs no message"),
            (("b", 1), "Now fix it"),
            (("e", len), "one of a, b, c"),
            ("b", "Answer with the letter of the cause"),
        ),
        also=(MENDED.but('"b"', '" B"'),),
    ),
    "gpipe.engine": Solution(
        ENGINE,
        "A backward needs the input and the output of its forward, so the first loop keeps both for the second.",
        (
            (ENGINE.but(" / len(data)", ""), "4 times too large"),
            (
                ENGINE.but("kept[k] = x, y", "kept = {i: (x, y) for i in range(len(data))}"),
                "backward through the graph a second time",
            ),
            (ENGINE.but("kept.pop(k)", "kept.popitem()[1]"), "did F0 F1 F2 F3 B3 B2 B1 B0"),
            (ENGINE.but("range(len(data))", "range(len(data) - 1)"), "did F0 F1 F2 F3 B0 B1 B2;"),
            (ENGINE.but("range(len(data))", "range(4)"), "Right on 3 ranks with the lists of gpipe, m = 4. On 2 ranks"),
            (ENGINE.but(".requires_grad_()", ""), "was not marked with requires_grad_()"),
            (
                ENGINE.but("torch.empty_like(x), before", "room, before").but(
                    "kept = {}", "kept, room = {}, torch.empty_like(data[0][0])"
                ),
                "Rank 1 received into a tensor that was still in use: when the backward of microbatch 0 came",
            ),
            (
                ENGINE.but(
                    "comm.send(y.detach(), after)", "comm.send(y.detach(), after); comm.send(y.detach(), after)"
                ),
                "each needs another of them first",
            ),
            (AT_ONCE, "did F0 B0 F1 B1"),
            ([1, 2], "your function itself"),
        ),
    ),
    "gpipe.bubbles": Solution(
        'labs.answer("gpipe.bubbles", (3 / 11, 3 / 8))',
        "Each rank is idle in p-1 = 3 slots and works in m = 8: three of eleven, or three for every eight.",
        (
            ((3 / 8, 3 / 11), "The two are swapped"),
            ((3 / 8, 3 / 8), "idle / ideal is right"),
            ((3 / 11, 3 / 11), "idle / total is right"),
            ((27.3, 37.5), "between 0 and 1"),
            ((0.5, 0.5), "Neither is right"),
            (3 / 11, "two numbers"),
        ),
        also=([0.273, 0.375], ("0.2727", "0.375")),
    ),
    "gpipe.microbatches": Solution(
        'labs.answer("gpipe.microbatches", (9 * 3, 9 * 7))',
        "(p-1)/(m+p-1) is a tenth when m is nine times p-1.",
        (
            ((30, 70), "idle / ideal is a tenth"),
            ((16, 32), "p = 4, m = 16: idle / total is 15.8%, too much"),
            ((27, 64), "p = 8, m = 64: idle / total is 9.9%, small enough, but"),
            ((63, 27), "p = 4, m = 63"),
            ((26.5, 63), "not possible"),
            ((0, 63), "not possible"),
            ((10**8, 63), "not possible"),
            (27, "two whole numbers"),
        ),
        also=((27, 63), [27.0, 63.0]),
    ),
    "gpipe.chart": Solution(
        'labs.answer("gpipe.chart", ("2B0", "3B0"))',
        "All ranks begin their backwards in slot 7, but 2B0 needs the gradient that 3B0 computes in the same slot.",
        (
            (("3B0", "2B0"), "The two are swapped: 2B0 needs the result of 3B0"),
            (("1F0", "0F0"), "slot 1 after 0"),
            (("3B0", "3F3"), "does not need the result of 3F3"),
            (("9F9", "0F0"), "not a box of this chart"),
            ("2B0", "two boxes"),
        ),
        also=(["0B0", "1B0"], (" 1B3 ", "2B3")),
    ),
    "gpipe.size": Solution(
        'labs.answer("gpipe.size", (64 // 8, 3 / 8))',
        "With twice the size there are half the microbatches, and idle / ideal is (p-1)/m.",
        (
            ((32, 3 / 32), "larger pieces"),
            ((16, 3 / 16), "before b was doubled"),
            ((8, 3 / 11), "The other number is idle / total"),
            ((8, 0.5), "m is right"),
            ((7, 3 / 7), "with the new b"),
            (8, "two numbers"),
        ),
        also=([8, 0.375],),
    ),
    "gpipe.design": Solution(
        """\
def length(b):
    return 3 * (96 // b + 4 - 1) * (2 + b)

labs.answer("gpipe.design", min((b for b in range(1, 97) if 96 % b == 0), key=length))""",
        "A larger b pays the 2 units less often but makes the bubble larger; at b = 8 the step is shortest.",
        (
            (Cell('b = 1  # the smallest bubble\nlabs.answer("gpipe.design", b)'), "m = 96: idle / total 3.0%"),
            (1, "m = 96: idle / total 3.0%, a step takes 891 units; 450 are possible"),
            (96, "m = 1: idle / total 75.0%"),
            (12, "450 are possible"),
            (7, "7 does not divide 96"),
            (0, "0 does not divide"),
            (-8, "-8 does not divide"),
            (2.5, "one whole number"),
            ("8", "one whole number"),
        ),
        also=(8, 8.0),
    ),
    "gpipe.again": Solution(
        'labs.answer("gpipe.again", $microbatches * 1)',
        "Every rank repeats m forwards of one unit, all ranks at the same time, and the idle time stays the same.",
        ((32, "all four ranks"), (11, "in only eight of them"), (7, "Too small"), (41, "Too large")),
        also=(8, "8"),
    ),
}
