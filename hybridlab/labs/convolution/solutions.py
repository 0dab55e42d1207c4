"""Solutions of notebook 34."""

from hybridlab.labs.exercises.solution import Cell, Solution

HALO = Cell("""\
def my_fetch(comm, x, have, want):
    return moved(comm, x, have, want, lambda room, piece: room.copy_(piece))

def my_fold(comm, g, have, want):
    return moved(comm, g, want, have, lambda room, piece: room.add_(piece))

def moved(comm, x, held, needed, put):
    me, others = comm.rank, [rank for rank in range(comm.size) if rank != comm.rank]
    begin, end = needed[me]
    found = x.new_zeros(*x.shape[:2], end - begin, x.shape[3])
    comes = {rank: overlap(held[rank], needed[me]) for rank in others}
    goes = {rank: overlap(held[me], needed[rank]) for rank in others}
    coming = {rank: comm.irecv(torch.empty_like(rows(found, needed[me], span)), rank)
              for rank, span in comes.items() if span[0] < span[1]}
    going = [comm.isend(rows(x, held[me], span).contiguous(), rank)
             for rank, span in goes.items() if span[0] < span[1]]
    mine = overlap(held[me], needed[me])
    put(rows(found, needed[me], mine), rows(x, held[me], mine))
    for rank, message in coming.items():
        put(rows(found, needed[me], comes[rank]), message.wait())
    for message in going:
        message.wait()
    return found

labs.answer("convolution.halo", (my_fetch, my_fold))""")
WAITS = "    for message in going:\n        message.wait()\n"
BACK = "want, have, lambda room, piece: room.add_(piece)"

LAYER = Cell("""\
def my_layer(comm, x, w, b, have, want, sees, stride):
    x = typed.window(comm, x, "h", 2, have=have, want=want)
    me, beside = comm.rank, w.shape[3] // 2
    above, below = want[me][0] - sees[me][0], sees[me][1] - want[me][1]
    x = functional.pad(x, (beside, beside, above, below))
    w, b = typed.enter(comm, w, "h"), typed.enter(comm, b, "h")
    return functional.conv2d(x, w, b, stride)

labs.answer("convolution.layer", my_layer)""")
ABOVE = "above, below = want[me][0] - sees[me][0], sees[me][1] - want[me][1]"
ENDS = "above, below = beside * (me == 0), beside * (me == comm.size - 1)"

SPLIT = Cell("""\
def my_conv(comm, x, w, convolve):
    x = typed.all_gather(comm, x, "f", 1, to="R")
    return typed.reduce_scatter(comm, convolve(x, w), "c", 1)

labs.answer("convolution.split", my_conv)""")
GATHER = '    x = typed.all_gather(comm, x, "f", 1, to="R")\n'

