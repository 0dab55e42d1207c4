"""Solutions of notebook 31."""

from hybridlab.labs.exercises.solution import Cell, Solution

ROWS = Cell("""\
def my_rows(comm, a, b, sizes):
    lengths = [end - begin for begin, end in even(sizes[1], comm.mesh["i"])]
    b = typed.all_gather(comm, b, "i", 0, to="R", sizes=lengths)
    return a @ b

labs.answer("matmul.rows", my_rows)""")
MOVE = 'typed.all_gather(comm, b, "i", 0, to="R", sizes=lengths)'

CANNON = Cell("""\
def my_cannon(comm, a, b, sizes):
    i, j = comm.coordinates["i"], comm.coordinates["j"]
    blocks = even(sizes[1], comm.mesh["j"])
    have_a = have_b = blocks
    total = 0
    for step in range(comm.mesh["j"]):
        want_a, want_b = turned(blocks, i + step), turned(blocks, j + step)
        a = typed.window(comm, a, "j", 1, have=have_a, want=want_a)
        b = typed.window(comm, b, "i", 0, have=have_b, want=want_b)
        total = total + a @ b
        have_a, have_b = want_a, want_b
    return total

labs.answer("matmul.cannon", my_cannon)""")
WANTS = "want_a, want_b = turned(blocks, i + step), turned(blocks, j + step)"
TO_FLOAT = "total + (a @ b).float()"
PANELS = Cell("""\
def my_cannon(comm, a, b, sizes):
    blocks = even(sizes[1], comm.mesh["j"])
    total = 0
    for panel in blocks:
        want = [panel] * len(blocks)
        total = total + typed.window(comm, a, "j", 1, have=blocks, want=want) @ typed.window(
            comm, b, "i", 0, have=blocks, want=want)
    return total

labs.answer("matmul.cannon", my_cannon)""")

