"""Typed collectives: no arrow changes the value, every gradient is that of the dense computation, and mutants are seen.

A tensor is held by four ranks in one of four ways, but it *is* one thing, the dense X. So the test of every arrow reads
the same: give X in the first form, use the second form as its type allows, and compare values and gradients with X.
"""

import sys
from typing import NamedTuple

import cloudpickle
import pytest
import torch

from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.states import CONJUGATE
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk import typed

pytestmark = pytest.mark.ranks
cloudpickle.register_pickle_by_value(sys.modules[__name__])
SIZES = (2, 3, 4)


class Case(NamedTuple):
    """One call of a typed collective on an X of this shape, cut along `dim` with these sizes."""

    arrow: str
    call: str
    shape: tuple
    dim: int = 0
    sizes: tuple | None = None
    how: dict = {}

    def lengths(self, ranks):
        return list(self.sizes) if self.sizes else [self.shape[self.dim] // ranks] * ranks


def cases(ranks):
    """Every public arrow, along the first, a middle and the last dim, with equal parts and with uneven ones."""
    plain = (2 * ranks, 3, 2 * ranks)
    uneven = tuple(range(1, ranks + 1))
    yield Case("I->R", "enter", plain)
    for to in "IR":
        yield Case(f"P->{to}", "all_reduce", plain, how={"to": to})
    for shape, dim, sizes in ((plain, 0, None), (plain, 2, None), ((3, sum(uneven), 2), 1, uneven)):
        for to in "IR":
            yield Case(f"V->{to}", "all_gather", shape, dim, sizes, {"dim": dim, "sizes": sizes, "to": to})
        for of in "IR":
            yield Case(f"{of}->V", "split", shape, dim, sizes, {"dim": dim, "sizes": sizes, "of": of})
        yield Case("P->V", "reduce_scatter", shape, dim, sizes, {"dim": dim, "sizes": sizes})


def dense(shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def held(X, kind, case, comm):
    """What a rank holds of X when it is R, I, V or P; the summands of P are unlike, and add up to X."""
    if kind == "V":
        return X.split(case.lengths(comm.size), case.dim)[comm.rank].clone()
    if kind == "P":
        others = [dense(X.shape, 100 + r) for r in range(comm.size - 1)]
        return (others + [X - sum(others)])[comm.rank].clone()
    return X.clone()


def weight(kind, case, shape, comm):
    """What the loss multiplies with: of V a part of one weight, of R one for each rank, of I one for all."""
    W = dense(shape, 7 + comm.rank if kind == "R" else 7)
    return held(W, "V", case, comm) if kind == "V" else W


def on_rank(comm, case, mutant=None):
    """The value that came out, and the gradient of what went in."""
    right = typed.conjugate
    typed.conjugate = lambda arrow: (mutant or {}).get(arrow) or right(arrow)
    try:
        before, after = case.arrow.split("->")
        x = held(dense(case.shape, 1), before, case, comm).requires_grad_()
        y = getattr(typed, case.call)(comm, x, "world", **case.how)
        (weight(after, case, case.shape, comm) * y.sin()).sum().backward()
        return y.detach(), x.grad
    finally:
        typed.conjugate = right


class Place(NamedTuple):
    """A rank as the dense side sees it."""

    size: int
    rank: int


def gap(case, homes):
    """The largest difference from the dense computation, of values and gradients, over all ranks."""
    before, after = case.arrow.split("->")
    X = dense(case.shape, 1).requires_grad_()
    everyone = [Place(len(homes), rank) for rank in range(len(homes))]
    weights = {"R": sum(weight("R", case, case.shape, place) for place in everyone)}
    (weights.get(after, dense(case.shape, 7)) * X.sin()).sum().backward()
    values, gradients = zip(*homes)
    differences = [value - held(X.detach(), after, case, place) for value, place in zip(values, everyone)]
    if before == "R":  # the gradient of R is P: only the sum means something
        differences.append(sum(gradients) - X.grad)
    else:
        kind = CONJUGATE[before].replace("R", "I")
        differences += [found - held(X.grad, kind, case, place) for found, place in zip(gradients, everyone)]
    return max(float(difference.abs().max()) for difference in differences)


def every_case(comm, all_cases):
    return [on_rank(comm, case) for case in all_cases]


@pytest.fixture(scope="module", params=SIZES)
def pool(request):
    with ranks(request.param, timeout=20) as pool:
        yield pool


def test_every_arrow_keeps_the_value_and_has_the_dense_gradient(pool):
    todo = list(cases(pool.size))
    assert {case.arrow for case in todo} == set(typed.MOVES) - {"V->P", "V->V", "V->W", "S->V"}
    homes = pool.run(every_case, todo)
    for number, case in enumerate(todo):
        assert gap(case, [home[number] for home in homes]) < 1e-12, case


MUTANTS = {  # arrow → a backward that somebody has written
    "I->R": "I->R",  # f's sum is forgotten
    "P->I": "P->R",  # g sums once more: p times too much
    "P->R": "I->R",  # each rank keeps its own term
    "V->R": "I->V",  # a split where a reduce-scatter is due
    "V->I": "P->V",  # a reduce-scatter where a split is due: p times too much
    "P->V": "V->P",  # the others' parts are missing
    "I->V": "V->P",  # likewise
    "R->V": "V->R",  # gathered everywhere, then added up once more: p times too much
}


def test_a_mutant_of_every_backward_is_caught(pool):
    todo = {case.arrow: case for case in cases(pool.size)}
    assert set(MUTANTS) == set(todo)
    for arrow, case in todo.items():
        homes = pool.run(on_rank, case, {arrow: MUTANTS[arrow]})
        assert gap(case, homes) > 0.01, arrow


def test_conjugates_come_in_pairs():
    for arrow in typed.MOVES:
        assert typed.conjugate(typed.conjugate(arrow)) == arrow
        assert typed.conjugate(arrow) in typed.MOVES


# ---- all_to_all: V -> V


def exchanged(comm, cut, join, sent, received, mutant=None):
    """The value and the gradient on one rank; `sent` is a table: from whom, to whom."""
    right = typed.conjugate
    typed.conjugate = lambda arrow: mutant or right(arrow)
    try:
        x = block(comm.rank, comm.size, cut, sent).requires_grad_()
        mine = sent and {"sent": sent[comm.rank], "received": received[comm.rank]}
        y = typed.all_to_all(comm, x, "world", cut=cut, join=join, **(mine or {}))
        (dense(y.shape, 50 + comm.rank) * y.sin()).sum().backward()
        return y.detach(), x.grad
    finally:
        typed.conjugate = right


def block(rank, ranks, cut, sent):
    shape = [2 * ranks, 2 * ranks]
    if sent:
        shape[cut] = sum(sent[rank])
    return dense(shape, rank)


def exchange_gap(homes, cut, join, sent):
    p = len(homes)
    blocks = [block(rank, p, cut, sent).requires_grad_() for rank in range(p)]
    pieces = [x.split(list(sent[r]) if sent else 2, cut) for r, x in enumerate(blocks)]
    values = [torch.cat([pieces[r][to] for r in range(p)], join) for to in range(p)]
    sum((dense(y.shape, 50 + r) * y.sin()).sum() for r, y in enumerate(values)).backward()
    both = [(y, found[0]) for y, found in zip(values, homes)] + [(x.grad, found[1]) for x, found in zip(blocks, homes)]
    return max(float((a - b).detach().abs().max()) for a, b in both)


@pytest.mark.parametrize("cut, join, uneven", [(0, 0, False), (0, 1, False), (1, 0, False), (0, 0, True), (1, 1, True)])
def test_all_to_all_and_its_gradient(pool, cut, join, uneven):
    p = pool.size
    sent = [tuple((r + 2 * to) % 3 for to in range(p)) for r in range(p)] if uneven else None
    received = sent and [tuple(sent[r][to] for r in range(p)) for to in range(p)]
    assert exchange_gap(pool.run(exchanged, cut, join, sent, received), cut, join, sent) < 1e-12
    if not uneven and cut == join:
        homes = pool.run(exchanged, cut, join, sent, received, "I->R")  # the gradient stays where it is
        assert exchange_gap(homes, cut, join, sent) > 0.01


# ---- what travels


def told(comm, case):
    on_rank(comm, case)
    return comm.ledger.rows()


TRAVELS = {  # arrow → (forward, backward): the operation, or None where nothing travels
    "I->R": (None, "all_reduce"),
    "P->I": ("all_reduce", None),
    "P->R": ("all_reduce", "all_reduce"),
    "V->R": ("all_gather", "reduce_scatter"),
    "V->I": ("all_gather", None),
    "P->V": ("reduce_scatter", "all_gather"),
    "I->V": (None, "all_gather"),
    "R->V": (None, None),
}


def test_the_ledger_counts_forward_and_backward_and_names_the_forwards_line(pool):
    for case in cases(pool.size):
        longest = max(case.lengths(pool.size)) * pool.size  # uneven parts travel as long as the longest
        full = 8 * torch.Size(case.shape).numel() // case.shape[case.dim] * longest
        wanted = [(op, full) for op in TRAVELS[case.arrow] if op]
        for rows in pool.run(told, case):
            assert [(row["op"], row["bytes"]) for row in rows] == wanted, case
            assert {row["group"] for row in rows} <= {pool.size}
            line = on_rank.__code__.co_firstlineno
            assert all(row["source"].startswith("test_typed.py:") for row in rows)
            assert all(line < int(row["source"].split(":")[1]) < line + 8 for row in rows), rows


def test_along_an_axis_of_one_rank_nothing_happens():
    def alone(comm):
        x = torch.ones(4, requires_grad=True)
        made = [
            typed.enter(comm, x, "tp"),
            typed.all_reduce(comm, x, "tp", to="R"),
            typed.all_gather(comm, x, "tp", 0, to="I"),
            typed.split(comm, x, "tp", 0, of="I"),
            typed.reduce_scatter(comm, x, "tp", 0),
            typed.all_to_all(comm, x, "tp", cut=0, join=0),
        ]
        return all(y is x for y in made), len(comm.ledger)

    with ranks(Mesh(dp=2)) as pool:
        assert pool.run(alone) == [(True, 0)] * 2


def test_a_way_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="to='V' has no gradient: give to=.I."):
        typed.all_reduce(None, torch.ones(1), "tp", to="V")
    with pytest.raises(TypeError, match="to"):
        typed.all_gather(None, torch.ones(1), "tp", 0)  # no default: the wrong one would train on silently
