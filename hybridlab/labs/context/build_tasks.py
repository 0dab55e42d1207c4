"""The code that students write in notebook 33: a join of two parts, a ring on ranks, a zigzag, and fixed positions."""

from functools import partial
from typing import NamedTuple

from hybridlab.core.where.attended import looks
from hybridlab.core.where.chunks import Chunks
from hybridlab.labs.exercises.task import Task, Verdict
from hybridlab.labs.exercises.words import so_many
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.clinic import Clinic
from hybridlab.labs.trials.trial import Function

task = partial(Task, notebook="33_context")


# --- what students write ------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Keys in two parts, the first of this length; scores about as large as `scale`."""

    length: int
    first: int
    scale: float = 1.0
    ranks: int = 1

    def __str__(self):
        """
        >>> print(Parts(6, 2))
        parts of 2 and 4 keys, with scores near 1
        """
        return f"parts of {self.first} and {self.length - self.first} keys, with scores near {self.scale:g}"


class On(NamedTuple):
    """A ring: the number of ranks, and the positions of each."""

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


def _only(case, home: list[str]) -> str:
    """The mistake of the only rank, in words; empty if there is none."""
    return f"It {home[0]}" if home[0] else ""


# --- chunks and positions -----------------------------------------------------------------------------------------


def _are_lists(value) -> bool:
    """Whether these are lists or tuples of integers."""
    every = [value, *value] if isinstance(value, list | tuple) else [None]
    return all(isinstance(its, list | tuple) for its in every) and all(type(one) is int for its in value for one in its)


def _shared_out(gave) -> Verdict:
    """Which chunks of 2p each rank gets: every chunk once, and the same number of pairs for all."""
    for ranks, one in zip(RANKS, gave):
        if one.raised:
            return False, f"my_chunks({ranks}) raised {one.raised}."
        its = one.value
        if not _are_lists(its) or len(its) != ranks or any(len(pair) != 2 for pair in its):
            return False, f"my_chunks({ranks}) gave {str(its)[:50]}; give a list with two chunks for each rank."
        if sorted(chunk for pair in its for chunk in pair) != list(range(2 * ranks)):
            return False, f"my_chunks({ranks}) gave {its}: each of the {2 * ranks} chunks belongs to one rank."
        chunks = Chunks.zigzag(2 * ranks * 4, ranks)._replace(of=tuple(tuple(sorted(pair)) for pair in its))
        if len(set(chunks.pairs)) > 1:
            told = ", ".join(map(str, chunks.pairs))
            return False, f"my_chunks({ranks}) gave {its}: with chunks of 4 positions, the ranks compute {told} pairs."
    return True, "All ranks compute the same number of pairs, on any number of ranks."


RANKS = (2, 4, 3, 8)
ROWS = (((12, 4), 2), ((8, 8), 2), ((16, 8, 24), 4), ((12, 6, 6), 3))


def _dealt(gave) -> Verdict:
    """Which positions of packed documents each rank gets: every position once, and the same number of pairs for all."""
    for (documents, ranks), one in zip(ROWS, gave):
        call, total = f"my_positions({documents}, {ranks})", sum(documents)
        if one.raised:
            return False, f"{call} raised {one.raised}."
        its = one.value
        if not _are_lists(its) or len(its) != ranks:
            return False, f"{call} gave {str(its)[:50]}; give a list with a list of positions for each rank."
        its = list(map(list, its))
        every = sorted(place for mine in its for place in mine)
        if len(documents) > 1 and every == sorted(place for length in documents for place in range(length)):
            return False, f"{call} gave {str(its)[:60]}: every document begins at position 0; where does each begin?"
        if every != list(range(total)):
            return False, f"{call} gave {str(its)[:60]}: each of the {total} positions belongs to one rank."
        if any(mine != sorted(mine) for mine in its):
            return False, f"{call} gave {str(its)[:60]}: sort the positions of each rank."
        found = [sum(place - low + 1 for place in mine for low in [_begin(documents, place)]) for mine in its]
        if len(set(found)) > 1:
            told = ", ".join(map(str, found))
            return False, f"{call}: the ranks compute {told} pairs.{_slip(documents, ranks, its)}"
    return True, "All ranks compute the same number of pairs, with every packing."


def _slip(documents: tuple[int, ...], ranks: int, its: list[list[int]]) -> str:
    """The name of a known unequal way to distribute positions; empty for others."""
    total, begins = sum(documents), [sum(documents[:number]) for number in range(len(documents))]
    in_order = lambda length: [Chunks.in_order(length, ranks).positions(rank) for rank in range(ranks)]
    each = zip(
        *([[begin + place for place in mine] for mine in in_order(length)] for begin, length in zip(begins, documents))
    )
    known = {
        " That is the zigzag of the full row.": [Chunks.zigzag(total, ranks).positions(rank) for rank in range(ranks)],
        " That cuts the full row in order.": in_order(total),
        " That cuts each document in order.": [sum(parts, []) for parts in each],
    }
    return next((told for told, other in known.items() if other == its), "")


