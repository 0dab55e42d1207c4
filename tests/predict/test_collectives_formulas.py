"""What collectives cost: formulas against algorithms that are played with sets and counters, one rank after another."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.predict.bytes.collectives import FORMULAS, Link, cost, crossover, hierarchical

EVERY = [(op, algorithm) for op, algorithms in FORMULAS.items() for algorithm in algorithms]
LINK = Link(alpha=7e-5, beta=4e-10)
POWERS = [1, 2, 4, 8, 16, 32]

# --- algorithms, played -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_a_ring_sums_in_as_many_steps_as_said(p):
    """Chunk by chunk: what a rank holds of a chunk is the set of ranks that are in the sum."""
    held = [[{rank} for _ in range(p)] for rank in range(p)]
    steps, sent = 2 * (p - 1), Counter()  # sums go round, then finished sums
    for step in range(steps):
        parcels = [(rank, (rank - step) % p, set(held[rank][(rank - step) % p])) for rank in range(p)]
        for rank, chunk, parcel in parcels:
            held[(rank + 1) % p][chunk] |= parcel
            sent[rank] += 1
    assert all(chunk == set(range(p)) for rank in held for chunk in rank)
    assert cost("all_reduce", p, p) == (steps, max(sent.values(), default=0))


@pytest.mark.parametrize("p", [1, 2, 3, 5, 6, 8, 9])
def test_gathering_by_doubling_needs_few_messages_and_no_more_bytes(p):
    """Bruck: in round k a rank sends what it has to the rank 2ᵏ before it, at most what is still missing there."""
    held, sent, rounds = [[rank] for rank in range(p)], Counter(), 0
    while len(held[0]) < p:
        parcels = [have[: p - len(have)] for have in held]
        for rank, parcel in enumerate(parcels):
            held[(rank - 2**rounds) % p].extend(parcel)
            sent[rank] += len(parcel)
        rounds += 1
    assert all(sorted(have) == list(range(p)) for have in held)
    assert cost("all_gather", p, p, "tree") == (rounds, max(sent.values(), default=0))


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 7, 8, 16])
def test_all_to_all_in_few_rounds_sends_half_of_everything_in_each(p):
    """Bruck: what has i ranks to go travels 2ᵏ of them in round k if bit k of i is set."""
    at = {(rank, i): rank for rank in range(p) for i in range(p)}
    sent, rounds = Counter(), 0
    while 2**rounds < p:
        for rank, i in at:
            if i >> rounds & 1:
                sent[at[rank, i]] += 1
                at[rank, i] = (at[rank, i] + 2**rounds) % p
        rounds += 1
    assert all(end == (rank + i) % p for (rank, i), end in at.items())
    said = cost("all_to_all", p, p, "tree")
    assert said.messages == rounds
    assert said.bytes == max(sent.values(), default=0) if p in POWERS else said.bytes >= max(sent.values())


@pytest.mark.parametrize("p", POWERS)
def test_a_broadcast_that_scatters_and_gathers_costs_its_root_twice_the_tensor(p):
    """The root gives away the half of what it has, again and again; then everybody's chunk goes round the ring."""
    have, given_away, rounds = p, 0, 0
    while have > 1:
        have, given_away, rounds = have / 2, given_away + have / 2, rounds + 1
    around = cost("all_gather", p, p)
    assert cost("broadcast", p, p, "ring") == (rounds + around.messages, given_away + around.bytes)


@pytest.mark.parametrize("p", [4, 8, 16, 32])
def test_two_trees_share_the_work(p):
    """A rank is inside one tree and a leaf of the other; each tree sums half of the tensor and hands it down."""
    sent, depths = Counter(), []
    for name in (lambda rank: rank, lambda rank: p - 1 - rank):  # the second tree mirrors the first
        parents = {rank: _parent(rank, p) for rank in range(1, p)}
        for child, parent in parents.items():
            sent[name(child)] += 1 / 2
            sent[name(parent)] += 1 / 2
        depths.append(max(_depth(rank, parents) for rank in range(p)))
    assert cost("all_reduce", p, 1, "tree") == (2 * max(depths), max(sent.values()))


def _parent(rank, p):
    """In order: the lowest bit moves up by one; where that would leave the ranks, it goes away. 0 is the root."""
    low = rank & -rank
    up = (rank & ~low) | low << 1
    return up if up < p else rank & ~low


def _depth(rank, parents):
    return 1 + _depth(parents[rank], parents) if rank in parents else 0


# --- what holds between the formulas ----------------------------------------------------------------------------


@pytest.mark.parametrize("op, algorithm", EVERY)
def test_one_rank_alone_sends_nothing(op, algorithm):
    assert op == "send" or cost(op, 1, 1000, algorithm) == (0, 0)


