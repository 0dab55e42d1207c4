"""Solutions of notebook 14."""

import hybridlab as hl
from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.zero_bubble.halves import beside


def _text(name: str, ranks: int = 4) -> str:
    return hl.schedule(name, ranks=ranks, microbatches=8).to_csv()


CUT = beside(hl.schedule("1f1b", ranks=4, microbatches=8))
H1 = hl.schedule("zb_h1", ranks=4, microbatches=8)
BETTER = CUT.with_programs([*CUT.program[:2], *H1.program[2:]])  # only the last two ranks wait with W
LONGER = CUT.with_programs([*CUT.program[:3], [*CUT.program[3][1:], CUT.program[3][0]]])

HALVES = Cell("""\
def my_input_half(gy, y, w):
    gz = gy * (1 - y**2)
    return gz @ w, gz

def my_weight_half(gz, x):
    return gz.T @ x

labs.answer("zero_bubble.halves", (my_input_half, my_weight_half))""")

ENGINE = Cell("""\
def my_play(comm, weights, program, data):
    before, after, m = comm.rank - 1, comm.rank + 1, len(data)
    first, last = comm.rank == 0, after == comm.size
    kept, later, sent = {}, {}, []
    gradients = [torch.zeros_like(w) for w in weights]
    for kind, k in program[comm.rank]:
        x, target = data[k]
        if kind == "F":
            xs = [x if first else comm.recv(torch.empty_like(x), before, tag=k)]
            for w in weights:
                xs.append(torch.tanh(xs[-1] @ w.T))
            kept[k] = xs
            if not last:
                sent.append(comm.isend(xs[-1], after, tag=k))
        if kind in "IB":
            xs, later[k] = kept.pop(k), []
            g = 2 * (xs[-1] - target) / target.numel() / m
            if not last:
                g = comm.recv(torch.empty_like(x), after, tag=m + k)
            for w, x, y in reversed(list(zip(weights, xs, xs[1:]))):
                gz = g * (1 - y**2)
                g = gz @ w
                later[k].insert(0, (gz, x))
            if not first:
                sent.append(comm.isend(g, before, tag=m + k))
        if kind in "WB":
            for gradient, (gz, x) in zip(gradients, later.pop(k)):
                gradient += gz.T @ x
    for message in sent:
        message.wait()
    return gradients

labs.answer("zero_bubble.engine", my_play)""")
SEND = "sent.append(comm.isend(g, before, tag=m + k))"
WITH_W = ENGINE.but(f"\n            if not first:\n                {SEND}", "").but(
    'kind in "WB":', f'kind in "WB":\n            if not first:\n                {SEND}'
)
AFTER_THE_NEXT = (
    ENGINE.but(SEND, "late.append((g, k))")
    .but("{}, {}, []", "{}, {}, []\n    late = []")
    .but(
        "    for message in sent:",
        """\
        if kind != "I":
            sent += [comm.isend(g, before, tag=m + j) for g, j in late]
            late.clear()
    for message in sent:""",
    )
)
W_INSIDE_I = ENGINE.but("later[k].insert(0, (gz, x))", "later[k].insert(0, gz.T @ x)").but(
    "(gz, x) in zip(gradients, later.pop(k)):\n                gradient += gz.T @ x",
    "product in zip(gradients, later.pop(k)):\n                gradient += product",
)

UPDATE = Cell("""\
def my_update(comm, squares, clip, step, undo):
    before, after, so_far = comm.rank - 1, comm.rank + 1, squares
    if before >= 0:
        so_far = squares + comm.recv(torch.empty_like(squares), before)
    sent = [comm.isend(so_far, after)] if after < comm.size else []
    early = so_far.sqrt() <= clip
    if early:
        step(1.0)
    total = comm.recv(torch.empty_like(squares), after) if after < comm.size else so_far
    if before >= 0:
        sent.append(comm.isend(total, before))
    if total.sqrt() > clip:
        if early:
            undo()
        step(clip / total.sqrt())
    for message in sent:
        message.wait()

labs.answer("zero_bubble.stepping", my_update)""")
EARLY = """\
    early = so_far.sqrt() <= clip
    if early:
        step(1.0)
"""
TOTAL = "    total = comm.recv(torch.empty_like(squares), after) if after < comm.size else so_far\n"
BACK = """\
    if before >= 0:
        sent.append(comm.isend(total, before))
"""

