"""The exercises of notebook 30, Megatron. As in `labs.tasks`, the package computes every number."""

import numpy as np

from hybridlab.core.catalog import Shape
from hybridlab.labs.megatron_sizes import gigabytes, on_the_wire
from hybridlab.labs.task import Task, Verdict, number
from hybridlab.predict.collectives import Link, cost
from hybridlab.predict.traffic import tensor

# --- f and g ------------------------------------------------------------------------------------------------------

EQUAL = 1e-10


def _conjugate(answer) -> Verdict:
    """f and g as tried on two ranks: what `megatron.tried` returned from each."""
    homes = list(answer) if isinstance(answer, list | tuple) else []
    if len(homes) != 2 or not all(
        isinstance(home, dict) and {"Z", "x", "A", "B", "sums"} <= home.keys() for home in homes
    ):
        return False, "Give the list that pair.run(megatron.tried, …) returned: a report from each of two ranks."
    worst = {what: max(home[what] for home in homes) for what in "ZxAB"}
    forward, backward = homes[0]["sums"]
    if not worst["Z"] < EQUAL:
        what = "nobody adds them: that is g" if forward == 0 else "or x was changed before the first matrix"
        return False, f"Z is wrong already in the forward. The ranks hold summands of it, and {what}."
    if not max(worst["A"], worst["B"]) < EQUAL:
        return (
            False,
            "Z is right, the gradients of A and B are not: g changes the gradient, and should hand it on as it is.",
        )
    if not worst["x"] < EQUAL:
        return (
            False,
            "Z and the gradients of A and B are right, the gradient of x is not: each rank has a summand of it.",
        )
    if (forward, backward) != (1, 1):
        return False, f"Everything is right, with {forward} sums forward and {backward} backward; one each will do."
    return True, "Z and all gradients are those of one process, with one sum forward (g) and one backward (f)."


# --- numbers ------------------------------------------------------------------------------------------------------

MODEL = Shape(layers=24, width=1024, heads=16, context=1024)
GPT3 = Shape(layers=1, width=12288, heads=96, context=2048)
WAYS = 8
HOP = GPT3.context * GPT3.width  # b·s·h, with b = 1


def _blocks(shape, ways):
    """{when: elements of all sums inside the blocks}, one sequence."""
    terms = tensor(shape, 1, ways)
    return {when: terms["blocks", when] for when in ("forward", "backward")}


def _sums():
    return sum(_blocks(MODEL, WAYS).values()) / (MODEL.context * MODEL.width)


def _elements():
    return cost("all_reduce", WAYS, sum(_blocks(GPT3, WAYS).values())).bytes


# --- GELU before the sum ------------------------------------------------------------------------------------------

_gelu = lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
_mask = np.array([1.0, 0.0, 2.0, 0.0])
CANDIDATES = {  # what might stand before the sum
    "gelu": _gelu,
    "double": lambda x: 2 * x,
    "bias": lambda x: x + np.array([0.5, -1.0, 0.25, 2.0]),
    "mask": lambda x: x * _mask,
    "norm": lambda x: (x - x.mean()) / x.std(),
}
SUMMANDS = np.array([[3.0, -1.0, 0.5, 2.0], [-2.0, 1.5, 1.0, -0.5]])


def commutes(name: str) -> bool:
    """Whether a function of two summands, then added, is the function of their sum: tried with numbers.

    >>> [name for name in CANDIDATES if commutes(name)]
    ['double', 'mask']
    """
    function = CANDIDATES[name]
    return bool(np.allclose(sum(map(function, SUMMANDS)), function(SUMMANDS.sum(axis=0))))


WHY = {
    "gelu": "GELU bends: of 3 and -2 it makes about 2.95, of their sum 1 about 0.84",
    "bias": "every rank would add the bias, and it would come in twice",
    "norm": "the mean and the spread of a summand are not those of the sum",
}


def _before_the_sum(answer) -> Verdict:
    """The names of what may be done to summands."""
    names = [answer] if isinstance(answer, str) else answer
    try:
        given = {str(name).strip().lower() for name in names}
    except TypeError:
        given = set()
    if not given or not given <= CANDIDATES.keys():
        return False, f"Answer with names from this list, as in {{'gelu', 'bias'}}: {', '.join(CANDIDATES)}."
    wrong = [name for name in CANDIDATES if name in given and not commutes(name)]
    if wrong:
        return False, f"Not {wrong[0]}: {WHY[wrong[0]]}."
    missing = [name for name in CANDIDATES if name not in given and commutes(name)]
    if missing:
        return False, f"Right so far; {len(missing)} more may stand there."
    return True, "These are linear. Anything else must wait for the sum."


# --- the design ---------------------------------------------------------------------------------------------------

PLANNED = Shape(layers=36, width=4608, heads=36, kv_heads=4, context=4096, vocabulary=50257)
SEQUENCES, GPU, SERVER, ALLOWED = 6, 80, 8, 0.5  # sequences in a microbatch, GB, GPUs, seconds
INSIDE, ACROSS = Link(10e-6, 1 / 300e9), Link(20e-6, 1 / 25e9)  # between GPUs of a server, and of several


