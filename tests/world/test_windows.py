"""Windows and folds: each rank gets what it wanted; gradients come home and are added; under way nothing changes."""

import sys

import cloudpickle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk import ahead, typed, windows
from hybridlab.world.talk.windows import overlap, turned, widened

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def dense(shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@st.composite
def plans(draw, size):
    """(have, want) for so many ranks: homes in any order, wants anywhere; some are empty."""
    length = draw(st.integers(0, 9))
    ends = sorted(draw(st.lists(st.integers(0, length), min_size=size - 1, max_size=size - 1)))
    have = draw(st.permutations(list(zip([0, *ends], [*ends, length]))))
    span = st.tuples(st.integers(0, length), st.integers(0, length)).map(lambda pair: tuple(sorted(pair)))
    return tuple(have), tuple(draw(st.lists(span, min_size=size, max_size=size)))


def moved(comm, plan, dim, under_way):
    """(value, gradient, bytes sent forward, and back) of a window on this rank."""
    have, want = plan
    length = max(end for _, end in have)
    shape = (length, 3) if dim == 0 else (2, length)
    X, here = dense(shape, 1), comm.rank
    x = X.narrow(dim, have[here][0], have[here][1] - have[here][0]).clone().requires_grad_()
    sent = [comm.ledger.total("isend")[1]]
    if under_way:
        y = ahead.window(comm, x, "tp", dim, have=have, want=want).wait()
    else:
        y = typed.window(comm, x, "tp", dim, have=have, want=want)
    sent.append(comm.ledger.total("isend")[1])
    weight = dense(shape, 2 + here).narrow(dim, want[here][0], want[here][1] - want[here][0])
    (y * weight).sum().backward()
    sent.append(comm.ledger.total("isend")[1])
    return y.detach(), x.grad, sent[1] - sent[0], sent[2] - sent[1]


def every(comm, cases):
    return [moved(comm, *case) for case in cases]


def wanted(plan, dim, here):
    """The same from the dense X: (value, gradient, bytes there, bytes back)."""
    have, want = plan
    length = max(end for _, end in have)
    shape = (length, 3) if dim == 0 else (2, length)
    X, gradient = dense(shape, 1), torch.zeros(shape, dtype=torch.float64)
    for rank, (begin, end) in enumerate(want):
        gradient.narrow(dim, begin, end - begin).add_(dense(shape, 2 + rank).narrow(dim, begin, end - begin))
    width = 8 * (3 if dim == 0 else 2)
    common = lambda one, other: overlap(one, other)[1] - overlap(one, other)[0]
    others = [rank for rank in range(len(have)) if rank != here]
    there = sum(common(have[here], want[rank]) for rank in others) * width
    back = sum(common(want[here], have[rank]) for rank in others) * width
    value = X.narrow(dim, want[here][0], want[here][1] - want[here][0])
    return value, gradient.narrow(dim, have[here][0], have[here][1] - have[here][0]), there, back


@pytest.fixture(scope="module", params=(1, 2, 3, 4))
def pool(request):
    with ranks(Mesh(tp=request.param)) as pool:
        yield pool


@pytest.mark.ranks
def test_value_gradient_and_bytes_are_those_of_the_dense_computation(pool):
    size = pool.mesh.size
    drawn = []

    @given(st.data())
    @settings(max_examples=40, database=None, derandomize=True)
    def draw(data):
        drawn.append((data.draw(plans(size)), data.draw(st.integers(0, 1)), data.draw(st.booleans())))

    draw()
    for rank, results in enumerate(pool.run(every, drawn)):
        for (plan, dim, _), (value, gradient, there, back) in zip(drawn, results):
            value_, gradient_, there_, back_ = wanted(plan, dim, rank)
            assert torch.equal(value, value_) and (there, back) == (there_, back_)
            assert torch.allclose(gradient, gradient_, rtol=0, atol=1e-15 * 10)


def crooked(comm, mutant):
    """The largest gap of a gradient when one line of the fold is wrong."""
    if mutant == "not added":
        real = torch.Tensor.add_
        torch.Tensor.add_ = lambda self, other: self.copy_(other)
    elif mutant == "its own forgotten":
        real = windows.fold
        windows.fold = lambda comm, x, axis, cut: _without_own(real, comm, x, axis, cut)
    plan = (even(6, comm.size), widened(even(6, comm.size), 1, 1))
    try:
        gradient = moved(comm, plan, 0, under_way=False)[1]
    finally:
        if mutant == "not added":
            torch.Tensor.add_ = real
        elif mutant:
            windows.fold = real
    return float((gradient - wanted(plan, 0, comm.rank)[1]).abs().max())


def _without_own(fold, comm, x, axis, cut):
    here = comm.group(axis).ranks.index(comm.rank)
    begin, end = overlap(cut.have[here], cut.want[here])
    x = x.clone()
    x.narrow(cut.dim, begin - cut.want[here][0], end - begin).zero_()
    return fold(comm, x, axis, cut)


@pytest.mark.ranks
def test_a_mutant_of_the_way_back_is_caught():
    with ranks(Mesh(tp=3)) as three:
        assert max(three.run(crooked, None)) < 1e-14
        for mutant in ("not added", "its own forgotten"):
            assert min(three.run(crooked, mutant)) > 0.1


def in_order(comm):
    """What is begun early in the forward is waited for late in the backward: the ledger's rows say so."""
    x, w = dense((4, 4), 1).requires_grad_(), dense((2, 4), 2 + comm.rank).requires_grad_()
    coming = ahead.all_gather(comm, w, "tp", 0, to="R")
    y = typed.all_reduce(comm, typed.enter(comm, x, "tp") @ x, "tp", to="R")
    z = y @ coming.wait()
    z.sum().backward()
    return [(op, begin, end) for op, begin, end in zip(comm.ledger.op, comm.ledger.begin_ns, comm.ledger.end_ns)]


@pytest.mark.ranks
def test_what_the_forward_prefetches_the_backward_defers():
    with ranks(Mesh(tp=2)) as two:
        for rows in two.run(in_order):
            gather, middle, scatter, *later = rows
            assert [row[0] for row in rows[:3]] == ["all_gather", "all_reduce", "reduce_scatter"]
            assert gather[1] < middle[1] < middle[2] <= gather[2]  # begun before, over after the work between
            assert all(scatter[1] < row[1] and row[2] <= scatter[2] for row in later) and later


def refused(comm, have, want, length):
    try:
        typed.window(comm, torch.zeros(length), "tp", 0, have=have, want=want)
    except ValueError as error:
        return str(error)


@pytest.mark.ranks
def test_spans_that_cannot_be_are_refused_in_a_sentence():
    halves = ((0, 2), (2, 4))
    with ranks(Mesh(tp=2)) as two:
        for have, want, length, words in (
            (halves[:1], halves, 2, "give two for each of 2 ranks"),
            (halves, (0, 4), 2, "want=(0, 4) is not a list of spans: give pairs (from, to)"),
            ((0, 2), halves, 2, "have=(0, 2) is not a list of spans: give pairs (from, to)"),
            (((0, 3), (2, 4)), halves, 2, "two ranks own 2:3"),
            (halves, ((0, 2), (2, 5)), 2, "rank 1 needs 2:5, but no rank has 1 of it"),
            (halves, halves, 3, "this tensor has 3 along dim 0"),
        ):
            assert words in two.run(refused, have, want, length)[0]


def test_spans_turn_and_widen():
    assert turned(even(6, 3), 4) == ((2, 4), (4, 6), (0, 2))
    assert widened(((0, 2), (2, 2), (2, 4)), 1, 1) == ((0, 3), (1, 3), (1, 4))


def both_ways(comm):
    """(name, whether value and gradient have the same bits) of every move, begun and waited for at once."""
    have, want = even(5, comm.size), widened(even(5, comm.size), 1, 0)
    span = want[comm.rank]
    cases = {
        "enter": ((4, 2), {}),
        "all_reduce": ((4, 2), {"to": "R"}),
        "all_gather": ((4, 2), {"dim": 0, "to": "I"}),
        "reduce_scatter": ((4, 2), {"dim": 0}),
        "window": ((have[comm.rank][1] - have[comm.rank][0], 2), {"dim": 0, "have": have, "want": want}),
        "fold": ((span[1] - span[0], 2), {"dim": 0, "have": have, "want": want}),
    }
    found = []
    for name, (shape, how) in cases.items():
        made = []
        for room in (typed, ahead):
            x = dense(shape, comm.rank).requires_grad_()
            y = getattr(room, name)(comm, x, "tp", **how)
            y = y.wait() if room is ahead else y
            (y * y).sum().backward()
            made.append((y.detach(), x.grad))
        found.append((name, all(torch.equal(one, other) for one, other in zip(*made))))
    return found


@pytest.mark.ranks
def test_every_move_under_way_has_the_bits_of_the_plain_one():
    with ranks(Mesh(tp=2)) as two:
        assert all(same for found in two.run(both_ways) for _, same in found)
