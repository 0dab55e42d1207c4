"""The exercises of notebook 36. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import cache, partial
from typing import NamedTuple

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.axonn.trial import try_layer, try_product
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.trials.cases import OnMeshes, first_found
from hybridlab.predict.bytes.matmul import moved
from hybridlab.predict.plans.planner import Planned, plan
from hybridlab.predict.time.overlap import Layer, chain, length

task = partial(Task, notebook="36_axonn")
INPUTS, OUTPUTS, GRID = 1536, 512, (2, 2, 2)  # of axonn.words
FEW = Shape(layers=24, width=8192, heads=4, context=2048, vocabulary=51200)  # of axonn.grid
MACHINE, GPUS, BATCH = "a100", 64, 8
CLOSE = 1.005  # a grid that is slower by less is as good


class On(NamedTuple):
    """A layer of (rows, inputs, outputs) = sizes on an x × y × z grid."""

    grid: tuple[int, int, int]
    sizes: tuple[int, int, int]
    inner: str = "x"
    outer: str = "y"

    @property
    def ranks(self) -> Mesh:
        return Mesh(**dict(zip("xyz", self.grid)))

    def __str__(self):
        """
        >>> print(On((2, 2, 2), (8, 12, 16)))
        2 × 2 × 2 ranks with 8 rows, 12 inputs and 16 outputs, inner x and outer y
        """
        rows, inputs, outputs = self.sizes
        return (
            f"{' × '.join(map(str, self.grid))} ranks with {rows} rows, {inputs} inputs and {outputs} outputs, inner "
            f"{self.inner} and outer {self.outer}"
        )


FORWARD = (On((2, 2, 2), (8, 12, 16)), On((2, 1, 2), (7, 9, 5)), On((1, 3, 1), (5, 7, 8), "y", "x"))
BACKWARD = (On((1, 2, 1), (5, 8, 12)), On((2, 2, 1), (6, 7, 9)), On((3, 1, 1), (6, 8, 10), "y", "x"))


def _words(rows: int) -> Task:
    x, y, z = GRID
    block, part = INPUTS * OUTPUTS // (x * y), rows * OUTPUTS // (z * y)
    gathered, added = block * (z - 1) // z, 2 * part * (x - 1) // x
    one = moved("axonn", (rows, INPUTS, OUTPUTS), GRID)
    return task(
        f"A layer of {INPUTS} inputs and {OUTPUTS} outputs runs on a grid of {x} × {y} × {z} ranks; the global batch "
        f"has {rows} rows. How many words does a rank send in the forward of this layer? Count both messages, each as "
        "a ring collective.",
        Number(
            lambda: one.sent,
            "words",
            within=1e-6,
            slips=[
                (gathered, "That is only the gather along z; partial sums of Y are all-reduced along inner, too."),
                (added, "That is only the all-reduce along inner; the block of W is gathered along z, too."),
                (
                    gathered + added // 2,
                    "An all-reduce sends its data twice around the ring: a reduce-scatter, then an all-gather.",
                ),
                (block + added, "That is the size of the gathered block. The rank already had a part of it."),
                (gathered + z * added, "That uses the rows of the global batch. z has cut them."),
                (one.back, "That is the backward. In the forward, the all-reduced tensor has the size of Y."),
            ],
        ),
        (
            "Two messages: an all-gather along z, and an all-reduce along inner. How large is each full tensor?",
            f"A block of W has {INPUTS}/{x} · {OUTPUTS}/{y} words, and a part of Y has {rows}/{z} · {OUTPUTS}/{y}. A "
            "ring all-gather sends (z - 1)/z of its tensor, a ring all-reduce 2·(x - 1)/x.",
            f"{z - 1}/{z} · {block} + 2 · {x - 1}/{x} · {part}.",
        ),
        objective="Derive how many words a rank sends in a layer that is cut both ways.",
        difficulty=2,
        minutes=3,
    )


def hides(sum_x: float) -> list[Layer]:
    """The two layers of axonn.hidden, in ms."""
    return [Layer(forward=3, by_x=3, by_w=3, gather=1, sum_y=1, sum_x=sum_x, scatter=1)] * 2


def _hidden(sum_x: int) -> Task:
    layers = hides(sum_x)
    plain, best = length(chain(layers, overlapped=False)), length(chain(layers, overlapped=True))
    computing = sum(sum(one[:3]) for one in layers)
    return task(
        "There are two layers. Every matmul takes 3 ms; a gather, an all-reduce of Y and a scatter take 1 ms each; "
        f"an all-reduce of dX takes {sum_x} ms. Messages and matmuls do not slow each other down, and dX of the first "
        "layer is all-reduced, too. How many ms does a step take, forward and backward, with overlap?",
        Number(
            lambda: best,
            "ms",
            within=1e-6,
            slips=[
                (plain, "That is the plain version: one after the other."),
                (computing, "That is the matmuls alone. Which messages overlap with no matmul?"),
                (computing + 4, "Nearly: dW takes 3 ms. Is the all-reduce of dX finished by then?"),
                (best - 1, "The first gather and the last scatter overlap with no matmul."),
                (computing + 2 * (1 + sum_x), "dX is all-reduced while dW is computed."),
            ],
        ),
        (
            f"Matmuls: {computing} ms. Add the exposed messages. Go through all four kinds of messages.",
            "The next layer needs Y, so its all-reduce is always exposed. The first gather and the last scatter "
            "overlap with no matmul.",
            f"{computing} + 1 (first gather) + 2 · 1 (all-reduces of Y) + 2 · ({sum_x} - 3) (exposed rest of the "
            "all-reduces of dX) + 1 (last scatter).",
        ),
        objective="Predict how long a step takes when its messages overlap with its matmuls.",
        difficulty=2,
        minutes=4,
    )


@cache
def planned() -> Planned:
    """Every plan of axonn.grid."""
    return plan(FEW, MACHINE, gpus=GPUS, batch=BATCH, grids=True, p=1)


def grids() -> dict[tuple[int, int, int], float]:
    """{(x, t, d): seconds of the best plan on this grid that fits}, for all legal grids."""
    every, found = planned(), {}
    for place in every.order:
        one = every.one(place)
        found.setdefault((one.x, one.t, one.d), float(every.seconds[place]))
    return found


def _grid(answer) -> Verdict:
    """A grid, compared with the best of all."""
    if not isinstance(answer, list | tuple) or len(answer) != 3 or not all(type(one) is int for one in answer):
        return False, "Answer with three whole numbers, (x, t, d)."
    x, t, d = answer
    if min(answer) < 1 or x * t * d != GPUS:
        return False, f"x·t·d must be {GPUS}, and each of them 1 or more."
    if t > FEW.heads:
        return False, f"t={t} is more than the {FEW.heads} heads."
    every, mine = grids(), grids().get((x, t, d))
    if mine is None:
        return False, f"x={x}, t={t}, d={d} has no legal plan that fits: d must divide a batch of {BATCH}."
    if mine > CLOSE * min(every.values()):
        return False, f"{planned().why(x=x, t=t, d=d)}."
    return True, f"No other grid is faster; the check tests all {len(every)} that fit. {planned().best}."


def _uneven(case, failed: str) -> str:
    """The report of a run that failed; with the probable cause if the ranks have parts of W of other lengths."""
    unlike = "do not call the same" in failed and "all_gather" in failed
    cause = "Ranks along z may have different numbers of rows: pass sizes=lengths to all_gather."
    return f"{failed} {cause}" if unlike else failed


TASKS: dict[str, Task] = {
    "axonn.words": varying(_words, rows=(8192, 4096, 16384)),
    "axonn.forward": task(
        "Write the plain layer: `my_layer(comm, x, share, lengths, inner, outer)`. `x` is this rank's part of the "
        "input; `share` holds this rank's rows of the block of W (a row for each output); `lengths` lists the number "
        "of rows of each rank along z; `inner` and `outer` are axes. Return this rank's part of Y = X·Wᵀ, with three "
        "typed collectives. dX and dW must be right, and no more words than necessary may be sent. Your code is tested "
        f"on {FORWARD[0]}, then on other grids.",
        OnMeshes(
            try_layer,
            first_found,
            FORWARD,
            "Y, dX, dW and the number of words are right, on uneven grids too.",
            explain=_uneven,
        ),
        (
            "Go through the three axes. z: which tensor is missing before the matmul? inner: which step is missing "
            "after it? outer: nothing is missing in the forward, but which ranks use this x?",
            'typed.all_gather(comm, share, "z", 0, to=…, sizes=lengths), typed.all_reduce(comm, y, inner, to=…), '
            "typed.enter(comm, x, outer). Each rank uses the block for its own rows, so is it R or I? After the sum, "
            "all ranks along inner do the same work.",
            'x = typed.enter(comm, x, outer); w = typed.all_gather(comm, share, "z", 0, to="R", sizes=lengths); return '
            'typed.all_reduce(comm, x @ w.T, inner, to="I").',
        ),
        objective="Write a layer on a grid with typed collectives, and let autograd derive its backward.",
        difficulty=2,
        minutes=9,
    ),
    "axonn.backward": task(
        "Write the backward of `MyProduct`: it gets `g`, the gradient of y = x·wᵀ, and returns the gradients of x and "
        "w, and None for `comm` and `outer`. dX must be all-reduced along `ctx.outer`, and the message must overlap "
        "with the computation of dW. `ctx.comm.iall_reduce(tensor, axis)` starts an all-reduce and returns a message; "
        f"its `wait()` returns the sum. Your code is tested on {BACKWARD[0]}, then on other grids. The check covers "
        "the numbers and the order of your calls.",
        OnMeshes(
            try_product,
            first_found,
            BACKWARD,
            "dX and dW are right, and the message overlaps with the second matmul.",
        ),
        (
            "Which of the two matmuls does the all-reduce need? What can you compute meanwhile?",
            "Four steps: compute dX = g·w; start its all-reduce; compute dW = gᵀ·x; wait.",
            "coming = ctx.comm.iall_reduce(g @ w, ctx.outer); by_w = g.T @ x; return coming.wait(), by_w, None, None.",
        ),
        objective="Overlap a message with a matmul.",
        difficulty=2,
        minutes=8,
    ),
    "axonn.hidden": varying(_hidden, sum_x=(4, 5, 6)),
    "axonn.grid": task(
        f"A GPT of {FEW.layers} layers with width {FEW.width:,} and only {FEW.heads} heads trains on {GPUS} A100s in "
        f"nodes of 8, without a pipeline, with a batch of {BATCH} sequences. Which grid is fastest? Answer with (x, t, "
        "d): the cuts of the width, the cuts of the heads and hidden units, and the data-parallel copies (sharded or "
        "not). The best microbatches, recomputation and ZeRO stage for your grid are chosen for you.",
        _grid,
        (
            "t cannot exceed the number of heads, d cannot exceed the batch. What is left for x?",
            "Prefer t to x, since all ranks along x repeat the same attention. Then compare x with d: along d, "
            "the gradients of all weights are all-reduced; along x, the outputs of every matrix.",
            f"t = {FEW.heads}, the largest t. hl.plan with grids=True compares the remaining values of x, and its "
            "why(x=…) explains the result.",
        ),
        objective="Choose the grid of a model with fewer heads than ranks.",
        difficulty=2,
        minutes=5,
    ),
}