@pytest.mark.parametrize("p", range(2, 20))
def test_a_ring_sends_the_least_and_a_tree_the_fewest(p):
    """A sum needs 2·(p-1)/p of the tensor from some rank (Patarasuk and Yuan 2009), and ⌈log₂ p⌉ rounds."""
    ring, tree = cost("all_reduce", p, 1), cost("all_reduce", p, 1, "tree")
    parts = [cost(op, p, 1, "tree") for op in ("reduce_scatter", "all_gather")]  # Rabenseifner's
    assert ring.bytes == pytest.approx(sum(part.bytes for part in parts)) and ring.bytes < tree.bytes
    assert tree.messages == sum(part.messages for part in parts) <= ring.messages


@pytest.mark.slow
@pytest.mark.parametrize("op, algorithm", EVERY)
@given(data=st.data())
@settings(max_examples=20)
def test_arrays_are_scalars_side_by_side(op, algorithm, data):
    pairs = st.tuples(st.integers(1, 5000), st.integers(0, 2**40))
    ranks, sizes = np.array(data.draw(st.lists(pairs, min_size=1, max_size=8))).T
    ones = [cost(op, p, size, algorithm) for p, size in zip(ranks.tolist(), sizes.tolist())]
    messages, sent = cost(op, ranks, sizes, algorithm)
    assert np.broadcast_to(messages, ranks.shape).tolist() == [one.messages for one in ones]
    assert np.broadcast_to(sent, ranks.shape).tolist() == [one.bytes for one in ones]
    seconds = [LINK.seconds(op, p, size, algorithm) for p, size in zip(ranks.tolist(), sizes.tolist())]
    assert np.broadcast_to(LINK.seconds(op, ranks, sizes, algorithm), ranks.shape).tolist() == seconds


def test_two_levels_too_are_scalars_side_by_side():
    nodes, per_node, sizes = np.array([[1, 8, 8000], [2, 4, 12345], [96, 8, 2**30], [3, 1, 7]]).T
    rows = zip(nodes.tolist(), per_node.tolist(), sizes.tolist())
    many = hierarchical(nodes, per_node, sizes).seconds(LINK, Link(1e-4, 1e-9))
    assert many.tolist() == [hierarchical(*row).seconds(LINK, Link(1e-4, 1e-9)) for row in rows]


@pytest.mark.parametrize("op, algorithm", EVERY)
def test_a_fit_finds_the_link_that_made_the_times(op, algorithm):
    sizes = [1 << k for k in range(10, 24, 3)]
    found = Link.fit(op, 8, sizes, [LINK.seconds(op, 8, size, algorithm) for size in sizes], algorithm)
    assert found == pytest.approx(LINK, rel=1e-6)


def test_an_algorithm_without_a_formula_is_told():
    with pytest.raises(ValueError, match="all_reduce has no algorithm 'butterfly': choose ring or tree"):
        cost("all_reduce", 4, 1, "butterfly")


# --- tree or ring -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", FORMULAS)
@pytest.mark.parametrize("p", [2, 3, 4, 7, 16, 1000])
def test_the_crossover_is_where_the_times_cross(op, p):
    at = crossover(op, p, LINK)
    for size, faster in ((min(0.99 * at, 1e15), True), (max(1.01 * at, 1.0), False)):
        if size > 0 and size < float("inf"):
            tree, ring = (LINK.seconds(op, p, size, algorithm) for algorithm in ("tree", "ring"))
            assert (tree < ring) is faster


def test_a_sum_crosses_where_the_formula_says():
    assert crossover("all_reduce", 64, LINK) == pytest.approx(64 * (63 - 6) * LINK.alpha / LINK.beta)
    assert [crossover("all_reduce", p, LINK) for p in (1, 2, 3)] == [0, 0, 0], "no message saved"


# --- two levels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("p", [1, 2, 3, 8])
def test_with_one_node_or_one_rank_in_each_there_is_one_level(p, algorithm):
    assert hierarchical(1, p, 960) == (cost("all_reduce", p, 960), (0, 0))
    assert hierarchical(p, 1, 960, algorithm) == ((0, 0), cost("all_reduce", p, 960, algorithm))


@pytest.mark.parametrize("nodes, per_node", [(2, 2), (3, 4), (16, 8)])
def test_two_levels_send_as_much_as_one_and_most_of_it_inside(nodes, per_node):
    """Any all_reduce by scattering and gathering sends 2·(n-1)/n; here a part of 1/per_node is all that goes out."""
    size = nodes * per_node * 1000
    two, flat = hierarchical(nodes, per_node, size), cost("all_reduce", nodes * per_node, size)
    assert two.inside.bytes + two.across.bytes == flat.bytes
    assert two.across.bytes == cost("all_reduce", nodes, size).bytes / per_node
    assert two.inside.messages + two.across.messages <= flat.messages