SOLUTIONS: dict[str, Solution] = {
    "zero_bubble.halves": Solution(
        HALVES,
        "I backpropagates through tanh and through w, and W needs only gz and x, which stay on the rank.",
        (
            (HALVES.but("gy * (1 - y**2)", "gy"), "gx is that of a layer without tanh"),
            (HALVES.but("return gz @ w, gz", "return gz @ w, gy"), "gw is that of a layer without tanh"),
            (HALVES.but("1 - y**2", "1 - y"), "gx differs from autograd's"),
            (HALVES.but("gz.T @ x", "x.T @ gz"), "gw has the shape (16, 12); it must be (12, 16), as w is"),
            (HALVES.but("gz.T @ x", "2 * gz.T @ x"), "gw differs from autograd's"),
            (HALVES.but("return gz @ w, gz", "return gz @ w"), "return gx and gz"),
            (HALVES.but("gz @ w,", "gz @ w.T,"), "shapes cannot be multiplied (4x12 and 16x12)"),
            (Cell('labs.answer("zero_bubble.halves", lambda gy, y, w: gy)'), "(my_input_half, my_weight_half)"),
            (3, "(my_input_half, my_weight_half)"),
        ),
    ),
    "zero_bubble.engine": Solution(
        ENGINE,
        "I computes the gradient for which the rank before waits, and saves gz and x; W multiplies them later.",
        (
            (W_INSIDE_I, "multiplied in the order"),
            (ENGINE.but('kind in "IB"', 'kind in "WB"'), "multiplied in the order"),
            (WITH_W, "deadlock"),
            (AFTER_THE_NEXT, "had not sent the result of I0 when it began F2: another rank waits for it"),
            (ENGINE.but("later.pop(k)", "later[k]"), "held tensors of 6 microbatches at once; 3 are enough"),
            (ENGINE.but("later.pop(k)", "later.popitem()[1]"), "multiplied in the order"),
            (ENGINE.but(" / m\n", "\n"), "6 times too large"),
            (ENGINE.but("gradient += gz.T @ x", "gradient.copy_(gz.T @ x)"), "the gradients of microbatch 5 alone"),
            (ENGINE.but("g = 2 * (xs", "g = (xs"), "half as large as autograd's"),
            (ENGINE.but("target.numel()", "len(target)"), "16 times too large: the loss of a microbatch is the mean"),
            (ENGINE.but("        message.wait()", "        pass"), "without a wait() for"),
            (ENGINE.but("g * (1 - y**2)", "g"), "different gradients from autograd's"),
            (ENGINE.but("    return gradients\n", ""), "returned NoneType"),
            (
                ENGINE.but('kind in "IB"', 'kind == "I"').but('kind in "WB"', 'kind == "W"'),
                "returned gradients that are all 0: its list has B",
            ),
            (ENGINE.but("g = 2 * (xs", "g = 0 * (xs"), "all 0: does each W add to them"),
            (ENGINE.but("return gradients", "return gradients[::-1]"), "in the wrong order: weights has the first"),
            (ENGINE.but('kind in "IB"', 'kind == "I"'), "Right on 3 ranks with the lists of zb_h1, m = 6. On 3 ranks"),
            (ENGINE.but("== comm.size", "== 3"), "On 2 ranks with the lists of zb_h1, m = 5"),
            (ENGINE.but("gz.T @ x", "(gz[:, :, None] * x[:, None, :]).sum(0)"), "no GEMM of W was seen"),
            ("FIWF", "your function itself"),
        ),
        also=(
            ENGINE.but("torch.tanh(xs[-1] @ w.T)", "torch.nn.functional.linear(xs[-1], w).tanh()").but(
                "gradient += gz.T @ x", "gradient.addmm_(gz.T, x)"
            ),
            ENGINE.but(" / m\n", "\n").but("return gradients", "return [one / m for one in gradients]"),
        ),
    ),
    "zero_bubble.merged": Solution(
        'labs.answer("zero_bubble.merged", "1B3")',
        "Next to each other, I and W are a full backward, and one walk through the graph is cheaper than two.",
        (
            ("1I3 1W3", "does not leave the two"),
            ("1W3", "does not leave"),
            ("F", "as PyTorch prints"),
            (3, "as PyTorch"),
        ),
        also=("1b3", "B"),
    ),
    "zero_bubble.h1": Solution(
        'labs.answer("zero_bubble.h1", 3 * (1 + $I - $W))',
        "Of the idle time (p-1)(F+I+W) of 1F1B, moving W fills twice (p-1)W.",
        ((3, "equal costs"), (9, "That is 1F1B"), (6.6, "has not been moved"), (5, "Too large")),
        also=(4.2,),
    ),
    "zero_bubble.clipped": Solution(
        'labs.answer("zero_bubble.clipped", ($ranks - 1) / (3 * $microbatches + $ranks - 1))',
        "The last rank starts p-1 units late, and with the clipping all wait for it: p-1 idle units on each rank.",
        ((7 / 72, "idle / ideal"), (7 / 31, "That is 1F1B"), (0, "Too small"), (0.5, "Too large")),
        also=(7 / 79, 0.0886, 0.09),
    ),
    "zero_bubble.stepping": Solution(
        UPDATE,
        "The squares so far are at most the total: if they clip, a rank waits; else it steps, and may have to undo it.",
        (
            (UPDATE.but(EARLY + TOTAL, TOTAL + EARLY), "waited for the total before its step: that is the barrier"),
            (
                UPDATE.but("    if early:\n        step(1.0)", "    step(1.0)"),
                "although the squares so far already clip",
            ),
            (UPDATE.but("        if early:\n            undo()\n", ""), "did not undo its first step"),
            (UPDATE.but("early = so_far", "early = squares"), "although the squares so far already clip"),
            (UPDATE.but("clip / total.sqrt()", "clip / total"), "it should call step(1), undo(), step(0.816)"),
            (UPDATE.but("so_far = squares + comm", "so_far = comm"), "it should call"),
            (
                UPDATE.but("so_far.sqrt() <= clip", "so_far <= clip"),
                "Rank 1 waited although √3 is less than 2: squares are squares, so compare them with clip².",
            ),
            (
                UPDATE.but("so_far.sqrt() <= clip", "so_far <= max(clip, clip**2)"),
                "Rank 0 stepped at once although √0.3 is more than 0.5",
            ),
            (UPDATE.but("total.sqrt() > clip", "so_far.sqrt() > clip"), "it should call step(1), undo(), step(0.816)"),
            (UPDATE.but(BACK, ""), "waits in recv"),
        ),
    ),
    "zero_bubble.pair": Solution(
        """\
zb_v = hl.simulate(hl.schedule("zb_v", ranks=4, microbatches=8), hl.Costs(F=0.5, I=0.5, W=0.5)).length
dualpipe = hl.schedule("dualpipe", ranks=4, microbatches=8)
at_2, at_3 = (hl.simulate(dualpipe, hl.Costs(fused=pair)).length for pair in (2, 3))
labs.answer("zero_bubble.pair", 3 - (at_3 - zb_v) / (at_3 - at_2))""",
        "DualPipe's length falls with the time that a fused pair saves; where its line meets ZB-V, a pair takes 2.875.",
        ((3, "saves no time"), (2, "Too small"), (2.95, "Too large")),
        also=(2.875, 2.88),
    ),
    "zero_bubble.puzzle": Solution(
        f'''mine = """
{H1.to_csv().strip()}
""".strip()

labs.answer("zero_bubble.puzzle", mine)''',
        "I is done as soon as its gradient has come, so the rank before it can go on; W waits for idle time, but not "
        "longer than the limit of memory allows.",
        (
            (CUT, "it takes 30 units. Make it shorter than 30; 27 is possible"),
            (_text("1f1b"), "it takes 33 units"),
            (_text("zb_h2"), "27 units, but rank 0 holds 7 activations until W; 4 are allowed"),
            (LONGER, "waits"),
            (_text("zb_h1", 2), "Keep 4 ranks, 4 stages and 8 microbatches"),
            (_text("zb_v"), "Keep 4 ranks, 4 stages"),
            (CUT.to_csv().replace("3W7", "3W6"), "occurs twice"),
            (CUT.to_csv().replace(",3W7", ""), "stage 3 for microbatch 7: add 3W7"),
            ("no schedule", "is not an action"),
            ("nowhere.csv", "No such file"),
        ),
        also=(H1, H1.to_csv(), BETTER),
    ),
}
