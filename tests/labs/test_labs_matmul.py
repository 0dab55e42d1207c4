"""Notebook 31: the pictures' messages are those that real ranks send, tables say what the package computes."""

import re
from xml.etree import ElementTree

import pytest

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.matmul import grids, moves, on_ranks, pictures
from hybridlab.labs.matmul.moves import ahead, moments
from hybridlab.labs.matmul.tasks import least
from hybridlab.labs.trials.against import WORD
from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.matmul import moved
from hybridlab.predict.bytes.matmul_by_rank import sent

CASES = [
    ("summa", (6, 6, 6), (3, 3)),
    ("summa", (7, 11, 5), (2, 3)),
    ("cannon", (6, 6, 6), (3, 3)),
    ("cannon", (7, 11, 5), (2, 2)),
    ("cannon", (8, 9, 10), (4, 4)),
]
every_case = pytest.mark.parametrize("algorithm, sizes, grid", CASES)


# --- the spans of every step --------------------------------------------------------------------------------------


@every_case
def test_each_rank_sends_in_the_picture_what_is_foretold(algorithm, sizes, grid):
    every = moments(algorithm, sizes, grid)
    for rank in range(grid[0] * grid[1]):
        drawn = sum(one.words for moment in every for one in moment.sends if one.source == rank)
        assert drawn == sent(algorithm, sizes, (*grid, 1), (*divmod(rank, grid[1]), 0)).forward, rank


@every_case
def test_each_pair_fits_and_every_part_of_k_is_summed_once(algorithm, sizes, grid):
    every = moments(algorithm, sizes, grid)
    assert all(moment.a == moment.b for moment in every[1:])
    for done in every[-1].done:
        assert sorted(number for span in done for number in range(*span)) == list(range(sizes[1]))


def test_under_way_are_the_messages_of_the_next_product():
    plain = moments("summa", (6, 7, 5), (2, 3))
    early = ahead(plain)
    assert [one.sends for one in early[1:]] == [*(one.sends for one in plain[1:]), ()]
    assert [one.done for one in early[2:]] == [one.done for one in plain[1:]] and early[1].done == plain[0].done
    told = [pictures.step_still("summa", early, number, (2, 3), (6, 7, 5)).summary for number in range(len(early))]
    assert ["under way for" in one for one in told] == [False, True, True, True, False]
    assert ["all multiply" in one for one in told] == [False, False, True, True, True]


def test_in_cannons_product_no_block_is_on_two_ranks_of_a_row():
    for moment in moments("cannon", (6, 6, 6), (3, 3)):
        assert all(len(set(moment.a[row : row + 3])) == 3 for row in (0, 3, 6))
        assert all(len(set(moment.b[column::3])) == 3 for column in range(3))


@pytest.mark.parametrize("algorithm, grid, told", [("cannon", (2, 3), "square grid"), ("strassen", (2, 2), "choose")])
def test_what_there_is_no_picture_of_is_told(algorithm, grid, told):
    with pytest.raises(ValueError, match=told):
        moments(algorithm, (6, 6, 6), grid)


# --- pictures -----------------------------------------------------------------------------------------------------


@every_case
def test_a_step_has_an_arrow_for_every_message_and_stays_on_its_sheet(algorithm, sizes, grid):
    every = moments(algorithm, sizes, grid)
    for number, moment in enumerate(every):
        still = pictures.step_still(algorithm, every, number, grid, sizes)
        root = ElementTree.fromstring(still.svg)
        paths = [one for one in root.iter("{http://www.w3.org/2000/svg}path") if one.get("stroke") == pictures.GREEN]
        assert len(paths) == 2 * len(moment.sends), "each has a line and a head"
        wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', still.svg).groups())
        for path in paths[::2]:
            across = [float(x) for x in re.findall(r"H([\d.]+)", path.get("d"))]
            down = [float(y) for y in re.findall(r"V([\d.]+)", path.get("d"))]
            assert max(across) < wide and max(down) < tall and min(down) > 34, "it would run into the title"


def test_a_block_of_c_fills_up_step_by_step():
    every = moments("summa", (6, 6, 6), (2, 2))
    stripes = [pictures.step_still("summa", every, number, (2, 2), (6, 6, 6)) for number in range(len(every))]
    boxes = [still.svg.count(f'stroke="{pictures.PAPER}"') for still in stripes]
    assert [after - before for before, after in zip(boxes, boxes[1:])] == [4, 4]
    assert stripes[-1].summary.endswith("6 of 6 are done")


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


def by_target(comm, algorithm, sizes):
    """Words that this rank has sent to each other rank."""
    on_ranks._multiplied(comm, algorithm, sizes)
    found = {}
    for row in comm.ledger.rows():
        if row["op"] == "isend":
            found[row["peer"]] = found.get(row["peer"], 0) + row["bytes"] // WORD
    return found


@pytest.mark.ranks
@pytest.mark.parametrize("algorithm", moves.ALGORITHMS)
def test_ranks_send_to_whom_the_picture_says(bench, algorithm):
    """Forward and backward together: what rank r sends to s, and what s sends back, are the same pairs."""
    sizes, grid = (6, 8, 10), (2, 2)
    homes = bench.pool(Mesh(i=2, j=2, l=1)).run(by_target, algorithm, sizes)
    drawn = {}
    for moment in moments(algorithm, sizes, grid):
        for one in moment.sends:  # there, and its gradient back
            for pair in ((one.source, one.target), (one.target, one.source)):
                drawn[pair] = drawn.get(pair, 0) + one.words
    assert {(rank, peer): words for rank, home in enumerate(homes) for peer, words in home.items()} == drawn


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
