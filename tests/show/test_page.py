"""The page: its grid holds the widgets' own pictures, in order, and it names no address."""

import base64
import gzip
import itertools
import json
import re

import pytest

import hybridlab as hl
from hybridlab.show.live.module import module
from hybridlab.show.live.page import AXES, COMPARED, FIRST, page
from hybridlab.show.timelines.picture import picture, to_json

pytestmark = pytest.mark.slow  # a whole page is built
SMALL = {"ranks": (2, 3), "microbatches": (2, 4), "ratio": (1, 2)}


@pytest.fixture(scope="module")
def text():
    return page(**SMALL)


@pytest.fixture(scope="module")
def grid(text):
    return json.loads(text.split('id="grid">')[1].split("</script>")[0])


@pytest.fixture(scope="module")
def pictures(grid):
    return gzip.decompress(base64.b64decode(grid["pictures"])).decode().split("\n")


@pytest.mark.long
@pytest.mark.long
def test_the_grid_is_every_schedule_at_every_point(grid, pictures):
    assert grid["names"][1:] == list(hl.schedules())
    assert [tuple(axis["values"]) for axis in grid["axes"]] == list(SMALL.values())
    assert len(pictures) == len(grid["names"]) * 8


def test_each_picture_is_the_widgets_own(grid, pictures):
    points = list(itertools.product(grid["names"], *SMALL.values()))
    for name, ranks, microbatches, ratio in (("1f1b", 3, 4, 2), ("zb_h1", 2, 2, 1)):
        schedule = hl.schedule(name, ranks=ranks, microbatches=microbatches)
        wanted = to_json(picture(hl.simulate(schedule, hl.Costs(F=1, I=ratio / 2, W=ratio / 2))))
        assert pictures[points.index((name, ranks, microbatches, ratio))] == wanted
    several = json.loads(pictures[0])
    assert tuple(one["name"] for one in several["timelines"]) == COMPARED


def test_what_cannot_be_is_a_sentence(grid, pictures):
    at = list(itertools.product(grid["names"], *SMALL.values())).index(("dualpipe", 3, 2, 1))
    with pytest.raises(ValueError) as refused:
        hl.schedule("dualpipe", ranks=3, microbatches=2)
    assert json.loads(pictures[at]) == {"problem": str(refused.value)}


def test_it_is_the_widgets_own_program_and_asks_nobody(text):
    assert module("grid.js", "page.js") in text
    outside = text.replace(text.split('id="grid">')[1].split("<")[0], "")  # the pictures are base64
    outside = re.sub(r"http://www\.w3\.org/\S+", "", outside)  # the name of SVG, not an address that is asked
    assert not re.search(r"https?://|\bimport\s|src=|<link", outside)
    assert "default-src 'none'" in text and "<!-- " not in text


def test_it_starts_where_the_first_choice_says(grid):
    assert grid["first"] == [0, 0, 0, 1]  # 4 ranks and 8 microbatches are not on this small grid; ratio 2 is
    assert all(FIRST[name] in values for name, (_, values) in AXES.items())


def test_without_scripts_the_twin_is_seen(text):
    assert "<svg" in text.split("<noscript>")[1].split("</noscript>")[0]
