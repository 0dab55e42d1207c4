"""Notebook 34: tables and pictures say what the package computes; what is timed is what a strip really does."""

import re

import pytest

from hybridlab.core.what.catalog import machine
from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.spans import Sight, overlap, wanted
from hybridlab.labs.convolution import on_ranks, pictures, sizes
from hybridlab.labs.convolution.build_tasks import HALOS, LAYERS, SPLITS
from hybridlab.labs.convolution.on_ranks import FORMS, PLACE
from hybridlab.labs.convolution.tasks import best, lacks, words
from hybridlab.predict.bytes.convolution import Conv, sent_in_all
from hybridlab.predict.time.overlap import length
from hybridlab.predict.time.strips import steps
from hybridlab.show.paper.style import STYLE

THIN = Conv(1, 1, 1, 24, 8, kernel=5, padding=2)  # of the notebook's timed step
THINNER = Conv(1, 1, 1, 16, 8, kernel=7, padding=3)  # of whose four strips none has an interior


# --- tables -------------------------------------------------------------------------------------------------------


def test_vgg_16_has_its_thirteen_convolutions_and_their_weights():
    """Simonyan and Zisserman 2014, table 1, configuration D; 14.7 million weights without biases and dense layers."""
    every = sum(sizes.convolutions(224), [])
    assert len(every) == 13 and sum(conv.numbers("W") for conv in every) == 14_710_464
    assert [block[0].rows for block in sizes.convolutions(224)] == [224, 112, 56, 28, 14]


def test_one_picture_overfills_a_device_and_the_weights_do_not():
    *blocks, whole, small, large = sizes.memory().rows
    outputs = [float(row[3]) for row in blocks]
    assert float(whole[3]) == pytest.approx(sum(outputs), abs=0.2) and outputs == sorted(outputs, reverse=True)
    assert outputs[0] > float(small[3]) == machine("v100").memory / 1e9 and float(large[3]) == 80
    assert float(whole[4]) < float(whole[3])  # MB of weights, GB of outputs: a thousandth


def test_words_of_a_strip_do_not_fall_with_the_ranks():
    rows = sizes.shapes().rows
    assert len({row[1] for row in rows}) == 1 and rows[-1][5] == "3.97"
    side, channels = sizes.PICTURE.rows // 8, sizes.PICTURE.channels
    assert sizes.halos(sizes.PICTURE, Mesh(h=8, w=8))[0] == channels * (2 * side + 2 * (side + 2))


def test_every_way_is_best_for_one_layer_and_the_words_are_those_of_the_formula():
    assert set(best()) == {"strips", *sizes.FORMS}
    for conv in sizes.LAYERS.values():
        for name, mesh in (sizes.FORMS | {"strips": Mesh(h=4)}).items():
            if name in words(conv):
                assert words(conv)[name] == sent_in_all(conv, mesh)


def test_branches_help_a_single_microbatch_and_copies_help_several():
    one, three, twelve = sizes.ways((1, 3, 2), stem=1, join=1).rows
    assert one[1:] == ("24", "15", "24", "cannot")
    for _, alone, graph, _, copies in (three, twelve):
        assert float(copies) < float(graph) < float(alone)


