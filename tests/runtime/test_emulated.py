"""Emulated all-to-alls: over for every rank when the last of them says so."""

from types import SimpleNamespace

import torch

from hybridlab.runtime.emulated import _Exchanged, _Lasting

AHEAD = 2.0  # seconds that the others' clock is ahead of this rank's


def exchanged(*until):
    """An all-to-all that has brought what each rank said, on the clock that all share."""
    arrived = torch.tensor(until, dtype=torch.float64)
    return _Exchanged(SimpleNamespace(wait=lambda: arrived, when_over=lambda note, clock: note(5)), AHEAD)


def test_it_is_over_with_the_last_of_its_ranks_by_this_ranks_clock():
    noted = []
    exchanged(7.0, 9.0, 8.0).when_over(noted.append, clock=None)
    assert noted == [7_000_000_000]


def test_and_not_before_its_message_has_arrived():
    noted = []
    exchanged(1.0, 2.0).when_over(noted.append, clock=None)
    assert noted == [5]


def test_a_message_that_lasts_is_waited_for_even_if_its_time_is_over():
    waited = []
    _Lasting(SimpleNamespace(wait=lambda: waited.append("message")), until=0.0).wait()
    assert waited == ["message"]
