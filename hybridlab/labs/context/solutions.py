"""Solutions of notebook 33."""

from hybridlab.labs.exercises.solution import Cell, Solution

JOINED = Cell("""\
def my_joined(out, lse, other_out, other_lse):
    both = torch.logaddexp(lse, other_lse)
    joined = out * (lse - both).exp() + other_out * (other_lse - both).exp()
    return joined, both

labs.answer("context.joined", my_joined)""")
WEIGHTED = "out * (lse - both).exp() + other_out * (other_lse - both).exp()"

RING = Cell("""\
def my_ring(comm, q, k, v, meet, joined):
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    kv, found = torch.stack((k, v)), None
    for step in range(comm.size):
        source = (comm.rank - step) % comm.size
        if step < comm.size - 1:
            coming = comm.irecv(torch.empty_like(kv), before)
            leaving = comm.isend(kv, after)
        if source <= comm.rank:
            part = meet(q, *kv, source == comm.rank)
            found = joined(*found, *part) if found else part
        if step < comm.size - 1:
            kv, _ = coming.wait(), leaving.wait()
    return found[0]

labs.answer("context.ring", my_ring)""")
BEGIN = """\
        if step < comm.size - 1:
            coming = comm.irecv(torch.empty_like(kv), before)
            leaving = comm.isend(kv, after)
"""
END = """\
        if step < comm.size - 1:
            kv, _ = coming.wait(), leaving.wait()
"""
ASKED = "        if step < comm.size - 1:\n"
MEETING = """\
        if source <= comm.rank:
            part = meet(q, *kv, source == comm.rank)
            found = joined(*found, *part) if found else part
"""

CHUNKS = Cell("""\
def my_chunks(ranks):
    return [(rank, 2 * ranks - 1 - rank) for rank in range(ranks)]

labs.answer("context.zigzag", my_chunks)""")

DEALT = Cell("""\
def my_positions(documents, ranks):
    every, begin = [[] for _ in range(ranks)], 0
    for length in documents:
        chunk = length // (2 * ranks)
        for rank, mine in enumerate(every):
            for i in (rank, 2 * ranks - 1 - rank):
                mine += range(begin + i * chunk, begin + (i + 1) * chunk)
        begin += length
    return every

labs.answer("context.documents", my_positions)""")

IN_ORDER = DEALT.but("for length in documents", "for length in [sum(documents)]").but(
    "(rank, 2 * ranks - 1 - rank)", "(2 * rank, 2 * rank + 1)"
)

MENDED = Cell("""\
def mended(rank, ranks, context):
    length = context // (2 * ranks)
    every = (rank, 2 * ranks - 1 - rank)
    return [i * length + place for i in every for place in range(length)]

labs.answer("context.clinic", ("b", mended))""")

