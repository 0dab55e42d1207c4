"""The exercises of notebook 33. As in `labs.exercises.all_tasks`, the package computes every number."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from hybridlab.core.catalog import machine
from hybridlab.core.chunks import Chunks
from hybridlab.labs.context.sizes import LLAMA, LONG, SHARE, link_of, of_one_layer
from hybridlab.labs.exercises.cases import OnCases
from hybridlab.labs.exercises.clinic import Clinic
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.trial import Function
from hybridlab.predict.time.ring import least_tokens

task = partial(Task, notebook="33_context")
FINE = 1 << 12  # positions of a rank in `busy`: the diagonal then counts as half


# --- what students write ------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Keys in two parts, the first so long; scores about as large as `scale`."""

    length: int
    first: int
    scale: float = 1.0
    ranks: int = 1

    def __str__(self):
        """
        >>> print(Parts(6, 2))
        2 and 4 keys, scores about 1
        """
        return f"{self.first} and {self.length - self.first} keys, scores about {self.scale:g}"


class On(NamedTuple):
    """A ring of so many ranks, each with so many positions."""

    ranks: int
    length: int
    heads: int = 2

    def __str__(self):
        """
        >>> print(On(3, 4))
        3 ranks with 4 positions each
        """
        return f"{self.ranks} ranks with {self.length} positions each"


PARTS = (Parts(6, 2), Parts(7, 6), Parts(6, 3, scale=2000.0))
RINGS = (On(3, 4), On(2, 5), On(4, 3), On(1, 6))


def _joined(comm, answer, case):
    from hybridlab.labs.context.tried import try_joined

    return try_joined(comm, answer, Parts(*case))


def _ring(comm, answer, case):
    from hybridlab.labs.context.tried import try_ring

    return try_ring(comm, answer, On(*case))


def _first(case, home: list[str]) -> str:
    """What is off on the first rank that found something, in its words."""
    return next((f"Rank {rank} {told}" for rank, told in enumerate(home) if told), "")


def _only(case, home: list[str]) -> str:
    """What is off, where there is one rank."""
    return f"It {home[0]}" if home[0] else ""


# --- numbers ------------------------------------------------------------------------------------------------------


def _message(ranks: int) -> Task:
    shape = replace(LLAMA, context=LONG)
    right, all_of_it = of_one_layer("gather", shape, ranks), 2 * LONG * LLAMA.key_width * 2
    heads = LLAMA.heads // LLAMA.key_heads
    return task(
        f"Llama 3 8B has width {LLAMA.width:,}, {LLAMA.heads} heads of queries and {LLAMA.key_heads} heads of keys and "
        f"of values. A sequence of {LONG:,} positions is cut over {ranks} ranks. In one layer, how many MB of keys and "
        "values does a rank receive from the other ranks, in numbers of 2 bytes? (1 MB is 1,000,000 bytes.)",
        Number(
            lambda: right / 1e6,
            "MB",
            slips=[
                (all_of_it / 1e6, "That is all keys and values. A part of them is this rank's own."),
                (right / 2e6, "That is keys alone, or one byte for each number."),
                (heads * right / 1e6, f"Keys are not as wide as queries: {heads} heads of queries share one of keys."),
                (right / 1e6 / (ranks - 1), "That is what comes from one other rank."),
            ],
        ),
        (
            "Keys of one position have as many numbers as heads of keys times the width of a head; values as many.",
            f"A head is {LLAMA.width:,}/{LLAMA.heads} wide, so keys of a position have {LLAMA.key_width:,} numbers. "
            f"{ranks - 1} of {ranks} parts come from others.",
            f"2 · {LONG:,} · {LLAMA.key_width:,} · 2 bytes · {ranks - 1}/{ranks}.",
        ),
        objective="Count the bytes that bring keys and values together.",
        difficulty=1,
        minutes=3,
    )


