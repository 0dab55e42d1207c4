"""The pages about the course: current with the notebooks, and the routes through it walkable."""

import json
import re
import xml.etree.ElementTree as xml

import pytest

from hybridlab import labs
from hybridlab.cli.commands import COMMANDS
from hybridlab.measuring.recorded import recorded
from tools import graph, landing, lessons, pages
from tools.course import HOUSE, books, tables

SVG = "{http://www.w3.org/2000/svg}"


def name(path):
    return str(path.relative_to(HOUSE))


@pytest.mark.parametrize("path", pages.PAGES, ids=name)
def test_a_page_says_what_the_notebooks_say(path):
    assert path.read_text(encoding="utf-8") == pages.PAGES[path](), "run  make pages"


def test_the_page_about_gpus_names_the_machines_of_the_records(tmp_path):
    """Whoever adds a record says `make pages`; until then no test fails."""
    ((path, text),) = pages.about_records().items()
    assert path.name == "gpu.md" and text.count("\nMeasured on: ") == 1
    gpu = {"when": "2999-12-01T10:00:00+00:00", "gpus": [["NVIDIA H200", 150e9]]}
    rows = [{"name": "one", "device": "cuda", "ranks": 4, "ranks per GPU": 4}]
    (tmp_path / "course-cuda.json").write_text(json.dumps({"machine": gpu, "whole": True, "rows": rows}))
    with_gpu = pages.with_machines(text, recorded(tmp_path))
    assert "\nMeasured on: 1 × NVIDIA H200 shared by 4 ranks, 2999-12-01.\n" in with_gpu
    assert pages.with_machines(with_gpu, recorded()) == text


ROUTES = (*landing.ROUTES, *landing.ASSIGNMENTS, landing.whole())
every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)


def test_the_table_has_every_notebook_with_its_minutes():
    (glance, _) = tables(landing.page())
    assert [row[0] for row in glance[1:]] == [f"[{one}]({one}.ipynb)" for one in books()]
    core = [int(row[2]) for row in glance[1:]]
    assert core == [book.core for book in books().values()] and landing.whole().minutes == sum(core)
    assert all(0 < book.on_stage <= book.core for book in books().values())


@every_route
def test_a_route_goes_in_the_order_of_what_builds_on_what(route):
    order = [book.name for book in route.there()]
    assert order == sorted(order) == list(route.notebooks), "in order, and all of them exist"
    for book in route.there():
        assert all(one < book.name for one in book.needs)


@every_route
def test_a_route_holds_all_that_its_notebooks_need(route):
    """Also a lecture: what a notebook builds on comes before it, there or in the route that was walked before."""
    known = set(route.known)
    for book in route.there():
        assert set(book.needs) <= known, f"{book.name} needs {set(book.needs) - known}"
        known.add(book.name)


def test_no_route_repeats_what_was_done_before_it():
    assert not set(landing.SECOND.notebooks) & set(landing.SECOND.known)


@pytest.mark.slow
def test_an_assignment_asks_for_exercises_of_the_cores():
    """The first for all of them; the second for what is built, and for one plan."""
    for route in landing.ASSIGNMENTS:
        core = {task for book in route.there() for task in book.core_tasks}
        asked = {task for book in route.there() for task in route.handed_in(book)}
        assert asked and asked <= core and set(route.asked) <= asked
    for task in ("data_parallel.ddp", "zero_fsdp.one", "megatron.layers", "choosing.scenario"):
        assert f"`{task}`" in landing.page().partition("## Second assignment")[2]


def test_a_tutorial_fits_half_a_day_and_a_lecture_five_meetings():
    lecture, tutorial = landing.ROUTES
    assert tutorial.minutes + 60 <= 4 * 60, "with an hour for exercises"
    assert lecture.minutes <= 5 * 75


def test_the_picture_of_prerequisites_has_a_box_for_each_notebook_and_none_hides_another():
    picture = xml.fromstring(graph.svg(books()))
    boxes = [one for one in picture.iter(f"{SVG}rect") if one.get("rx") == "5"]
    places = [(float(one.get("x")), float(one.get("y"))) for one in boxes]
    assert len(set(places)) == len(books())
    width, height = map(float, picture.get("viewBox").split()[2:])
    assert all(x + graph.WIDTH <= width and y + graph.HEIGHT <= height for x, y in places)
    assert picture.find(f"{SVG}desc").text == graph.told(books())


def test_a_box_names_each_prerequisite_from_which_no_arrow_comes():
    picture = xml.fromstring(graph.svg(books()))
    texts = ["".join(one.itertext()) for one in picture.iter(f"{SVG}text")]
    named = {text[:2]: set(re.findall(r"\d\d", text.partition("after")[2])) for text in texts if " min" in text}
    needed = {book.number: set() for book in books().values()}
    for one, other in graph.arrows(books()):
        needed[other[:2]].add(one[:2])
    assert all(named[number] <= needed[number] for number in needed) and len(named) == len(needed)
    arrows = [one for one in picture.iter(f"{SVG}path") if one.get("marker-end")]
    assert len(arrows) == sum(len(needed[number] - named[number]) for number in needed)
    assert all(len(needed[number] - named[number]) <= 1 for number in needed)


def test_arrows_say_all_prerequisites_and_none_twice():
    """Whoever follows the arrows backwards meets exactly what the first cells name, and what that needs."""
    reached, needed = {}, {}
    for book in books().values():
        direct = {one for one, other in graph.arrows(books()) if other == book.name}
        reached[book.name] = direct.union(*(reached[one] for one in direct))
        needed[book.name] = set(book.needs).union(*(needed[one] for one in book.needs))
        for one in direct:
            assert not any(one in reached[other] for other in direct - {one})
    assert reached == needed


def test_every_notebook_has_a_lesson_plan():
    without = set(books()) - set(lessons.lessons())
    assert without == set(), "write their hook, wrong, show and fallback in docs/lessons.toml"
    for plan in lessons.lessons().values():
        assert list(plan) == list(lessons.PARTS) and all(len(text) > 20 for text in plan.values())


def test_the_guide_names_commands_that_exist():
    guide = (HOUSE / "docs" / "lecturers.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"python -m hybridlab (\w+)", guide))
    assert commands and commands <= set(COMMANDS)
    assert set(re.findall(r"labs\.(\w+)\(", guide)) <= set(labs.__all__)
