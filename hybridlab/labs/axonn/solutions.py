"""Solutions of notebook 36."""

from hybridlab.labs.exercises.solution import Cell, Solution

FORWARD = Cell("""\
def my_layer(comm, x, share, lengths, inner, outer):
    x = typed.enter(comm, x, outer)
    w = typed.all_gather(comm, share, "z", 0, to="R", sizes=lengths)
    return typed.all_reduce(comm, x @ w.T, inner, to="I")

labs.answer("axonn.forward", my_layer)""")
ENTER = "    x = typed.enter(comm, x, outer)\n"
RETURN = 'return typed.all_reduce(comm, x @ w.T, inner, to="I")'

BACKWARD = Cell("""\
class MyProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, comm, outer):
        ctx.save_for_backward(x, w)
        ctx.comm, ctx.outer = comm, outer
        return x @ w.T

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        coming = ctx.comm.iall_reduce(g @ w, ctx.outer)
        by_w = g.T @ x
        return coming.wait(), by_w, None, None

labs.answer("axonn.backward", MyProduct)""")
BEGIN, BY_W = "coming = ctx.comm.iall_reduce(g @ w, ctx.outer)\n", "        by_w = g.T @ x\n"

SOLUTIONS: dict[str, Solution] = {
    "axonn.words": Solution(
        """\
block = 1536 // 2 * 512 // 2
part = $rows // 2 * 512 // 2
labs.answer("axonn.words", block // 2 + 2 * part // 2)""",
        "Half of the block of W is gathered from the other rank. The all-reduce of Y sends half of it twice.",
        (
            (98304, "only the gather along z"),
            (1048576, "only the all-reduce along inner"),
            (622592, "twice around the ring"),
            (1245184, "the size of the gathered block"),
            (2195456, "rows of the global batch"),
            (3244032, "That is the backward"),
            (10, "Too small"),
            ("many", "one number"),
        ),
        also=(1146880,),
    ),
    "axonn.forward": Solution(
        FORWARD,
        "All ranks along outer use the same x for their own outputs, so x enters. Each rank uses the block for its "
        "own rows, so the block is replicated. All ranks along inner continue with the same sum, so it is invariant.",
        (
            (FORWARD.but(ENTER, ""), "its dX is a partial sum"),
            (FORWARD.but(", sizes=lengths", ""), "pass sizes=lengths to all_gather"),
            (
                FORWARD.but("x @ w.T", 'x @ typed.enter(comm, w, "z").T'),
                "2 times too large: along an axis of 2 ranks it is added one time too many",
            ),
            (FORWARD.but("x, outer)", "x, inner)"), "along which axis has x entered"),
            (FORWARD.but(RETURN, "return x @ w.T"), "returned a partial sum"),
            (FORWARD.but("x @ w.T, inner", "x @ w.T, outer"), "along which axis are the inputs cut"),
            (FORWARD.but('inner, to="I"', 'inner, to="R"'), "a gradient of X that is 2 times too large"),
            (FORWARD.but('0, to="R"', '0, to="I"'), "a different gradient of its shard of W"),
            (FORWARD.but(", sizes=lengths", ""), "On 2 × 1 × 2 ranks"),
            (FORWARD.but("x @ w.T", "x @ w"), "shapes cannot be multiplied"),
            (
                FORWARD.but("x @ w.T", "x @ share.T").but(
                    '    w = typed.all_gather(comm, share, "z", 0, to="R", sizes=lengths)\n', ""
                ),
                "returned a tensor of shape",
            ),
            (FORWARD.but(RETURN, "return comm.all_reduce((x @ w.T).detach(), inner)"), "it has no backward"),
            (FORWARD.but("    return typed", "    typed"), "returned None"),
            (
                FORWARD.but("enter(comm, x, outer)", 'all_reduce(comm, x / comm.mesh[outer], outer, to="R")'),
                "words forward",
            ),
            (3, "your function itself"),
        ),
    ),
    "axonn.backward": Solution(
        BACKWARD,
        "The all-reduce of dX needs only dX, and dW needs no message. So it starts between the two matmuls.",
        (
            (BACKWARD.but("iall_reduce", "all_reduce").but("coming.wait()", "coming"), "waited for the all-reduce"),
            (BACKWARD.but("        " + BEGIN + BY_W, BY_W + "        " + BEGIN), "after both matmuls"),
            (
                BACKWARD.but("ctx.comm.iall_reduce(g @ w, ctx.outer)", "g @ w").but("coming.wait()", "coming"),
                "sent nothing",
            ),
            (
                BACKWARD.but(BEGIN, "by_x = g @ w\n        coming = ctx.comm.iall_reduce(by_x, ctx.outer)\n").but(
                    "coming.wait()", "by_x"
                ),
                "never waits",
            ),
            (
                BACKWARD.but(
                    BEGIN, "by_x = g @ w\n        coming = ctx.comm.iall_reduce(by_x.clone(), ctx.outer)\n"
                ).but("return coming.wait()", "coming.wait()\n        return by_x"),
                "its partial sum of dX",
            ),
            (BACKWARD.but("g @ w, ctx.outer", 'g @ w, "x"'), "dX is added once, along outer"),
            (BACKWARD.but("iall_reduce(g @ w, ctx.outer)", "iall_reduce(g @ w)"), "dX is added once"),
            (BACKWARD.but("g.T @ x", "-(g.T @ x)"), "a different dW from that of one device"),
            (BACKWARD.but("coming.wait(), by_w, None", "coming.wait(), None, None"), "returned None for dW"),
            (BACKWARD.but("return x @ w.T", "return 2 * (x @ w.T)"), "leave it as it was"),
            (BACKWARD.but("by_w = g.T @ x", "by_w = g.T @ x + 0 * (g.T @ x)"), "computed dW 2 times"),
            (BACKWARD.but('"axonn.backward", MyProduct', '"axonn.backward", MyProduct.apply'), "the class itself"),
            (3, "your function itself"),
        ),
    ),
    "axonn.hidden": Solution(
        'labs.answer("axonn.hidden", 18 + 1 + 2 + 2 * ($sum_x - 3) + 1)',
        "The second gather and the first scatter are hidden, and dW hides a part of each all-reduce of dX.",
        (
            (32, "That is the plain version"),
            (18, "the matmuls alone"),
            (22, "Is the all-reduce of dX finished by then"),
            (23, "overlap with no matmul"),
            (28, "while dW is computed"),
            (30, "Too large"),
            ("b", "one number"),
        ),
        also=(24.0,),
    ),
    "axonn.grid": Solution(
        """\
from hybridlab.core.what.shape import Shape

few = Shape(layers=24, width=8192, heads=4, context=2048, vocabulary=51200)
best = hl.plan(few, "a100", gpus=64, batch=8, grids=True, p=1).best.plan
labs.answer("axonn.grid", (best.x, best.t, best.d))""",
        "t uses all heads. Then compare the all-reduces along x with those of gradients over copies.",
        (
            ((2, 4, 8), "is 14% slower"),
            ((8, 8, 1), "more than the 4 heads"),
            ((1, 4, 16), "d must divide"),
            ((4, 4, 2), "must be 64"),
            ((16, 1, 4), "slower"),
            ((4, 4), "three whole numbers"),
            ("x=4", "three whole numbers"),
        ),
        also=((4, 4, 4), (4.0, 4.0, 4.0)),
    ),
}