def busy(ranks: int, zigzag: bool = False) -> float:
    """The share of a ring's time in which ranks compute, on average, where the slowest says how long it takes.

    >>> round(busy(8), 3), busy(8, zigzag=True)
    (0.533, 1.0)
    """
    pairs = (Chunks.zigzag if zigzag else Chunks.in_order)(FINE * ranks, ranks).pairs
    return sum(pairs) / len(pairs) / max(pairs)


def _waste(ranks: int) -> Task:
    return task(
        f"{ranks} ranks have their positions in order, and attention is causal. A block of one rank's queries and "
        "another rank's keys takes 1 unit of time; a rank's queries and its own keys take half a unit. All wait for "
        "the last rank. What share of this time does a rank compute, on average? Answer with a number between 0 and 1.",
        Number(
            lambda: busy(ranks),
            within=0.004,
            slips=[
                (1 - busy(ranks), "That is the share in which it waits."),
                (0.5, "Nearly. The blocks on the diagonal take half a unit: count them on the last rank, too."),
                ((ranks + 1) / (2 * ranks), "That counts the diagonal as whole units; a rank sees half of it."),
            ],
        ),
        (
            "Rank r computes r whole blocks and half of one. What does the last rank compute, and all together?",
            f"The last rank takes {ranks} - 1/2 units. All together compute {ranks}²/2 units, on average {ranks}/2.",
            f"({ranks}/2) / ({ranks} - 1/2).",
        ),
        objective="Predict how much of a causal ring is waiting.",
        difficulty=2,
        minutes=3,
    )


def _ways(heads: int) -> Task:
    keys = 8
    return task(
        f"A model has {heads} heads of queries and {keys} heads of keys and values. On how many ranks p do a ring and "
        "Ulysses send equally many bytes in the forward of a layer? (A ring sends keys and values, all but its own; "
        "Ulysses sends queries, keys, values and what was found, all but its own share of each.)",
        Number(
            lambda: heads / keys + 1,
            "ranks",
            within=1e-6,
            slips=[
                (heads / keys, "Nearly: Ulysses turns keys and values, too."),
                (2, "That would be right if keys were as wide as queries."),
                (heads / keys + 2, "Four tensors turn in all: queries, keys, values, and what was found."),
            ],
        ),
        (
            "Leave out what both have: b, s, the width of a head, and (p - 1)/p. The ring sends 2·k, with k heads.",
            f"Ulysses sends (2·{heads} + 2·{keys})/p.",
            f"2·{keys} = (2·{heads} + 2·{keys})/p; solve for p.",
        ),
        objective="Compare what a ring and an all-to-all send.",
        difficulty=2,
        minutes=3,
    )


def _backward(ranks: int) -> Task:
    right = 2 * ranks - 1
    return task(
        f"In the backward of a ring of {ranks} ranks, keys and values go round again, and their gradients travel with "
        "them until they are home. How many messages does a rank send in the backward, if keys and values travel as "
        "one message, and their two gradients as another one?",
        Number(
            lambda: right,
            "messages",
            within=1e-6,
            slips=[
                (ranks - 1, "That is keys and values alone. Their gradients travel too."),
                (2 * ranks - 2, "Nearly. After the last step, where are the gradients?"),
                (2 * ranks, "Nearly. Keys and values are not needed any more after the last step."),
                (ranks, "That is the gradients alone."),
            ],
        ),
        (
            "Count the two kinds apart.",
            f"Keys and values make {ranks} - 1 hops, as in the forward. Gradients begin where keys are at home, and "
            "have to return there.",
            f"({ranks} - 1) + {ranks}.",
        ),
        objective="Read a backward, and count what it sends.",
        difficulty=2,
        minutes=3,
    )


