"""What every notebook has, checked without running one.

That the cells still show what is stored is the business of `make test` (nbval).
"""

import pathlib
import re

import nbformat
import pytest

from hybridlab.labs.exercises.all_tasks import TASKS
from tools.course import books, split

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
BOOKS = {path.stem: nbformat.read(path, as_version=4) for path in sorted(FOLDER.glob("*.ipynb"))}
IGNORED = "nbval-ignore-output"
LONGEST_CELL, WIDEST_LINE, MOST_IGNORED = 15, 100, 4
MOST_CELLS, MOST_MINUTES, SHORTEST_HOOK = 65, 50, 100  # of a core; letters of a hook
OPENS_WITH_A_PICTURE = "00_start"
CLOSING = ("Formula", "Fails when", "Remember", "Reference", "See also")
TASK = re.compile(r"labs\.(?:answer|question)\(\s*[\"']([^\"']+)[\"']")

every_book = pytest.mark.parametrize("name", BOOKS)


def cells(name, kind):
    return [cell for cell in BOOKS[name].cells if cell.cell_type == kind]


def prose(name):
    """All text of a notebook, with its line breaks as spaces."""
    return " ".join(" ".join(cell.source.split()) for cell in cells(name, "markdown"))


def tags(cell):
    return set(cell.metadata.get("tags", ()))


# --- what every notebook has ------------------------------------------------------------------------------------


@every_book
def test_it_opens_with_a_title_and_what_it_takes(name):
    """Minutes and what to read before stand in one line; all else about the notebook is folded, at its end."""
    title, times, *_ = BOOKS[name].cells[0].source.split("\n\n")
    assert title.startswith(f"# {name[:2]} · ")
    assert re.match(r"\*\*Core\*\* \d+ minutes", times)
    assert ("**Prerequisites.** [" in times) == bool(books()[name].needs), "one label for all notebooks to read before"
    assert not re.search(r"\.\s+\[", times.partition("**Prerequisites.**")[2]), "the next one follows a semicolon"
    assert "<summary>About this notebook</summary>" in BOOKS[name].cells[-1].source


@every_book
def test_it_opens_with_a_hook(name):
    """A real problem stands behind the line of minutes, before anything is asked."""
    _, _, *hook = BOOKS[name].cells[0].source.split("\n\n")
    assert len(" ".join(hook)) >= SHORTEST_HOOK and re.search(r"\d", " ".join(hook)), "a hook has a number that hurts"


@every_book
def test_its_core_is_short(name):
    """As many cells as an evening has room for; the minutes hold those of its exercises."""
    core, book = split(BOOKS[name].cells)["Core"], books()[name]
    assert len(core) <= MOST_CELLS and book.core <= MOST_MINUTES
    assert sum(TASKS[task].minutes for task in book.core_tasks) < book.core


@every_book
def test_core_and_further_say_where_they_begin(name):
    """One heading of each, Further only where there is something; what is further says so, and has minutes."""
    heads = [cell.source.partition("\n")[0] for cell in BOOKS[name].cells if cell.cell_type == "markdown"]
    parts = [head for head in heads if head in ("# Core", "# Further")]
    further = books()[name].further
    assert parts == (["# Core", "# Further"] if further else ["# Core"] * len(parts)) and len(parts) <= 2
    assert bool(split(BOOKS[name].cells)["Further"]) == bool(further)
    for cell in BOOKS[name].cells:
        if cell.source.startswith("# Further\n"):
            assert "recap" in cell.source, "say where core readers go"


@every_book
def test_it_says_where_this_stands_in_the_wild(name):
    lines = "\n".join(cell.source for cell in cells(name, "markdown")).splitlines()
    assert 1 <= sum(line.startswith("> **In the wild.**") for line in lines) <= 3


@every_book
def test_it_closes_with_a_card_and_related_notebooks(name):
    card = BOOKS[name].cells[-1].source
    assert [word for word in CLOSING if not re.search(rf"\*\*{word}\.?\*\*", card)] == []


@every_book
def test_it_asks_before_it_answers(name):
    """The first code cell is for the reader's number, and a later cell comes back to it; the course opens with a
    picture."""
    first, *later = cells(name, "code")[name == OPENS_WITH_A_PICTURE :]
    assert re.fullmatch(r"my_\w+ = None  # your numbers?(\nmy_\w+ = None)*", first.source)
    for guess in re.findall(r"^(my_\w+) =", first.source, flags=re.MULTILINE):
        assert any(f", {guess}, " in cell.source for cell in later), f"nothing comes back to {guess}"


def test_the_course_opens_with_one_small_picture_that_moves():
    """Before any rank: two sliders, one number, and it plays once by itself; nowhere else does a picture do that."""
    title, picture, *_ = BOOKS[OPENS_WITH_A_PICTURE].cells
    assert title.cell_type == "markdown" and "hl.explore(" in picture.source and 'controls="two"' in picture.source
    assert "image/svg+xml" in picture.outputs[0].data
    playing = [cell.id for name in BOOKS for cell in cells(name, "code") if "play=True" in cell.source]
    assert playing == [picture.id]


