"""Solutions of notebook 16."""

from hybridlab.labs.exercises.solution import Cell, Solution

ORDER = Cell('labs.answer("slices.order", "0F0,1F0,0F1,1B0,1F1,0B0,1B1,0B1\\n2F0,3F0,3B0,2F1,2B0,3F1,3B1,2B1")')
CUT = Cell("""\
def my_lengths(alpha, beta, tokens, slices):
    whole = alpha * tokens + beta * tokens**2 / 2
    ends = [round(((alpha**2 + 2 * beta * i / slices * whole) ** 0.5 - alpha) / beta) for i in range(slices + 1)]
    return [high - low for low, high in zip(ends, ends[1:])]

labs.answer("slices.cut", my_lengths)""")
DIFFERENCES = "return [high - low for low, high in zip(ends, ends[1:])]"
BACKWARD = Cell("""\
def my_forward(stage, x, cache):
    x = x.detach().requires_grad_()
    y, own = stage(x, [leaf for _, _, _, leaf in cache])
    leaf = own.detach().requires_grad_()
    cache.append((x, y, own, leaf))
    return y

def my_backward(gradient, cache):
    x, y, own, leaf = cache.pop()
    if leaf.grad is None:
        torch.autograd.backward(y, gradient)
    else:
        torch.autograd.backward((y, own), (gradient, leaf.grad))
    return x.grad

labs.answer("slices.backward", (my_forward, my_backward))""")
BOTH = "torch.autograd.backward((y, own), (gradient, leaf.grad))"
PAST = "[leaf for _, _, _, leaf in cache]"
AGAIN = (  # the backward computes the slice again, as with recomputation
    BACKWARD.but("cache.append((x, y, own, leaf))", f"cache.append((x, stage, {PAST}, leaf))").but(
        "leaf = cache.pop()\n", "leaf = cache.pop()\n    y, own = y(x, own)\n"
    )
)
NEXT_ALONE = BACKWARD.but(PAST, "[*(one[3].detach() for one in cache[:-1]), *(one[3] for one in cache[-1:])]")
BEST = Cell("""\
def my_best(ranks, rows, latency, choices):
    def length(n):
        schedule = hl.schedule("seq1f1b", ranks=ranks, microbatches=rows, slices=n)
        costs = hl.plans.slicing.with_slices(ranks, [1 / n] * n, latency=latency)
        return hl.simulate(schedule, costs).length

    return min(choices, key=length)

labs.answer("slices.best", my_best)""")


def _lists(*programs: str) -> str:
    return "\n".join(programs)


def _lengths(*lines: str) -> Cell:
    body = "\n".join(f"    {line}" for line in lines)
    return Cell(f"""\
def my_lengths(alpha, beta, tokens, slices):
{body}

labs.answer("slices.cut", my_lengths)""")