# --- pictures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", (3, 5, 7))
@pytest.mark.parametrize("stride", (1, 2, 3))
def test_the_picture_of_strips_has_as_many_rows_as_each_strip_sees(kernel, stride):
    svg, sight = pictures.spans_still(kernel, stride).svg, Sight(kernel, stride, kernel // 2, kernel // 2)
    have = even(16, 4)
    made, want = wanted(have, sight)
    comes = sum(high - low - (mine[1] - mine[0]) for low, high, mine in (
        (*wants, overlap(has, wants)) for has, wants in zip(have, want)
    ))  # fmt: skip
    drawn = lambda fill: len(re.findall(rf'fill="{fill}"/>', svg)) - 1  # one is the legend's
    assert drawn(STYLE["kinds"]["message"]["fill"]) == comes
    assert drawn(pictures.MADE) == made[-1][1]
    right = max(
        float(x) + float(wide) for x, wide in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    )
    assert right < pictures.WIDE


@pytest.mark.slow
def test_a_late_layer_gains_nothing_from_a_ninth_strip():
    early, late = pictures.NETS
    assert pictures.more_still(early, "h100").summary.endswith("+0.7")
    gain = float(pictures.more_still(late, "h100").summary.split()[-1])
    assert gain < 0 and len(steps(pictures.NETS[late], machine("h100"), pictures.STRIPS)) == pictures.STRIPS


# --- exercises ----------------------------------------------------------------------------------------------------


def test_a_stride_takes_from_below():
    assert (lacks(1), lacks(2)) == ((2, 2), (2, 1))


def test_the_cases_hold_what_their_remarks_say():
    *_, beyond, empty, alone = HALOS
    made, want = wanted(beyond.have, beyond.conv.sight)
    assert overlap(beyond.have[0], want[2])[1] > want[2][0], "strip 2 wants a row of strip 0"
    assert empty.have[1][0] == empty.have[1][1] and alone.ranks.size == 1
    last = LAYERS[2]
    sees = [last.conv.sight.seen(one) for one in wanted(last.have, last.conv.sight)[0]]
    assert sum(high > last.conv.rows for _, high in sees) == 2
    assert {(one.c > 1, one.f > 1) for one in SPLITS} == {(True, True), (True, False), (False, True)}


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.mark.ranks
@pytest.mark.parametrize("mesh", [Mesh(h=4), Mesh(h=2, w=2)], ids=str)
def test_words_of_halos_are_counted_as_predicted(bench, mesh):
    told = on_ranks.counted(bench.pool(mesh), Conv(2, 3, 4, 12, 10, kernel=3, stride=2))
    assert told.note == "Y and dX are those of one device."
    for cell in (cell for row in told.rows for cell in row[1:]):
        counted, foreseen = cell.split(" / ")
        assert counted == foreseen


@pytest.mark.ranks
def test_statistics_of_strips_make_all_strips_the_same(bench):
    one, other, first, second, whole = (row[1:] for row in on_ranks.statistics(bench.pool(Mesh(h=2))).rows)
    assert one[1:] == other[1:] and one[0] != other[0]
    assert first[:2] == second[:2] == whole[:2]
    assert (first[2], second[3]) == whole[2:]


@pytest.mark.ranks
@pytest.mark.parametrize("strips, conv, interior", [(2, THIN, True), (4, THIN, True), (4, THINNER, False)])
def test_what_is_timed_is_what_a_strip_does(bench, strips, conv, interior):
    timed = on_ranks.timed(bench.pool(Mesh(h=strips)), conv, row=0.001, link=0.004, times=2)
    assert list(timed.measured) == list(timed.predicted) == list(FORMS)
    for form, pieces in timed.measured.items():
        assert {(one.track, one.name) for one in pieces} == {(one.track, one.name) for one in timed.predicted[form]}
        assert length(pieces) > 0.99 * length(timed.predicted[form])
    begin = {one.name: one.begin for one in timed.measured["overlapped"]}
    assert ("interior" in begin) == interior
    if interior:
        assert begin["halo"] < begin["interior"] < begin["border"] < begin["back: border"] < begin["fold"]
        assert begin["fold"] < begin["back: interior"]
    assert sum(one.name == "halo" for one in timed.measured["plain"]) == (2 if 0 < PLACE < strips - 1 else 1)
    told = pictures.step(timed).summary.splitlines()
    assert [line.split(":")[0] for line in told] == [
        f"{form}, {kind}" for form in FORMS for kind in ("predicted", "measured")
    ]


def test_the_room_is_found_from_its_name():
    from hybridlab.labs import convolution

    assert convolution.counted is on_ranks.counted and convolution.memory is sizes.memory
