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
        2 × 2 × 2 ranks with 8 rows, 12 inputs, 16 outputs, inner x and outer y
        """
        rows, inputs, outputs = self.sizes
        return (
            f"{' × '.join(map(str, self.grid))} ranks with {rows} rows, {inputs} inputs, {outputs} outputs, inner "
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
        f"A layer of {INPUTS} inputs and {OUTPUTS} outputs on a grid of {x} × {y} × {z} ranks; the whole batch has "
        f"{rows} rows. How many words does a rank send in the forward of this layer? Count both messages, each as a "
        "ring sends it.",
        Number(
            lambda: one.sent,
            "words",
            within=1e-6,
            slips=[
                (gathered, "That is the gather along z alone; partial sums of Y are added along inner, too."),
                (added, "That is the sum along inner alone; the block of W is gathered along z, too."),
                (gathered + added // 2, "Partial sums go round twice in an all-reduce: added, then handed on."),
                (block + added, "That is all that a rank has after the gather. A part of it was here before."),
                (gathered + z * added, "That takes the rows of the whole batch. z has cut them."),
                (one.back, "That is the backward. In the forward, what is added has the size of Y."),
            ],
        ),
        (
            "Two messages: an all-gather along z, and an all-reduce along inner. How large is each whole tensor?",
            f"A block of W has {INPUTS}/{x} · {OUTPUTS}/{y} words, a part of Y {rows}/{z} · {OUTPUTS}/{y}. A ring "
            "all-gather sends (z - 1)/z of its tensor, a ring all-reduce 2·(x - 1)/x.",
            f"{z - 1}/{z} · {block} + 2 · {x - 1}/{x} · {part}.",
        ),
        objective="Derive what a rank sends in a layer that is cut both ways.",
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
        "Two layers. Every product takes 3 ms; a gather, a sum of Y and a scatter take 1 ms each; a sum of dX takes "
        f"{sum_x} ms. Nothing slows anything else down, and dX of the first layer is added, too. How many ms does a "
        "step take, forward and backward, in the overlapped form?",
        Number(
            lambda: best,
            "ms",
            within=1e-6,
            slips=[
                (plain, "That is plain: one thing behind the other."),
                (computing, "That is the products alone. Which messages have nothing to hide behind?"),
                (computing + 4, "Nearly: dW takes 3 ms. Is the sum of dX over by then?"),
                (best - 1, "The first gather and the last scatter have nothing to hide behind."),
                (computing + 2 * (1 + sum_x), "dX is added while dW is made."),
            ],
        ),
        (
            f"Products: {computing} ms. To these comes what no product hides. Go through the four messages.",
            "The next layer needs Y, so its sum is never hidden. The first gather and the last scatter have no product "
            "beside them.",
            f"{computing} + 1 (first gather) + 2 · 1 (sums of Y) + 2 · ({sum_x} - 3) (what is left of the sums of dX) "
            "+ 1 (last scatter).",
        ),
        objective="Predict how long a step takes when its messages lie under its products.",
        difficulty=2,
        minutes=4,
    )


@cache
def planned() -> Planned:
    """Every plan of axonn.grid."""
    return plan(FEW, MACHINE, gpus=GPUS, batch=BATCH, grids=True, p=1)


def grids() -> dict[tuple[int, int, int], float]:
    """{(x, t, d): seconds of its best plan that fits}, of all that are legal."""
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
        return False, f"t={t} cuts the heads, of which there are {FEW.heads}."
    every, mine = grids(), grids().get((x, t, d))
    if mine is None:
        return False, f"x={x}, t={t}, d={d} is no legal plan that fits: d must divide a batch of {BATCH}."
    if mine > CLOSE * min(every.values()):
        return False, f"{planned().why(x=x, t=t, d=d)}."
    return True, f"No other grid is quicker; all {len(every)} that fit were tried. {planned().best}."


TASKS: dict[str, Task] = {
    "axonn.words": varying(_words, rows=(8192, 4096, 16384)),
    "axonn.forward": task(
        "Write the plain layer: my_layer(comm, x, share, lengths, inner, outer). x is this rank's part of the input; "
        "share is its rows of the block of W (a row is an output); lengths says how many rows of the block each rank "
        "along z has; inner and outer are axes. Return this rank's part of Y = X·Wᵀ, with three typed moves. dX and dW "
        f"must come back right, and no word more than needed may be sent. Tried on {FORWARD[0]}, then on other grids.",
        OnMeshes(try_layer, first_found, FORWARD, "Y, dX, dW and every word are right, on uneven grids too."),
        (
            "Go through the three axes. z: what is missing before the product? inner: what is missing after it? outer: "
            "nothing is missing, but who uses this x?",
            'typed.all_gather(comm, share, "z", 0, to=…, sizes=lengths), typed.all_reduce(comm, y, inner, to=…), '
            "typed.enter(comm, x, outer). The block is used for rows of one's own, so is it R or I? And behind the "
            "sum all ranks along inner go on alike.",
            'x = typed.enter(comm, x, outer); w = typed.all_gather(comm, share, "z", 0, to="R", sizes=lengths); return '
            'typed.all_reduce(comm, x @ w.T, inner, to="I").',
        ),
        objective="Write a layer on a grid from typed moves, and let its backward follow.",
        difficulty=2,
        minutes=9,
    ),
    "axonn.backward": task(
        "Write the backward of MyProduct: it gets g, the gradient of y = x·wᵀ, and returns the gradients of x and w, "
        "and None for comm and outer. dX must be added along ctx.outer, and the message must travel while dW is made. "
        f"ctx.comm.iall_reduce(tensor, axis) begins a sum; wait() of what it returns gives the sum. Tried on "
        f"{BACKWARD[0]}, then on other grids. Numbers are checked, and the order of what you do.",
        OnMeshes(
            try_product, first_found, BACKWARD, "dX and dW are right, and the message lies under the second product."
        ),
        (
            "Which of the two products does the sum need? What can be done while it travels?",
            "Four steps: make dX = g·w; begin its sum; make dW = gᵀ·x; wait.",
            "coming = ctx.comm.iall_reduce(g @ w, ctx.outer); by_w = g.T @ x; return coming.wait(), by_w, None, None.",
        ),
        objective="Hide a message under a product.",
        difficulty=2,
        minutes=8,
    ),
    "axonn.hidden": varying(_hidden, sum_x=(4, 5, 6)),
    "axonn.grid": task(
        f"A GPT of {FEW.layers} layers with width {FEW.width:,} and only {FEW.heads} heads, on {GPUS} A100s in nodes "
        f"of 8, without a pipeline, a batch of {BATCH} sequences. Which grid is quickest? Answer with (x, t, d): ways "
        "to cut the width, ways to cut the heads and hidden units, and copies (with those that share weights among "
        "them). Microbatches, recomputation and ZeRO are chosen for you, as the best for your grid.",
        _grid,
        (
            "t cannot be more than the heads, d no more than the batch. What is left for x?",
            "Prefer t to x, since attention is done on every rank along x alike. Then weigh x against d: copies add "
            "gradients of all weights, x adds outputs of every matrix.",
            f"t = {FEW.heads}, the most. hl.plan with grids=True weighs the x that are left, and its why(x=…) tells.",
        ),
        objective="Choose the grid of a model that has fewer heads than there are ranks.",
        difficulty=2,
        minutes=5,
    ),
}
