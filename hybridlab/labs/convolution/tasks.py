"""The exercises of notebook 34. As in `labs.exercises.all_tasks`, the package computes every number.

The exercises in which students write code are in `build_tasks`.
"""

from functools import cache

from hybridlab.core.what.catalog import machine
from hybridlab.core.where.layout import even
from hybridlab.core.where.spans import Sight, wanted
from hybridlab.labs.convolution import build_tasks
from hybridlab.labs.convolution.build_tasks import task
from hybridlab.labs.convolution.sizes import FORMS, LAYERS
from hybridlab.labs.exercises.plain import integer
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.bytes.convolution import Conv, ranked
from hybridlab.predict.time.strips import Speed, least_rows

ROWS, STRIPS, KERNEL, STRIDES = 16, 4, 5, (1, 2)  # of convolution.lacks
RATE, SENT, WIDTH = 500e12, machine("h100").across, 2  # of convolution.rows
NAMES = {mesh: name for name, mesh in FORMS.items()}


# --- which rows -----------------------------------------------------------------------------------------------------


def lacks(stride: int) -> tuple[int, int]:
    """(rows above, rows below) that strip 1 of the question lacks.

    >>> lacks(1)
    (2, 2)
    """
    have = even(ROWS, STRIPS)
    (_, has, *_), (_, wants, *_) = have, wanted(have, Sight(KERNEL, stride, KERNEL // 2, KERNEL // 2))[1]
    return has[0] - wants[0], wants[1] - has[1]


def _lacking(answer) -> Verdict:
    """((above, below) with a stride of 1, and of 2)."""
    try:
        (one, other), (above, below) = answer
        given = (integer(one), integer(other)), (integer(above), integer(below))
    except (TypeError, ValueError):
        return False, "Answer with two pairs: ((above, below), (above, below)), for a stride of 1 and of 2."
    plain, strided = map(lacks, STRIDES)
    if given == (plain, strided):
        return True, "With a stride the strip's last output ends earlier: it lacks fewer rows below than above."
    if given[0] == (KERNEL - 1,) * 2:
        return False, f"An output sees {KERNEL // 2} rows on each side of its own row, not {KERNEL - 1}."
    if given[0] != plain:
        return False, "With a stride of 1, begin with the first output of the strip: which rows does it see?"
    if given[1] == plain:
        return False, "Your two pairs are equal. With a stride of 2, which is the last row that output 3 sees?"
    if given[1] == strided[::-1]:
        return False, "Above and below are swapped in the second pair."
    return (
        False,
        f"With a stride of 2, output i sees rows 2i - {KERNEL // 2} to 2i + {KERNEL // 2}. Which outputs i belong to "
        "strip 1?",
    )


# --- how many rows --------------------------------------------------------------------------------------------------


def _rows(filters: int) -> Task:
    its = Speed(rate=RATE, link=Link(0.0, 1 / SENT), width=WIDTH)
    conv = Conv(1, 64, filters, 512, 512)
    right = least_rows(conv, its)
    hidden = right - (conv.kernel - 1)
    return task(
        f"A convolution of 3 × 3 with {filters} filters runs on strips; numbers take {WIDTH} bytes. It reaches "
        f"{RATE / 1e12:g} TFLOP/s, the link carries {SENT / 1e9:g} GB/s; neglect the latency. How many rows must a "
        "strip between two neighbours have so that its interior fully overlaps with the halo? Do not round.",
        Number(
            lambda: right,
            "rows",
            slips=[
                (hidden, "That many outputs must be in the interior. How many rows of the strip are its border?"),
                (hidden + 1, "That counts one border. A strip between two neighbours has two."),
                (
                    2 * hidden + 2,
                    "That is twice the right number of outputs: a multiplication and an addition count as two.",
                ),
                (hidden / 2 + 2, f"A number takes {WIDTH} bytes, and the halo has {conv.kernel - 1} rows of numbers."),
                (hidden * 3 + 2, "The kernel has 3 · 3 places."),
            ],
        ),
        (
            "Set the time of the halo equal to that of the interior. Channels and columns cancel.",
            f"An output row takes 2 · {filters} · 9 operations for each channel and column. The halo has 2 rows, each "
            f"{WIDTH} bytes for each channel and column.",
            f"2 + 2 · {WIDTH} / {SENT / 1e9:g}e9 · {RATE / 1e12:g}e12 / (2 · {filters} · 9).",
        ),
        objective="Derive how many rows a rank needs so that its computation hides the halo exchange.",
        difficulty=2,
        minutes=4,
    )


# --- which grid -----------------------------------------------------------------------------------------------------


@cache
def best() -> tuple[str, ...]:
    """The way that sends the fewest words for each layer of the exercise: strips, or one of the three forms.

    >>> best()
    ('W stays', 'Y stays', 'strips', 'X stays')
    """
    return tuple(min(its, key=its.get) for its in map(words, LAYERS.values()))


def words(conv: Conv) -> dict[str, float]:
    """{way: words of the busiest of four ranks, forward and backward}, of those ways that the layer allows."""
    every = {mesh: sent for sent, mesh in ranked(conv, 4, ("h", "c", "f"))}
    return {name: every[mesh] for mesh, name in NAMES.items() if mesh in every} | {
        "strips": next(sent for mesh, sent in every.items() if mesh["h"] == 4)
    }


def _grid(answer) -> Verdict:
    """A way for each layer, compared with the best of all."""
    ways = ("strips", *FORMS)
    names = {name.split()[0].lower(): name for name in ways}
    if (
        not isinstance(answer, list | tuple)
        or len(answer) != len(LAYERS)
        or not all(isinstance(one, str) and one.split() and one.split()[0].lower() in names for one in answer)
    ):
        return False, f"Answer with {len(LAYERS)} words, for A, B, C, D: each one of {', '.join(map(repr, names))}."
    for layer, one, right in zip(LAYERS, answer, best()):
        its, mine = words(LAYERS[layer]), names[one.split()[0].lower()]
        if mine not in its:
            return False, f"{layer[0]}: {mine} needs as many channels as ranks along c, but there are only 3 channels."
        if mine != right:
            return (
                False,
                f"{layer[0]}: with {mine} a rank sends {its[mine]:,.0f} words; another way sends {its[right]:,.0f}.",
            )
    return True, "The best way differs from layer to layer: it is the one that does not send the largest tensor."


TASKS: dict[str, Task] = {
    "convolution.lacks": task(
        f"An image of {ROWS} rows is cut into {STRIPS} strips. The kernel is {KERNEL} × {KERNEL}, with {KERNEL // 2} "
        "rows of padding above and below the image. Outputs are cut into strips too. How many rows does strip 1 lack "
        "above, and below? Answer with two pairs, ((above, below), (above, below)): for a stride of 1, and for a "
        "stride of 2.",
        _lacking,
        (
            "Strip 1 has rows 4 to 7. Its outputs have the indices 4 to 7 with a stride of 1, and the indices 2 and 3 "
            "with a stride of 2.",
            "Output i sees rows i·stride - 2 to i·stride + 2. Take the first output of strip 1, then the last.",
            "Stride 1: rows 2 to 9. Stride 2: rows 2 to 8.",
        ),
        objective="Say which rows of its neighbours a strip needs, with a stride too.",
        difficulty=1,
        minutes=3,
    ),
    "convolution.rows": varying(_rows, filters=(256, 128, 512)),
    "convolution.grid": task(
        "There are four layers, one image and four ranks. For each layer choose the way that sends the fewest words in "
        "forward and backward together, including the all-reduce of dW: 'strips' (rows of pixels are cut), or the "
        f"tensor that is not sent, 'X', 'Y' or 'W'. {'; '.join(LAYERS)}. Answer with four words, for A, B, C, D.",
        _grid,
        (
            "For each layer, how large are X, W and Y? The largest should not be sent.",
            "If X stays, Y is sent; if Y stays, X is sent; if W stays, a part of both is sent. Strips send two rows, "
            "and all gradients of W.",
            "A has the largest W and the same number of inputs and outputs. B has few channels, D few filters, C a "
            "large image.",
        ),
        objective="Choose what to cut for each layer of a net.",
        difficulty=2,
        minutes=4,
    ),
    **build_tasks.TASKS,
}
