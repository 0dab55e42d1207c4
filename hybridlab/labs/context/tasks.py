"""The exercises of notebook 33. As in `labs.exercises.all_tasks`, the package computes every number."""

import math
from dataclasses import replace
from functools import partial

from hybridlab.core.what.catalog import machine
from hybridlab.core.where.chunks import Chunks
from hybridlab.labs.context import build_tasks
from hybridlab.labs.context.sizes import LLAMA, LONG, SHARE, link_of, of_one_layer
from hybridlab.labs.exercises.task import Number, Smallest, Task, varying
from hybridlab.predict.time.ring import least_tokens

task = partial(Task, notebook="33_context")
FINE = 1 << 12  # positions of a rank in `busy`: the diagonal then counts as half


def _message(ranks: int) -> Task:
    shape = replace(LLAMA, context=LONG)
    right, all_of_it = of_one_layer("gather", shape, ranks), 2 * LONG * LLAMA.key_width * 2
    heads = LLAMA.heads // LLAMA.key_heads
    return task(
        f"Llama 3 8B has width {LLAMA.width:,}, {LLAMA.heads} query heads and {LLAMA.key_heads} heads of keys and "
        f"of values. A sequence of {LONG:,} positions is cut over {ranks} ranks. In one layer, how many MB of keys and "
        "values does a rank receive from the other ranks, if a number takes 2 bytes? 1 MB is 1,000,000 bytes.",
        Number(
            lambda: right / 1e6,
            "MB",
            slips=[
                (all_of_it / 1e6, "That is all keys and values. A part of them is this rank's own."),
                (right / 2e6, "That is keys alone, or one byte for each number."),
                (heads * right / 1e6, f"Keys are not as wide as queries: {heads} query heads share one KV head."),
                (right / 1e6 / (ranks - 1), "That is what comes from one other rank."),
            ],
        ),
        (
            "The keys of one position have (heads of keys) · (width of a head) numbers; values have the same number.",
            f"A head is {LLAMA.width:,}/{LLAMA.heads} wide, so the keys of one position are {LLAMA.key_width:,} "
            f"numbers. {ranks - 1} of {ranks} parts come from others.",
            f"2 · {LONG:,} · {LLAMA.key_width:,} · 2 bytes · {ranks - 1}/{ranks}.",
        ),
        objective="Count the bytes of the keys and values that a rank receives.",
        difficulty=1,
        minutes=3,
    )


def busy(ranks: int, zigzag: bool = False) -> float:
    """The fraction of a ring's time in which ranks compute, on average; the slowest rank sets the length of each step.

    >>> round(busy(8), 3), busy(8, zigzag=True)
    (0.533, 1.0)
    """
    pairs = (Chunks.zigzag if zigzag else Chunks.in_order)(FINE * ranks, ranks).pairs
    return sum(pairs) / len(pairs) / max(pairs)


def _waste(ranks: int) -> Task:
    return task(
        f"{ranks} ranks have their positions in order, and attention is causal. A block of one rank's queries and "
        "another rank's keys takes 1 unit of time; a rank's queries and its own keys take half a unit. All ranks wait "
        "for the last one. For what fraction of this time does a rank compute, on average? Answer with a number "
        "between 0 and 1.",
        Number(
            lambda: busy(ranks),
            slips=[
                (1 - busy(ranks), "That is the fraction for which it waits."),
                (0.5, "Nearly. The blocks on the diagonal take half a unit: count them on the last rank, too."),
                ((ranks + 1) / (2 * ranks), "That counts the diagonal as whole units; a rank sees half of it."),
            ],
        ),
        (
            "Rank r computes r full blocks and half of one. How much does the last rank compute, and how much all "
            "ranks together?",
            f"The last rank takes {ranks} - 1/2 units. All together compute {ranks}²/2 units, on average {ranks}/2.",
            f"({ranks}/2) / ({ranks} - 1/2).",
        ),
        objective="Predict what fraction of the time ranks wait in a causal ring.",
        difficulty=2,
        minutes=3,
    )