@every_book
def test_a_cell_is_a_sentence(name):
    """Only a broken program is longer: it is there to be read."""
    sources = [cell.source.splitlines() for cell in cells(name, "code") if "clinic" not in tags(cell)]
    assert max(map(len, sources)) <= LONGEST_CELL
    assert sorted(map(len, sources))[len(sources) // 2] <= 4
    assert [line for source in sources for line in source if len(line) > WIDEST_LINE] == []


@every_book
def test_functions_are_the_readers_own(name):
    """Library code belongs into the package: a notebook defines only what goes to the ranks, and exercises."""
    defines = re.compile(r"^\s*(async )?(def|class) ", re.MULTILINE)
    defining = [cell for cell in cells(name, "code") if defines.search(cell.source)]
    assert [cell.id for cell in defining if not tags(cell) & {"ranks", "exercise"}] == []


@every_book
def test_every_cell_has_a_name_of_its_own(name):
    assert (BOOKS[name].nbformat, BOOKS[name].nbformat_minor) >= (4, 5)
    ids = [cell.id for cell in BOOKS[name].cells]
    assert len(set(ids)) == len(ids)
    stem = name.partition("_")[2]
    assert [one for one in ids if not re.fullmatch(rf"{stem}(-[a-z0-9]+)+", one)] == []


@every_book
def test_outputs_are_stored_and_widget_state_is_not(name):
    assert "widgets" not in BOOKS[name].metadata
    for cell in cells(name, "code"):
        assert cell.execution_count is not None, f"{cell.id} has not been run"
        for output in cell.outputs:
            assert output.output_type != "error" or "raises-exception" in tags(cell), cell.id
            assert not any("widget" in mime for mime in output.get("data", {})), cell.id


@every_book
def test_outputs_that_are_not_compared_are_few_and_followed_by_one_that_is(name):
    code = cells(name, "code")
    ignored = [i for i, cell in enumerate(code) if IGNORED in tags(cell)]
    assert len(ignored) <= MOST_IGNORED
    assert not any("nbval-skip" in tags(cell) for cell in code)
    for i in ignored:
        verdict = next(cell for cell in code[i + 1 :] if cell.outputs)
        assert IGNORED not in tags(verdict), f"nothing compared follows {code[i].id}"


@pytest.mark.parametrize("name", [name for name in BOOKS if name != "00_start"])
def test_what_it_measures_stands_beside_what_other_machines_recorded(name):
    told = [cell for cell in cells(name, "code") if "labs.machines(" in cell.source]
    assert any(f'labs.machines("{name.partition("_")[2]}", ' in cell.source for cell in told)
    assert all("this machine" in output.data["text/plain"] for cell in told for output in cell.outputs)


@every_book
def test_links_between_notebooks_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#:]+\.ipynb)\)", prose(name))
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []


@every_book
def test_bold_text_has_no_slanted_letters(name):
    """JupyterLab shows the stars of *a* where it stands inside **b**, as in a formula."""
    bold = re.findall(r"\*\*(.+?)\*\*+", re.sub(r"`[^`]*`", "", prose(name)))
    assert [text for text in bold if "*" in text] == []


@every_book
def test_the_text_is_quiet(name):
    assert "!" not in re.sub(r"`[^`]*`", "", prose(name))


# --- exercises --------------------------------------------------------------------------------------------------


def asked(name):
    """The exercises that a notebook's code names."""
    return set(TASK.findall("\n".join(cell.source for cell in cells(name, "code"))))


@every_book
def test_exercises_exist_and_stand_in_cells_of_their_own(name):
    assert asked(name) and asked(name) <= TASKS.keys()
    for cell in cells(name, "code"):
        assert ("labs.answer(" in cell.source) == ("exercise" in tags(cell)), cell.id
    assert {task.split(".")[0] for task in asked(name)} == {name.partition("_")[2]}


@every_book
def test_every_exercise_is_asked_and_answered_and_not_solved(name):
    for task in asked(name):
        ask, answer = (
            [cell for cell in cells(name, "code") if re.search(rf"labs\.{verb}\(\s*\"{task}\"", cell.source)]
            for verb in ("question", "answer")
        )
        assert len(ask) == len(answer) == 1, task
        (reply,) = answer[0].outputs
        assert reply.data["text/plain"].startswith("Not yet: "), f"{task} is stored solved"


def test_every_task_of_these_notebooks_is_one_of_their_exercises():
    families = {name.partition("_")[2] for name in BOOKS}
    assert set().union(*map(asked, BOOKS)) == {task for task in TASKS if task.split(".")[0] in families}
