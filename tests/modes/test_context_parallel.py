"""Context parallelism: four ways for queries to meet keys on other ranks, each equal to one device; its mutants."""

import random
from dataclasses import replace
from functools import partial
from itertools import accumulate

import few
import pytest
import torch
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.core.what.seams import Attends, Positions
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.chunks import Chunks
from hybridlab.core.where.layout import even
from hybridlab.modes import context_parallel
from hybridlab.modes.parts import ring_attention
from hybridlab.predict.bytes.context import ATTEND
from hybridlab.training.job import Job
from hybridlab.training.models.gpt import attend, token_loss
from hybridlab.training.models.model import Model
from hybridlab.training.models.transformer import Transformer

pytestmark = pytest.mark.ranks
ALONE = ATTEND[:3]  # of any number of ranks; usp needs groups of them


def square_loss(out, target):
    return ((out - target) ** 2).sum()


def rows_of_four(step, rows):
    x = torch.randn(2, rows, 4, generator=torch.Generator().manual_seed(step))
    return x[0], x[1]


SMALL = Shape(layers=2, width=16, heads=4, context=8, dropout=0.1)
ODD = Shape(layers=2, width=16, heads=4, kv_heads=2, context=7, dropout=0.1)
DEEP = Shape(layers=4, width=16, heads=4, context=7, tied=True)
WITH = [  # mesh, what else is asked
    (hl.Mesh(cp=2), {}),
    (hl.Mesh(cp=3), {}),
    (hl.Mesh(cp=4), {}),
    (hl.Mesh(cp=2, pp=2), {"schedule": "zb_h1"}),
    (hl.Mesh(cp=2, pp=2, tp=2), {"schedule": "interleaved", "chunks": 2, "model": DEEP}),
    (hl.Mesh(dp=2, cp=2, pp=2), {"zero": 1, "optimizer": "adamw", "rate": 0.01, "clip": 0.1}),
    (hl.Mesh(dp=2, cp=2), {"zero": 3, "accumulate": 2}),
    (hl.Mesh(tp=2, cp=2), {"model": SMALL}),
    (hl.Mesh(cp=2, x=2), {}),
    (hl.Mesh(cp=2), {"schedule": hl.schedule("gpipe", 1, 2, recompute="always")}),
    (hl.Mesh(cp=2), {"model": Shape(layers=2, width=16, heads=4, kv_heads=2, context=9, style="llama")}),
    (hl.Mesh(cp=2), {"dtype": "bfloat16"}),
]
LONGER = Shape(layers=2, width=16, heads=4, kv_heads=2, context=12, dropout=0.1)
TURNED = [  # with zigzag
    (hl.Mesh(cp=2), {}),
    (hl.Mesh(cp=3), {}),
    (hl.Mesh(cp=2), {"model": Shape(layers=2, width=16, heads=4, context=8, style="llama")}),
    (hl.Mesh(dp=2, cp=2, pp=2), {"zero": 1, "schedule": "zb_h1"}),
    (hl.Mesh(tp=2, cp=2), {}),
    (hl.Mesh(cp=4), {"model": replace(LONGER, context=16)}),
    (hl.Mesh(cp=4), {"model": ODD}),
]
HEADS = [  # with Ulysses, for which there must be heads enough
    (hl.Mesh(cp=3), {"model": Shape(layers=2, width=24, heads=6, kv_heads=3, context=7)}),
    (hl.Mesh(cp=4), {"model": Shape(layers=2, width=16, heads=8, kv_heads=4, context=7, dropout=0.1)}),
    (hl.Mesh(cp=3), {"model": Shape(layers=2, width=24, heads=6, kv_heads=3, context=7, documents=(1, 4, 2))}),
    (hl.Mesh(cp=4), {"model": Shape(layers=2, width=16, heads=8, kv_heads=4, context=7, documents=(5, 2))}),
    (hl.Mesh(tp=2, cp=2), {"model": Shape(layers=2, width=16, heads=4, context=7, documents=(3, 4))}),
]
MANY = Shape(layers=2, width=16, heads=4, kv_heads=2, context=12, dropout=0.1, documents=(5, 1, 6))
PACKED = [
    (hl.Mesh(cp=2), {}),
    (hl.Mesh(cp=3), {}),
    (hl.Mesh(cp=2), {"model": replace(MANY, style="llama")}),
    (hl.Mesh(tp=2, cp=2), {}),
    (hl.Mesh(dp=2, cp=2, pp=2), {"zero": 1, "schedule": "zb_h1"}),
    (hl.Mesh(cp=4), {"model": replace(MANY, context=16, documents=(3, 2, 11))}),
]
ROWS = [  # a zigzag of the full row, and documents that leave ranks uneven
    (hl.Mesh(cp=2), {"zigzag_over": "row"}),
    (hl.Mesh(cp=3), {"model": replace(MANY, context=17, documents=(5, 1, 11))}),
]
WHOLE = Shape(layers=2, width=16, heads=4, kv_heads=2, context=16, dropout=0.1)
GROUPS = [  # with usp: two ranks exchange heads, and the groups form a ring
    (hl.Mesh(cp=4), {"model": replace(WHOLE, documents=(3, 2, 11)), "zigzag": True}),
    (hl.Mesh(cp=4), {"model": WHOLE}),
    (hl.Mesh(cp=4), {"model": replace(WHOLE, context=20), "zigzag": True}),
    (hl.Mesh(cp=4), {"model": replace(WHOLE, documents=(3, 2, 11))}),
    (hl.Mesh(cp=4), {"model": replace(WHOLE, documents=(3, 2, 11)), "zigzag": True, "zigzag_over": "row"}),
    (hl.Mesh(cp=4), {"model": replace(WHOLE, style="llama"), "zigzag": True, "recompute": "full"}),
    (hl.Mesh(cp=4), {"model": WHOLE, "recompute": "selective"}),
    (hl.Mesh(cp=4), {"model": WHOLE, "zero": 3, "accumulate": 2, "optimizer": "adamw", "rate": 0.01, "clip": 0.1}),
    (hl.Mesh(pp=2, cp=4), {"model": WHOLE, "schedule": "zb_h1", "zigzag": True}),
    (hl.Mesh(dp=2, cp=4), {"model": WHOLE, "zero": 1}),
    (hl.Mesh(cp=4, dp=2), {"model": WHOLE, "zero": 2}),
    (hl.Mesh(cp=4, tp=2), {"model": replace(WHOLE, kv_heads=4)}),
    (hl.Mesh(tp=2, cp=4), {"model": replace(WHOLE, kv_heads=4), "zigzag": True}),
    (hl.Mesh(cp=6), {"model": Shape(layers=1, width=24, heads=6, kv_heads=3, context=12), "ulysses": 3}),
    (hl.Mesh(cp=8), {"model": replace(WHOLE, heads=8, kv_heads=4, context=24), "ulysses": 4, "zigzag": True}),
    (hl.Mesh(cp=8), {"model": replace(WHOLE, heads=8, kv_heads=4, context=24, documents=(5, 19)), "zigzag": True}),
]
OWN = Model(
    nn.Sequential(nn.Linear(4, 4)), square_loss, rows_of_four, dims={"0.weight": "T D"}, enters="B T", targets="B T"
)
CASES = [
    pytest.param(way, mesh, more, marks=() if number < 1 else pytest.mark.long, id=f"{way} {number}")
    for way in ALONE
    for number, (mesh, more) in enumerate(WITH)
    if way != "ulysses" or mesh["cp"] == 2  # two heads of keys
]
CASES += [
    pytest.param("ulysses", mesh, more, marks=pytest.mark.long, id=f"heads {number}")
    for number, (mesh, more) in enumerate(HEADS)
]
CASES += [
    pytest.param("usp", mesh, more, marks=() if number < 2 else pytest.mark.long, id=f"groups {number}")
    for number, (mesh, more) in enumerate(GROUPS)
]


