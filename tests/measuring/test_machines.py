"""What one machine measured, beside what others recorded; and how a course is recorded."""

import ast
import json
import os
import platform
import threading

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

import hybridlab as hl
from hybridlab.labs.by_machine import machines
from hybridlab.measuring import cards, course_suite, record
from hybridlab.measuring.recorded import label, recorded
from hybridlab.measuring.row import row
from hybridlab.training.run import provenance
from hybridlab.world.devices.placement import ASKED
from tools.course import HOUSE

GPU = {"when": "2026-12-01T10:00:00+00:00", "gpus": [["NVIDIA H200", 150e9]], "cores": 16, "machine": "x86_64"}
SHARED = {"ranks": 4, "backend": "gloo", "ranks per GPU": 4}
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
    assert table._repr_html_().count('"listitem"') == 2
    assert table._repr_html_().count('<span class="elsewhere hl-number">') == 2 * 3  # a head and two cells each


def test_what_is_measured_here_is_labelled_with_this_machine():
    here = provenance()
    assert label(here, "cpu") == f"{os.cpu_count()} cores {platform.machine()}"


def test_what_a_gpu_machine_measured_on_its_cpu_is_not_the_gpus(results):
    table = machines("tour", {"one": 0.3, "three": 7.0}, records=recorded(results))
    assert table.columns[2:] == ("1 × NVIDIA H200, 2026-12-01", "16 cores x86_64, 2026-12-01")
    assert table.rows == {"one": ("300 ms", "200 ms", "200 ms", ""), "three": ("7 s", "", "", "7 s")}


def test_a_machine_that_measured_none_of_it_has_no_column(results):
    table = machines("naive", {"two": 1.0}, records=recorded(results))
    assert table.columns == ("this machine", "1 × NVIDIA H200, 2026-12-01")
    assert table.rows == {"two": ("1 s", "9 s")}


def test_ranks_that_shared_a_gpu_have_a_column_that_says_so(tmp_path):
    """Beside CPUs it would read as a speed-up, or as a slow GPU."""
    alone, shared = ({"ranks": 1, "backend": "nccl", "ranks per GPU": 1}, SHARED)
    rows = [row("a step", "s", [1.0], device="cuda", notebook="tour", **alone)]
    rows += [row("four", "s", [2.0], device="cuda", notebook="tour", **shared)]
    kept(tmp_path / "course-cuda.json", GPU, rows)
    table = machines("tour", {"a step": 9.0, "four": 9.0}, records=recorded(tmp_path), device="cpu")
    assert table.columns[1:] == ("1 × NVIDIA H200, 2026-12-01", "1 × NVIDIA H200 shared by 4 ranks, 2026-12-01")
    assert table.rows == {"a step": ("9 s", "1 s", ""), "four": ("9 s", "", "2 s")}


def test_a_timeline_says_its_own_device_and_ranks(monkeypatch, tmp_path):
    monkeypatch.setenv(course_suite.TO, str(tmp_path / "rows"))
    monkeypatch.setenv(ASKED, "cuda:1")
    timeline = hl.simulate(hl.schedule("naive", ranks=2, microbatches=1), hl.Costs(F=1, B=2, unit="s"))
    timeline.origin.update(device="cuda", mesh={"dp": 2, "pp": 2})
    machines("tour", {"two": timeline}, records=[])
    assert json.loads((tmp_path / "rows").read_text()).items() >= (SHARED | {"device": "cuda"}).items()


def test_a_record_counts_when_it_is_whole_and_of_one_machine_the_newest(tmp_path):
    rows = lambda seconds: [row("one", "s", [seconds], device="cuda", notebook="tour")]
    kept(tmp_path / "course-cuda-1.json", GPU, rows(1.0))  # as records were before they said it
    kept(tmp_path / "course-cuda-2.json", GPU | {"when": "2026-12-02T10:00:00+00:00"}, rows(2.0), whole=True)
    kept(tmp_path / "course-cuda-3.json", GPU | {"when": "2026-12-03T10:00:00+00:00"}, rows(3.0), whole=False)
    (one,) = recorded(tmp_path)
    assert one.label == "1 × NVIDIA H200, 2026-12-02" and one.row("tour", "one")["median"] == 2.0


def kept(file, machine, rows, **more):
    """A record in a file."""
    file.write_text(json.dumps({"machine": machine, "rows": rows} | more))