SOLUTIONS: dict[str, Solution] = {
    "slices.order": Solution(
        ORDER,
        "Rank r begins with p-1-r + n-1 forwards, and the backwards of a row begin with its last slice.",
        (
            (_lists("0F0,1F0,0F1,0B0,1F1,1B0,0B1,1B1", "2F0,3F0,2B0,2F1,3B0,3F1,2B1,3B1"), "order cannot be run: "),
            (_lists("0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1", "2F0,3F0,2F1,3F1,3B0,2B0,3B1,2B1"), "3 and 2"),
            (_lists("0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1", "2F0,3F0,3B0,2B0,2F1,3F1,3B1,2B1"), "are enough. Where"),
            (_lists("0F0,1F0,1B0,0B0", "2F0,3F0,3B0,2B0"), "2 lines for 2 rows"),
            (7, "one line for each rank"),
        ),
    ),
    "slices.cut": Solution(
        CUT,
        "Each slice ends where its share of αx + βx²/2 is reached: the positive root of a quadratic equation.",
        (
            (
                CUT.but("/ 2\n", "\n").but("2 * beta", "4 * beta").but("- alpha) / beta", "- alpha) / (2 * beta)"),
                "add that up from 0 to x",
            ),
            (_lengths("return [tokens // slices] * slices"), "these are equal lengths"),
            (
                _lengths(
                    "ends = [round(tokens * (i / slices) ** 0.5) for i in range(slices + 1)]",
                    "return [high - low for low, high in zip(ends, ends[1:])]",
                ),
                "every token also costs α",
            ),
            (CUT.but("return [high - low", "return [low - high"), "add up to -32,768"),
            (CUT.but(DIFFERENCES, "return ends[1:]"), "the differences"),
            (CUT.but("ends[1:])]", "ends[1:])][::-1]"), "the order is reversed"),
            (
                CUT.but(DIFFERENCES, "return [ends[1]] * (slices - 1) + [tokens - ends[1] * (slices - 1)]"),
                "slice 1, counted",
            ),
            (
                CUT.but(DIFFERENCES, "return [ends[1] - 2, *[0] * (slices - 2), tokens - ends[1] + 2]"),
                "slice 0, counted",
            ),
            (CUT.but("[round(", "[("), "not all integers"),
            (CUT.but("range(slices + 1)", "range(slices)"), "return a list of 4 lengths"),
            (CUT.but("beta * i / slices * whole", "beta * i * whole"), "add up to"),
            (4, "your function itself"),
        ),
        also=(CUT.but("beta * i / slices * whole", "beta * whole * (i / slices)"),),
    ),
    "slices.backward": Solution(
        BACKWARD,
        "A leaf of keys and values collects the gradients of all later slices, which then flow back through own.",
        (
            (BACKWARD.but("own.detach().requires_grad_()", "own.detach()"), "no gradient from later slices"),
            (BACKWARD.but(BOTH, "torch.autograd.backward(y, gradient)"), "no gradient from later slices"),
            (BACKWARD.but("own.detach().requires_grad_()", "own"), "second time"),
            (BACKWARD.but(BOTH, "y.backward(gradient); own.backward(leaf.grad)"), "second time"),
            (NEXT_ALONE, "from the next slice alone"),
            (BACKWARD.but("x.detach().requires_grad_()", "x.detach()"), "got NoneType from my_backward"),
            (BACKWARD.but("    return x.grad\n", ""), "got NoneType from my_backward"),
            (BACKWARD.but("    return y\n", ""), "got NoneType from my_forward"),
            (BACKWARD.but(PAST, "[]"), "gave slice 1 the keys of 0 earlier positions; there are 5"),
            (BACKWARD.but(PAST, f"{PAST}[::-1]"), "gave slice 2 the earlier slices in reverse order"),
            (BACKWARD.but(PAST, f"{PAST}[-1:]"), "gave slice 2 only the keys of slice 1"),
            (BACKWARD.but(PAST, "[x[0] for x in cache]"), "failed"),
            (BACKWARD.but(PAST, "[2 * leaf for _, _, _, leaf in cache]"), "keys and values other than those"),
            (BACKWARD.but("leaf.grad is None", "False"), "own has no gradient here: no later slice has read"),
            (BACKWARD.but("(y, own), (gradient, leaf.grad)", "y, 2 * gradient"), "different gradients from"),
            (3, "the functions themselves"),
        ),
        also=(
            AGAIN,
            BACKWARD.but(PAST, f"[torch.cat({PAST}, 1)] if cache else []"),
            BACKWARD.but(BOTH, "y.backward(gradient, retain_graph=True); own.backward(leaf.grad)"),
            BACKWARD.but("    return y\n", "    return y.detach()\n"),
        ),
    ),
    "slices.peak": Solution(
        'labs.answer("slices.peak", ($slices + $ranks - 1) / $slices)',
        "Rank 0 holds n + p - 1 slices, and n of them are a row.",
        ((8, "whole rows"), (11, "number of slices"), (1.75, "n - 1 more slices"), (3, "one forward"), (20, "large")),
        also=("2.75",),
    ),
    "slices.best": Solution(
        BEST,
        "More slices divide the idle time, and each adds messages that ranks wait for; the simulator weighs both.",
        (
            (BEST.but("return min(choices, key=length)", "return max(choices)"), "it returns 32"),
            (BEST.but("latency=latency", "latency=0"), "it returns 32"),
            (BEST.but("return min(choices, key=length)", "return 4"), "a latency of 0.02 it returns 4"),
            (BEST.but("return min(choices, key=length)", "return min(map(length, choices))"), "return one of 1, 2"),
            (BEST.but("[1 / n] * n", "[1.0] * n"), "it returns 1"),
            (Cell('labs.answer("slices.best", lambda ranks: 4)'), "raised TypeError"),
            (4, "your function itself"),
        ),
    ),
}