SOLUTIONS: dict[str, Solution] = {
    "convolution.lacks": Solution(
        """\
have = ((0, 4), (4, 8), (8, 12), (12, 16))
wants = [wanted(have, Sight(5, stride, before=2, after=2))[1][1] for stride in (1, 2)]
labs.answer("convolution.lacks", [(4 - low, high - 8) for low, high in wants])""",
        "With a stride of 2 the strip has the outputs 2 and 3, which see rows 2 to 8: two above, one below.",
        (
            (((2, 2), (2, 2)), "Your two pairs are equal"),
            (((2, 2), (1, 2)), "swapped"),
            (((4, 4), (4, 4)), "sees 2 rows on each side"),
            (((1, 1), (2, 1)), "which rows does it see"),
            (((2, 2), (4, 2)), "Which outputs i belong to strip 1"),
            ((2, 1), "two pairs"),
            (((2, 2), (2, 1.5)), "two pairs"),
            (((float("inf"), 2), (2, 1)), "two pairs"),
            (5, "two pairs"),
        ),
        also=([[2, 2], [2, 1]],),
    ),
    "convolution.halo": Solution(
        HALO,
        "A rank sends the overlap of its rows with those that another rank needs. In the backward the same pieces go "
        "the other way and are added.",
        (
            (HALO.but("room.add_(piece)", "room.copy_(piece)"), "add their partial sums"),
            (HALO.but(BACK, "have, want, lambda room, piece: room.add_(piece)"), "from my_fold; its own rows"),
            (HALO.but("span[0] < span[1]", "span[0] <= span[1]"), "some of them empty"),
            (HALO.but("put(rows(found, needed[me], mine), rows(x, held[me], mine))", "pass"), "its own, wrong"),
            (
                HALO.but("put(rows(found, needed[me], comes[rank]), message.wait())", "message.wait()"),
                "another rank's, wrong",
            ),
            (HALO.but("begin, end = needed[me]", "begin, end = held[me]"), "does not fit"),
            (HALO.but(WAITS, ""), "never waited for all that it began to send: keep each handle"),
            (HALO.but(WAITS, WAITS + "    comm.all_reduce(x.clone())\n"), "words in all_reduce"),
            (
                HALO.but(WAITS, WAITS + "    comm.all_gather(found[:, :, :1])\n"),
                "words in all_gather",
            ),
            (
                HALO.but(
                    "def my_fold(comm, g, have, want):\n    return moved",
                    "def my_fold(comm, g, have, want):\n    g = g + 9 * (comm.rank == 0)\n    return moved",
                ),
                "one rank has used it",
            ),
            (
                HALO.but(
                    "[rank for rank in range(comm.size) if rank != comm.rank]",
                    "[r for r in (comm.rank - 1, comm.rank + 1) if 0 <= r < comm.size]",
                ),
                "On strips of 6, 1, 5 rows",
            ),
            (
                HALO.but(
                    "return moved(comm, g, want, have, lambda room, piece: room.add_(piece))",
                    "return rows(g, want[comm.rank], have[comm.rank])",
                ),
                "only its own partial sum",
            ),
            (
                HALO.but(
                    "    return moved(comm, x, have, want, lambda room, piece: room.copy_(piece))",
                    "    have = [have[0]] + [(low + 1, high) for low, high in have[1:]]\n"
                    "    return moved(comm, x[:, :, 1:] if comm.rank else x, have, want, "
                    "lambda room, piece: room.copy_(piece))",
                ),
                "wrong: where does it belong",
            ),
            (HALO.but("(my_fetch, my_fold))", "my_fetch)"), "the functions themselves"),
            (3, "the functions themselves"),
        ),
    ),
    "convolution.layer": Solution(
        LAYER,
        "The window fetches the rows of other ranks, and padding is only at the border of the image. Each rank uses "
        "w and b for its own rows, so both enter.",
        (
            (LAYER.but(ABOVE, "above, below = beside, beside"), "its part of Y has"),
            (LAYER.but(ABOVE, ENDS), "On strips of 3, 2, 2 rows"),
            (
                LAYER.but('typed.enter(comm, w, "h"), typed', "w, typed"),
                "a different gradient of W from that of one device: that of its strip alone",
            ),
            (
                LAYER.but(', typed.enter(comm, b, "h")', ", b"),
                "a different gradient of b from that of one device: that of its strip alone",
            ),
            (
                LAYER.but('    x = typed.window(comm, x, "h", 2, have=have, want=want)\n', "").but(
                    ABOVE, "above, below = beside, beside"
                ),
                "a neighbour's rows or padding",
            ),
            (LAYER.but("w, b, stride)", "w, b)"), "Right on strips of 4, 4, 4 rows"),
            (LAYER.but("conv2d(x, w, b, stride)", "conv2d(x.detach(), w, b, stride)"), "X got no gradient"),
            (LAYER.but("conv2d(x, w, b, stride)", "conv2d(x, w, None, stride)"), "rows of outputs wrong"),
            (LAYER.but("return functional", "functional"), "return this rank's part of Y, a tensor"),
            (3, "your function itself"),
        ),
    ),
    "convolution.rows": Solution(
        """\
filters, seconds_of_a_row, seconds_of_the_halo = $filters, 2 * $filters * 9 / 500e12, 2 * 2 / 50e9
labs.answer("convolution.rows", 2 + seconds_of_the_halo / seconds_of_a_row)""",
        "Channels and columns cancel, so only rows, filters and the kernel matter.",
        (
            (8.6806, "How many rows of the strip are its border"),
            (9.6806, "counts one border"),
            (19.361, "count as two"),
            (6.3403, "takes 2 bytes"),
            (28.042, "3 · 3 places"),
            (11, "Too large"),
            ("rows", "one number"),
        ),
    ),
    "convolution.split": Solution(
        SPLIT,
        "Each rank needs all channels of its block, and computes partial sums for its filters. With one rank along f "
        "only the reduce-scatter sends (X stays), with one along c only the gather (Y stays).",
        (
            (SPLIT.but(GATHER, ""), "expected input"),
            (SPLIT.but('to="R"', 'to="I"'), "a different gradient of X"),
            (SPLIT.but('typed.reduce_scatter(comm, convolve(x, w), "c", 1)', "convolve(x, w)"), "its part of Y has"),
            (
                SPLIT.but(
                    'typed.reduce_scatter(comm, convolve(x, w), "c", 1)',
                    'typed.split(comm, convolve(x, w), "c", 1, of="R")',
                ),
                "another Y",
            ),
            (
                SPLIT.but(
                    'typed.reduce_scatter(comm, convolve(x, w), "c", 1)',
                    'typed.split(comm, typed.all_reduce(comm, convolve(x, w), "c", to="R"), "c", 1, of="R")',
                ),
                "words",
            ),
            (SPLIT.but('x, "f", 1', 'x, "c", 1'), "another Y"),
            (
                SPLIT.but("convolve(x, w)", 'convolve(x, typed.enter(comm, w, "c"))'),
                "is added along c, where each rank has a different part",
            ),
            (
                SPLIT.but("convolve(x, w)", 'convolve(x, typed.enter(comm, w, "f"))'),
                "is added along f, where each rank has a different part",
            ),
            (SPLIT.but('x, "f", 1', 'x, "f", 0'), "expected input"),
            (SPLIT.but('convolve(x, w), "c", 1)', 'convolve(x, w).detach(), "c", 1)'), "it has no backward"),
            (3, "your function itself"),
        ),
    ),
    "convolution.grid": Solution(
        'labs.answer("convolution.grid", ("W", "Y", "strips", "X"))',
        "A has the largest W, B the largest Y, C the largest image, D the largest X. The largest tensor stays.",
        (
            (("strips", "Y", "strips", "X"), "A: with strips a rank sends"),
            (("W", "X", "strips", "X"), "B: with X stays"),
            (("W", "Y", "X", "X"), "there are only 3 channels"),
            (("W", "Y", "strips", "Y"), "D: with Y stays"),
            (("W", "Y"), "4 words"),
            ("W", "words, for A, B, C, D"),
        ),
        also=(["W stays", "y", "Strips", "x"],),
    ),
}
