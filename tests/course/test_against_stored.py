"""Notebooks against what is stored: what differs is tried again, alone, and said."""

import json
import pathlib

import nbformat
import pytest

from hybridlab.labs.by_machine import machines
from hybridlab.measuring.recorded import recorded
from hybridlab.measuring.row import row, where
from hybridlab.world.devices.placement import placement
from tools import against_stored
from tools.course import FOLDER

ONCE = "import pathlib; at = pathlib.Path('once'); print(at.exists()); at.touch()"  # says True from the second run on


def stored(path: pathlib.Path, source: str, said: str) -> pathlib.Path:
    """A notebook of one cell, with what it printed."""
    printed = nbformat.v4.new_output("stream", text=said)
    cell = nbformat.v4.new_code_cell(source, outputs=[printed], execution_count=1)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


def test_the_order_names_notebooks_that_exist():
    paths = sorted(FOLDER.glob("*.ipynb"))
    ordered = against_stored.in_order(paths)
    assert sorted(ordered) == paths
    assert tuple(path.stem for path in ordered)[: len(against_stored.LONG)] == against_stored.LONG


def test_a_few_are_of_every_part_of_the_course():
    names = {path.stem for path in FOLDER.glob("*.ipynb")}
    parts = [{name[0] for name in some} for some in (names - {"50_capstone"}, against_stored.FEW)]
    assert set(against_stored.FEW) <= names and parts[0] == parts[1]


@pytest.mark.notebooks
def test_what_differs_is_run_again_and_named(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(against_stored, "TWO", ())  # one process is enough for three cells
    good = stored(tmp_path / "good.ipynb", "print(1)", "1\n")
    once = stored(tmp_path / "once.ipynb", ONCE, "True\n")
    never = stored(tmp_path / "never.ipynb", "print(1)", "2\n")
    assert against_stored.compare([good, once]) == 0
    assert capfd.readouterr().out.endswith("Tried again, alone: 1 of 2 notebooks: once\n")
    assert against_stored.compare([good, never]) == 1
    assert capfd.readouterr().out.endswith("Tried again, alone: 1 of 2 notebooks: never\n")


@pytest.mark.notebooks
def test_a_record_of_another_machine_is_shown_and_does_not_fail_a_notebook(tmp_path, capfd, monkeypatch):
    """Whoever has measured a GPU adds its record to results/: every table has columns more than the stored one."""
    monkeypatch.setattr(against_stored, "TWO", ())
    gpu = {"when": "2026-12-01T10:00:00+00:00", "gpus": [["NVIDIA H200", 150e9]], "cores": 16, "machine": "x86_64"}
    measured = [
        row(name, "s", [0.2], device="cuda", notebook="tour", **where(placement(ranks, gpus=1)))
        for name, ranks in (("one", 1), ("four", 4))
    ]
    (tmp_path / "course-cuda.json").write_text(json.dumps({"machine": gpu, "whole": True, "rows": measured}))
    assert [one.label for one in recorded(tmp_path)] == [
        "1 × NVIDIA H200, 2026-12-01",
        "1 × NVIDIA H200 shared by 4 ranks, 2026-12-01",
    ]
    more = machines("tour", {"one": (0.1, 0.3), "four": 0.4}, records=recorded(tmp_path), device="cpu")
    fewer = machines("tour", {"one": (0.1, 0.3), "four": 0.4}, records=[], device="cpu")
    assert len(more.columns) == len(fewer.columns) + 2 and "NVIDIA" in more._repr_html_()
    source = """from hybridlab import labs
from hybridlab.measuring.recorded import recorded
labs.machines("tour", {"one": (0.1, 0.35), "four": MEASURED}, records=recorded("."), device="cpu")"""
    for name, said in (("0.44", 0), ("(0.2, 0.44)", 1)):  # what is predicted is still compared
        shown = {"text/plain": repr(fewer), "text/html": fewer._repr_html_()}
        output = nbformat.v4.new_output("execute_result", shown, execution_count=1)
        cell = nbformat.v4.new_code_cell(source.replace("MEASURED", name), outputs=[output], execution_count=1)
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "made.ipynb")
        assert against_stored.run([tmp_path / "made.ipynb"])[0] == said, capfd.readouterr().out


@pytest.mark.notebooks
def test_a_core_is_run_without_what_stands_under_further(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(against_stored, "TWO", ())
    cells = [
        ("# Core", "x = 1; print(x)", "1\n"),
        ("# Further", "x = 2; print('no')", "yes\n"),
        ("## Recap", "print(x)", "1\n"),
    ]
    made = nbformat.v4.new_notebook()
    for heading, source, said in cells:
        output = nbformat.v4.new_output("stream", text=said)
        code = nbformat.v4.new_code_cell(source, outputs=[output], execution_count=1)
        made.cells += [nbformat.v4.new_markdown_cell(heading), code]
    nbformat.write(made, path := tmp_path / "made.ipynb")
    assert against_stored.main(["--core", str(path)]) == 0
    assert "2 passed, 1 deselected" in capfd.readouterr().out
    assert against_stored.main([str(path)]) == 1


def test_a_name_that_no_notebook_has_is_refused_before_anything_runs(capsys):
    with pytest.raises(SystemExit, match="2"):
        against_stored.main(["40_hybrd"])
    assert "no notebook is named 40_hybrd: choose among 00_start, " in capsys.readouterr().err