def planned(ways: int, sequence: bool) -> tuple[float, float]:
    """(GB on the first rank, seconds in which a microbatch's numbers are sent), for the model of the design task.

    raises  ValueError when the model cannot be cut so
    """
    link = INSIDE if ways <= SERVER else ACROSS
    seconds = 2 * on_the_wire(PLANNED, SEQUENCES, ways, sequence) * link.beta
    return sum(gigabytes(PLANNED, SEQUENCES, ways, sequence)), seconds


def _design(answer) -> Verdict:
    """(t, whether the sequence is cut)."""
    if not isinstance(answer, list | tuple) or len(answer) != 2 or not isinstance(answer[1], bool):
        return False, "Answer with two things, as in (2, False): t, and whether the sequence is cut too."
    if isinstance(answer[0], bool) or not isinstance(answer[0], int) or not 1 <= answer[0] <= 1024:
        return False, "t is a whole number of ranks, 1 or more."
    ways, sequence = answer
    try:
        size, seconds = planned(ways, sequence)
    except ValueError as error:
        return False, f"{error}."
    told = f"{size:.1f} GB on the first rank, {1e3 * seconds:.0f} ms of sending"
    if size > GPU:
        return False, f"{told}: a GPU has {GPU} GB."
    if seconds > ALLOWED:
        where = f" across servers of {SERVER}" if ways > SERVER else ""
        return False, f"{told}{where}: {1e3 * ALLOWED:.0f} ms are allowed."
    return True, f"{told}: it fits, and no GPU more than needed."


MEGATRON_TASKS: dict[str, Task] = {
    "megatron.pair": Task(
        "Write f and g as autograd functions. Between them two ranks hold A cut by columns and B cut by rows. Z and "
        "the gradients of x, A and B must be those of one process.",
        _conjugate,
        (
            "Forward, the ranks end with summands of Z. Backward, they end with summands of the gradient of x.",
            "g.forward and f.backward each return comm.all_reduce(…clone()); the other two change nothing.",
        ),
    ),
    "megatron.sums": Task(
        f"A model of {MODEL.layers} layers on t = {WAYS} ranks. How many all-reduces along tp happen inside its layers "
        "for one microbatch, forward and backward together?",
        number(
            _sums,
            "all-reduces",
            slips=[
                (2 * MODEL.layers, "That is the forward alone, or one of the two pairs in each layer."),
                (MODEL.layers, "One for each layer? A layer has two pairs of matrices, and each sums there and back."),
                (8 * MODEL.layers, "f and g take turns: forward only g sums, backward only f."),
            ],
        ),
        (
            "Attention is a pair too: q, k, v by heads, then the output matrix by rows.",
            "2 forward and 2 backward in each.",
        ),
    ),
    "megatron.bytes": Task(
        f"One layer, b = 1, s = {GPT3.context}, h = {GPT3.width}, t = {WAYS}. How many numbers does each rank send for "
        "a microbatch, forward and backward together, when every sum goes round a ring?",
        number(
            _elements,
            "numbers",
            within=1e-6,
            slips=[
                (HOP, "That is b·s·h: what a pipeline sends to the next stage, once."),
                (4 * HOP, "That is what four sums add up. A ring sends each part nearly twice."),
                (8 * HOP, "That is 8·b·s·h, for very many ranks. With t = 8 there is a factor (t-1)/t."),
                (3.5 * HOP, "That is the forward alone, or one of the two pairs."),
                (1.75 * HOP, "That is one sum. There are four."),
            ],
        ),
        ("Four sums of b·s·h numbers; a ring sends 2(t-1)/t of each.", "8·b·s·h·(t-1)/t."),
    ),
    "megatron.gelu": Task(
        "Ranks hold summands, and g will add them. A mask means: some entries times 2, the others times 0, the same "
        f"ones on all ranks. Which of these could every rank do before g as well as after it: {', '.join(CANDIDATES)}?",
        _before_the_sum,
        (
            "It may stand before the sum if doing it to 3 and to -2, and adding, is the same as doing it to 1.",
            "Only linear functions can change places with a sum; to add a constant is not linear.",
        ),
    ),
    "megatron.design": Task(
        f"A model: {PLANNED.layers} layers, h = {PLANNED.width}, heads={PLANNED.heads}, kv_heads={PLANNED.kv_heads}, "
        f"s = {PLANNED.context}, a vocabulary of {PLANNED.vocabulary}. Microbatches of {SEQUENCES} sequences, mixed "
        f"precision, Adam. A GPU has {GPU} GB. In a server of {SERVER} GPUs each sends 300 GB/s, across servers 25. "
        f"A microbatch may spend {1e3 * ALLOWED:.0f} ms on sending along tp. Choose t, and whether the sequence is cut "
        "too: (t, True or False).",
        _design,
        (
            "t must divide heads, and divide kv_heads or be a multiple of it. Which of those stay inside a server?",
            "16 bytes for every parameter on a rank, and 2 bytes for 36·s·b·h·(4 + 12/t) activations, or 16/t.",
        ),
    ),
}