def _tokens(keys: int) -> Task:
    shape = replace(LLAMA, kv_heads=keys)
    rate, link = SHARE * machine("h100").peak, link_of("h100", "between nodes")._replace(alpha=0.0)
    right = least_tokens(shape, rate, link)
    return task(
        f"H100s in different nodes: attention reaches {rate / 1e12:g} TFLOP/s, a link carries {1e-9 / link.beta:g} "
        f"GB/s; leave the latency out. The width is {LLAMA.width:,}, and keys of a position have {shape.key_width:,} "
        "numbers of 2 bytes. From how many tokens per rank does a hop hide behind a block?",
        Number(
            lambda: right,
            "tokens",
            slips=[
                (2 * right, "That is twice as many: a block has 4·c²·h FLOP."),
                (right / 2, "Half: keys and values both travel, 2 bytes for each number."),
                (right * LLAMA.width / shape.key_width, "Keys are narrower than queries here."),
            ],
        ),
        (
            "Set the time of a block equal to that of a hop, and solve for the tokens c.",
            "4·c²·h/F = 2·c·k·w/B, so c = w·F·k/(2·h·B).",
            f"2 · {rate:.3g} · {shape.key_width} / (2 · {LLAMA.width} · {1 / link.beta:.3g}).",
        ),
        objective="Derive from how many tokens a ring hides its messages.",
        difficulty=2,
        minutes=4,
    )


# --- chunks and positions -----------------------------------------------------------------------------------------


def _shared_out(gave) -> Verdict:
    """Which chunks of 2p each rank gets: every chunk once, and as many pairs for all."""
    for ranks, one in zip(RANKS, gave):
        if one.raised:
            return False, f"my_chunks({ranks}) raised {one.raised}."
        its = one.value
        if (
            not isinstance(its, list)
            or len(its) != ranks
            or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in its)
        ):
            return False, f"my_chunks({ranks}) gave {str(its)[:50]}; give a list with two chunks for each rank."
        if sorted(chunk for pair in its for chunk in pair) != list(range(2 * ranks)):
            return False, f"my_chunks({ranks}) gave {its}: each of the {2 * ranks} chunks belongs to one rank."
        chunks = Chunks.zigzag(2 * ranks * 4, ranks)._replace(of=tuple(tuple(sorted(pair)) for pair in its))
        if len(set(chunks.pairs)) > 1:
            told = ", ".join(map(str, chunks.pairs))
            return False, f"my_chunks({ranks}) gave {its}: with chunks of 4 positions ranks compute {told} pairs."
    return True, "Every rank computes as many pairs, on any number of ranks."


RANKS = (2, 4, 3, 8)
PLACES = ((0, 2, 8), (1, 2, 8), (2, 4, 32), (0, 3, 12))


def _mended(gave) -> Verdict:
    for (rank, ranks, context), one in zip(PLACES, gave):
        call = f"mended({rank}, {ranks}, {context})"
        if one.raised:
            return False, f"{call} raised {one.raised}."
        right = Chunks.zigzag(context, ranks).positions(rank)
        if one.value != right:
            if isinstance(one.value, list | tuple) and sorted(one.value) == right:
                return False, f"{call} gave the right positions in another order than the rank's tokens have."
            return False, f"{call} gave {str(one.value)[:60]}; which two chunks of {context // (2 * ranks)} has it?"
    return True, "Every token is told the position that it has in the sequence."


CAUSES = {
    "a": "Then chunks in order would be wrong too, and they are right.",
    "b": "",
    "c": "Then the loss without embedded positions would be wrong too: no target would belong to its token.",
    "d": "Gradients do not change the first loss.",
}

