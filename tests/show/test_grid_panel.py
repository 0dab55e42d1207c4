"""A matmul on a grid in steps: its blocks are those that ranks multiply, and its bytes are the formula's."""

import base64
import gzip
import itertools
import json
import re

import pytest

import hybridlab as hl
from hybridlab.modes.products.steps import moments
from hybridlab.predict.bytes.matmul_by_rank import sent
from hybridlab.show.layouts.matmul_on_grid import GREEN, NAMES, SIDES, MatmulOnGrid
from hybridlab.show.layouts.moving_parts import at_moment

SIZE = 144e6
every_grid = pytest.mark.parametrize("algorithm, side", [*itertools.product(NAMES, SIDES)])
TEXT = re.compile(r">([^<]+)</text>")


def grid(algorithm, side, size=SIZE):
    return MatmulOnGrid(algorithm, moments(algorithm, (side,) * 3, (side, side)), size)


def texts(one, moment):
    return TEXT.findall("".join(at_moment(one.parts(), moment)))


@every_grid
def test_every_rank_multiplies_the_blocks_of_its_row_and_column_once(algorithm, side):
    """From the names in the picture alone: in each step a rank has A i,k and B k,j, and at the end every k."""
    one, early = grid(algorithm, side), algorithm == "summa_ahead"
    multiplied = {rank: [] for rank in range(side**2)}
    for step in range(1, one.steps + 1 - early):
        shown = [text.split() for text in texts(one, step) if re.fullmatch(r"[AB] \d,\d", text)]
        own = 0 if algorithm == "cannon" else 2
        for rank in range(side**2):
            (i, j), cards = divmod(rank, side), shown[(own + 2) * rank : (own + 2) * (rank + 1)]
            (of_a, at_a), (of_b, at_b) = cards[own:]
            (row, k), (l, column) = at_a.split(","), at_b.split(",")
            assert (of_a, of_b, int(row), int(column)) == ("A", "B", i, j) and k == l
            multiplied[rank].append(int(k))
    assert all(sorted(parts) == list(range(side)) for parts in multiplied.values())
    stripes = [text for text in texts(one, one.steps) if re.fullmatch(r"\d", text)]
    assert sorted(stripes) == sorted(f"{k}" for k in range(side) for _ in range(side**2))


@every_grid
def test_the_number_at_the_end_is_that_of_the_formula_and_of_the_prediction(algorithm, side):
    one, rule, places = (
        grid(algorithm, side),
        algorithm.removesuffix("_ahead"),
        itertools.product(range(side), repeat=2),
    )
    predicted = [sent(rule, (side,) * 3, (side, side, 1), (*place, 0)).forward for place in places]
    assert one.sent[-1] == predicted
    mean = 2 * (side - 1) * ((side + 1) / side if rule == "cannon" else 1)
    assert one.mean(one.steps) == pytest.approx(mean) and max(predicted) == 2 * (side if rule == "cannon" else side - 1)
    assert f"{mean * SIZE / side**2 / 1e6:.2f}".rstrip("0").rstrip(".") + " MB" in texts(one, one.steps)
    assert any(text == one.formula for text in texts(one, 0))


@every_grid
def test_each_message_is_a_block_that_moves_with_a_green_frame(algorithm, side):
    one = grid(algorithm, side)
    moves = [part for part in one.parts() if part.by and part.by != (0, 0)]
    for step, moment in enumerate(one.moments[1:]):
        framed = [part for part in moves if (part.at, part.until) == (step, step + 1) and GREEN in part.svg]
        assert len(framed) == len(moment.sends)


def test_cannons_first_step_moves_by_the_row_and_the_column_and_the_others_by_one():
    for step, moment in enumerate(grid("cannon", 4).moments[1:]):
        for one in moment.sends:
            (i, j), (to_i, to_j) = divmod(one.source, 4), divmod(one.target, 4)
            to_the_left, up, by = (j - to_j) % 4, (i - to_i) % 4, 1 if step else i if one.what == "A" else j
            assert (to_the_left, up) == ((by, 0) if one.what == "A" else (0, by))


def test_a_block_that_leaves_in_cannons_algorithm_is_no_longer_there():
    one = grid("cannon", 3)
    assert sum("A 1,0" in text for text in texts(one, 0)) == sum("A 1,0" in text for text in texts(one, 1)) == 1
    summa = grid("summa", 3)
    assert sum("A 1,0" in text for text in texts(summa, 1)) == 4  # with its owner, and where it is multiplied


def test_a_rank_that_multiplied_a_wrong_pair_would_be_seen():
    every = moments("cannon", (3, 3, 3), (3, 3))
    wrong = MatmulOnGrid("cannon", [every[0], *(one._replace(a=one.a[::-1]) for one in every[1:])])
    names = [text.split()[1].split(",") for text in texts(wrong, 1) if text.startswith(("A ", "B "))]
    assert any(a[1] != b[0] for a, b in zip(names[::2], names[1::2]))


def test_the_page_gets_a_panel_for_every_choice_and_the_twin_is_stored():
    shown = hl.pictures.matmul_on_grid("cannon", "summa", side=2, size=8e6)
    data = json.loads(shown.as_json)
    assert [(one["values"], one["first"]) for one in data["choices"]] == [(["Cannon", "SUMMA"], 0), ([2, 3, 4], 0)]
    panels = [json.loads(line) for line in gzip.decompress(base64.b64decode(data["panels"])).decode().split("\n")]
    assert [len(one["told"]) for one in panels] == [3, 4, 5, 3, 4, 5]
    assert "<title>Cannon, 4 × 4 ranks</title>" in panels[2]["svg"] and "<title>SUMMA, 2" in panels[3]["svg"]
    stored, _ = shown._repr_mimebundle_()
    assert stored["image/svg+xml"].count(">6 MB<") >= 1 and len(stored["image/svg+xml"]) < 80_000
    assert stored["text/plain"].split("\n")[0] == (
        "Cannon, 2 × 2 ranks: of matrices of 8 MB each rank sends 6 MB on average, at most 8 MB"
    )


def test_without_a_size_blocks_are_counted():
    one = grid("summa", 3, size=None)
    assert [texts(one, step)[2] for step in range(4)] == ["0 blocks", "1.33 blocks", "2.67 blocks", "4 blocks"]
    assert one.formula not in texts(one, 3) and one.summary == "each rank sends 4 blocks"


@pytest.mark.parametrize(
    "algorithms, more, said",
    [
        (("strassen",), {}, "choose from summa"),
        ((), {"side": 5}, "from 2 to 4"),
        ((), {"side": 1}, "from 2 to 4"),
        ((), {"size": -1}, "above 0"),
    ],
)
def test_what_cannot_be_drawn_on_a_grid_is_refused(algorithms, more, said):
    with pytest.raises(ValueError, match=said):
        hl.pictures.matmul_on_grid(*algorithms, **more)
