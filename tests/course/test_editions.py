"""The editions: pages that fetch nothing, slides by beats, solutions behind exercises, copies that stay one's own."""

import base64
import gzip
import json
import re
from functools import cache
from html.parser import HTMLParser

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.labs.copies import TAKEN, take
from hybridlab.labs.exercises.all_solutions import SOLUTIONS
from tools import editions, lecture, sheet
from tools.course import FOLDER, books

pytestmark = pytest.mark.slow

FETCHING = dict.fromkeys(("script", "img", "iframe", "source", "audio", "video"), "src") | {"link": "href"}
FEW = ("00_start", "30_megatron")  # without --long
ALL = [pytest.param(name, marks=() if name in FEW else pytest.mark.long) for name in books()]
every_book = pytest.mark.parametrize("name", ALL)


class Fetched(HTMLParser):
    """What a page would fetch, the pictures that have no text, and its links."""

    def __init__(self, page):
        super().__init__()
        self.fetched, self.silent, self.links = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        source = told.get(FETCHING.get(tag, ""), "data:")
        self.fetched += [source] if not source.startswith("data:") else []
        self.silent += [tag] if tag == "img" and len(told.get("alt") or "") < 20 else []
        self.links += [told["href"]] if tag == "a" and "href" in told else []


@cache
def slides(name):
    return sheet.slides(books()[name].title, books()[name].cells)


@every_book
@pytest.mark.long
def test_a_page_fetches_nothing_and_every_picture_has_its_text(name):
    for page in (slides(name), sheet.printable(name, editions.instructor(books()[name]))):
        found = Fetched(page)
        assert found.fetched == [] and found.silent == []
        styles = "".join(re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL))
        assert styles and not re.search(r"url\(|@import", styles)
        assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(|sendBeacon|WebSocket", page.rpartition("<script>")[2])
        assert all(one.startswith(("https://", "#")) or one.removesuffix(".html") in books() for one in found.links)


def test_a_page_that_fetches_is_caught():
    page = sheet.page("x", '<img src="https://example.org/a.png" alt="x"><script src="//example.org/b.js"></script>')
    assert Fetched(page).fetched == ["https://example.org/a.png", "//example.org/b.js"]


EXPLORED = ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b", "13_interleaved", "14_zero_bubble")


def _lines(packed):
    return gzip.decompress(base64.b64decode(packed)).decode().split("\n")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == "12_1f1b" else pytest.mark.long) for one in EXPLORED]
)
def test_an_explorer_starts_where_its_cell_says(name):
    cell = next(
        one for one in books()[name].cells if 'hl.explore("' in one.source and "image/svg+xml" in str(one.outputs)
    )
    grid = json.loads(sheet.explored(cell.source))
    pictures = _lines(grid["pictures"])
    place, wide = grid["first"][1:], len(grid["axes"][1]["values"])
    first = json.loads(pictures[place[0] * wide + place[1]])
    assert first["summary"] in "".join(str(one.data) for one in cell.outputs).replace("\\n", "\n")
    assert grid["machine"] == ("machine=True" in cell.source)


@pytest.mark.parametrize(
    "book, call",
    [
        ("12_1f1b", "hl.explore(hl.Schedule"),
        ("20_collectives", "hl.pictures.ring_all_reduce("),
        ("31_matmul", "hl.pictures.matmul_on_grid("),
        ("40_hybrid", "hl.pictures.box_of_ranks("),
    ],
)
def test_other_live_pictures_live_without_a_kernel_too(book, call):
    cell = next(one for one in books()[book].cells if one.source.startswith(call))
    shown, (output,) = json.loads(sheet.explored(cell.source)), cell.outputs
    if "pictures" in shown:
        (picture,) = _lines(shown["pictures"])
        assert (
            json.loads(picture)["summary"] == output.data["text/plain"] and json.loads(picture)["timelines"][0]["stuck"]
        )
    elif shown["show"] == "box":
        assert shown["told"][shown["rank"]] == output.data["text/plain"]
    else:
        place = 0
        for one in shown["choices"]:
            place = place * len(one["values"]) + one["first"]
        assert json.loads(_lines(shown["panels"])[place])["told"] == output.data["text/plain"].split("\n")[1:]
    live, still = sheet.parts(cell, live=True)[1], sheet.parts(cell)[1]
    assert live.startswith(sheet.LIVE) and sheet.LIVE not in still