CONTEXT_TASKS: dict[str, Task] = {
    "context.message": varying(_message, ranks=(8, 4, 16)),
    "context.joined": task(
        "Write my_joined(out, lse, other_out, other_lse): two parts of one softmax as one. Each part is what queries "
        "found in some keys, and the logarithm of the sum of exponentials of their scores. Return out and lse of all "
        f"keys. Tried on {PARTS[0]}, then on other parts.",
        OnCases(_joined, _only, PARTS, "Two parts make the softmax over all keys, however large the scores are."),
        (
            "In a part, out is Σ exp(score)·value divided by Σ exp(score). Multiply each out by its own sum, add, and "
            "divide by the sum of both.",
            "torch.logaddexp(lse, other_lse) is log(exp(lse) + exp(other_lse)), without overflow. The weight of a part "
            "is its sum over the whole sum: exp of a difference.",
            "both = torch.logaddexp(lse, other_lse); the weights are (lse - both).exp() and (other_lse - both).exp().",
        ),
        objective="Join two parts of a softmax exactly.",
        difficulty=2,
        minutes=6,
    ),
    "context.ring": task(
        "Write my_ring(comm, q, k, v, meet, joined). A rank has its queries, keys and values, each (heads, positions, "
        "width). meet(q, k, v, same) gives (out, lse) of queries and keys; same=True for its own keys: then a query "
        "sees none behind it. joined is the function from above. Return what the queries of this rank find at all "
        "positions before them and at their own. Keys that no query sees are passed on, not computed. The next keys "
        f"travel while a rank computes. Tried on {RINGS[0]}, then on other rings. Numbers are checked, what is sent, "
        "and the order of what you do.",
        OnCases(_ring, _first, RINGS, "Equal to one device, no word too many, and every hop lies under a block."),
        (
            "In step i a rank has the keys of rank (comm.rank - i) % comm.size. In each step: begin to send and to "
            "receive, compute, wait. What is different in the last step?",
            "kv = torch.stack((k, v)); room = torch.empty_like(kv); coming = comm.irecv(room, before); leaving = "
            "comm.isend(kv, after); then meet(q, *kv, source == comm.rank) if source <= comm.rank; then coming.wait() "
            "and leaving.wait().",
            "found = meet(…) the first time, later found = joined(*found, *meet(…)). After comm.size steps return "
            "found[0]; send only while step < comm.size - 1.",
        ),
        objective="Write ring attention, its messages under its blocks.",
        difficulty=3,
        minutes=10,
    ),
    "context.waste": varying(_waste, ranks=(8, 4, 16)),
    "context.zigzag": task(
        "Cut the sequence into 2p chunks, numbered 0 to 2p - 1. Write my_chunks(ranks): a list with two chunks for "
        "each rank, so that with causal attention all ranks compute as many pairs. Tried on 2, 4, 3 and 8 ranks.",
        Function(
            tuple((ranks,) for ranks in RANKS),
            _shared_out,
            "Answer with your function itself: its name, without parentheses.",
        ),
        (
            "How many pairs does chunk i cost, whoever has it? Early chunks are cheap.",
            "Chunk i costs i blocks and half of one. Which two chunks add up to the same for every rank?",
            "Rank r has chunks r and 2·ranks - 1 - r.",
        ),
        objective="Balance causal attention over ranks.",
        difficulty=2,
        minutes=4,
    ),
    "context.ways": varying(_ways, heads=(32, 64, 40)),
    "context.backward": varying(_backward, ranks=(8, 4, 16)),
    "context.tokens": varying(_tokens, keys=(8, 32, 16)),
    "context.clinic": task(
        "What is wrong with the zigzag? (a) Keys go round in the wrong direction. (b) Tokens lie in a zigzag, and "
        "embeddings are told positions as if they lay in order. (c) Targets lie in order, and tokens in a zigzag. (d) "
        "Gradients are averaged where they should be added. Answer with the letter and the mended function: "
        "mended(rank, ranks, context), a list of the positions of a rank's tokens, in the order in which it has them.",
        Clinic(
            CAUSES,
            Function(PLACES, _mended, "Answer with your function itself: its name, without parentheses."),
        ),
        (
            "In order all is right, so the ring is right. What is gone when the embeddings of positions are 0?",
            "Rank r has chunks r and 2·ranks - 1 - r, each context // (2·ranks) long.",
            "length = context // (2 * ranks); the positions of chunk i are range(i * length, (i + 1) * length).",
        ),
        objective="Find why a permuted sequence has a wrong loss.",
        difficulty=2,
        minutes=6,
    ),
}
