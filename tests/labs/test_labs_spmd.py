"""A pipeline as one program: equal to one device if garbage is masked, and as long as the list of looped_bfs."""

import pytest

import hybridlab as hl
from hybridlab.labs.interleaved.one_program import ROWS, WIDTH, spmd

CASES = [(2, 1, 3), (2, 2, 2), (3, 2, 4)]


@pytest.mark.ranks
@pytest.mark.parametrize("p, v, m", CASES)
def test_one_program_for_all_ranks_is_equal_to_one_device(p, v, m):
    gap, home = spmd(p, v, m)
    assert gap < 1e-12
    assert {did.turns for did in home} == {v * m + p - 1} and {did.garbage for did in home} == {p - 1}
    assert {did.bytes for did in home} == {2 * (v * m + p - 1) * ROWS * WIDTH * 8}, "each turn sends, also garbage"


@pytest.mark.ranks
def test_garbage_that_is_not_masked_is_noticed():
    """With one chunk: with more, the garbage of the last rank is in chunk 0, whose results are no outputs."""
    gap, _ = spmd(2, 1, 3, masked=False)
    assert gap > 1e-3


@pytest.mark.parametrize("p, v, m", [*CASES, (4, 2, 8), (8, 3, 8)])
def test_turns_with_garbage_are_the_idle_time_of_the_list(p, v, m):
    idle = hl.simulate(hl.schedule("looped_bfs", ranks=p, microbatches=m, chunks=v)).bubble_fraction
    assert idle == pytest.approx((p - 1) / (v * m + p - 1))


def test_fewer_microbatches_than_ranks_are_refused():
    with pytest.raises(ValueError, match="2 microbatches on 3 ranks, the first microbatch returns .*: give 3 micro"):
        spmd(3, 2, 2)