def _begin(documents: tuple[int, ...], place: int) -> int:
    """The first position of the document that contains this position.

    >>> _begin((12, 4), 13)
    12
    """
    return int(looks(sum(documents), documents)[place, 0])


PLACES = ((0, 2, 8), (1, 2, 8), (2, 4, 32), (0, 3, 12))


def _mended(gave) -> Verdict:
    for (rank, ranks, context), one in zip(PLACES, gave):
        call = f"mended({rank}, {ranks}, {context})"
        if one.raised:
            return False, f"{call} raised {one.raised}."
        right = Chunks.zigzag(context, ranks).positions(rank)
        if not _are_lists([one.value]):
            return False, f"{call} gave {str(one.value)[:60]}; return a list of integers."
        if list(one.value) != right:
            if sorted(one.value) == right:
                return False, f"{call} gave the right positions in a different order from that of the rank's tokens."
            chunks = f"two chunks of {so_many(context // (2 * ranks), 'position')}"
            return False, f"{call} gave {str(one.value)[:60]}; it should have {chunks}: which ones?"
    return True, "Every token gets its position in the sequence."


CAUSES = {
    "a": "Then chunks in order would be wrong too, and they are right.",
    "b": "",
    "c": "Then the loss without position embeddings would be wrong too: no target would match its token.",
    "d": "Gradients do not change the first loss.",
}

ABOUT_DEALT = {
    "zigzag of the full row": "A query sees only keys of the same document. Cut each document into 2·ranks chunks, not "
    "the row.",
    "in order.": "A late position sees more keys than an early one. Which chunks must one rank have, so that "
    "all are equal?",
    "every document begins at position 0": "Positions count from the start of the row. Add the lengths of all earlier "
    "documents.",
    "sort the positions of each rank": "Go through the documents from first to last, and add both chunks of each.",
}
ABOUT_JOINED = {  # {words of a reply: the hint about the mistake that it reports}
    "each was divided by its own sum": "The out of a part is a mean, weighted by exponentials. Multiply each of the "
    "two means by its own sum before you add them.",
    "weighs both parts alike": "The weight of a part is its own sum of exponentials, divided by that of both: exp(lse "
    "- both).",
    "added the two lse": "lse is the logarithm of a sum. Which torch function adds two numbers that are given as "
    "logarithms?",
    "gave inf or nan": "exp of a large lse overflows; exp of a difference of two of them does not.",
}
ABOUT_THE_RING = {
    "after all of its queries": "In step i a rank has the keys of rank (comm.rank - i) % comm.size, if keys go to "
    "the next rank. Higher ranks have later positions: send their keys on, but do not call meet.",
    "same is True": "same is True only for this rank's own keys: source == comm.rank. And do not receive into the "
    "tensor that you compute with.",
    "differs from that of one device": "Each call of meet gives a part: join its out and lse with the result so far.",
    "to the previous rank": "A query sees earlier keys, so keys go to later positions: isend to (comm.rank + 1) % "
    "comm.size.",
    "nothing overlaps": "Start irecv and isend, then call meet, then wait: in this order.",
    "waited for the next keys": "wait() comes after meet: the keys for this step have already arrived.",
    "after the last step": "There are as many steps as ranks, and one hop fewer.",
}

