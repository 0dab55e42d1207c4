"""The recipes: each runs, and prints what the page shows."""

import subprocess
import time

import pytest

from tools import recipes

EVERY = recipes.recipes()
CASES = [
    pytest.param(one, id=one.name, marks=[pytest.mark.ranks] if one.on_ranks else [pytest.mark.slow]) for one in EVERY
]


@pytest.mark.parametrize("recipe", CASES)
def test_a_recipe_prints_what_the_page_shows(recipe):
    assert recipes.comparable(recipes.output(recipe)) == recipes.comparable(recipe.stored)


def test_every_section_is_a_recipe_with_a_question_and_an_answer():
    sections = recipes.PAGE.read_text("utf-8").split("\n## ")[1:]
    assert len(sections) == len(EVERY) > 11
    for text in sections:
        assert text.count('*"') == 1 and len(recipes.BLOCK.split(text)[-1].split()) > 25


def test_an_output_that_has_changed_is_found(monkeypatch, tmp_path, capsys):
    page = tmp_path / "recipes.md"
    page.write_text("# R\n\n## Two\n\n```python\nprint(2)\n```\n\n```text\n3\n```\n\nYes.\n", encoding="utf-8")
    monkeypatch.setattr(recipes, "PAGE", page)
    assert recipes.main(["--check"]) == 1 and "Two: changed" in capsys.readouterr().out
    assert recipes.main([]) == 0 and "```text\n2\n```" in page.read_text("utf-8")
    assert recipes.main(["--check"]) == 0


@pytest.mark.parametrize("language, code", [("sh", "echo 3; exit 2"), ("python", "print(3)\nraise SystemExit(2)")])
def test_a_recipe_that_fails_has_no_output(language, code):
    with pytest.raises(RuntimeError, match="Three: status 2, make the recipe succeed:\n3"):
        recipes.output(recipes.Recipe("Three", language, code, "3\n"))


def test_a_recipe_that_takes_too_long_ends_with_all_its_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(recipes, "PATIENCE", 1)
    code = f"sleep 60 & echo $! > '{tmp_path}/child'\nsleep 60"
    with pytest.raises(subprocess.TimeoutExpired):
        recipes.output(recipes.Recipe("Long", "sh", code, ""))
    child, until = int((tmp_path / "child").read_text()), time.monotonic() + 10
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Whether a process runs: one that has ended may still wait for its parent to notice."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_wrong_gap_is_not_hidden():
    line = "1f1b on pp=2: {} from one device\n  largest gap 1e-13 (weight q), allowed 1e-10"
    equal, other = (recipes.comparable(line.format(word)) for word in ("equal", "differs"))
    assert equal != other and "1e-10" in equal
