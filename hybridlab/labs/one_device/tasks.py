"""The exercises of notebook 02, one device. As in `labs.exercises.all_tasks`, the package computes every number."""

import math
from dataclasses import replace
from functools import partial

from hybridlab.core.what import catalog
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.one_device.memory import placing, training
from hybridlab.predict.plans.arithmetic import flops, product

task = partial(Task, notebook="02_one_device")

# --- parameters ---------------------------------------------------------------------------------------------------

DIGITS = 0.001  # relative: four digits


def _parameters(layers: int) -> Task:
    shape = replace(catalog.model("gpt3-175b").shape, layers=layers)
    l, h, s, V = shape.layers, shape.width, shape.context, shape.vocabulary
    blocks, embeddings = l * (12 * h * h + 13 * h), (V + s) * h
    right = f"{shape.parameters / 1e9:.4g}"
    return task(
        f"A GPT like GPT-3 has {l} layers, width {h}, {s} positions and a vocabulary of {V}. A block has 12 h² + 13 h "
        "parameters. The head shares its matrix with the token embedding; a norm before the head has 2 h "
        "parameters. How many parameters does the model have, in billions, to four digits?",
        Number(
            lambda: shape.parameters / 1e9,
            "billion",
            DIGITS,
            [
                (blocks / 1e9, "Those are the blocks alone: tokens and positions have embeddings too, (V + s) h."),
                (
                    (shape.parameters + V * h) / 1e9,
                    "That counts the embedding of tokens twice: the head uses the same matrix.",
                ),
                (4 * l * h * h / 1e9, "That is attention alone; the MLP has 8 h² in each block."),
                (8 * l * h * h / 1e9, "That is the MLPs alone; attention has 4 h² in each block."),
                (
                    2 * shape.parameters / 1e9,
                    "That is the number of gigabytes that the parameters take in half precision.",
                ),
            ],
        ),
        (
            "Blocks, two embeddings, and a last norm.",
            f"The blocks are {blocks / 1e9:.5g} billion. The rest is (V + s) h + 2 h.",
            f"{blocks / 1e9:.5g} + {embeddings / 1e9:.4f}: {right} billion.",
        ),
        objective="Count the parameters of a GPT from its sizes.",
        difficulty=1,
        minutes=4,
    )


# --- cards --------------------------------------------------------------------------------------------------------

PARAMETERS = 175e9