SOLUTIONS: dict[str, Solution] = {
    "context.message": Solution(
        """\
all_keys_and_values = 2 * 131072 * 8 * (4096 // 32) * 2
labs.answer("context.message", all_keys_and_values * ($ranks - 1) / $ranks / 1e6)""",
        "Keys and values of all positions, less this rank's own; keys have 8 heads, not 32.",
        (
            (536.870912, "A part of them is this rank's own"),
            (234.881024, "keys alone"),
            (1879.048192, "not as wide as queries"),
            (67.108864, "from one other rank"),
            (1, "Too small"),
            ("many", "one number"),
        ),
        also=(469.8,),
    ),
    "context.joined": Solution(
        JOINED,
        "Each out is multiplied by its own sum of exponentials and divided by the sum of both; with logarithms that is "
        "exp of a difference, which does not overflow.",
        (
            (JOINED.but(WEIGHTED, "out + other_out"), "each was divided by its own sum"),
            (JOINED.but(WEIGHTED, "(out + other_out) / 2"), "weighs both parts alike"),
            (JOINED.but("torch.logaddexp(lse, other_lse)", "lse + other_lse"), "added the two lse"),
            (JOINED.but("torch.logaddexp(lse, other_lse)", "torch.maximum(lse, other_lse)"), "gave a different lse"),
            (
                JOINED.but("torch.logaddexp(lse, other_lse)", "(lse.exp() + other_lse.exp()).log()"),
                "exp of a large number overflows",
            ),
            (JOINED.but("out * (lse - both)", "out * (other_lse - both)"), "the weight of each part is exp"),
            (JOINED.but("return joined, both", "return joined"), "return two tensors"),
            (JOINED.but("return joined, both", "return both, joined"), "as out; it has shape"),
            (JOINED.but("    both =", "    out *= 1.5\n    both ="), "make new tensors"),
            (3, "Answer with your function itself"),
        ),
    ),
    "context.ring": Solution(
        RING,
        "Each step first starts the messages with the next keys, then computes with the current keys, then waits. The "
        "last step sends nothing.",
        (
            (RING.but("source <= comm.rank", "True"), "which come after all of its queries"),
            (RING.but("source == comm.rank)", "False)"), "same is True for its own keys"),
            (RING.but("source == comm.rank)", "True)"), "keys of rank 0 with same=True"),
            (RING.but("(comm.rank - step)", "(comm.rank + step)"), "which come after all of its queries"),
            (RING.but("joined(*found, *part) if found else part", "part"), "are all parts joined"),
            (RING.but(BEGIN, "").but(END, BEGIN + "            kv, _ = coming.wait(), leaving.wait()\n"), "overlaps"),
            (RING.but(MEETING + END, END + MEETING), "keys of rank 2 with same=True"),
            (RING.but(BEGIN + MEETING + END, MEETING), "its own keys with same=False"),
            (
                RING.but(ASKED + "            coming", "        if True:\n            coming").but(
                    ASKED + "            kv", "        if True:\n            kv"
                ),
                "no rank needs the keys",
            ),
            (RING.but("coming.wait(), leaving.wait()", "coming.wait(), 0"), "wait"),
            (RING.but("return found[0]", "return found"), "without lse"),
            (
                RING.but("kv, _ = coming.wait(), leaving.wait()", "kv = coming.wait()"),
                "began to send: keep each handle",
            ),
            (RING.but("kv, found =", "comm.all_gather(k)\n    kv, found ="), "sent 64 words in all_gather"),
            (RING.but("kv, found =", "comm.all_reduce(q.clone())\n    kv, found ="), "words in all_reduce"),
            (
                RING.but(BEGIN, "")
                .but(END, "")
                .but(
                    "kv, found = torch.stack((k, v)), None",
                    "every, found = comm.all_gather(torch.stack((k, v))[None]), None",
                )
                .but("*kv,", "*every[source],"),
                "a ring needs only messages",
            ),
            (RING.but("torch.stack((k, v))", "torch.stack((v, k))"), "values instead of keys"),
            (RING.but("empty_like(kv), before)", "empty_like(kv), after)"), "deadlock"),
            (RING.but("empty_like(kv), before)", "empty_like(kv), before, 3)"), "tag 3, at <cell"),
            (
                RING.but(
                    "before, after = (comm.rank - 1) % comm.size, (comm.rank + 1)",
                    "before, after = (comm.rank + 1) % comm.size, (comm.rank - 1)",
                ).but("(comm.rank - step)", "(comm.rank + step)"),
                "but its keys go to the previous rank: send them to the next one",
            ),
            (
                RING.but(
                    "            coming = comm.irecv(torch.empty_like(kv), before)\n"
                    "            leaving = comm.isend(kv, after)\n",
                    "            coming = comm.irecv(torch.empty_like(kv), before)\n"
                    "            leaving = comm.isend(kv, after)\n"
                    "            new, _ = coming.wait(), leaving.wait()\n",
                ).but("            kv, _ = coming.wait(), leaving.wait()\n", "            kv = new\n"),
                "before it computed",
            ),
            (7, "Answer with your function itself"),
        ),
    ),
    "context.waste": Solution(
        """\
last, average = $ranks - 1 / 2, $ranks / 2
labs.answer("context.waste", average / last)""",
        "The last rank computes all its blocks, but only half of the one on the diagonal. On average a rank computes "
        "half its blocks.",
        (
            (1 - 4 / 7.5, "for which it waits"),
            (0.5, "blocks on the diagonal take half a unit"),
            (9 / 16, "whole units"),
            (0.9, "Too large"),
            ("half", "one number"),
        ),
        also=(0.5333, 0.53),
    ),
    "context.zigzag": Solution(
        CHUNKS,
        "Chunk i costs i blocks and half of one: r + (2p - 1 - r) is the same for every rank.",
        (
            (CHUNKS.but("(rank, 2 * ranks - 1 - rank)", "(2 * rank, 2 * rank + 1)"), "ranks compute"),
            (CHUNKS.but("2 * ranks - 1 - rank", "rank + ranks"), "ranks compute"),
            (CHUNKS.but("2 * ranks - 1 - rank", "2 * ranks - rank"), "belongs to one rank"),
            (CHUNKS.but("(rank, 2 * ranks - 1 - rank)", "rank"), "two chunks for each rank"),
            (CHUNKS.but("2 * ranks", "2 * rank / 0"), "raised"),
            (CHUNKS.but("2 * ranks - 1 - rank", "rank + 0.5"), "two chunks for each rank"),
            ([(0, 3), (1, 2)], "Answer with your function itself"),
        ),
        also=(CHUNKS.but("return [", "return torch.tensor([").but("in range(ranks)]", "in range(ranks)])"),),
    ),
    "context.ways": Solution(
        """\
labs.answer("context.ways", (2 * $heads + 2 * 8) / (2 * 8))""",
        "2·k = (2·a + 2·k)/p, so p = a/k + 1; on more ranks Ulysses sends less, as long as p divides the heads.",
        (
            (4, "sends keys and values, too"),
            (2, "as wide as queries"),
            (6, "four tensors"),
            (100, "Too large"),
        ),
    ),
    "context.backward": Solution(
        """\
labs.answer("context.backward", ($ranks - 1) + $ranks)""",
        "Keys and values make p - 1 hops; their gradients make one more, to return to the owner.",
        (
            (7, "keys and values alone"),
            (14, "where are the gradients"),
            (16, "no longer needed"),
            (8, "the gradients alone"),
            (1, "Too small"),
        ),
    ),
    "context.tokens": Solution(
        """\
flops, keys, width, link = 494.7e12, $keys * 128, 4096, 50e9
labs.answer("context.tokens", math.ceil(2 * flops * keys / (2 * width * link)))""",
        "A block takes 4·c²·h/F, a hop 2·c·k·w/B; c cancels once. The next whole number is enough.",
        (
            (4947.0, "twice the right number"),
            (1236.75, "That is half"),
            (9894.0, "narrower than queries"),
            (2473, "With 2,473 the hop is a little longer than the block. Which whole number is enough?"),
            (2473.5, "Which whole number is enough?"),
            (2475, "Too large"),
            (100, "Too small"),
            ("some", "one number"),
        ),
        also=(2474.0,),
    ),
    "context.documents": Solution(
        DEALT,
        "A document of L positions has L·(L + 1)/2 pairs. Its chunks r and 2·ranks - 1 - r have the same share of them "
        "on every rank, so the sum over all documents is the same too.",
        (
            (DEALT.but("for length in documents", "for length in [sum(documents)]"), "zigzag of the full row"),
            (DEALT.but("(rank, 2 * ranks - 1 - rank)", "(2 * rank, 2 * rank + 1)"), "cuts each document in order"),
            (IN_ORDER, "cuts the full row in order"),
            (DEALT.but("(rank, 2 * ranks - 1 - rank)", "(2 * ranks - 1 - rank, rank)"), "sort the positions"),
            (DEALT.but("        begin += length\n", ""), "where does each begin"),
            (DEALT.but("begin += length", "begin += chunk"), "belongs to one rank"),
            (DEALT.but("return every", "return every[0]"), "a list of positions for each rank"),
            (DEALT.but("length // (2", "lengths // (2"), "raised"),
            ([[0, 1], [2, 3]], "Answer with your function itself"),
        ),
        also=(
            DEALT.but("return every", "return tuple(map(tuple, every))"),
            DEALT.but("every\n\n", "torch.tensor(every)\n\n"),
        ),
    ),
    "context.clinic": Solution(
        MENDED,
        "Tokens, targets and the positions given to each layer must be permuted in the same way.",
        (
            (MENDED.but('"b"', '"a"'), "chunks in order would be wrong too"),
            (MENDED.but('"b"', '"c"'), "no target would match"),
            (MENDED.but('"b"', '"d"'), "the first loss"),
            (MENDED.but('"b"', '"e"'), "one of a, b, c, d"),
            (MENDED.but("(rank, 2 * ranks - 1 - rank)", "(2 * ranks - 1 - rank, rank)"), "in a different order"),
            (
                MENDED.but("(rank, 2 * ranks - 1 - rank)", "(2 * rank, 2 * rank + 1)"),
                "two chunks of 2 positions: which ones",
            ),
            (MENDED.but("(2 * ranks)", "ranks"), "which ones"),
            (
                MENDED.but("return [i * length", "return [str(i)").but(" + place for", " for"),
                "return a list of integers",
            ),
            (MENDED.but("length = context", "length = contexts"), "raised"),
            ("b", "Answer with the letter of the cause"),
            (("b", 3), "Now fix it"),
        ),
        also=(MENDED.but("return [i", "return torch.tensor([i").but("range(length)]", "range(length)])"),),
    ),
}
