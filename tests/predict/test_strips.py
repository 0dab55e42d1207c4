"""Convolutions predicted: which split sends least, and the time of strips, against closed forms."""

import math
import sys
import time
from functools import partial
from types import SimpleNamespace

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.core.what.catalog import machine
from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring import strip_layers
from hybridlab.measuring.strip_layers import Emulated, StripLayer
from hybridlab.modes.parts import halos
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.bytes.convolution import Conv, Here, fits, ranked, sent, sent_in_all
from hybridlab.predict.time.overlap import length
from hybridlab.predict.time.strips import (
    Speed,
    Strip,
    gains,
    interior,
    least_rows,
    played,
    row_seconds,
    speed,
    step,
    steps,
    strip,
)
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk import ahead

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SPEED = Speed(rate=1e9, link=Link(1e-5, 1e-9))
convs = st.builds(
    Conv,
    samples=st.integers(1, 4),
    channels=st.integers(1, 9),
    filters=st.integers(1, 9),
    rows=st.integers(6, 20),
    columns=st.integers(6, 12),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
).filter(lambda conv: conv.sight.outputs(conv.rows) and conv.sight.outputs(conv.columns))


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.sampled_from((1, 2)))
@settings(max_examples=60)
def test_equal_channels_and_filters_send_what_the_closed_form_says(samples, c, f, stride):
    conv = Conv(samples, 12, 24, rows=8, columns=6, stride=stride)
    conv = conv._replace(channels=c * f * 2, filters=c * f * 3)
    inputs, outputs = conv.numbers("X") / (c * f), conv.numbers("Y") / (c * f)  # what a rank has
    for rank in range(c * f):
        assert sent(conv, Mesh(c=c, f=f), rank)["channels"] == ((f - 1) * inputs + (c - 1) * outputs,) * 2


