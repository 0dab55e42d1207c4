"""Messages under products, predicted: laws that hold whatever the times are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlab.predict.time.overlap import Layer, chain, exposed, length, panels

seconds = st.floats(0, 10).map(lambda x: round(x, 3))
layers = st.lists(st.builds(Layer, *[seconds] * 7), min_size=1, max_size=5)
COMPUTE, SENT = slice(0, 3), slice(3, 7)


def close(one, other):
    return abs(one - other) < 1e-6


@pytest.mark.slow
@given(layers)
def test_a_plain_chain_is_the_sum_of_all_that_it_does(given):
    assert close(length(chain(given, overlapped=False)), sum(map(sum, given)))


@pytest.mark.slow
@given(layers)
def test_overlapped_is_never_longer_than_plain_and_never_shorter_than_a_track(given):
    found = chain(given, overlapped=True)
    computing, sending = (sum(sum(one[part]) for one in given) for part in (COMPUTE, SENT))
    assert max(computing, sending) - 1e-6 <= length(found) <= length(chain(given, overlapped=False)) + 1e-6


@pytest.mark.slow
@given(layers)
def test_what_does_not_send_takes_its_products_alone(given):
    silent = [one._replace(gather=0.0, sum_y=0.0, sum_x=0.0, scatter=0.0) for one in given]
    for overlapped in (False, True):
        found = chain(silent, overlapped)
        assert close(length(found), sum(map(sum, silent))) and close(exposed(found), 0.0)


@pytest.mark.slow
@given(layers, st.booleans())
def test_on_a_track_one_thing_follows_the_other_and_nothing_is_lost(given, overlapped):
    found = chain(given, overlapped)
    for mine in ([one for one in found if (one.track == "compute") == computes] for computes in (True, False)):
        assert all(one.end <= other.begin + 1e-9 for one, other in zip(mine, mine[1:]))
    assert close(sum(one.end - one.begin for one in found), sum(map(sum, given)))


def test_short_sums_hide_behind_the_weights_gradient_and_long_ones_show_the_rest():
    one = Layer(forward=2.0, by_x=2.0, by_w=2.0)
    for took, shown in ((1.0, 0.0), (2.0, 0.0), (3.0, 1.0)):
        assert close(exposed(chain([one._replace(sum_x=took)], overlapped=True)), shown)
        assert close(exposed(chain([one._replace(sum_x=took)], overlapped=False)), took)


def test_the_first_gather_and_the_last_scatter_have_nothing_to_hide_behind():
    one = Layer(forward=2.0, by_x=2.0, by_w=2.0, gather=1.0, scatter=1.0)
    for number in (1, 2, 5):
        assert close(exposed(chain([one] * number, overlapped=True)), 2.0)


@pytest.mark.slow
@given(st.integers(1, 8), seconds, seconds)
def test_panels_ahead_hide_all_but_the_ends(number, product, move):
    plain, ahead = (length(panels(number, product, move, ahead)) for ahead in (False, True))
    assert close(plain, number * (3 * product + 2 * move))
    hidden = (number - 1) * (min(product, move) + min(2 * product, move))
    assert close(ahead, plain - hidden)


def test_a_fold_begins_when_the_one_before_has_left_and_its_matmul_is_done():
    begin = {piece.name: piece.begin for piece in panels(3, product=1, move=5, ahead=True)}
    assert [begin[f"dA, dB {number}"] for number in (2, 1, 0)] == [16, 18, 23]
    assert [begin[f"fold {number}"] for number in (2, 1, 0)] == [18, 23, 28]