@pytest.mark.parametrize(
    "source",
    ["", "x = 1", "hl.explore(mine)", "hl.explore('1f1b', ranks=p)", "labs.explore('1f1b')", "%%ranks\nx", "!ls\nx"],
)
def test_what_needs_other_cells_is_not_explored_without_a_kernel(source):
    assert sheet.explored(source) == ""


def test_a_slide_shows_a_picture_without_its_caption():
    cell = lecture.found("gpipe-bubble-braced")[1]
    data = cell.outputs[-1].data
    svg = lecture.bare(data["image/svg+xml"], data["text/plain"])
    tall = lambda text: float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', text)[1])
    assert tall(svg) < tall(data["image/svg+xml"]) - 40 and svg.count(f'"{tall(svg):g}"') == 1
    assert ">on every rank<" not in svg and "(p−1)tB = 6" in svg and "<desc>gpipe" in svg
    assert lecture.bare(data["image/svg+xml"], "other words") == data["image/svg+xml"]


def test_the_lecture_takes_75_minutes_and_each_slide_has_its_picture():
    assert lecture.ends()[-1] == 75 and f"of {lecture.ends()[-1]} minutes" in lecture.HEADING
    page = lecture.deck()
    assert page.count("<section") == len(lecture.beats()) + 1
    assert page.count("<img ") == page.count('<aside class="notes">') == len(lecture.beats())
    assert Fetched(page).fetched == [] and Fetched(page).silent == []


def test_what_is_said_of_a_slide_leaves_half_of_its_minutes_to_the_audience():
    words = {beat.cell: len(f"{beat.ask} {beat.say} {beat.tell}".split()) for beat in lecture.beats()}
    assert max(words[beat.cell] / (110 * beat.minutes) for beat in lecture.beats()) < 0.5  # 110 words a minute


def test_a_slide_of_a_cell_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no-such-cell.*lecture.toml"):
        lecture.found("no-such-cell")


@every_book
def test_slides_begin_at_headings_and_leave_nothing_out(name):
    book = books()[name]
    page = slides(name)
    headings = [cell for cell in book.cells if cell.source.startswith("## ")]
    assert page.count("<section>") == len(headings) + 1
    pictures = [
        one
        for cell in book.cells
        if cell.cell_type == "code"
        for one in cell.outputs
        if "image/svg+xml" in one.get("data", {})
    ]
    assert page.count("<img ") == len(pictures)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert page.count('<div class="code">') == len(code) and page.count('<div class="beat">') >= len(book.cells)


@every_book
def test_an_instructor_finds_a_solution_behind_every_exercise(name):
    book = books()[name]
    cells = editions.instructor(book)
    assert len({cell.id for cell in cells}) == len(cells)
    nbformat.validate(nbformat.v4.new_notebook(cells=cells))
    solved = [cell.source for cell in cells if cell.id.endswith("-solved")]
    assert [re.search(r'labs\.answer\(\s*"([^"]+)"', source)[1] for source in solved] == list(book.tasks)
    for task in book.tasks:
        (told,) = [cell.source for cell in cells if f"**Solution of `{task}`**" in cell.source]
        assert SOLUTIONS[task].why in told and "**Hints.** (1)" in told and told.count("\n- `") >= 1


@every_book
def test_what_students_get_holds_no_solution(name):
    for cell in books()[name].cells:
        assert "solution" not in cell.metadata.get("tags", ())
        assert not re.search(r"hybridlab\.labs\b.*solutions", cell.source)
    page = slides(name)
    assert 'class="answer"' not in page and not any(f"<p>{SOLUTIONS[task].why}" in page for task in books()[name].tasks)


