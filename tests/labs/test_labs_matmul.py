"""Notebook 31: pictures and tables say what the package computes, and every word is counted on real ranks."""

import pytest

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.matmul import grids, on_ranks, pictures
from hybridlab.labs.matmul.tasks import least
from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.matmul import moved
from hybridlab.predict.bytes.matmul_by_rank import sent


def test_homes_ask_before_they_tell():
    asked, told = (pictures.homes(numbers)._repr_mimebundle_()["text/plain"] for numbers in (False, True))
    assert "sends" not in asked and told.count("sends") == 3
    assert pictures.home_still("3D 8×1×1").summary.endswith(
        f"sends {sent('3d', (16,) * 3, (8, 1, 1), (0, 0, 0))[0]} words"
    )


def test_lines_end_where_the_formulas_end():
    side = 1 << 16
    assert f"1D: {4095 / 4096:.3g} on 4096" in pictures.falling().summary
    assert f"2D: {moved('summa', (side,) * 3, (64, 64, 1)).sent / side**2:.3g} on 4096" in pictures.falling().summary
    assert f"3D: {3 * 15 / 16 / 256:.3g} on 4096" in pictures.falling().summary


# --- tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [16, 64, 256, 1024])
def test_one_dimension_over_two_is_half_of_one_more_than_the_root(ranks):
    one, two = grids.ways(4096, ranks)[:2]
    assert one.sent / two.sent == pytest.approx((ranks**0.5 + 1) / 2)


def test_three_dimensions_send_least_and_hold_more_than_two():
    one, two, three = (way for way in grids.ways(4096, 64) if way.name != "2.5D")
    assert one.sent > two.sent > three.sent and two.held < three.held < one.held


def test_a_table_shows_the_ways_that_are_asked_for():
    shown = grids.compared(4096, 64, ["1D", "3D"])
    assert [row[0] for row in shown.rows] == ["1D", "3D"] and "2.5D" not in shown._repr_html_()
    assert "<td>a &lt; b</td>" in Table(("x",), (("a < b",),))._repr_html_()


def test_the_bound_says_nothing_of_few_ranks_and_comes_closer_with_many():
    rows = grids.bounds(65536, (256, 4096, 65536)).rows
    assert rows[0][2] == "says nothing"
    assert int(rows[1][3].split()[0]) > int(rows[2][3].split()[0]) > 19


def test_the_best_grids_of_the_exercise_cut_the_long_side():
    assert least((65536, 1024, 1024))[1] == ((8, 1, 1),) and least((1024, 65536, 1024))[1] == ((1, 1, 8),)
    assert least((256, 1024, 1024))[1] == ((1, 2, 4), (1, 4, 2))


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.mark.ranks
def test_a_table_of_words_says_whether_ranks_are_equal_to_one_device(bench):
    told = on_ranks.counted(bench.pool(Mesh(i=2, j=2, l=1)), "summa", (7, 5, 3))
    assert told.note == "C, dA and dB are those of one device." and len(told.rows) == 4
    for row in told.rows:
        for cell in row[1:]:
            counted, foreseen = cell.split(" / ")
            assert counted == foreseen


@pytest.mark.ranks
def test_panels_are_kept_or_sent_twice(bench):
    kept, again = on_ranks.kept(bench.pool(Mesh(i=2, j=2, l=1)), "summa", (24, 36, 48)).rows
    assert kept[1:] == ("1,296", "648", "648") and again[1:] == ("0", "648", "1,296")


def test_the_room_is_found_from_its_name():
    from hybridlab.labs import matmul

    assert matmul.counted is on_ranks.counted and hl.Mesh is Mesh
