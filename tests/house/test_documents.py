"""The documents: short enough to be read, every link leads somewhere, every room is on the map, decisions have dates.

And of the invariants that ARCHITECTURE.md tells, those that no other test holds.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[2]
PACKAGE = HOUSE / "hybridlab"
LARGEST = {"README": 9, "ARCHITECTURE": 10, "CONTRIBUTING": 6, "CHANGELOG": 3}  # KiB
DECISIONS = [path for path in sorted((HOUSE / "docs" / "decisions").glob("*.md")) if path.stem != "README"]
DOCUMENTS = [path for pattern in ("*.md", "docs/**/*.md", "*/README.md") for path in sorted(HOUSE.glob(pattern))]
ROOMS = sorted(path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("**/__init__.py"))[1:]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
NAMED = re.compile(r"`((?:\w[\w.-]*/)*\w[\w-]*\.(?:py|md|toml|cfg|lock))`")
named = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(HOUSE)))


def text(path):
    return path.read_text(encoding="utf-8")


@cache
def anchors(path):
    """The names under which a page's headings can be linked."""
    headings = re.findall(r"^#+ (.*)", re.sub(r"(?s)```.*?```", "", text(path)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def lost(path):
    """The links of a page that lead to no file, or to no heading of one."""
    found = []
    for there, anchor in LINK.findall(text(path)):
        target = (path.parent / there).resolve() if there else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(f"{there}#{anchor}")
    return found


@pytest.mark.parametrize("name", LARGEST)
def test_a_document_can_be_read_in_a_sitting(name):
    assert len((HOUSE / f"{name}.md").read_bytes()) <= 1024 * LARGEST[name]


@named
def test_every_link_leads_to_a_file_and_to_a_heading(path):
    assert lost(path) == []


def test_a_lost_link_would_be_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n[a](page.md#one-two-three) [b](#four) [c](away.md) [d](https://example.org)")
    assert lost(page) == ["#four", "away.md#"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_on_the_map(room):
    floor, _, inside = room.partition("/")
    map_ = text(HOUSE / "ARCHITECTURE.md")
    assert f"`{room}/`" in map_ or f"`{inside}`" in map_ or f"`{floor}/{inside}" in map_, "a line in its code map"


@pytest.mark.parametrize("folder", ["tests", "tools"])
def test_every_folder_beside_the_package_is_on_the_map(folder):
    inside = {path.name for path in (HOUSE / folder).iterdir() if path.is_dir() and any(path.glob("*.*"))}
    floors = {path.name for path in PACKAGE.iterdir()}  # "a folder for each floor"
    map_ = text(HOUSE / "ARCHITECTURE.md")
    assert [name for name in sorted(inside - floors - {"__pycache__"}) if f"`{name}/`" not in map_] == []


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_every_decision_has_a_heading_with_its_date_and_the_newest_comes_first(path):
    begin, *entries = re.split(r"^### ", text(path), flags=re.MULTILINE)
    assert re.fullmatch(r"# .+\n\n.+ Newest first\.\n+", begin) and entries
    dates = [re.match(r"(\d{4}-\d\d-\d\d) \S", one)[1] for one in entries]
    assert dates == sorted(dates, reverse=True)
    assert [one for one in entries if not one.partition("\n")[2].strip()] == [], "a heading alone decides nothing"
    assert f"({path.name})" in text(path.with_name("README.md"))


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/notebooks.md"])
def test_a_file_that_is_named_is_there(page):
    files = set(NAMED.findall(text(HOUSE / page)))
    assert len(files) > 4
    assert [one for one in sorted(files) if not (HOUSE / one).exists() and not any(PACKAGE.glob(f"**/{one}"))] == []


KINDS = {"F", "C", "R", "B", "I", "W", "OPT", "UNSHARD", "RESHARD", "REDUCE_GRAD", "NORM", "VALID"} | {
    "SWAP_OUT",
    "SWAP_IN",
}
PLAYED = ["core/when/play.py", "predict/time/simulate.py", "predict/time/compiled.py", "predict/time/events.py"]


@pytest.mark.parametrize("file", PLAYED)
def test_whoever_plays_a_schedule_names_no_kind_of_action(file):
    constants = {one.value for one in ast.walk(ast.parse(text(PACKAGE / file))) if isinstance(one, ast.Constant)}
    assert not {one for one in constants if isinstance(one, str)} & KINDS


def test_a_reference_model_knows_no_mode_but_the_order_of_tokens():
    models = sorted((PACKAGE / "training" / "models").glob("*.py"))
    found = {name for model in models for name in re.findall(r"hybridlab\.(modes[\w.]*)", code(model))}
    assert len(models) > 10 and found <= {"modes.parts.token_order"}


def code(path):
    """The import lines of a file."""
    tree = ast.parse(text(path))
    return "\n".join(ast.unparse(one) for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom))


BLOCKS = {
    page: re.findall(r"```python\n(.*?)```", text(HOUSE / page), flags=re.DOTALL)
    for page in ("README.md", "docs/python.md")
}


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.parametrize("page", BLOCKS)
def test_what_a_page_shows_in_python_runs(page, capsys):
    for block in BLOCKS[page]:
        if "hl.dry_run(" not in block:
            exec(compile(block, page, "exec"), {})
    assert "33" in capsys.readouterr().out


@pytest.mark.long
def test_the_dry_run_that_a_page_shows_runs(capsys):
    (block,) = [one for one in BLOCKS["docs/python.md"] if "hl.dry_run(" in one]
    exec(compile(block, "docs/python.md", "exec"), {})
    assert "rank 17" in capsys.readouterr().out