@pytest.mark.long
def test_all_editions_are_built_and_their_pages_lead_somewhere(tmp_path):
    files = editions.build(tmp_path / "editions")
    assert len(files) > 5 * len(books())
    for page in files:
        if page.suffix == ".html":
            links = Fetched(page.read_text(encoding="utf-8")).links
        elif page.suffix == ".md":
            links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        else:
            continue
        assert [one for one in links if "://" not in one and one[0] != "#" and not (page.parent / one).exists()] == []


# --- copies of one's own ----------------------------------------------------------------------------------------


def a_notebook(text: str) -> str:
    """A notebook of one cell that was run."""
    cell = nbformat.v4.new_code_cell(text, id="a", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", text="the answer")]
    return nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))


def said(path) -> str:
    """What a copy says, which nobody has run."""
    (cell,) = nbformat.read(path, as_version=4).cells
    assert cell.outputs == [] and cell.execution_count is None
    return cell.source


def test_an_untouched_copy_follows_the_course_and_a_changed_one_stays(tmp_path):
    source, own = tmp_path / "course", tmp_path / "own"
    source.mkdir()
    original, copied = source / "a.ipynb", own / "a.ipynb"
    original.write_text(a_notebook("one"))
    assert take(own, source) == {"a.ipynb": "new"} and said(copied) == "one"
    assert take(own, source) == {}
    original.write_text(a_notebook("two"))
    assert take(own, source) == {"a.ipynb": "updated"} and said(copied) == "two"
    copied.write_text("my work")
    assert take(own, source) == {"a.ipynb": "kept"}
    original.write_text(a_notebook("three"))
    assert take(own, source) == {"a.ipynb": "newer"} and copied.read_text() == "my work"
    copied.rename(own / "my.ipynb")
    assert take(own, source) == {"a.ipynb": "new"} and said(copied) == "three"
    assert (own / "my.ipynb").read_text() == "my work"


@given(moves=st.lists(st.sampled_from(["course", "own", "take"]), max_size=12))
@settings(max_examples=40)
def test_what_its_owner_has_written_is_never_lost(moves, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine")
    source, own = folder / "course", folder / "own"
    source.mkdir(), own.mkdir()
    (source / "a.ipynb").write_text(a_notebook("course 0"))
    written = None
    for number, move in enumerate(moves):
        if move == "take":
            take(own, source)
        elif move == "course":
            (source / "a.ipynb").write_text(a_notebook(f"course {number}"))
        else:
            written = f"own {number}"
            (own / "a.ipynb").write_text(written)
        assert written is None or (own / "a.ipynb").read_text() == written


def test_copies_that_cannot_be_read_as_text_stay_and_a_damaged_record_changes_none(tmp_path):
    source, own = tmp_path / "course", tmp_path / "own"
    source.mkdir()
    for name in ("a", "b"):
        (source / f"{name}.ipynb").write_text(a_notebook("one"))
    take(own, source)
    (own / "a.ipynb").write_bytes(b"\xff my work")
    (own / TAKEN).write_text("[")
    for name in ("a", "b"):
        (source / f"{name}.ipynb").write_text(a_notebook("two"))
    assert take(own, source) == {"a.ipynb": "newer", "b.ipynb": "newer"}
    assert (own / "a.ipynb").read_bytes() == b"\xff my work" and said(own / "b.ipynb") == "one"
    (own / "b.ipynb").unlink()
    (own / "b.ipynb").mkdir()
    with pytest.raises(ValueError, match="b.ipynb: it is a folder"):
        take(own, source)


def test_the_originals_are_no_place_for_copies():
    with pytest.raises(ValueError, match="choose another folder"):
        take(FOLDER)


def test_copies_open_where_their_links_lead(tmp_path):
    take(tmp_path)
    names = {path.name for path in tmp_path.glob("*.ipynb")}
    assert names == {f"{name}.ipynb" for name in books()}
    assert (tmp_path / TAKEN).exists()
