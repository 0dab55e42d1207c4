"""The reports of a class: the CSV, a page for each student, statistics, an assignment, rows that are kept."""

import csv
import io

import pytest

from hybridlab.labs.exercises import class_reports as reports
from hybridlab.labs.exercises import grade as grading
from hybridlab.labs.exercises import graded_before
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.grade import Row

SLOTS, ORDER = "naive.slots", "1f1b.order"
ROWS = [
    Row("ada.json", "Ada", {SLOTS: (True, "Right."), ORDER: (False, "Rank 0 did F0 & B0.")}),
    Row("bob.json", "=1+1", {SLOTS: (False, "Too large.")}),
    Row("eve.json", "", {SLOTS: (False, "Too large."), ORDER: (None, "it uses room")}, "stopped after 60 s"),
]


def test_a_csv_has_a_line_for_each_submission_and_no_formula():
    head, ada, bob, eve = csv.reader(io.StringIO(reports.as_csv(ROWS, (SLOTS, ORDER))))
    assert head == ["file", "student", "right", "of", SLOTS, ORDER, "problem"]
    assert ada == ["ada.json", "Ada", "1", "2", "1", "0", ""]
    assert bob == ["bob.json", "'=1+1", "0", "2", "0", "", ""]
    assert eve == ["eve.json", "", "0", "2", "0", "0", "stopped after 60 s"]


def test_a_name_with_the_separator_of_another_country_is_no_formula():
    names = ["Ada;=1+1", "Ada|@x", "a,  -1", "\t=1", "a-b; c+d"]
    rows = csv.reader(io.StringIO(reports.as_csv([Row("x.json", name) for name in names], ())))
    assert [row[1] for row in [*rows][1:]] == ["Ada;'=1+1", "Ada|'@x", "a,  '-1", "'\t=1", "a-b; c+d"]


def test_files_whose_names_look_alike_have_a_page_each(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "_graded", lambda file, *_: Row(grading._printable(file.name), file.read_text()))
    monkeypatch.setattr(grading, "load", lambda file: {"student": None, "answers": {}})
    names = ["a\x01", "a\x02", "a\ufffd (2)", *("x" * 100 + end for end in "yz")]
    for name in names:
        (tmp_path / f"{name}.json").write_text(name[-1])
    rows = grading.grade(tmp_path)
    pages = reports.write_pages(tmp_path / "pages", rows, ())
    assert len({row.file for row in rows}) == len(names) == len([*(tmp_path / "pages").iterdir()])
    assert all(f"<h1>{row.student}</h1>" in page.read_text("utf-8") for row, page in zip(rows, pages))


@pytest.mark.parametrize("text", ["{", "[]", "1", "{}", '{"tasks": {"naive.slots": 1}}', "[" * 10**5, "\ud800"])
def test_a_damaged_row_is_graded_again(tmp_path, monkeypatch, text):
    monkeypatch.setattr(grading, "load", lambda file: {"student": None, "answers": {}})
    monkeypatch.setattr(grading, "_graded", lambda file, *_: Row(file.name))
    (tmp_path / "a.json").write_text("{}")
    grading.grade(tmp_path, again=False)
    (kept,) = (tmp_path / graded_before.FOLDER).iterdir()
    kept.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert grading.grade(tmp_path, again=False) == [Row("a.json")]


@pytest.mark.parametrize(
    "reply", ["Too slow: no result after 10 s.", "no rank reported anything for 12 s: rank 0 in f."]
)
def test_a_reply_that_a_busy_machine_can_cause_is_not_kept(tmp_path, monkeypatch, reply):
    monkeypatch.setattr(grading, "load", lambda file: {"student": None, "answers": {}})
    monkeypatch.setattr(grading, "_graded", lambda file, *_: Row(file.name, tasks={ORDER: (False, reply)}))
    (tmp_path / "a.json").write_text("{}")
    grading.grade(tmp_path, again=False)
    assert not (tmp_path / graded_before.FOLDER).exists()


def test_a_student_hears_no_advice_for_callers_of_hybridlab():
    from hybridlab.labs.trials import trial
    from hybridlab.world.explain import faults, supervise

    for advice in (supervise.LONGER, supervise.MUCH_LONGER):
        told = f"no rank reported anything for 12 s: rank 0 in f; {advice}; {faults.FRESH}"
        assert trial._without_advice(told) == "no rank reported anything for 12 s: rank 0 in f"