SOLUTIONS: dict[str, Solution] = {
    "matmul.rows": Solution(
        ROWS,
        "Rows of C need the same rows of A, which are here, and all of B. Each rank uses B for its own rows, so B is "
        "replicated, R, and its gradient is a partial sum.",
        (
            (ROWS.but('to="R"', 'to="I"'), "a different gradient of B from that of one device"),
            (ROWS.but(f"    b = {MOVE}\n", ""), "shapes cannot be multiplied"),
            (ROWS.but(MOVE, 'comm.all_gather(b.detach(), "i", 0)'), "B got no gradient"),
            (ROWS.but("return a @ b", "return (a @ b).detach()"), "it has no backward"),
            (ROWS.but("a @ b", "b"), "returned a tensor of shape"),
            (ROWS.but("    return a @ b", "    a @ b"), "returned None"),
            (ROWS.but(", sizes=lengths", ""), "Right on 4 × 1 ranks with m, k, n = 8, 12, 4. On 4 × 1 ranks"),
            (
                ROWS.but("return a @ b", 'return 0 * typed.all_gather(comm, a, "i", 0, to="R").sum() + a @ b'),
                "sent 108 words forward; 36 are needed",
            ),
            (ROWS.but("sizes=lengths", 'sizes=even(sizes[1], comm.mesh["i"])'), "give a list of integers"),
            (ROWS.but("a @ b", "a @ b.flip(0)"), "returned another C"),
            (ROWS.but("return a @ b", "return (a @ b).float()"), "C in float32; its inputs are in float64"),
            (3, "your function itself"),
        ),
    ),
    "matmul.words": Solution(
        'labs.answer("matmul.words", ($columns - 1 + 3 - 1) * $side ** 2 // (3 * $columns))',
        "A row of blocks of A and a column of blocks of B, without the two blocks that the rank already has.",
        (
            (1320000, "1D"),
            (360000, "A alone"),
            (840000, "its own blocks too"),
            (240000, "B alone"),
            (720000, "not square"),
            (480000, "not square"),
            (2640000, "all of A and B"),
            (10, "Too small"),
            ("many", "one number"),
        ),
        also=(600000,),
    ),
    "matmul.cannon": Solution(
        CANNON,
        "In step s rank (i, j) multiplies the pair of blocks with number i + j + s, so it uses each pair once.",
        (
            (CANNON.but(WANTS, "want_a, want_b = turned(blocks, step), turned(blocks, step)"), "same part of k"),
            (CANNON.but("turned(blocks, j + step)", "turned(blocks, j - step)"), "3 × 3 ranks"),
            (CANNON.but("        have_a, have_b = want_a, want_b\n", ""), "same part of k"),
            (CANNON.but('range(comm.mesh["j"])', 'range(comm.mesh["j"] - 1)'), "the matmul of one step"),
            (CANNON.but('range(comm.mesh["j"])', "range(2)"), "On 3 × 3 ranks with m, k, n = 6, 9, 3: Rank 0 returned"),
            (CANNON.but('range(comm.mesh["j"])', 'range(comm.mesh["j"] + 1)'), "too many"),
            (CANNON.but("total + a @ b", "a @ b"), "the matmul of one step"),
            (CANNON.but("    return total", "    return total.detach()"), "it has no backward"),
            (CANNON.but("    return total", "    total"), "returned None"),
            (CANNON.but('a, "j", 1', 'a.detach(), "j", 1'), "A got no gradient"),
            (CANNON.but("turned(blocks, i + step)", "turned(blocks, i + j + step)"), "must pass the same lists"),
            (PANELS, "keeps its home blocks and"),
            (
                CANNON.but("total = 0", "total = torch.zeros(a.shape[0], b.shape[1])").but("total + a @ b", TO_FLOAT),
                "begin a sum with 0",
            ),
            (CANNON.but(WANTS, "want_a, want_b = blocks[step], blocks[step]"), "give pairs (from, to)"),
            (  # rank 0 has the right C, and has sent too much; other ranks have another C
                CANNON.but(WANTS, "want_a = want_b = turned(blocks, step + 1)"),
                "Rank 1 returned another C",
            ),
            (
                CANNON.but("turned(blocks, i + step), turned(blocks, j + step)", "[[s[::-1] for s in blocks]] * 2"),
                "give pairs (from, to)",
            ),
            (2, "your function itself"),
        ),
    ),
    "matmul.kept": Solution(
        'labs.answer("matmul.kept", 3)',
        "The two matmuls of the backward need the other ranks' panels, as the forward did, so they are sent again.",
        ((1, "the forward alone"), (2, "if the panels are saved"), (4, "not needed twice"), ("b", "one number")),
        also=(3.0,),
    ),
    "matmul.tall": Solution(
        """\
grids = [(r, c, 8 // r // c) for r in (1, 2, 4, 8) for c in (1, 2, 4, 8) if r * c <= 8]
block = lambda x, y, ways: x * y * (ways - 1) / ways
sent = lambda m, k, n, r, c, d: (
    block(m / r, k / d, c) + block(k / d, n / c, r) + block(m / r, n / c, d))
best = lambda m, k, n: min(grids, key=lambda grid: sent(m, k, n, *grid))
T, h = 65536, 1024
labs.answer("matmul.tall", [best(T, h, h), best(h, T, h), best(256, h, h)])""",
        "The grid determines which blocks a rank gathers and sends. Choose it so that the largest matrix is not sent.",
        (
            ([(2, 2, 2)] * 3, "(a) Y = X·W with many tokens: this grid sends"),
            ([(8, 1, 1), (8, 1, 1), (1, 2, 4)], "(b) dW"),
            ([(8, 1, 1), (1, 1, 8), (8, 1, 1)], "(c) Y = X·W with few tokens"),
            ([(4, 1, 1), (1, 1, 8), (1, 2, 4)], "grid of 4 ranks"),
            ([(8, 1, 1), (1, 1, 8)], "three grids"),
            ("8×1×1", "three grids"),
        ),
    ),
}