TIMED = {  # what a notebook hands to labs.machines: timelines say their device, numbers are said to be of something
    "device": {"02_one_device", "31_matmul", "32_experts", "33_context", "34_convolution", "35_layouts", "36_axonn"},
    "ranks": {"20_collectives", "21_data_parallel", "30_megatron", "41_choosing", "42_sc21", "43_search"},
    "": {"01_tour", "10_naive", "11_gpipe", "12_1f1b", "13_interleaved", "14_zero_bubble", "15_pipedream"}
    | {"16_slices", "22_zero_fsdp", "23_out_of_core", "40_hybrid", "50_capstone"},
}


def test_waiting_is_never_labelled_as_a_gpus_work():
    """Each notebook that hands plain numbers to labs.machines says what they were measured on, or by how many ranks."""
    found = {}
    for path in course_suite.notebooks(HOUSE / "notebooks"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and "labs.machines(" in cell.source:
                for said in said_to_machines(cell.source):
                    found.setdefault(said, set()).add(path.stem)
    assert found == TIMED


def said_to_machines(source):
    """Of each call of labs.machines in a cell: "device", "ranks", or ""."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    for call in calls:
        if ast.unparse(call.func) == "labs.machines":
            yield next((word.arg for word in call.keywords if word.arg in ("device", "ranks")), "")


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
    machines("tour", {"one": (0.1, [0.2, 0.4, 0.3]), "two": timeline}, records=[], ranks={"one": 4})
    machines("sc21", {"a product": 5e9}, unit="FLOP/s", records=[], device="cpu")
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows == [
        row("one", "s", [0.2, 0.4, 0.3], device="cuda", notebook="tour", **SHARED),
        row("two", "s", [6.0], device="cpu", notebook="tour"),
        row("a product", "FLOP/s", [5e9], device="cpu", notebook="sc21"),
    ]


@pytest.mark.slow
def test_a_record_is_kept_row_by_row(tmp_path, monkeypatch):
    def broken_off():
        yield row("one", "s", [0.1], device="cpu")
        raise KeyboardInterrupt

    monkeypatch.setattr(record, "_rows", lambda *_: broken_off())
    with pytest.raises(KeyboardInterrupt):
        record.measure("cpu", tmp_path)
    (file,) = tmp_path.iterdir()
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["one"]


def test_the_course_suite_goes_through_notebooks_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(course_suite, "_told_by", lambda path: [path.name])
    monkeypatch.setattr(course_suite.Path, "glob", lambda folder, _: iter([folder / "b", folder / "c", folder / "a"]))
    assert [*course_suite.rows(folder=tmp_path)] == ["a", "b", "c"]
    assert [*course_suite.rows(["c"], tmp_path)] == ["c"]
    assert {*course_suite.rows(folder=tmp_path, jobs=2)} == {"a", "b", "c"}
    with pytest.raises(ValueError, match="there is no notebook 'd'"):
        course_suite.rows(["d"], tmp_path)


@pytest.fixture
def three(tmp_path, monkeypatch):
    """A folder with three notebooks, each of which measures one thing, when a course is recorded in it."""
    (tmp_path / "notebooks").mkdir()
    for name in "abc":
        (tmp_path / "notebooks" / f"{name}.ipynb").touch()
    tell = lambda path: (
        row(f"of {path.stem}", "s", [1.0], device="cpu", notebook="short"),
        row(course_suite.WHOLE, "s", [1.0], device="cpu", notebook=path.stem),
    )
    monkeypatch.setattr(course_suite, "_told_by", tell)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_a_record_that_was_broken_off_goes_on_after_its_last_whole_notebook(three):
    def breaks(one):
        if one["name"] == "of c":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record.measure("course", three, breaks)
    assert recorded(three) == []  # two notebooks and a row are no column
    found, file = record.measure("course", three, only=["c"])
    assert [*three.iterdir()] == [file] and json.loads(file.read_text()) == found
    assert [one["name"] for one in found["rows"]] == [f"of {n}" if i else course_suite.WHOLE
                                                      for n in "abc" for i in (1, 0)]  # fmt: skip
    assert found["whole"] and len(recorded(three)) == 1


def test_a_notebook_that_is_run_again_replaces_its_rows_and_whole_records_stay(three):
    first, file = record.measure("course", three, only=["a", "b"])
    assert not first["whole"]
    again, same = record.measure("course", three, only=["b"])
    assert same == file and [one["notebook"] for one in again["rows"]] == ["short", "a", "short", "b"]
    whole, same = record.measure("course", three, only=["c"])
    _, other = record.measure("course", three, only=["a"])
    assert same == file and whole["whole"] and other != file and json.loads(file.read_text()) == whole


def test_a_record_of_another_machine_is_not_gone_on_with(three, monkeypatch):
    _, file = record.measure("course", three, only=["a"])
    monkeypatch.setattr(record, "hardware", lambda: {"memory": 1, "gpus": [["NVIDIA H200", 150]]})
    _, other = record.measure("course", three, only=["b"])
    assert other != file


def test_notebooks_that_ran_at_the_same_time_are_recorded_as_such(three):
    """Their times are longer, so they are added to no other record, and the label says it."""
    _, alone = record.measure("course", three, only=["a"])
    found, file = record.measure("course", three, jobs=2)
    assert file != alone and found["whole"] and found["machine"]["notebooks at once"] == 2
    assert [one.label.partition(",")[0].endswith(" shared by 2 notebooks") for one in recorded(three)] == [True]
    with pytest.raises(ValueError, match="jobs=0 is out of range: give 1 or more"):
        record.measure("course", three, jobs=0)


def test_a_notebook_waits_for_the_others_at_once(tmp_path, monkeypatch):
    """Two notebooks that meet: one after the other, they would wait forever."""
    meet = threading.Barrier(2, timeout=10)
    monkeypatch.setattr(course_suite, "_told_by", lambda path: [meet.wait() >= 0])
    monkeypatch.setattr(course_suite.Path, "glob", lambda folder, _: iter([folder / "a", folder / "b"]))
    assert [*course_suite.rows(folder=tmp_path, jobs=2)] == [True, True]


@pytest.mark.parametrize("suite", ["cpu", "gpu"])
def test_only_the_course_has_notebooks(suite, tmp_path):
    with pytest.raises(ValueError, match=f"the {suite} suite has no notebooks"):
        record.measure(suite, tmp_path, only=["10_naive"])


SMI = """#!/bin/sh
case "$*" in
  "--query-gpu=clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,persistence_mode,ecc.mode.current,"*)
    echo "1980 MHz, 2619 MHz, 1980 MHz, 2619 MHz, 700.00 W, Enabled, Enabled, Disabled, Default" ;;
  "--query-compute-apps=used_memory --format=csv,noheader") echo "1024 MiB"; echo "512 MiB" ;;
  "topo -m") printf '\\033[4m\\tGPU0\\tCPU Affinity\\033[0m\\nGPU0\\t X \\t0-15\\n\\nLegend:\\n\\n  X = Self\\n' ;;
  *) exit 2 ;;
