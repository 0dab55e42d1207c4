"""What one machine measured, beside what others recorded; and how a course is recorded."""

import json
import os
import platform

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

import hybridlab as hl
from hybridlab.labs.by_machine import machines
from hybridlab.measuring import course_suite, record
from hybridlab.measuring.recorded import label, recorded
from hybridlab.measuring.row import row
from hybridlab.training.run import provenance
from hybridlab.world.devices.placement import ASKED

GPU = {"when": "2026-12-01T10:00:00+00:00", "gpus": [["NVIDIA H200", 150e9]], "cores": 16, "machine": "x86_64"}
CPU = {"when": "2026-11-01T10:00:00+00:00", "gpus": [], "cores": 2, "machine": "aarch64"}


@pytest.fixture
def results(tmp_path):
    """A folder with the records of two machines; the older one knows one quantity less, and names no device."""
    one, two = (row(name, "s", [0.3, 0.1, 0.2], device="cuda", notebook="tour") for name in ("one", "two"))
    other = row("two", "s", [9.0], device="cuda", notebook="naive")
    waited = row("three", "s", [7.0], device="cpu", notebook="tour")
    old = {key: value for key, value in one.items() if key != "device"}
    for name, machine, rows in (("gpu", GPU, [other, one, two, waited]), ("cpu", CPU, [old])):
        (tmp_path / f"course-{name}.json").write_text(json.dumps({"machine": machine, "rows": rows}))
    (tmp_path / "cpu-2026-11-01.json").write_text("a record of another suite")
    return tmp_path


def test_each_machine_has_a_column_named_by_device_and_day_the_oldest_first(results):
    table = machines("tour", {"one": (0.15, 0.25), "two": 0.004}, records=recorded(results))
    assert table.columns == ("predicted", "this machine", "2 cores aarch64, 2026-11-01", "1 × NVIDIA H200, 2026-12-01")
    assert table.rows == {"one": ("150 ms", "250 ms", "200 ms", "200 ms"), "two": ("", "4 ms", "", "200 ms")}
    assert str(table).splitlines()[1] == "two: this machine 4 ms; 1 × NVIDIA H200, 2026-12-01 200 ms"
    assert table._repr_html_().count("<th>") == 5 and table._repr_html_().count("<tr>") == 3


def test_what_is_measured_here_is_labelled_with_this_machine():
    here = provenance()
    assert label(here, "cpu") == f"{os.cpu_count()} cores {platform.machine()}, {here['when'][:10]}"


def test_what_a_gpu_machine_measured_on_its_cpu_is_not_the_gpus(results):
    table = machines("tour", {"one": 0.3, "three": 7.0}, records=recorded(results))
    assert table.columns[2:] == ("1 × NVIDIA H200, 2026-12-01", "16 cores x86_64, 2026-12-01")
    assert table.rows == {"one": ("300 ms", "200 ms", "200 ms", ""), "three": ("7 s", "", "", "7 s")}


def test_a_machine_that_measured_none_of_it_has_no_column(results):
    table = machines("naive", {"two": 1.0}, records=recorded(results))
    assert table.columns == ("this machine", "1 × NVIDIA H200, 2026-12-01")
    assert table.rows == {"two": ("1 s", "9 s")}


def test_a_timeline_counts_by_its_steps_and_names_are_escaped():
    timeline = hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2), hl.Costs(F=1, B=2, unit="s"))
    table = machines("tour", {"a < b": (timeline, [8.0, 10.0, 9.5])}, records=[])
    assert table.rows == {"a < b": ("9 s", "9.5 s")}
    assert "a &lt; b" in table._repr_html_()


def test_what_is_shown_is_written_down_when_a_course_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv(course_suite.TO, str(tmp_path / "rows"))
    monkeypatch.setenv(ASKED, "cuda:1")
    timeline = hl.simulate(hl.schedule("naive", ranks=2, microbatches=1), hl.Costs(F=1, B=2, unit="s"))
    timeline.origin["device"] = "cpu"
    machines("tour", {"one": (0.1, [0.2, 0.4, 0.3]), "two": timeline}, records=[])
    machines("sc21", {"a product": 5e9}, unit="FLOP/s", records=[], device="cpu")
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows == [
        row("one", "s", [0.2, 0.4, 0.3], device="cuda", notebook="tour"),
        row("two", "s", [6.0], device="cpu", notebook="tour"),
        row("a product", "FLOP/s", [5e9], device="cpu", notebook="sc21"),
    ]


@pytest.mark.slow
def test_a_record_is_kept_row_by_row(tmp_path, monkeypatch):
    def broken_off():
        yield row("one", "s", [0.1], device="cpu")
        raise KeyboardInterrupt

    monkeypatch.setattr(record, "_rows", lambda suite: broken_off())
    with pytest.raises(KeyboardInterrupt):
        record.measure("cpu", tmp_path)
    (file,) = tmp_path.iterdir()
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["one"]


def test_the_course_suite_goes_through_notebooks_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(course_suite, "_told_by", lambda path: [path.name])
    monkeypatch.setattr(course_suite.Path, "glob", lambda folder, _: iter([folder / "b", folder / "c", folder / "a"]))
    assert [*course_suite.rows(tmp_path)] == ["a", "b", "c"]


@pytest.mark.long
@pytest.mark.ranks
def test_the_course_suite_runs_notebooks_and_goes_on_after_one_that_fails(tmp_path):
    show = "from hybridlab import labs\nlabs.machines('x', {'one': 0.2})"
    for name, *cells in (("00_bad", show, "1 / 0"), ("01_good", show)):
        notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    bad, end, good, last = course_suite.rows(tmp_path)
    assert bad == good == row("one", "s", [0.2], device="cpu", notebook="x")
    assert (end["notebook"], end["failed"]) == ("00_bad", "ZeroDivisionError: division by zero")
    assert last["notebook"] == "01_good" and "failed" not in last and last["median"] > 0
