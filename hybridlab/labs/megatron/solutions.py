"""Solutions of notebook 30."""

from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.megatron import build_solutions

HOP = 2048 * 12288  # b·s·h of megatron.bytes, as the notebook has it


def _pair(f_backward: str, g_forward: str, f_forward: str = "x.view_as(x)", g_backward: str = "gradient") -> Cell:
    return Cell(f"""\
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return {f_forward}

    @staticmethod
    def backward(ctx, gradient):
        return {f_backward}, None


class G(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, comm):
        ctx.comm = comm
        return {g_forward}

    @staticmethod
    def backward(ctx, gradient):
        return {g_backward}, None

labs.answer("megatron.pair", (F, G))""")


SUMMED, SUM_BACK = "comm.all_reduce(z.clone())", "ctx.comm.all_reduce(gradient.clone())"


def _hunt(found: str) -> Cell:
    """A gradient check that calls an entry wrong by this condition, over slope and claimed."""
    return Cell(f"""\
import numpy as np

def wrong_gradients(loss, weights, gradients, step=1e-6):
    wrong = set()
    for name, w in weights.items():
        for i in np.ndindex(w.shape):
            kept, ends = w[i], []
            for w[i] in (kept + step, kept - step):
                ends.append(loss(weights))
            w[i], slope, claimed = kept, (ends[0] - ends[1]) / (2 * step), gradients[name][i]
            if {found}:
                wrong.add(name)
    return wrong

labs.answer("megatron.hunt", wrong_gradients)""")


SUMS = Cell("""\
def wrong_gradients(loss, weights, gradients, step=1e-6):
    wrong = set()
    for name in weights:
        above, below = ({**weights, name: weights[name] + far} for far in (step, -step))
        if abs((loss(above) - loss(below)) / (2 * step) - gradients[name].sum()) > 1e-4:
            wrong.add(name)
    return wrong

labs.answer("megatron.hunt", wrong_gradients)""")

SOLUTIONS: dict[str, Solution] = {
    **build_solutions.SOLUTIONS,
    "megatron.pair": Solution(
        _pair(SUM_BACK, SUMMED),
        "After B the ranks hold partial sums of Z, so g adds in the forward. Before A they hold partial sums of x's "
        "gradient, so f adds in the backward.",
        (
            (_pair("gradient", "z.view_as(z)"), "no rank adds them"),
            (_pair("gradient", SUMMED), "each rank has a partial sum"),
            (_pair(SUM_BACK, SUMMED, g_backward=SUM_BACK), "g should pass the gradient on"),
            (_pair(SUM_BACK, SUMMED, f_forward="comm.all_reduce(x.clone())"), "f leaves x as it is"),
            (_pair(SUM_BACK, SUMMED, g_backward=f"{SUM_BACK} / ctx.comm.size"), "1 all-reduces forward and 2 backward"),
            (_pair(f"{SUM_BACK} * 2 / ctx.comm.size", SUMMED), "On 4 ranks"),
            (_pair(SUM_BACK, SUMMED).but("(F, G)", "F"), "(F, G)"),
            (2, "(F, G)"),
        ),
    ),
    "megatron.sums": Solution(
        'labs.answer("megatron.sums", 4 * $layers)',
        "Each layer has two pairs of matrices, and each pair sums once forward and once backward.",
        ((48, "forward alone"), (24, "two pairs"), (192, "take turns"), (5, "small"), ("x", "one number")),
        also=(96, "96"),
    ),
    "megatron.bytes": Solution(
        'labs.answer("megatron.bytes", 4 * 2 * ($ways - 1) / $ways * $context * $width)',
        "Four sums of b·s·h numbers, and a ring sends 2(t-1)/t of each.",
        (
            (HOP, "next stage"),
            (4 * HOP, "nearly twice"),
            (8 * HOP, "very many"),
            (3.5 * HOP, "forward alone"),
            (1.75 * HOP, "one all-reduce"),
            (14 * HOP, "twice the right number"),
            (1, "small"),
            (176_160_769, "Too large"),
        ),
        also=(176_160_768, 176160768.0),
    ),
    "megatron.gelu": Solution(
        'labs.answer("megatron.gelu", {"double", "mask"})',
        "Only a linear function, which adds no constant, gives the same result before the sum and after it.",
        (
            ({"gelu", "mask"}, "Not gelu"),
            ({"double", "bias"}, "counted twice"),
            (["norm"], "the mean and the spread"),
            ("mask", "1 more"),
            ({"relu"}, "from this list"),
            (7, "from this list"),
        ),
        also=(["mask", "Double"],),
    ),
    "megatron.backward": Solution(
        'labs.answer("megatron.backward", ("reduce_scatter", "split"))',
        "If ranks do different work, each has a partial sum of the gradient: sum it, and keep your own part. If all do "
        "the same work, each has the full gradient: keep your own part.",
        (
            (("split", "reduce_scatter"), "other way round"),
            (("split", "split"), "loses the rest"),
            (("reduce_scatter", "reduce_scatter"), "too large"),
            (("all_reduce", "split"), "an all-reduce leaves the full sum on every rank"),
            (("all_gather", "split"), "its part of their sum"),
            (("reduce_scatter", "all_reduce"), "too large"),
            (("reduce_scatter", "all_gather"), "already has the full one"),
            (("reduce_scatter", "scatter"), "two names"),
            ("split", "two names"),
            (7, "two names"),
        ),
        also=(["reduce-scatter", "Split"], ("reduce scatter", "split"), ("ReduceScatter", "split")),
    ),
    "megatron.hunt": Solution(
        _hunt("abs(slope - claimed) > 1e-4"),
        "A finite difference uses only the loss, entry by entry, so it does not depend on how gradients are summed.",
        (
            (_hunt("False"), "does not name norm.bias"),
            (_hunt("True"), "whose gradient is right"),
            (_hunt("abs(abs(slope) - abs(claimed)) > 1e-4"), "Where one entry of the matrix has the other sign"),
            (_hunt("abs(slope - claimed) > 0.5 * abs(slope)"), "it does not name"),
            (SUMS, "Where two entries of the matrix have changed places"),
            (Cell('labs.answer("megatron.hunt", lambda loss, weights, gradients: 1)'), "return a set of names"),
            (Cell('labs.answer("megatron.hunt", lambda loss: set())'), "raised TypeError"),
            ({"norm.bias"}, "your function itself"),
        ),
    ),
    "megatron.design": Solution(
        'labs.answer("megatron.design", (4, True))',
        "t = 4 is the largest that divides the heads, fits the groups of keys and stays in a server; with unsharded "
        "sequences the activations do not fit.",
        (
            ((8, False), "tp=8 cannot share out heads=36"),
            ((2, True), "a GPU has 80 GB"),
            ((4, False), "a GPU has 80 GB"),
            ((12, True), "across servers of 8"),
            ((4, 1), "two things"),
            ((0, True), "whole number"),
            (4, "two things"),
        ),
        also=([4, True], (4.0, True)),
    ),
}
