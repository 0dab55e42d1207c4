"""Exercises of notebook 42, on the published table: `sc21.*`. The package computes all numbers that are unpublished."""

from functools import cache, partial

from hybridlab.core.what.catalog import model
from hybridlab.core.what.shape import Shape
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.sc21 import build_tasks
from hybridlab.labs.sc21.rows import with_size
from hybridlab.labs.sc21.table import LABELS, ROWS
from hybridlab.predict.papers.sc21 import table_2
from hybridlab.predict.plans.arithmetic import DAY, training_seconds

WIDTH, VOCABULARY, CONTEXT = 12288, 51200, 2048  # sc21.parameters
TRILLION, TOKENS, GPUS, RATE = model("gpt-1t").shape, 450e9, 3072, 163e12  # sc21.days
ROUND = 1e12
PRINTED = table_2("PTD-P", 529.6)[0].printed  # sc21.row: TFLOP/s of one of 560 GPUs
VERDICTS = ("quicker", "slower", "impossible")

task = partial(Task, notebook="42_sc21")


def days(parameters: float) -> float:
    """Days for the largest model by 8TP/(nX), with this number of parameters.

    >>> round(days(ROUND), 1)
    83.2
    """
    return training_seconds(TOKENS, parameters, GPUS, RATE) / DAY


def _parameters(layers):
    shape = Shape(layers, WIDTH, 96, CONTEXT, VOCABULARY, tied=True)
    blocks, head = 12 * layers * WIDTH**2, VOCABULARY * WIDTH
    return task(
        f"A GPT has {layers} layers, width {WIDTH}, a vocabulary of {VOCABULARY} and {CONTEXT} positions, and its head "
        "is tied to the embedding. How many parameters does it have, in billions, to three decimals?",
        Number(
            lambda: shape.parameters / 1e9,
            "billion",
            within=0.0005,
            slips=[
                (blocks / 1e9, "These are the matrices of the blocks, 12lh². Tokens and positions have vectors too."),
                (
                    (shape.parameters + head) / 1e9,
                    "That counts a head in addition to the embedding. They are tied, so they are one matrix, V·h.",
                ),
                (shape.parameters, "Answer in billions."),
            ],
        ),
        (
            "P = 12lh² (1 + 13/12h + (V+s)/12lh).",
            "The last term, multiplied out, is (V + s)·h: one vector for each token, one for each position.",
            f"12 · {layers} · {WIDTH}² = {blocks / 1e9:.3f} billion; now 13lh and (V + s)h.",
        ),
        objective="Count the parameters of a GPT from its sizes.",
        difficulty=1,
        minutes=4,
    )


@cache
def changes() -> dict[str, int]:
    """{row of table 1 with a smaller b than the previous row: the b of the previous row}.

    >>> changes()
    {'18.4B': 16, '39.1B': 8, '76.1B': 4, '310.1B': 2}
    """
    sizes = {label: row.plan.b for label, row in ROWS.items()}
    return {label: sizes[before] for before, label in zip(LABELS, LABELS[1:]) if sizes[label] < sizes[before]}


@cache
def verdict(label: str) -> str:
    """The model's verdict on a row with the b of the row before: "quicker", "slower" or "impossible".

    >>> [verdict(label) for label in changes()]
    ['quicker', 'slower', 'impossible', 'impossible']
    """
    try:
        other = with_size(label, changes()[label])
    except ValueError:
        return "impossible"
    return "quicker" if other.step.total < ROWS[label].step.total else "slower"