def test_a_student_reads_each_reply(tmp_path):
    ada, bob, eve = reports.write_pages(tmp_path / "pages", ROWS, (SLOTS, ORDER))
    text = ada.read_text(encoding="utf-8")
    assert ada.name == "ada.html" and "1 of 2 right" in text and "Rank 0 did F0 &amp; B0." in text
    assert "not answered" in bob.read_text("utf-8") and "stopped after 60 s" in eve.read_text("utf-8")
    with pytest.raises(ValueError, match="cannot write into .*ada.html: it is not a folder; give a folder"):
        reports.write_pages(ada, ROWS, (SLOTS,))


def test_statistics_begin_with_the_hardest_exercise():
    found = reports.statistics(ROWS, (SLOTS, ORDER, "gpipe.size"))
    assert found[SLOTS] == {"answered": 3, "right": 1, "most frequent wrong reply": "Too large.", "times": 2}
    hard, easy = reports.told(found).splitlines()
    assert hard.startswith(f"{ORDER}     0 of 2 right") and easy.endswith("1 of 3 right; 2 × Too large.")


@pytest.mark.parametrize("said", ["12_1f1b", "1f1b"])
def test_an_assignment_is_notebooks_and_exercises(said):
    assert reports.chosen(said) == tuple(task for task in TASKS if task.startswith("1f1b."))
    assert reports.chosen(f"{SLOTS}, {said}") == (SLOTS, *reports.chosen(said))
    assert reports.chosen(None) == tuple(TASKS)
    with pytest.raises(ValueError, match=r"assignment='11_gpip' is invalid: no exercise has this name\. Choose from "):
        reports.chosen("11_gpip")


def test_only_the_answers_of_an_assignment_count(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(grading, "load", lambda file: {"student": None, "answers": {SLOTS: 5, ORDER: 1}})
    monkeypatch.setattr(grading, "_graded", lambda file, one, seconds: seen.append(one["answers"]) or Row(file.name))
    (tmp_path / "a.json").write_text("{}")
    grading.grade(tmp_path, tasks=(SLOTS,))
    assert seen == [{SLOTS: 5}]


def test_a_row_is_kept_until_something_changes(tmp_path, monkeypatch):
    """A second grading checks nothing; another answer, another limit or --again does; a problem is never kept."""
    done, answers, problem = [], {SLOTS: 5}, ""

    def graded(file, one, seconds):
        done.append(file.name)
        return Row(file.name, "Ada", {SLOTS: (True, "Right.")}, problem, ("no IP network",))

    monkeypatch.setattr(grading, "load", lambda file: {"student": "Ada", "answers": dict(answers)})
    monkeypatch.setattr(grading, "_graded", graded)
    (tmp_path / "ada.json").write_text("{}")
    (first,), (second,) = (grading.grade(tmp_path, again=False) for _ in range(2))
    assert first == second and len(done) == 1
    assert grading.remarks(tmp_path, [first]) == []  # the kept rows are not a file that was not read
    grading.grade(tmp_path, again=True)
    grading.grade(tmp_path, 60.0, again=False)
    answers[SLOTS], problem = 6, "stopped after 60 s"
    for _ in range(2):
        grading.grade(tmp_path, 60.0, again=False)
    assert len(done) == 5
    (kept, *_) = (tmp_path / graded_before.FOLDER).iterdir()
    for file in (tmp_path / graded_before.FOLDER).iterdir():
        file.write_text("{")
    answers[SLOTS] = 5
    grading.grade(tmp_path, 60.0, again=False)
    assert len(done) == 6, f"a damaged row, as {kept.name}, is not believed"


def test_rows_are_in_the_order_of_their_names_whichever_is_ready_first(tmp_path, monkeypatch):
    import threading

    last = threading.Event()

    def graded(file, one, seconds):
        _ = file.stem == "b" or last.wait(10)
        return Row(file.name)

    def on_row(row):
        ready.append(row.file)
        last.set()

    monkeypatch.setattr(grading, "load", lambda file: {"student": None, "answers": {}})
    monkeypatch.setattr(grading, "_graded", graded)
    for name in "ab":
        (tmp_path / f"{name}.json").write_text("{}")
    ready = []
    rows = grading.grade(tmp_path, on_row=on_row, jobs=2)
    assert ready == ["b.json", "a.json"] and [row.file for row in rows] == ["a.json", "b.json"]
    with pytest.raises(ValueError, match="jobs=0 is invalid"):
        grading.grade(tmp_path, jobs=0)