def _cards(card: int) -> Task:
    whole, weights = training(PARAMETERS, 1).total / 1e9, placing(PARAMETERS, 1).total / 1e9
    least = lambda gigabytes: math.ceil(gigabytes / card)
    rounded = [
        (whole / card, "The number of cards is an integer: round up."),
        (whole // card, "That is slightly too few: round up."),
    ]
    return task(
        f"A model of 175 billion parameters trains in mixed precision with Adam, on cards of {card} GB. If "
        "weights, gradients and optimizer state are sharded equally, what is the minimum number of cards, not counting "
        "activations?",
        Number(
            lambda: least(whole),
            "cards",
            1e-9,
            [
                (
                    least(weights),
                    "That is enough for the weights alone. Training keeps gradients and Adam's state too.",
                ),
                (8, "The lecture's eight cards hold the weights. Training keeps 16 bytes for each parameter."),
                (
                    least(2 * weights),
                    "That many cards hold weights and gradients, but Adam keeps 12 more bytes for each parameter.",
                ),
                (least(whole * 3 / 4), "Adam alone takes 12 bytes; a weight and its gradient take 2 each."),
                *(rounded if whole % card else []),
            ],
        ),
        (
            "For each parameter training keeps a weight, a gradient, a master copy and two averages.",
            "2 + 2 + 4 + 4 + 4 bytes: 16 for each of 175 billion parameters.",
            f"{whole:g} GB divided by {card} GB, rounded up.",
        ),
        objective="Distinguish placing a model from training it.",
        difficulty=1,
        minutes=3,
    )


# --- products -----------------------------------------------------------------------------------------------------

A100 = catalog.machine("a100")
PRODUCTS = {  # (m, k, n): m×k times k×n
    "A": (4096, 4096, 4096),
    "B": (1, 4096, 4096),
    "C": (64, 4096, 4096),
    "D": (65536, 64, 65536),
}
INTENSITY = {letter: f"{product(*sizes, 1, 1).intensity:.0f}" for letter, sizes in PRODUCTS.items()}
WHY = {
    "A": f"three matrices of the same size, and {INTENSITY['A']} operations per byte",
    "B": "a matrix times a vector: each weight is read for one multiplication and one addition",
    "C": f"each weight is used for 64 rows only, which is {INTENSITY['C']} operations per byte",
    "D": "the result is huge, and each of its numbers needs only 64 multiplications",
}


def _bound(letter: str) -> str:
    return product(*PRODUCTS[letter], A100.peak, A100.bandwidth).bound


def _memory_bound(answer) -> Verdict:
    """The letters of the GEMMs that are memory-bound."""
    try:
        given = {str(letter).strip().upper() for letter in answer} - {",", ""}
    except TypeError:
        given = set()
    if not given or not given <= PRODUCTS.keys():
        return False, 'Answer with letters from A to D, as in "AB".'
    wrong = [letter for letter in PRODUCTS if (_bound(letter) == "memory") != (letter in given)]
    if not wrong:
        return True, f"D is the trap: {WHY['D']}. Attention's scores are such a GEMM."
    letter = wrong[0]
    held = "arithmetic" if letter in given else "memory"
    return False, f"{letter} is {held}-bound: {WHY[letter]}."


# --- seconds ------------------------------------------------------------------------------------------------------

SHAPE, HALF = catalog.model("gpt-1.7b").shape, 0.5


def _seconds(batch: int) -> Task:
    rate = HALF * A100.peak
    right = flops(SHAPE, batch).total / rate
    by_parameters = 6 * SHAPE.parameters * batch * SHAPE.context / rate
    l, h, s, V = SHAPE.layers, SHAPE.width, SHAPE.context, SHAPE.vocabulary
    return task(
        f"A GPT of {l} layers, width {h}, {s} positions and a vocabulary of {V} trains with batches of {batch} "
        f"sequences on one A100, at half of its {A100.peak / 1e12:g} TFLOP/s. A step takes 72·B·s·l·h²·(1 + s/6h + "
        "V/12lh) operations. How many seconds does it take, to three digits?",
        Number(
            lambda: right,
            "s",
            slips=[
                (right / 3, "That is the forward alone; a backward has the work of two forwards."),
                (right * 2 / 3, "That is the backward alone."),
                (right / 2, "That is at the full peak; the card reaches half of it."),
                (flops(SHAPE, batch, "full").total / rate, "That counts every forward twice, as with recomputation."),
                (
                    by_parameters,
                    "Six operations for each parameter and token do not include the GEMMs of the attention scores.",
                ),
                (1000 * right, "Those are milliseconds."),
            ],
        ),
        (
            "Put the sizes into the formula, and divide by the FLOP/s.",
            f"The bracket is {1 + s / (6 * h) + V / (12 * l * h):.3f}; the operations are "
            f"{flops(SHAPE, batch).total / 1e12:.4g}·10¹².",
            f"Divide {flops(SHAPE, batch).total / 1e12:.4g} by {rate / 1e12:g}.",
        ),
        objective="Predict the time of a step from its operations.",
        difficulty=2,
        minutes=5,
    )


TASKS: dict[str, Task] = {
    "one_device.parameters": varying(_parameters, layers=(96, 48, 64, 80)),
    "one_device.cards": varying(_cards, card=(80, 32, 40, 141)),
    "one_device.bound": task(
        f"Four GEMMs run in half precision on an A100, with {A100.peak / 1e12:g} TFLOP/s and "
        f"{A100.bandwidth / 1e12:g} TB/s: A is 4096×4096 times 4096×4096, B is 1×4096 times 4096×4096, C is 64×4096 "
        "times 4096×4096, D is 65536×64 times 64×65536. Which of them are memory-bound? Answer with letters, as in "
        '"AB".',
        _memory_bound,
        (
            "Operations: 2mkn. Bytes: 2(mk + kn + mn). Which has few operations per byte?",
            f"The ridge of this card is at {A100.peak / A100.bandwidth:.0f} FLOPs per byte.",
            f"FLOPs per byte: A {INTENSITY['A']}, B {INTENSITY['B']}, C {INTENSITY['C']}. D is close to C.",
        ),
        objective="Tell from its sizes whether memory or arithmetic limits a GEMM.",
        difficulty=2,
        minutes=5,
    ),
    "one_device.seconds": varying(_seconds, batch=(16, 8, 32, 64)),
}