def _ways(heads: int) -> Task:
    keys = 8
    return task(
        f"A model has {heads} query heads and {keys} heads of keys and values. On how many ranks p do a ring and "
        "Ulysses send the same number of bytes in the forward of a layer? In a ring, a rank sends all parts of keys "
        "and values but one. In Ulysses a rank keeps 1/p of its queries, keys, values and results, and sends the "
        "rest.",
        Number(
            lambda: heads / keys + 1,
            "ranks",
            within=1e-6,
            slips=[
                (heads / keys, "Nearly: Ulysses sends keys and values, too."),
                (2, "That would be right if keys were as wide as queries."),
                (heads / keys + 2, "Ulysses sends four tensors in all: queries, keys, values and results."),
            ],
        ),
        (
            "Leave out the common factors: b, s, the width of a head, and (p - 1)/p. The ring sends 2·k, with k heads.",
            f"Ulysses sends (2·{heads} + 2·{keys})/p.",
            f"2·{keys} = (2·{heads} + 2·{keys})/p; solve for p.",
        ),
        objective="Compare the bytes of a ring and an all-to-all.",
        difficulty=2,
        minutes=3,
    )


def _backward(ranks: int) -> Task:
    right = 2 * ranks - 1
    return task(
        f"In the backward of a ring of {ranks} ranks, keys and values go around the ring again. Their gradients "
        "travel with them, until they are back on the rank that owns the keys. How many messages does a rank send in "
        "the backward, if keys and values are one message, and their two gradients are another?",
        Number(
            lambda: right,
            "messages",
            within=1e-6,
            slips=[
                (ranks - 1, "That is keys and values alone. Their gradients are sent too."),
                (2 * ranks - 2, "Nearly. After the last step, where are the gradients?"),
                (2 * ranks, "Nearly. Keys and values are no longer needed after the last step."),
                (ranks, "That is the gradients alone."),
            ],
        ),
        (
            "Count the two kinds separately.",
            f"Keys and values make {ranks} - 1 hops, as in the forward. Gradients start on the rank that owns the "
            "keys, and must return there.",
            f"({ranks} - 1) + {ranks}.",
        ),
        objective="Read a backward, and count its messages.",
        difficulty=2,
        minutes=3,
    )


def _tokens(keys: int) -> Task:
    shape = replace(LLAMA, kv_heads=keys)
    rate, link = SHARE * machine("h100").peak, link_of("h100", "between nodes")._replace(alpha=0.0)
    right = least_tokens(shape, rate, link)
    return task(
        f"H100s are in different nodes. Attention reaches {rate / 1e12:g} TFLOP/s, and a link carries "
        f"{1e-9 / link.beta:g} GB/s; neglect the latency. The width is {LLAMA.width:,}, and the keys of one position "
        f"are {shape.key_width:,} numbers of 2 bytes, in {keys} heads. What is the smallest number of tokens per rank "
        "for which a hop is fully overlapped by a block?",
        Smallest(
            lambda: math.ceil(right),
            "tokens",
            short=f"With {math.floor(right):,} the hop is a little longer than the block. Which whole number is "
            "enough?",
            slips=[
                (2 * right, "That is twice the right number: a block has 4·c²·h FLOP."),
                (right / 2, "That is half: keys and values are both sent, with 2 bytes for each number."),
                (right * LLAMA.width / shape.key_width, "Keys are narrower than queries here."),
            ],
        ),
        (
            "Set the time of a block equal to that of a hop, and solve for the tokens c.",
            "4·c²·h/F = 2·c·k·w/W, so c = w·F·k/(2·h·W). With fewer tokens a hop is longer than a block.",
            f"2 · {rate / 1e12:g} · 10¹² · {shape.key_width} / (2 · {LLAMA.width} · {1e-9 / link.beta:g} · 10⁹) is "
            f"{right:,.1f}; the answer is the next whole number.",
        ),
        objective="Derive how many tokens a ring needs to overlap its messages.",
        difficulty=2,
        minutes=4,
    )


TASKS: dict[str, Task] = {
    "context.message": varying(_message, ranks=(8, 4, 16)),
    "context.joined": build_tasks.TASKS["context.joined"],
    "context.ring": build_tasks.TASKS["context.ring"],
    "context.waste": varying(_waste, ranks=(8, 4, 16)),
    "context.zigzag": build_tasks.TASKS["context.zigzag"],
    "context.ways": varying(_ways, heads=(32, 64, 40)),
    "context.backward": varying(_backward, ranks=(8, 4, 16)),
    "context.tokens": varying(_tokens, keys=(8, 4, 1)),
    "context.documents": build_tasks.TASKS["context.documents"],
    "context.clinic": build_tasks.TASKS["context.clinic"],
}