@pytest.mark.parametrize("way, mesh, more", CASES)
def test_it_trains_as_one_device_does_and_every_byte_is_claimed(bench, way, mesh, more):
    report = bench.asked(mesh, **{"model": ODD, "microbatches": 2, "attend": way} | more)
    assert report.ok, report
    assert report.bytes["inside stages, along cp"][0] > 0


@pytest.mark.parametrize(
    "way, mesh, more",
    [
        pytest.param(way, mesh, more, marks=() if number < 1 else pytest.mark.long, id=f"{way} {number}")
        for way in ("gather", "ring")
        for number, (mesh, more) in enumerate(TURNED)
    ],
)
def test_a_zigzag_trains_as_one_device_does(bench, way, mesh, more):
    report = bench.asked(mesh, **{"model": LONGER, "microbatches": 2, "attend": way, "zigzag": True} | more)
    assert report.ok, report


def test_in_a_zigzag_all_compute_as_many_pairs_and_in_order_the_last_rank_most():
    for ranks in (2, 3, 4):
        zigzag, plain = Chunks.zigzag(24, ranks), Chunks.in_order(24, ranks)
        assert len(set(zigzag.pairs)) == 1 and sum(zigzag.pairs) == sum(plain.pairs) == 24 * 25 // 2
        assert plain.pairs == sorted(plain.pairs) and plain.pairs[-1] > zigzag.pairs[0]
        assert sorted(zigzag.order) == list(range(24)) == plain.order