TASKS: dict[str, Task] = {
    "context.joined": task(
        "Write `my_joined(out, lse, other_out, other_lse)`: join two parts of one softmax. Each part has `out`, the "
        "result of the queries for some of the keys, and `lse`, the logarithm of the sum of exponentials of their "
        f"scores. Return `out` and `lse` for all keys. Your code is tested on {PARTS[0]}, then on other parts.",
        OnCases(
            "context.trial:try_joined",
            _only,
            PARTS,
            "Your function joins two parts into the softmax over all keys, however large the scores are.",
        ),
        (
            "In a part, out is Σ exp(score)·value divided by Σ exp(score). Multiply the out of each part by its own "
            "sum, add, and divide by the sum of both.",
            "torch.logaddexp(lse, other_lse) is log(exp(lse) + exp(other_lse)), without overflow. The weight of a "
            "part is its sum divided by the total sum: exp of a difference.",
            "both = torch.logaddexp(lse, other_lse); the weights are (lse - both).exp() and (other_lse - both).exp().",
        ),
        about=ABOUT_JOINED,
        objective="Join two parts of a softmax exactly.",
        difficulty=2,
        minutes=6,
    ),
    "context.ring": task(
        "Write `my_ring(comm, q, k, v, meet, joined)`. A rank has its queries, keys and values, each (heads, "
        "positions, width). `meet(q, k, v, same)` returns `(out, lse)` of queries and keys. Use `same=True` for a "
        "rank's own keys: then a query sees no later key. `joined` is the function from above. Return the attention "
        "output of this rank's queries over their own and all earlier positions. Pass on keys that no query of a rank "
        "sees, but do not compute with them. The next keys are sent while a rank computes. Your code is tested on "
        f"{RINGS[0]}, then on other rings. The check covers the numbers, the messages, and the order of your calls.",
        OnCases(
            "context.trial:try_ring",
            first_found,
            RINGS,
            "The result equals that of one device, no extra word is sent, and every hop overlaps with a block.",
        ),
        (
            "In step i a rank has the keys of rank (comm.rank - i) % comm.size. In each step: start sending and "
            "receiving, compute, wait. What is different in the last step?",
            "kv = torch.stack((k, v)); room = torch.empty_like(kv); coming = comm.irecv(room, before); leaving = "
            "comm.isend(kv, after); then meet(q, *kv, source == comm.rank) if source <= comm.rank; then coming.wait() "
            "and leaving.wait().",
            "found = meet(…) the first time, later found = joined(*found, *meet(…)). After comm.size steps return "
            "found[0]; send only while step < comm.size - 1.",
        ),
        about=ABOUT_THE_RING,
        objective="Write ring attention with messages that overlap with its blocks.",
        difficulty=3,
        minutes=10,
    ),
    "context.zigzag": task(
        "Cut the sequence into 2p chunks, numbered 0 to 2p - 1. Write `my_chunks(ranks)`: a list with two chunks for "
        "each rank, so that with causal attention all ranks compute the same number of pairs. Your code is tested on "
        "2, 4, 3 and 8 ranks.",
        Function(
            tuple((ranks,) for ranks in RANKS),
            _shared_out,
            "Answer with your function itself: its name, without parentheses.",
        ),
        (
            "How many pairs does chunk i cost, on any rank? Early chunks are cheap.",
            "Chunk i costs i blocks and half of one. Which two chunks add up to the same for every rank?",
            "Rank r has chunks r and 2·ranks - 1 - r.",
        ),
        objective="Balance causal attention over ranks.",
        difficulty=2,
        minutes=4,
    ),
    "context.documents": task(
        "Several documents are packed into one row. Write `my_positions(documents, ranks)`. `documents` is a tuple of "
        "their lengths; each length is a multiple of 2·ranks. Return a list with a list of positions for each rank. "
        "Positions count from 0 at the start of the row, and each rank's list is sorted. Attention is causal and "
        "stays inside each document; all ranks must compute the same number of pairs. Your code is tested on "
        f"{ROWS[0][0]} with {ROWS[0][1]} ranks, then on other packings.",
        Function(
            ROWS,
            _dealt,
            "Answer with your function itself: its name, without parentheses.",
        ),
        (
            "For a single document, the zigzag gives all ranks the same number of pairs. Which pairs does a row of "
            "several documents have?",
            "Chunk i of a document that begins at position p has the positions from p + i·length on, where length is "
            "the document's length divided by 2·ranks. Rank r has the chunks r and 2·ranks - 1 - r.",
            "for length in documents: chunk = length // (2 * ranks); for i in (rank, 2 * ranks - 1 - rank): mine += "
            "range(begin + i * chunk, begin + (i + 1) * chunk); then begin += length.",
        ),
        about=ABOUT_DEALT,
        objective="Balance attention inside packed documents over ranks.",
        difficulty=2,
        minutes=6,
    ),
    "context.clinic": task(
        "What is wrong with the zigzag? (a) Keys go around in the wrong direction. (b) Tokens are in zigzag order, "
        "but the position embeddings use positions in sequence order. (c) Targets are in sequence order, but tokens "
        "in zigzag order. (d) Gradients are averaged instead of added. Answer with the letter and the fixed "
        "function: `mended(rank, ranks, context)` returns the list of positions of a rank's tokens, in the order of "
        "these tokens.",
        Clinic(
            CAUSES,
            Function(PLACES, _mended, "Answer with your function itself: its name, without parentheses."),
        ),
        (
            "With chunks in order the loss is right, so the ring is right. Which part of the model has no effect "
            "when the position embeddings are 0?",
            "Rank r has chunks r and 2·ranks - 1 - r, each context // (2·ranks) long.",
            "length = context // (2 * ranks); the positions of chunk i are range(i * length, (i + 1) * length).",
        ),
        objective="Find why a permuted sequence has a wrong loss.",
        difficulty=2,
        minutes=6,
    ),
}