def _sizes(answer) -> Verdict:
    """{a row: a verdict} for every row in which b becomes smaller."""
    if not isinstance(answer, dict) or not all(isinstance(one, str) and one in VERDICTS for one in answer.values()):
        return False, 'Answer with {"39.1B": "slower", …}; each is "quicker", "slower" or "impossible".'
    rows = changes()
    if unknown := [one for one in answer if one not in LABELS]:
        return False, f"There is no row {str(unknown[0])[:20]!r}: the rows are {', '.join(LABELS)}."
    if set(answer) != set(rows):
        return False, f"You name {len(answer)} of the rows; b becomes smaller in {len(rows)}: which are they?"
    for label, b in rows.items():
        if answer[label] != verdict(label):
            p, _, d, _, v, *_ = ROWS[label].plan
            return False, f"Not {label}. With b = {b} it has m = {ROWS[label].batch / (b * d):g}, p = {p}, v = {v}."
    gain = with_size("18.4B", 16).predicted() / ROWS["18.4B"].predicted() - 1
    return True, (
        "39.1B: the bubble grows by more than the GEMMs gain. 76.1B and 310.1B: with an interleaved schedule, m must "
        f"be a multiple of p. 18.4B: by our model b = 16 would be {gain:.0%} faster; the authors had a reason that "
        "our model does not include."
    )


TASKS: dict[str, Task] = {
    **build_tasks.TASKS,
    "sc21.parameters": varying(_parameters, layers=(72, 64, 48, 40)),
    "sc21.days": task(
        f"The paper gives {days(TRILLION.parameters):.0f} days for its largest model. 8TP/(nX) with T = 450 billion, "
        f"P = 1000 billion, n = {GPUS} and X = 163 TFLOP/s is {days(ROUND):.1f}. No rounding of X explains the "
        "difference. Which P, in billions, did the authors use?",
        Number(
            lambda: TRILLION.parameters / 1e9,
            "billion",
            within=0.0005,
            slips=[
                (1000, f"That gives {days(ROUND):.1f} days, but the paper prints another number."),
                (
                    1000 * 84 / days(ROUND),
                    "That gives exactly 84.0 days, but 84 is rounded. How many parameters does the model itself have?",
                ),
                (450, "These are the tokens, in billions. The slide has exchanged the two columns."),
            ],
        ),
        (
            "“A trillion” is a round word. Which row of table 1 is that model?",
            "128 layers of width 25600: apply the formula for P.",
            f"P from the formula gives {days(TRILLION.parameters):.1f} days. The row's label is that P.",
        ),
        objective="Find the number from which a printed result was computed.",
        difficulty=2,
        minutes=5,
    ),
    "sc21.row": task(
        "Predict a row of the paper's table 2 that was used neither for the fit nor in this notebook: the model of "
        "529.6B on 560 GPUs, with t = 8, p = 35, b = 1 and B = 2240; v is not printed. How many TFLOP/s did one GPU "
        "reach? Your answer may be off by 3 %.",
        Number(
            lambda: PRINTED,
            "TFLOP/s",
            within=0.03,
            slips=[
                (
                    sum(row.printed for row in ROWS.values()) / len(ROWS),
                    "That is the mean of table 1. Why should this row equal the mean?",
                ),
                (
                    163,
                    (
                        "That is the same model in table 1, on 2520 GPUs. How many microbatches does a pipeline have "
                        "there?"
                    ),
                ),
            ],
        ),
        (
            "Which of our terms differ from those of the row 529.6B in table 1, and in which direction?",
            "d = 560/(8 · 35) = 2, so m = 1120 instead of 280: the bubble nearly vanishes.",
            'Run sc21.unseen("gpt-529.6b", gpus=560, p=35, batch=2240).predicted() in a new cell.',
        ),
        objective="Predict a measurement that was not used, and say how sure you are.",
        difficulty=2,
        minutes=6,
    ),
    "sc21.sizes": task(
        "In some rows of table 1, b is smaller than in the row before. Give each of these rows the larger b of the row "
        'before. Is its step in our model then "quicker", "slower", or "impossible"? Answer with {row: verdict}.',
        _sizes,
        (
            "b is 16, 16, 16, 8, 4, 2, 2, 1, 1, 1 from the first row to the last.",
            'Compare sc21.with_size("39.1B", 8).step.total with the same row at b = 4.',
            "with_size raises an error for two of the four rows. One of the other two is quicker: compare their steps.",
        ),
        objective="Explain why a microbatch is small: the bubble, divisibility, or an effect outside the model.",
        difficulty=3,
        minutes=10,
    ),
}