def met(comm, way, heads, keys, chunks):
    """The largest difference from one device of what attention finds, and of the gradients of q, k and v."""
    if way == "usp":
        comm.open((0, 1), (2, 3), (0, 2), (1, 3))
        groups, chunks = chunks, chunks.among(2)
    context = len(chunks.order)
    draw = torch.Generator().manual_seed(0)
    make = lambda number: torch.randn(2, number, context, 8, dtype=torch.float64, generator=draw)
    whole = [make(heads), make(keys), make(keys)]
    pull, own = make(heads), chunks.positions(comm.rank)
    alone = partial(attend, documents=chunks.documents, causal=chunks.causal)
    right = [x.clone().requires_grad_() for x in whole]
    found = alone(*right)
    found.backward(pull)
    mine = [x[:, :, own].clone().requires_grad_() for x in whole]
    if way == "ring":
        out = ring_attention.ring_attention(*mine, comm, "cp", chunks)
    elif way == "gather":
        out = context_parallel.gathered(*mine, comm, chunks)
    elif way == "usp":
        out = context_parallel.by_heads_and_positions(*mine, comm, groups, 2)
    else:
        out = context_parallel.by_heads(*mine, comm, chunks, alone)
    out.backward(pull[:, :, own])
    pairs = [(out, found[:, :, own]), *((x.grad, y.grad[:, :, own]) for x, y in zip(mine, right))]
    return max(((one - other).abs().max() / other.abs().max()).item() for one, other in pairs)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)])
def test_attention_alone_is_torchs(ranks, causal):
    """Causal or not, grouped queries, lengths that divide and that do not, one document and several."""
    with hl.ranks(hl.Mesh(cp=ranks)) as pool:
        for way in ALONE:
            for heads, keys in ((12, 12), (24, 12)):
                every = [Chunks.in_order(context, ranks) for context in (12, 13)]
                every += [Chunks.zigzag(context, ranks) for context in (24, 27)] if way != "ulysses" else []
                every += [one._replace(documents=packed_into(len(one.order))) for one in every]
                for chunks in every:
                    chunks = chunks._replace(causal=causal)
                    assert max(pool.run(met, way, heads, keys, chunks)) < 1e-12, (way, heads, keys, chunks)


@pytest.mark.long
@pytest.mark.parametrize("causal", [True, False])
def test_attention_in_groups_is_torchs(causal):
    every = [Chunks.in_order(12, 2), Chunks.zigzag(20, 2), Chunks.zigzag(20, 2, packed_into(20))]
    every += [one._replace(documents=packed_into(len(one.order))) for one in every[:2]]
    with hl.ranks(hl.Mesh(cp=4)) as pool:
        for chunks in (one._replace(causal=causal) for one in every):
            for heads, keys in ((4, 4), (4, 2)):
                assert max(pool.run(met, "usp", heads, keys, chunks)) < 1e-12, (heads, keys, chunks)


