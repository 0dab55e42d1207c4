"""The ring all-reduce in steps: the sums that are drawn are those of an all-reduce, and the page gets all of it."""

import base64
import gzip
import json
import re

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.show.layouts.moving_parts import Part, at_moment
from hybridlab.show.layouts.ring_of_ranks import Ring
from hybridlab.world.talk.ring import route

SIZE = 12e6


def ring(ranks):
    return Ring([route(ranks, rank) for rank in range(ranks)], SIZE)


@pytest.mark.parametrize("ranks", range(2, 9))
def test_at_the_end_every_chunk_holds_the_numbers_of_all_ranks(ranks):
    one = ring(ranks)
    assert one.steps == 2 * (ranks - 1)
    assert all(chunk == set(range(ranks)) for row in one.sums[-1] for chunk in row)
    after_adding = [sum(len(chunk) == ranks for chunk in row) for row in one.sums[ranks - 1]]
    assert after_adding == [1] * ranks  # each rank owns one chunk between the rounds
    assert one.sent[-1] == pytest.approx(2 * (ranks - 1) / ranks * SIZE)


@pytest.mark.parametrize("ranks", range(2, 9))
def test_each_hop_moves_one_chunk_from_a_rank_to_the_next(ranks):
    moves = [part for part in ring(ranks).parts() if part.by]
    for step in range(2 * (ranks - 1)):
        assert len([part for part in moves if (part.at, part.until) == (step, step + 1)]) == ranks
    assert len(moves) == 2 * (ranks - 1) * ranks


@pytest.mark.parametrize("ranks", range(2, 9))
def test_no_card_lies_on_another_or_beyond_the_picture(ranks):
    one, cards = ring(ranks), []
    for rank in range(ranks):
        frame = re.search(
            r'x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', one._card(rank, *one._place(rank))
        )
        x, y, wide, tall = map(float, frame.groups())
        assert 0 <= x and 0 <= y and x + wide <= one.wide and y + tall <= one.tall
        assert all(x + wide <= a or a + c <= x or y + tall <= b or b + d <= y for a, b, c, d in cards)
        cards.append((x, y, wide, tall))


def test_a_step_that_copied_where_it_should_add_would_be_seen():
    routes = [[step._replace(adds=False) for step in route(4, rank)] for rank in range(4)]
    assert not all(len(chunk) == 4 for row in Ring(routes, SIZE).sums[-1] for chunk in row)


def test_at_a_moment_only_what_is_there_is_drawn():
    parts = [Part("a"), Part("b", at=1), Part("c", until=1), Part("d", at=1, until=3, by=(8, -4))]
    assert at_moment(parts, 0) == ["a", "c"] and at_moment(parts, 1) == ["a", "b"]
    assert at_moment(parts, 2) == ["a", "b", '<g transform="translate(4 -2)">d</g>'] and at_moment(parts, 3) == [
        "a",
        "b",
    ]


def test_the_page_gets_a_panel_for_every_number_of_ranks_and_the_twin_is_stored():
    shown = hl.pictures.ring_all_reduce(ranks=5, size=10e6)
    data = json.loads(shown.as_json)
    (choice,) = data["choices"]
    assert choice["values"][choice["first"]] == 5 and choice["values"] == list(range(2, 9))
    panels = [json.loads(line) for line in gzip.decompress(base64.b64decode(data["panels"])).decode().split("\n")]
    assert [len(one["told"]) for one in panels] == [2 * (p - 1) + 1 for p in choice["values"]]
    last = panels[-1]["svg"]
    assert f"2·(p−1)/p·n = 2·7/8·10 MB = {2 * 7 / 8 * 10:g} MB" in last
    sent = [float(one) for one in re.findall(r">([\d.]+) MB sent by each rank<", last)]
    assert np.allclose(sent, [10 / 8 * step for step in range(15)], atol=0.01)
    stored, _ = shown._repr_mimebundle_()
    assert stored["image/svg+xml"].count("16 MB sent by each rank") == 1
    assert stored["text/plain"].split("\n")[0] == "ring all-reduce, 5 ranks, 5 chunks: of 10 MB each rank sends 16 MB"


def test_without_a_size_chunks_are_counted():
    svg, told = Ring([route(3, rank) for rank in range(3)]).parts(), hl.pictures.ring_all_reduce(ranks=3).summary
    sent = [part.svg for part in svg if "sent by each rank" in part.svg]
    counts = ["0 chunks", "1 chunk", "2 chunks", "3 chunks", "4 chunks"]
    assert [f">{count} sent by each rank<" in one for count, one in zip(counts, sent, strict=True)] == [True] * 5
    assert told.startswith("ring all-reduce, 3 ranks, 3 chunks: each rank sends 4 chunks\n")
    assert not any("n =" in part.svg for part in svg)


@pytest.mark.parametrize(
    "more, said", [({"ranks": 1}, "from 2 to 8"), ({"ranks": 9}, "from 2 to 8"), ({"size": 0}, "above 0")]
)
def test_what_cannot_be_drawn_as_a_ring_is_refused(more, said):
    with pytest.raises(ValueError, match=said):
        hl.pictures.ring_all_reduce(**more)