@pytest.mark.parametrize("strips, kernel", [(2, 3), (4, 3), (3, 5), (4, 1)])
def test_strips_send_the_textbooks_halo(strips, kernel):
    conv = Conv(2, 3, 4, rows=24, columns=10, kernel=kernel, padding=kernel // 2)
    both = [sent(conv, Mesh(h=strips), rank)["halo"] for rank in range(strips)]
    assert {sum(one) for one in zip(*both)} == {2 * (strips - 1) * (kernel // 2) * 2 * 3 * 10}


@pytest.mark.slow
@given(convs, st.sampled_from((Mesh(h=3), Mesh(w=2), Mesh(h=2, w=2), Mesh(dp=2, h=2), Mesh(h=2, c=2, f=2))))
@settings(max_examples=100)
def test_gradients_of_halos_go_home_all_of_them(conv, mesh):
    there, back = zip(*(sent(conv, mesh, rank)["halo"] for rank in range(mesh.size)))
    assert sum(there) == sum(back)


def test_a_kernel_of_two_looks_one_way_and_its_gradients_go_the_other():
    conv = Conv(1, 1, 1, 8, 4, kernel=2, padding=0)
    assert [sent(conv, Mesh(h=2), rank)["halo"] for rank in (0, 1)] == [(0, 4), (4, 0)]


def test_uneven_parts_travel_as_long_as_the_longest():
    conv = Conv(1, 5, 7, 2, 2)
    assert {sent(conv, Mesh(f=2), rank)["channels"].forward for rank in (0, 1)} == {3 * 4}
    assert {sent(conv, Mesh(c=3), rank)["channels"].forward for rank in (0, 1, 2)} == {2 * 3 * 4}


def test_the_rank_that_sends_most_counts():
    conv = Conv(1, 3, 4, rows=12, columns=10)
    ends, middle = (sum(map(sum, sent(conv, Mesh(h=3), rank).values())) for rank in (0, 1))
    assert sent_in_all(conv, Mesh(h=3)) == middle == ends + 2 * 3 * 10


def test_ranks_that_hold_one_block_add_its_gradients():
    conv = Conv(4, 8, 8, 8, 8)
    for mesh, copies, block in (
        (Mesh(dp=4), 4, 8 * 8),
        (Mesh(dp=2, c=2, f=2), 2, 4 * 4),
        (Mesh(h=2, w=2, c=2), 4, 4 * 8),
    ):
        bias = 8 // mesh["c"] // mesh["f"]
        assert sent(conv, mesh, 0)["weights"] == (0, 2 * (copies - 1) / copies * (block * 9 + bias))


def test_of_four_ranks_w_stays_where_x_is_as_large_as_y_and_x_from_a_quarter_on():
    """With 4 ranks: X stays sends 3/4 of Y, W stays a quarter of X and of Y; they meet at Y = X/2."""
    of = lambda filters: [mesh for _, mesh in ranked(Conv(1, 16, filters, 8, 8), 4)]
    assert of(16)[0] == Mesh(c=2, f=2) and of(4)[0] == Mesh(c=4) and of(64)[0] == Mesh(f=4)
    least, *others = [much for much, _ in ranked(Conv(1, 16, 8, 8, 8), 4)]
    assert least == others[0] < others[1]


def test_every_grid_is_ranked_once_and_none_that_does_not_fit():
    conv = Conv(2, 64, 64, 8, 8)
    found = ranked(conv, 8, ("dp", "h", "c", "f"))
    meshes = [mesh for _, mesh in found]
    assert len(set(meshes)) == len(meshes) == 20 - 4, "eight ranks in four axes, and dp of at most two: not 4 and not 8"
    assert all(mesh.size == 8 and fits(conv, mesh) for mesh in meshes)
    assert [much for much, _ in found] == sorted(sent_in_all(conv, mesh) for mesh in meshes)
    with pytest.raises(ValueError, match="7 ranks cannot divide Conv"):
        ranked(conv._replace(channels=2, filters=2), 7)


def test_what_is_convolved_on_all_ranks_is_what_is_gathered_and_summed():
    conv = Conv(2, 8, 8, 8, 8)
    whole = {name: conv.numbers(name) for name in "XWY"}
    for mesh, times in (
        (Mesh(c=4), (1, 1, 4)),
        (Mesh(f=4), (4, 1, 1)),
        (Mesh(c=2, f=2), (2, 1, 2)),
        (Mesh(h=4), (1, 4, 1)),
    ):
        held = [Here(conv, mesh, rank).held() for rank in range(4)]
        assert [sum(one[name] for one in held) / whole[name] for name in "XWY"] == list(times), mesh


# --- seconds ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(convs, st.integers(1, 5))
@settings(max_examples=100)
def test_interiors_and_borders_are_all_rows_once(conv, strips):
    outputs = conv.sight.outputs(conv.rows)
    parts = [strip(conv, strips, here, SPEED) for here in range(strips)]
    for one in parts:
        assert math.isclose(one.interior + one.border, one.whole, abs_tol=1e-15)
    assert math.isclose(sum(one.whole for one in parts), outputs * row_seconds(conv, SPEED))
    for here, (low, high) in enumerate(even(conv.rows, strips)):
        begin, end = interior(conv, strips, here)
        first, last = conv.sight.seen((begin, end))
        assert begin == end or (max(first, 0) >= low and min(last, conv.rows) <= high)


@pytest.mark.slow
@given(*[st.builds(Strip, *[st.floats(0, 9)] * 4)] * 2)
@settings(max_examples=100)
def test_the_longer_of_interior_and_halo_counts_then_the_border(forward, backward):
    forward, backward = (one._replace(whole=one.interior + one.border) for one in (forward, backward))
    plain, under = (length(played(forward, backward, overlapped)) for overlapped in (False, True))
    wants = sum(max(one.interior, one.halo) + one.border for one in (forward, backward))
    assert math.isclose(under, wants, abs_tol=1e-12)
    assert math.isclose(plain, sum(one.whole + one.halo for one in (forward, backward)), abs_tol=1e-12)


def test_without_a_halo_every_strip_adds_a_whole_device():
    conv = Conv(1, 64, 64, 840, 840, kernel=1, padding=0)
    every = steps(conv, machine("h100"), 8)
    assert gains(every) == pytest.approx([1.0] * 7)
    assert [one.strips for one in every] == list(range(1, 9))


def test_as_many_rows_as_are_said_hide_the_halo_and_one_less_does_not():
    for conv in (Conv(1, 64, 64, 960, 960), Conv(8, 16, 32, 960, 300, kernel=5, padding=2)):
        for its in (SPEED, speed(machine("h100"), 64), speed(machine("a100"), 8, share=0.5, begin=1e-6)):
            least = least_rows(conv, its)
            for rows, hides in ((math.ceil(least), True), (math.ceil(least) - 1, False)):
                one = strip(conv._replace(rows=3 * rows), 3, 1, its._replace(memory=float("inf")))
                each = row_seconds(conv, its) / row_seconds(conv, its._replace(memory=float("inf")))
                work = (one.interior - its.begin) * each + its.begin if one.interior else 0.0
                assert (work >= one.halo) is hides


def test_one_row_more_is_one_strip_less_busy():
    """Seven rows: the longest of 4, 5 and 6 strips has two of them, so the fifth and the sixth add nothing."""
    every = steps(Conv(64, 512, 512, 7, 7, kernel=1, padding=0), machine("h100"), 9)
    assert len(every) == 7
    assert gains(every) == pytest.approx([0.75, 7 / 3 - 1.75, 3.5 - 7 / 3, 0, 0, 3.5])


def test_to_begin_a_convolution_costs_an_overlapped_strip_three_times():
    conv, begin = Conv(1, 64, 64, 960, 960), 1e-3
    plain, under = (step(conv, 3, SPEED._replace(begin=begin), over).layer for over in (False, True))
    without = [step(conv, 3, SPEED, over).layer for over in (False, True)]
    assert plain - without[0] == pytest.approx(3 * begin)
    assert under - without[1] == pytest.approx(9 * begin)


def test_the_network_begins_where_the_node_ends():
    its = [speed(machine("h100"), strips) for strips in (8, 9)]
    assert [one.link.beta for one in its] == [1 / machine("h100").inside, 1 / machine("h100").across]
    conv = Conv(1, 64, 64, 2048, 2048)
    plain = gains(steps(conv, machine("h100"), 9, overlapped=False))
    assert plain[-1] < 0 < min(plain[:-1]), "the ninth strip, not overlapped, makes the layer slower"


def test_the_sum_of_dw_is_that_of_all_strips():
    conv, its = Conv(1, 64, 64, 64, 64), SPEED
    assert step(conv, 1, its).sums == 0
    ring, tree = (its.link.seconds("all_reduce", 8, 64 * 64 * 9 * 2, way) for way in ("ring", "tree"))
    assert step(conv, 8, its).sums == min(ring, tree)


# --- on real ranks ------------------------------------------------------------------------------------------------


def rounds(comm, at_once: bool):
    """({form: its shortest round}, {form: its prediction}) of a convolution that takes time and does nothing else."""
    if at_once:
        waited = lambda *about, **spans: Done(ahead.window(*about, **spans).wait())
        strip_layers.looked = partial(halos.looked, bring=waited)
    layer = StripLayer(comm, Conv(1, 2, 1, rows=24, columns=8), Emulated(row=2e-3, message=16e-3))
    return {form: min(taken) for form, taken in layer.rounds(3).items()}, layer.foreseen()


@pytest.mark.slow
def test_emulated_links_bring_messages_one_after_another_and_leave_the_communicator_alone():
    there, began = SimpleNamespace(wait=lambda: "halo"), time.perf_counter()
    comm = SimpleNamespace(irecv=lambda x, source, tag=0: there)
    door = strip_layers.slow(comm, 0.01)
    coming = [door.irecv(None, source=1) for _ in range(3)]
    assert [one.wait() for one in reversed(coming)] == ["halo"] * 3 and time.perf_counter() - began >= 0.03
    assert comm.irecv(None, source=1) is there


class Done:
    """A halo that is here."""

    def __init__(self, x):
        self.x = x

    def wait(self):
        return self.x


@pytest.mark.long
@pytest.mark.ranks
def test_strips_take_as_long_as_is_foretold_and_hide_their_halos():
    with ranks(Mesh(h=2)) as pool:
        taken, foreseen = pool.run(rounds, False)[0]
        late, _ = pool.run(rounds, True)[0]
    assert foreseen == pytest.approx(
        {"one device": 0.144, "plain": 0.072 + 0.032, "overlapped": 0.022 + 0.002 + 0.044 + 0.004}
    )
    for form, seconds in taken.items():
        assert foreseen[form] <= seconds < foreseen[form] + 0.02, form
    assert late["overlapped"] > foreseen["plain"] - 0.001, "who waits at once hides nothing"