def packed_into(context):
    """Documents of which one is a single position and one lies across a border between ranks."""
    return (1, context // 3, context - context // 3 - 1)


# ---- packed documents


def test_a_packed_document_is_read_as_if_it_stood_alone():
    for style in ("gpt", "llama"):
        packed = Shape(layers=2, width=16, heads=4, kv_heads=2, context=9, style=style, documents=(4, 1, 4))
        model = Transformer(packed).made(0, torch.float64)
        tokens = torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(0))
        together = model(tokens)
        alone = Transformer(replace(packed, documents=())).made(0, torch.float64)
        parts = [alone(part) for part in tokens.split(packed.documents, 1)]
        assert (together - torch.cat(parts, 1)).abs().max() < 1e-12
        other = tokens.clone()
        other[:, 0] += 1  # no other document hears of it
        assert torch.equal(model(other)[:, 4:], together[:, 4:])


@pytest.mark.parametrize(
    "way, mesh, more",
    [
        pytest.param(way, mesh, more, marks=() if number < 1 else pytest.mark.long, id=f"{way} {number}")
        for way in (*ALONE, "zigzag ring", "zigzag gather")
        for number, (mesh, more) in enumerate([*PACKED, *ROWS] if "zigzag" in way else PACKED)
        if way != "ulysses" or mesh["cp"] * mesh["tp"] == 2  # two heads of keys
    ],
)
def test_packed_documents_train_as_on_one_device(bench, way, mesh, more):
    asked = {"attend": way.split()[-1]} | ({"zigzag": True} if "zigzag" in way else {})
    report = bench.asked(mesh, **{"model": MANY, "microbatches": 2} | asked | more)
    assert report.ok, report


def test_targets_of_a_document_are_its_own():
    """Each document is a text of its own: what follows its last position is no token of the next document."""
    tokens, targets = Transformer(MANY).batch(0, 3)
    alone, following = Transformer(replace(MANY, context=6, documents=())).batch(0, 9)
    for number, (begin, end) in enumerate(((0, 5), (5, 6), (6, 12))):
        assert torch.equal(tokens[:, begin:end], alone[number::3, : end - begin])
        assert torch.equal(targets[:, begin:end], following[number::3, : end - begin])


def test_documents_that_do_not_fill_a_sequence_are_refused():
    with pytest.raises(ValueError, match="add up to the context"):
        Shape(context=8, documents=(4, 3))


# ---- work


def computed(comm, chunks):
    """(pairs of a query and a key that a forward computes, pairs that are seen)."""
    plain, found = ring_attention.part_of_attention, []
    ring_attention.part_of_attention = lambda q, k, *more: found.append(q.shape[-2] * k.shape[-2]) or plain(q, k, *more)
    own = chunks.length(comm.rank)
    q, k, v = torch.zeros(3, 1, 1, own, 4)
    ring_attention.ring_attention(q, k, v, comm, "cp", chunks)
    return sum(found), chunks.pairs[comm.rank]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_in_a_zigzag_ranks_compute_alike_and_nothing_that_no_query_sees(ranks):
    context, documents = 8 * ranks, (4 * ranks, 4 * ranks)
    with hl.ranks(hl.Mesh(cp=ranks)) as pool:
        zigzag, plain = Chunks.zigzag(context, ranks), Chunks.in_order(context, ranks)
        block = 4 * 4  # of two chunks
        did = [pairs for pairs, _ in pool.run(computed, zigzag)]
        assert max(did) - min(did) <= block and min(did) == (2 * ranks + 1) * block
        assert [pairs for pairs, _ in pool.run(computed, plain)] == [4 * block * (rank + 1) for rank in range(ranks)]
        for one in (zigzag, plain):
            packed = pool.run(computed, one._replace(documents=documents))
            assert sum(pairs for pairs, _ in packed) < sum(pairs for pairs, _ in pool.run(computed, one))
            assert all(seen <= pairs for pairs, seen in packed)


def lots():
    """200 packings of up to six documents, on 2 to 8 ranks."""
    draw = random.Random(0)
    for _ in range(200):
        yield draw.choice((2, 3, 4, 8)), tuple(draw.randint(8, 200) for _ in range(draw.randint(1, 6)))