esac
"""


@pytest.mark.slow
def test_a_record_says_how_its_cards_are_set_and_nobodys_name(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = cards.settings()
    (card,) = found["cards"]
    assert card["power.limit"] == "700.00 W" and card["clocks.sm"] == "1980 MHz"
    assert card["persistence_mode"] == card["ecc.mode.current"] == "Enabled" and card["mig.mode.current"] == "Disabled"
    assert found["other processes"] == ["1024 MiB", "512 MiB"]
    assert found["topology"] == ["GPU0 CPU Affinity", "GPU0 X 0-15"]
    assert not {"uuid", "serial", "pci", "name"} & set(cards.ASKED.replace(".", ",").split(","))


def test_without_nvidia_smi_nothing_is_said_of_cards(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cards.settings() == {"cards": [], "other processes": [], "topology": []}


@pytest.mark.long
@pytest.mark.ranks
def test_the_course_suite_runs_notebooks_and_goes_on_after_one_that_fails(tmp_path):
    show = "from hybridlab import labs\nlabs.machines('x', {'one': 0.2})"
    for name, *cells in (("00_bad", show, "1 / 0"), ("01_good", show)):
        notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    bad, end, good, last = course_suite.rows(folder=tmp_path)
    assert bad == good == row("one", "s", [0.2], device="cpu", notebook="x")
    assert (end["notebook"], end["failed"]) == ("00_bad", "ZeroDivisionError: division by zero")
    assert last["notebook"] == "01_good" and "failed" not in last and last["median"] > 0
