"""The interpreter of twenty lines plays every schedule of full backwards as one device does."""

import pytest
from few import one_in

import hybridlab as hl
from hybridlab.labs.engine import reference
from hybridlab.scheduling.registry import schedules

PLAYED = {"F", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B"}


def lowered(name: str):
    """A schedule of eight microbatches on four ranks with messages; None if its stages are no chain, have copies, or
    do other actions."""
    try:
        found = hl.lower(hl.schedule(name, ranks=4, microbatches=8))
    except ValueError:
        return None
    kinds = {action.kind for program in found.program for action in program}
    copies = {replica for _, replica in found.place}
    chain = {stage: (stage, stage + 1) for stage in range(found.stages - 1)}
    return found if kinds <= PLAYED and len(copies) == 1 and found.inside == chain else None


NAMES = [name for name in schedules() if lowered(name)]


def test_it_plays_the_schedules_of_the_first_notebooks():
    assert {"naive", "gpipe", "1f1b", "interleaved", "looped_bfs"} <= set(NAMES)


@pytest.mark.ranks
@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_its_gradients_are_those_of_one_device(name):
    found = lowered(name)
    with hl.ranks(4) as pool:
        assert max(pool.run(reference.difference, found, 8)) < 1e-6, "sums of eight microbatches in another order"