def test_a_zigzag_by_documents_balances_every_packing():
    off = {"documents": [], "row": []}
    for ranks, documents in lots():
        total = sum(documents)
        chunks, row = Chunks.zigzag(total, ranks, documents), Chunks.zigzag(total, ranks)
        assert sorted(chunks.order) == list(range(total)) == sorted(row.order)
        assert [chunks.length(rank) for rank in range(ranks)] == [end - begin for begin, end in even(total, ranks)]
        assert max(chunks.pairs) - min(chunks.pairs) <= 2 * total
        for name, one in (("documents", chunks), ("row", row._replace(documents=documents))):
            off[name].append(max(one.pairs) * ranks / sum(one.pairs))
    mean = {name: sum(every) / len(every) for name, every in off.items()}
    assert mean["documents"] < 1.03 and mean["row"] > 1.2, mean


def test_documents_that_divide_leave_all_ranks_the_same_number_of_pairs():
    """Σ L(L+1)/(2·cp), if 2·cp divides every length L."""
    draw = random.Random(0)
    for _ in range(100):
        ranks = draw.choice((2, 3, 4, 8))
        documents = tuple(2 * ranks * draw.randint(1, 9) for _ in range(draw.randint(1, 6)))
        pairs = Chunks.zigzag(sum(documents), ranks, documents).pairs
        assert set(pairs) == {sum(length * (length + 1) for length in documents) // (2 * ranks)}


def test_a_zigzag_that_is_not_mirrored_is_no_balance(monkeypatch):
    """A rank has two neighbouring chunks of each document."""
    plain = Chunks.zigzag.__func__

    def beside(cls, context, ranks, documents=()):
        found = plain(cls, context, ranks, documents)
        its = [[] for _ in range(ranks)]
        for begin in accumulate(documents[:-1], initial=0):
            of = [number for number, (low, _) in enumerate(found.spans) if low >= begin][: 2 * ranks]
            for place, chunk in enumerate(of):
                its[place // 2].append(chunk)
        return found._replace(of=tuple(map(tuple, its)))

    monkeypatch.setattr(Chunks, "zigzag", classmethod(beside))
    pairs = Chunks.zigzag(16, 2, (8, 8)).pairs
    assert pairs == [20, 52] and max(pairs) - min(pairs) == 2 * 16


@pytest.mark.parametrize(
    "documents, ranks, by_row, by_document",
    [((12, 4), 2, 1.55, 1.0), ((1024, 7168), 4, 1.12, 1.0), ((100, 28, 384), 4, 1.24, 1.0)],
)
def test_a_zigzag_of_the_row_is_no_balance_for_documents(documents, ranks, by_row, by_document):
    most = lambda chunks: round(max(chunks.pairs) * ranks / sum(chunks.pairs), 2)
    assert most(Chunks.zigzag(sum(documents), ranks)._replace(documents=documents)) == by_row
    assert most(Chunks.zigzag(sum(documents), ranks, documents)) == by_document
    if all(length % (2 * ranks) == 0 for length in documents):
        its = Chunks.zigzag(sum(documents), ranks, documents).pairs
        assert set(its) == {sum(length * (length + 1) for length in documents) // (2 * ranks)}


# ---- mutants


def begins_at_zero():
    """Every rank thinks that its positions are the first ones."""
    Chunks.positions = lambda self, rank: list(range(sum(high - low for low, high in (self.spans[rank],))))


def own_gradients():
    """The gradients of gathered keys are taken as whole."""
    plain = context_parallel.all_gather
    context_parallel.all_gather = lambda *about, to, **more: plain(*about, to="I", **more)


def all_seen():
    """Nothing is hidden inside a rank's own positions."""
    plain = ring_attention.Round.meetings
    ring_attention.Round.meetings = lambda self, source, device: (
        (*one[:3], None) for one in plain(self, source, device)
    )


def one_less():
    """What lies before a rank is not looked at."""
    plain = ring_attention.Round.meetings
    ring_attention.Round.meetings = lambda self, source, device: (
        one for one in plain(self, source, device) if one[3] is not None
    )


def not_joined():
    """Two parts of a softmax are added as they are."""
    ring_attention.joined = lambda out, lse, other, its: (out + other, torch.logaddexp(lse, its))


def left_on_the_way():
    """Gradients of keys and values stay where they were made."""
    plain = ring_attention.part_of_backward
    ring_attention.part_of_backward = lambda *about: (plain(*about)[0], *(0 * one for one in plain(*about)[1:]))


def stale_keys():
    """The backward meets this rank's own keys and values every time."""
    plain = ring_attention.part_of_backward
    first = []

    def stale(q, by_out, lse, spread, k, v, *more):
        first[:] = first or [k, v]
        return plain(q, by_out, lse, spread, *(x.expand_as(k) for x in first), *more)

    ring_attention.part_of_backward = stale


def not_permuted():
    """Ranks have the positions of a zigzag, and embed them as if they followed each other."""
    plain = context_parallel.ContextParallel.fit

    def fit(self, module, comm, job):
        plain(self, module, comm, job)
        for layer in module.modules():
            if isinstance(layer, Positions):
                layer.first = comm.coordinates["cp"] * job.sizes["T"] // job.mesh["cp"]

    context_parallel.ContextParallel.fit = fit


def mean_of_means():
    """Each rank divides by the number of its own positions, and means are averaged."""

    def loss(self, comm, job, whole):
        even = job.sizes["T"] / job.mesh["cp"]
        return lambda scores, targets: whole(scores, targets) * even / targets.shape[1]

    context_parallel.ContextParallel.loss = loss


def across_borders():
    """Nobody tells the mode of documents."""
    Chunks._replace = lambda self, **fields: self


def targets_in_sequence():
    """Tokens are dealt out in a zigzag, and targets are not."""
    plain, order = Job.batch_of, context_parallel.ContextParallel.order

    def batch_of(self, *about):
        tokens, _ = plain(self, *about)
        context_parallel.ContextParallel.order = lambda self, job: {}
        _, targets = plain(self, *about)
        context_parallel.ContextParallel.order = order
        return tokens, targets

    Job.batch_of = batch_of


@pytest.mark.parametrize(
    "way, mutant, more",
    few.one_in(
        4,
        [
            ("gather", begins_at_zero, {}),
            ("gather", own_gradients, {}),
            ("ring", all_seen, {}),
            ("ring", one_less, {}),
            ("ring", not_joined, {}),
            ("ring", left_on_the_way, {}),
            ("ring", stale_keys, {}),
            ("ring", not_permuted, {"zigzag": True}),
            ("gather", not_permuted, {"zigzag": True}),
            ("ring", mean_of_means, {"model": ODD}),
            ("ring", across_borders, {"model": MANY}),
            ("gather", across_borders, {"model": MANY}),
            ("ring", targets_in_sequence, {"model": MANY, "zigzag": True}),
            ("usp", not_permuted, {"model": WHOLE, "zigzag": True}),
            ("usp", one_less, {"model": WHOLE}),
            ("usp", left_on_the_way, {"model": WHOLE}),
            ("usp", across_borders, {"model": MANY}),
        ],
    ),
    ids=lambda one: one if isinstance(one, str) else getattr(one, "__name__", ""),
)
def test_a_mutant_is_caught(way, mutant, more):
    mesh = hl.Mesh(cp=4 if way == "usp" else 2)
    report = hl.check(mesh, **{"model": SMALL, "microbatches": 1, "attend": way, "sabotage": mutant} | more)
    assert not report.ok and report.largest_gap > 1e-4


# ---- a model of one's own, which declares its seams


class Placed(nn.Module, Positions):
    """Tokens and their positions as vectors; positions that it is not told of begin at 0."""

    def __init__(self):
        super().__init__()
        self.token, self.position, self.first = nn.Embedding(12, 8), nn.Embedding(9, 8), 0

    def forward(self, tokens):
        return self.token(tokens) + self.position(self.first + torch.arange(tokens.shape[1]))


class OwnAttention(nn.Module, Attends):
    """Attention with a residual, in the words of a student."""

    widths = 8, 8, 8, 8

    def __init__(self, causal=True):
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(8, 24), nn.Linear(8, 8), causal

    def attend(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

    def forward(self, x):
        q, k, v = (one.unflatten(2, (2, 4)).transpose(1, 2) for one in self.qkv(x).chunk(3, 2))
        return x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class Turning(OwnAttention):
    """Rotary positions inside the attention; which positions are here it does not ask."""

    first = 0

    def turned(self, x):
        angle_TH = (self.first + torch.arange(x.shape[2]))[:, None] * torch.tensor([1.0, 0.1], dtype=x.dtype)
        even, odd, cos, sin = *x.chunk(2, 3), angle_TH.cos(), angle_TH.sin()
        return torch.cat([even * cos - odd * sin, even * sin + odd * cos], 3)

    def forward(self, x):
        q, k, v = (one.unflatten(2, (2, 4)).transpose(1, 2) for one in self.qkv(x).chunk(3, 2))
        return x + self.out(self.attend(self.turned(q), self.turned(k), v).transpose(1, 2).flatten(2))


class Asking(Turning, Positions):
    """The same, which asks."""


class ByChance(nn.Linear):
    """A layer whose `attend` and `first` mean something else."""

    attend, first = 0.5, 0.25

    def forward(self, x):
        return super().forward(x * self.attend + self.first)


class Shifted(nn.Module):
    """Each position looks at the one before it, and does not say so."""

    def forward(self, x):
        return x + functional.pad(x, (0, 0, 1, 0))[:, :-1]


def tokens_of(step, rows):
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(12, (rows, 10), generator=draw)
    return tokens[:, :-1], tokens[:, 1:]


def own(*between, loss=token_loss):
    def made(seed):
        layers = Placed(), OwnAttention(), *between, ByChance(8, 8), nn.Tanh(), OwnAttention(), nn.Linear(8, 12)
        return nn.Sequential(*layers)

    return Model(made, loss, tokens_of, enters="B T", targets="B T", sizes={"T": 9}, terms=9)


def shifting(scores, targets):
    """The loss of Hugging Face, whose targets are the tokens themselves."""
    return token_loss(scores[:, :-1], targets[:, 1:])


@pytest.mark.parametrize("way", ALONE)
@pytest.mark.parametrize("mesh", few.first(1, [hl.Mesh(cp=2), hl.Mesh(dp=2, cp=2, pp=2)]), ids=str)
def test_a_model_of_ones_own_declares_where_it_attends(bench, way, mesh):
    report = bench.asked(mesh, model=own(), microbatches=2, batch=8, attend=way)
    assert report.ok and report.largest_gap < 1e-11, report
    assert any(
        counted > 0 for (purpose, axis, _), (counted, _) in report.axes.items() if (purpose, axis) == ("context", "cp")
    )


class OneKey(OwnAttention):
    """All heads of queries share one of keys, whose dims nobody has named."""

    def forward(self, x):
        q, k, v = (one.unflatten(2, (2, 4)).transpose(1, 2) for one in self.qkv(x).chunk(3, 2))
        k, v = k[:, :1], v[:, :1]
        return x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))

    def attend(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def test_fewer_heads_than_ranks_are_told_where_ranks_exchange_them():
    """Public report: LlamaFactory #10794."""
    with pytest.raises(
        ValueError, match="attend='ulysses' distributes heads over 2 ranks, but attention has 1: choose"
    ):
        hl.check(hl.Mesh(cp=2), model=own(OneKey()), batch=8, attend="ulysses")


def test_rotary_positions_that_are_declared_are_those_of_one_device(bench):
    """Public reports: Megatron-LM #560, #453; Automodel #1482."""
    report = bench.asked(hl.Mesh(cp=2), model=own(Asking()), microbatches=2, batch=8, attend="ring", zigzag=True)
    assert report.ok and report.largest_gap < 1e-11, report


def floats_of(step, rows):
    x = torch.randn(rows, 4, 6, generator=torch.Generator().manual_seed(step))
    return x, x.cumsum(2)


def test_a_model_that_reads_floats_is_tried_in_float64_whatever_it_trains_in(bench):
    made = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model = Model(made, square_loss, floats_of, enters="B T", targets="B T", sizes={"T": 4})
    report = bench.asked(hl.Mesh(cp=2), model=model, microbatches=2, batch=4, dtype="float32")
    assert report.ok, report


def test_its_attention_can_be_done_again_alone(bench):
    report = bench.asked(hl.Mesh(pp=2), model=own(), batch=8, recompute="selective")
    assert report.ok and report.largest_gap < 1e-11, report


@pytest.mark.parametrize(
    "words, model",
    [
        ("a layer that does not declare it reads other positions", own(Shifted())),
        ("a layer that does not declare it reads .* position numbers", own(Turning())),
        ("OwnAttention.attend does not compute causal attention", own(OwnAttention(causal=False))),
        ("the losses of the parts of a sequence do not add up .*shift targets in the data", own(loss=shifting)),
    ],
)
def test_a_model_of_ones_own_that_cannot_be_cut_is_refused_before_it_trains(words, model):
    """Public reports: Megatron-LM #560 (rotary positions); transformers #37993, ms-swift #9977 (shifts in the loss)."""
    with pytest.raises(ValueError, match=words):
        hl.train(hl.Mesh(cp=2), model=model, batch=8, steps=1, progress=False)


@pytest.mark.parametrize(
    "words, mesh, more",
    [
        ("no dimension of this model has that name", hl.Mesh(cp=2), {"model": "conv"}),
        ("a layer that does not declare it reads other positions", hl.Mesh(cp=2), {"model": OWN}),
        ("choose cp up to 2", hl.Mesh(cp=4), {"model": Shape(layers=1, width=8, heads=2, context=2)}),
        ("need 4 equal parts of 7 positions", hl.Mesh(cp=2, tp=2), {"model": ODD, "sequence": True}),
        ("leave out zigzag", hl.Mesh(cp=2), {"model": SMALL, "attend": "ulysses", "zigzag": True}),
        ("leave out ulysses", hl.Mesh(cp=2), {"model": SMALL, "attend": "ring", "ulysses": 4}),
        ("ulysses=4 has no effect without attend", hl.Mesh(cp=8), {"model": SMALL, "ulysses": 4}),
        ("ulysses=2: give a divisor", hl.Mesh(cp=2), {"model": SMALL, "attend": "usp"}),
        ("ulysses=3: give a divisor", hl.Mesh(cp=4), {"model": SMALL, "attend": "usp", "ulysses": 3}),
        ("ulysses=4 does not divide the 2 KV heads", hl.Mesh(cp=8), {"model": WHOLE, "attend": "usp", "ulysses": 4}),
        ("needs 4 equal parts of 7", hl.Mesh(cp=4), {"model": replace(SMALL, context=7), "attend": "usp"}),
        ("no effect without zigzag", hl.Mesh(cp=2), {"model": SMALL, "zigzag_over": "row"}),
        ("choose 'ring' or 'gather'", hl.Mesh(cp=3), {"model": SMALL, "attend": "ulysses"}),
        ("there is no attend 'star'", hl.Mesh(cp=2), {"model": SMALL, "attend": "star"}),
    ],
)
def test_what_cannot_be_cut_is_refused_in_a_sentence(words, mesh, more):
    with pytest.raises(ValueError, match=words):
        hl.check(mesh, **more)


def test_parts_in_bfloat16_are_joined_in_float32():
    """Of 64 parts one after the other, every rounding of the sums to bfloat16 would show."""
    drawn = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 1, 256, 8, dtype=torch.float64, generator=drawn).bfloat16()
    right, met = ring_attention.part_of_attention(q.double(), k[:, :, 0].double(), v[:, :, 0].double())[0], None
    for first in range(0, 256, 4):
        some = slice(first, first + 4)
        part = ring_attention.part_of_attention(q, k[:, :, 0, some], v[:, :, 0, some])
        assert part[1].dtype == torch.float32
        met = part if met is None else ring_attention.joined(*met, *part)
    whole = ring_attention.part_of_attention(q, k[:, :, 0], v[:, :, 0])[0]
    off, its = ((found.double() - right).abs().max() for found in (met[0], whole))
    assert off < 1.2 * its, "no worse than all keys at once"
