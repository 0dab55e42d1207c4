"""The exercises of notebook 30, Megatron. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import partial

import numpy as np

from hybridlab.core.what.shape import Shape
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.megatron import build_tasks, design, hunt
from hybridlab.labs.megatron.build_tasks import On
from hybridlab.labs.megatron.design import ALLOWED, GPU, PLANNED, SEQUENCES, SERVER
from hybridlab.labs.trials.cases import OnCases
from hybridlab.labs.trials.trial import Function
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.traffic import tensor

# --- f and g ------------------------------------------------------------------------------------------------------

EQUAL = 1e-10

task = partial(Task, notebook="30_megatron")


def _tried(comm, answer, case):
    """On a rank: the effect of f and g, two autograd functions, on two matrices between them."""
    from hybridlab.labs.megatron.on_ranks import tried

    return tried(comm, *(one.apply for one in answer))


def _conjugate(case, homes) -> str:
    """The mistake in the reports of `on_ranks.tried` from all ranks; empty if there is none."""
    worst = {what: max(home[what] for home in homes) for what in "ZxAB"}
    forward, backward = homes[0]["sums"]
    if not worst["Z"] < EQUAL:
        what = "no rank adds them, which g should do" if forward == 0 else "only g adds; f leaves x as it is"
        return f"Z is wrong already in the forward. The ranks hold partial sums of it, and {what}."
    if not max(worst["A"], worst["B"]) < EQUAL:
        return "Z is right, the gradients of A and B are not: g should pass the gradient on as it is."
    if not worst["x"] < EQUAL:
        return "Z and the gradients of A and B are right, the gradient of x is not: each rank has a partial sum of it."
    if (forward, backward) != (1, 1):
        count = f"{forward} all-reduces forward and {backward} backward"
        return f"Everything is right, with {count}; one each is enough."
    return ""


# --- the backward of an all-gather --------------------------------------------------------------------------------


OPERATIONS = ("split", "reduce_scatter", "all_reduce", "all_gather", "all_to_all")


def _operation(word) -> str:
    """The operation that a word names, with any spelling of its spaces; empty if there is none.

    >>> _operation("reduce-scatter"), _operation("Reduce scatter"), _operation("sum")
    ('reduce_scatter', 'reduce_scatter', '')
    """
    letters = "".join(filter(str.isalpha, str(word).lower()))
    return next((name for name in OPERATIONS if name.replace("_", "") == letters), "")


def _two_backwards(answer) -> Verdict:
    """The backwards of an all-gather: to R, and to I."""
    pair = list(map(_operation, answer)) if isinstance(answer, list | tuple) else []
    if len(pair) != 2 or "" in pair:
        return False, f'Answer with two names, as in ("split", "split"). Choose from {", ".join(OPERATIONS)}.'
    different, same = pair
    if pair == ["split", "reduce_scatter"]:
        return False, "The other way round."
    if different == "split":
        return False, (
            "If each rank does different work, each has a different gradient: keeping only one part loses the rest."
        )
    if different == "all_reduce":
        return (
            False,
            "In (a), an all-reduce leaves the full sum on every rank, but a rank needs only its own part of it.",
        )
    if different != "reduce_scatter":
        return False, "In (a), the ranks have different gradients: every rank must end with its part of their sum."
    if same in ("reduce_scatter", "all_reduce"):
        return False, "If all ranks do the same work, each has the full gradient already: their sum is too large."
    if same != "split":
        return (
            False,
            "In (b), a rank needs the gradient of its own part, and already has the full one: nothing needs to be "
            "sent.",
        )
    return True, (
        "If every rank does different work, the gradients are partial sums; if all do the same work, they are full."
    )


# --- numbers ------------------------------------------------------------------------------------------------------

WAYS = 8  # in megatron.sums


def _blocks(shape, ways):
    """{when: elements of all sums inside the blocks}, one sequence."""
    terms = tensor(shape, 1, ways)
    return {when: terms["blocks", when] for when in ("forward", "backward")}


def _sums_of(shape, ways):
    return sum(_blocks(shape, ways).values()) / (shape.context * shape.width)


def _elements(shape, ways):
    return cost("all_reduce", ways, sum(_blocks(shape, ways).values())).bytes


# --- GELU before the sum ------------------------------------------------------------------------------------------

_gelu = lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
_mask = np.array([1.0, 0.0, 2.0, 0.0])
CANDIDATES = {  # operations that might come before the sum
    "gelu": _gelu,
    "double": lambda x: 2 * x,
    "bias": lambda x: x + np.array([0.5, -1.0, 0.25, 2.0]),
    "mask": lambda x: x * _mask,
    "norm": lambda x: (x - x.mean()) / x.std(),
}
SUMMANDS = np.array([[3.0, -1.0, 0.5, 2.0], [-2.0, 1.5, 1.0, -0.5]])


def commutes(name: str) -> bool:
    """Whether a function commutes with the sum of two partial sums: tested with numbers.

    >>> [name for name in CANDIDATES if commutes(name)]
    ['double', 'mask']
    """
    function = CANDIDATES[name]
    return bool(np.allclose(sum(map(function, SUMMANDS)), function(SUMMANDS.sum(axis=0))))


WHY = {
    "gelu": "GELU is not linear: it turns 3 and -2 into numbers whose sum is 2.95, and their sum 1 into 0.84",
    "bias": "every rank would add the bias, so it would be counted twice",
    "norm": "the mean and the spread of a partial sum are not those of the sum",
}


def _before_the_sum(answer) -> Verdict:
    """The verdict on the names of operations that may be applied to partial sums."""
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
        return False, f"Right so far; {len(missing)} more may come before the sum."
    return True, "These are linear. All other operations must wait for the sum."


def _sums(layers):
    return task(
        f"A model of {layers} layers runs on t = {WAYS} ranks. How many all-reduces along tp happen inside its layers "
        "for one microbatch, forward and backward together?",
        Number(
            lambda: _sums_of(Shape(layers=layers, width=1024, heads=16, context=1024), WAYS),
            "all-reduces",
            slips=[
                (2 * layers, "That is the forward alone, or one of the two pairs in each layer."),
                (
                    layers,
                    "One for each layer? A layer has two pairs, and each needs one all-reduce forward and one "
                    "backward.",
                ),
                (8 * layers, "f and g take turns: in the forward only g communicates, in the backward only f."),
            ],
        ),
        (
            "Attention is a pair too: q, k, v by heads, then the output matrix by rows.",
            "2 forward and 2 backward in each.",
            f"4 in each layer, and there are {layers} layers.",
        ),
        objective="Count the all-reduces of tensor parallelism.",
        difficulty=1,
        minutes=2,
    )


def _bytes(context, width, ways):
    hop, whole = context * width, 8 * context * width  # b·s·h, with b = 1
    right = whole * (ways - 1) / ways
    return task(
        f"A layer has s = {context} and h = {width}; it runs with b = 1 on t = {ways} ranks. How many numbers does "
        "each rank send for a microbatch, forward and backward together, if every all-reduce is a ring? Give the exact "
        "number.",
        Number(
            lambda: _elements(Shape(layers=1, width=width, heads=width // 128, context=context), ways),
            "numbers",
            within=1e-10,  # the exact one
            slips=[
                (hop, "That is b·s·h: a pipeline sends this once to the next stage."),
                (4 * hop, "That is the size of the four tensors. A ring sends each of them nearly twice."),
                (whole, f"That is 8·b·s·h, for very many ranks. With t = {ways} there is a factor (t-1)/t."),
                (right / 2, "That is the forward alone, or one of the two pairs."),
                (right / 4, "That is one all-reduce. There are four."),
                (2 * right, "That is twice the right number: a layer has two all-reduces forward and two backward."),
            ],
        ),
        (
            "Four all-reduces of b·s·h numbers; a ring sends 2(t-1)/t of each.",
            "8·b·s·h·(t-1)/t.",
            f"8 · {context} · {width} · {ways - 1} / {ways}.",
        ),
        objective="Say what a layer sends along tp, compared with a pipeline.",
        difficulty=2,
        minutes=4,
    )


ABOUT_THE_PAIR = {  # {words of a reply: the hint about the mistake that it reports}
    "Z is wrong already in the forward": "In the forward, one of the two adds and the other does nothing. After "
    "which matrix do the ranks hold partial sums?",
    "the gradient of x is not": "In the backward, the other one adds. Each rank uses x for its own columns, so x has "
    "several consumers. What is then its gradient?",
    "the gradients of A and B are not": "In the backward, the gradient of Z is already the same on all ranks. What "
    "must g do to it?",
    "one each is enough": "One of F and G adds in the forward, the other in the backward. Which of yours does both?",
}

TASKS: dict[str, Task] = {
    **build_tasks.TASKS,
    "megatron.pair": task(
        "Write f and g as two autograd functions, F and G. Between them, the ranks hold A cut by columns and B cut by "
        "rows. Z and the gradients of x, A and B must equal those of one process, with one all-reduce in the forward "
        "and one in the backward. Your code is tested on 2 ranks, then on 4.",
        OnCases(
            _tried,
            _conjugate,
            (On(2), On(4)),
            "Z and all gradients are those of one process, with one all-reduce forward (g) and one backward (f).",
            names=("F", "G"),
        ),
        (
            "The forward ends with partial sums of Z. The backward ends with partial sums of the gradient of x.",
            "In the forward g must all-reduce, in the backward f. comm.all_reduce(x) adds in place: give it x.clone().",
            "F.forward returns x.view_as(x), F.backward (ctx.comm.all_reduce(gradient.clone()), None). G.forward "
            "returns comm.all_reduce(z.clone()), G.backward (gradient, None).",
        ),
        about=ABOUT_THE_PAIR,
        objective="Write the two operators around a sharded pair of matrices.",
        difficulty=2,
        minutes=6,
    ),
    "megatron.sums": varying(_sums, layers=(24, 32, 36, 40, 48)),
    "megatron.bytes": varying(_bytes, context=(2048, 1024, 4096), width=(12288, 8192, 16384), ways=(8, 4, 16)),
    "megatron.gelu": task(
        "Ranks hold partial sums, and g will add them. A mask multiplies some entries by 2 and the others by 0, the "
        f"same ones on all ranks. Which of these give the same result before g as after it: {', '.join(CANDIDATES)}?",
        _before_the_sum,
        (
            "An operation may come before the sum if its results for 3 and -2 add up to its result for 1.",
            "Only linear functions commute with a sum; adding a constant is not linear.",
            "Two of the five only multiply each entry by a fixed number.",
        ),
        objective="Say which operations may be applied to partial sums, and which must wait for the sum.",
        difficulty=2,
        minutes=4,
    ),
    "megatron.backward": task(
        "All ranks gather the parts of a tensor. Which operation must the backward apply to the gradient, if later in "
        "the forward (a) each rank does different work with the full tensor, or (b) all ranks do the same work with "
        f"it? Answer with two of `{'`, `'.join(OPERATIONS)}`; `split` keeps a rank's own part and sends nothing.",
        _two_backwards,
        (
            "In (b) every rank has the same full gradient. In (a) each has only a partial sum of it.",
            "(a) sum, then keep your own part; (b) keep your own part.",
            "One collective sums and keeps a part: it is the first half of an all-reduce. That is (a); (b) is split.",
        ),
        objective="Say which collective belongs in the backward.",
        difficulty=3,
        minutes=6,
    ),
    "megatron.hunt": task(
        "Two ranks share the positions of a sequence. The loss is right, but some gradients may not be. Write a "
        "function `(loss, weights, gradients)` that returns the set of the names whose gradients are wrong. "
        "`loss(weights)` is a number; `weights` and `gradients` are dictionaries of numpy arrays with the same names.",
        Function(hunt.cases(), hunt.judged, "Answer with your function itself: wrong_gradients, without parentheses."),
        (
            "Change one entry of one weight by a little, up and down. By how much does the loss change?",
            "The derivative is (loss above - loss below) / (2 · step). Compare every entry, not a norm: signs count.",
            "for i in np.ndindex(w.shape): keep w[i]; w[i] = kept + 1e-6; above = loss(weights); the same below; put "
            "kept back. A gradient is wrong if this differs from gradients[name][i] by more than 1e-4.",
        ),
        objective="Find wrong gradients by finite differences, where the loss does not show them.",
        difficulty=2,
        minutes=8,
    ),
    "megatron.design": task(
        f"A model has {PLANNED.layers} layers, h = {PLANNED.width}, `heads={PLANNED.heads}`, "
        f"`kv_heads={PLANNED.kv_heads}`, s = {PLANNED.context} and a vocabulary of {PLANNED.vocabulary}. It trains in "
        f"microbatches of {SEQUENCES} sequences, in mixed precision, with Adam. A GPU has {GPU} GB. In a server of "
        f"{SERVER} GPUs, each GPU sends 300 GB/s; to other servers, it sends 25 GB/s. A microbatch may spend "
        f"{1e3 * ALLOWED:.0f} ms sending along tp. Choose t and whether to use sequence parallelism: (t, True or "
        "False).",
        design.judged,
        (
            "t must divide heads, and must divide kv_heads or be a multiple of it. Which such t stay inside a server?",
            "Count 16 bytes for every parameter on a rank, and 2 bytes for each of 36·s·b·h·(4 + 12/t) activations. "
            "With sequence parallelism the bracket is 16/t.",
            "Inside a server t can be 1, 2 or 4. Only the largest fits, and only if the sequence is cut too.",
        ),
        objective="Choose t by memory, by the number of heads, and by the links.",
        difficulty=3,
        minutes=8,
    ),
}
