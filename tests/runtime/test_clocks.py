"""A measured timeline, from what the ranks noted: when messages began and ended, and where a step starts."""

import numpy as np
import pytest
import torch

import hybridlab as hl
from hybridlab.runtime.clocks import measured

PAIR = hl.Schedule.from_csv("0F0,0SEND_F0\n1RECV_F0,1F0")
POSTED = [[0, 0, 100, 100], [110, 114, 0, 0]]  # rank 0: a forward, then its message; (ready, begin, end, looked), in µs


def seen(receiver, latency=5e-6, **more):
    """The timeline of one step, and its message's (begin, end) in µs after the first forward's begin."""
    times = [[torch.tensor(rows) * 1000 + 7_000_000] for rows in (POSTED, receiver)]
    timeline = measured(PAIR, times, {"latency": latency} | more)
    (message,) = (span for span in timeline.spans if str(span.action) == "1RECV_F0")
    return timeline, tuple(round(1e6 * x, 3) for x in (message.begin, message.end))


def test_a_message_that_was_waited_for_ends_when_its_receiver_has_it():
    _, message = seen([[20, 22, 150, 40], [150, 150, 250, 250]])
    assert message == (110, 150)


def test_one_that_was_there_before_its_receiver_looked_took_the_calibrated_latency():
    came_unseen = [[20, 22, 302, 300], [302, 302, 400, 400]]  # looked at 300, had it at 302: it had been there
    assert seen(came_unseen)[1] == (110, 115)
    assert seen(came_unseen, latency=80e-6)[1] == (110, 190)


@pytest.mark.parametrize("looked, end", [(300, 111), (110, 112)])
def test_a_moment_after_a_late_look_is_no_transfer(looked, end):
    """2 µs are more than the latency of 1 µs; they mean something only if the message has not long been under way."""
    _, message = seen([[20, 22, looked + 2, looked], [302, 302, 400, 400]], latency=1e-6)
    assert message == (110, end)
    slow = [[20, 22, 302, 302 - 20], [302, 302, 400, 400]]  # waited for 20 of 192 µs: that is its end
    assert seen(slow, latency=1e-6)[1] == (110, 302)


def test_a_late_receive_is_known_to_its_sender_after_the_handshake_of_its_edge():
    _, message = seen([[130, 131, 200, 135], [200, 200, 300, 300]], handshake=[25e-6, 0])
    assert message == (155, 200)
    came_unseen = [[20, 22, 302, 300], [302, 302, 400, 400]]
    assert seen(came_unseen, latency=[5e-6, 0], bytes=[30.0, 0], bandwidth=[1e6, 1])[1] == (110, 145)


def test_a_message_begins_when_both_sides_have_come_to_post_it():
    _, message = seen([[130, 131, 200, 135], [200, 200, 300, 300]])
    assert message == (130, 200)


def test_ends_that_the_device_saw_are_true_and_give_the_latency():
    timeline, message = seen([[20, 22, 140, 300], [300, 300, 400, 400]], seen=True)
    assert message == (110, 140) and timeline.origin["latency"] == pytest.approx([30e-6, 0])


def test_posting_is_the_mean_of_both_sides_and_a_step_starts_with_its_first_action():
    timeline, _ = seen([[20, 22, 150, 40], [150, 150, 250, 250]])
    assert timeline.origin["post"] == pytest.approx(3e-6)  # 4 of the sender, 2 of the receiver
    assert timeline.length == pytest.approx(250e-6) and np.min(timeline.begin) == 0
    assert timeline.unit == "s" and timeline.origin["kind"] == "measured"
