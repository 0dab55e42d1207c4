"""Steps: they are run once, go on after a failure and by their parts, end in time, and everything is on one page."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import steps
from tools.course import HOUSE
from tools.steps import Step

pytestmark = pytest.mark.slow

HERE, SINCE = {"machine": "1 × NVIDIA H200", "code": "a"}, "the first hour"


@pytest.fixture
def hour(tmp_path):
    """Runs steps, and says how often each was started."""

    class Hour:
        folder, started = tmp_path / "kept", tmp_path / "started"

        def step(self, name, code, **more):
            begin = f"open({str(self.started)!r}, 'a').write({name!r} + ' ')\n"
            return Step(
                name, f"whether {name} works", ("-c", begin + code), lambda found: [f"{found[0]['n']} found"], **more
            )

        def run(self, *todo, key=HERE, limit=20.0, **more):
            return steps.run(list(todo), self.folder, SINCE, key, limit=limit, **more)

        def starts(self):
            return self.started.read_text().split() if self.started.exists() else []

        def page(self):
            return (self.folder / "README.md").read_text()

    return Hour()


WELL = """import json; print("working"); print(json.dumps({"n": 3}))"""


def test_a_step_that_was_run_is_not_run_again(hour, capsys):
    well = hour.step("well", WELL)
    (first,), (second,) = hour.run(well), hour.run(well)
    assert first == second and first["found"] == [{"n": 3}] and first["ended"] == "well"
    assert hour.starts() == ["well"] and "working\n" in capsys.readouterr().out
    hour.run(well, again=True)
    assert hour.starts() == ["well"] * 2


def test_the_steps_that_are_named_run_and_the_others_keep_their_records(hour):
    one, other, never = hour.step("one", WELL), hour.step("other", WELL), hour.step("never", WELL)
    hour.run(one)
    kept, ran, left = hour.run(one, other, never, only=["other"], again=True)
    assert hour.starts() == ["one", "other"] and kept["found"] == ran["found"] == [{"n": 3}]
    assert left["why"] == "not asked for" and all(
        word in hour.page() for word in ("## one", "## other", "not asked for")
    )
    assert hour.run(one, only=["other"], key=HERE | {"machine": "another"})[0]["why"] == "not asked for"


@pytest.mark.parametrize("other", [{"code": "b"}, {"machine": "2 × NVIDIA H200"}])
def test_other_code_and_another_machine_run_it_again(hour, other):
    well = hour.step("well", WELL)
    hour.run(well)
    hour.run(well, key=HERE | other)
    assert hour.starts() == ["well"] * 2


def test_a_failure_costs_its_own_step_only_and_is_tried_again(hour):
    bad = hour.step("bad", "import sys; sys.exit('no such file: /home/me/data/x')")
    for _ in range(2):
        failed, fine = hour.run(bad, hour.step("well", WELL))
        assert failed["ended"] == "with exit code 1" and "found" not in failed and fine["found"] == [{"n": 3}]
    assert hour.starts() == ["bad", "well", "bad"]
    assert "no such file: …/x" in hour.page() and "/home" not in "".join(map(Path.read_text, hour.folder.iterdir()))


def test_a_verdict_that_is_told_is_a_result_whatever_the_exit_code(hour):
    (missed,) = hour.run(hour.step("missed", WELL + "; import sys; sys.exit(1)"))
    assert missed["ended"] == "with exit code 1" and missed["found"] == [{"n": 3}] and steps.holds(missed, HERE)


@pytest.mark.long
def test_a_step_that_takes_too_long_is_ended_with_all_that_it_started(hour, tmp_path):
    child = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
print("begun")
time.sleep(60)
"""
    begin = time.monotonic()
    (late,) = hour.run(hour.step("late", child), limit=3.0)
    assert late["ended"] == "was stopped after 3 s" and late["said"] == ["begun"] and time.monotonic() - begin < 20
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked after does not."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
def test_what_was_found_before_a_step_was_stopped_is_told_and_the_step_run_again(hour):
    slow = hour.step("slow", WELL + "; import time; time.sleep(60)")
    for _ in range(2):
        (late,) = hour.run(slow, limit=3.0)
        assert late["so far"] == [{"n": 3}] and late["headlines"] == ["3 found"] and "found" not in late
        assert "\n\nwas stopped after 3 s, " in hour.page()
    assert hour.starts() == ["slow"] * 2


def test_a_step_may_find_several_things():
    code = "for n in 1, 2: print('{\"n\": %d}' % n)\nprint('{\"n\": ')"  # the last one broken off
    two = Step("two", "", ("-c", code), lambda found: [f"{len(found)} found"])
    assert steps.ran(two, 20.0)["found"] == [{"n": 1}, {"n": 2}]


def test_an_error_that_a_command_tells_as_json_is_no_finding(hour):
    failing = hour.step("failing", """print('{"error": "there is none", "code": 2}'); import sys; sys.exit(2)""")
    (failed,) = hour.run(failing)
    assert "found" not in failed and failed["ended"] == "with exit code 2" and "there is none" in failed["said"][-1]


def test_a_finding_that_is_not_understood_costs_its_own_line_only(hour):
    odd, fine = hour.run(hour.step("odd", "print('{}')"), hour.step("odd too", "print('{\"m\": 3}')"))
    assert odd["said"] and fine["found"] == [{"m": 3}]
    assert fine["headlines"] == ["what it found is not understood: KeyError: 'n'"]


def test_the_page_tells_of_every_step_also_of_one_that_cannot_run(hour):
    records = hour.run(hour.step("well", WELL), hour.step("many", WELL, missing="it needs two GPUs"))
    assert records[1]["why"] == "it needs two GPUs" and hour.starts() == ["well"]
    text = hour.page()
    assert text.startswith("# the first hour\n\nmachine 1 × NVIDIA H200; code a.") and text.count("\n## ") == 2
    assert "- 3 found" in text and "it needs two GPUs" in text and "ended well, " in text


# ---- steps that are made of parts

TELLS = """
import json, sys, time
for name in sys.argv[1:]:
    open(STARTED, "a").write(f"{name} ")
    if (name, open(STARTED).read().count(name)) in ODD:
        ODD[name, open(STARTED).read().count(name)]()
    print(json.dumps({"name": name, "n": 1}), flush=True)
print('{"name": "all of them"}')
"""


def parts(hour, odd="{}", names="abc", **more):
    """A step of three parts, each of which notes that it begins; odd: {(name, how often it began): what it does}."""
    code = f"STARTED, ODD = {str(hour.started)!r}, {odd}\n{TELLS}"
    return Step("parts", "whether", ("-c", code), lambda found: [f"{len(found)} told"], parts=lambda: [*names], **more)


def test_a_step_of_parts_is_whole_when_each_has_told(hour):
    for _ in range(2):
        (one,) = hour.run(parts(hour))
        assert [found["name"] for found in one["found"]] == ["a", "b", "c"] and one["headlines"] == ["3 told"]
    assert hour.starts() == ["a", "b", "c"] and one["command"].endswith(" NAME…")


def test_a_step_that_was_broken_off_goes_on_with_the_parts_that_are_missing(hour, monkeypatch):
    """As by Ctrl-C, or when the machine is taken away: what was told is in the file already."""
    hear, broken = steps._object, iter("ab")

    def breaks(line):
        if "b" == next(broken, "b"):
            raise KeyboardInterrupt
        return hear(line)

    monkeypatch.setattr(steps, "_object", breaks)
    with pytest.raises(KeyboardInterrupt):
        hour.run(parts(hour))
    monkeypatch.undo()
    kept = json.loads((hour.folder / "parts.json").read_text())
    assert [one["name"] for one in kept["so far"]] == ["a"]
    before = hour.starts()
    (one,) = hour.run(parts(hour))
    assert [found["name"] for found in one["found"]] == ["a", "b", "c"]
    assert hour.starts()[len(before) :] == ["b", "c"]


def test_a_part_that_takes_too_long_is_named_and_left_out_and_the_next_call_tries_it_again(hour):
    slow = parts(hour, '{("b", 1): lambda: time.sleep(60)}')
    (late,) = hour.run(slow, limit=3.0)
    assert late["ended"] == "was stopped after 3 s in b" and [one["name"] for one in late["so far"]] == ["a", "c"]
    assert hour.starts() == ["a", "b", "c"]
    (one,) = hour.run(slow, limit=20.0)
    assert {found["name"] for found in one["found"]} == {"a", "b", "c"} and hour.starts() == ["a", "b", "c", "b"]


def test_the_limit_of_a_step_of_parts_is_that_of_each_part(hour):
    slow = parts(hour, "dict.fromkeys([(name, 1) for name in 'abc'], lambda: time.sleep(1.5))")
    (one,) = hour.run(slow, limit=3.0)
    assert one["took"] > 4 and one["ended"] == "well" and len(one["found"]) == 3


def test_a_part_that_ends_its_process_does_not_end_the_hour(hour):
    (one,) = hour.run(parts(hour, '{("b", n): lambda: sys.exit(3) for n in range(9)}'))
    assert one["ended"] == "with exit code 3 in b" and [found["name"] for found in one["so far"]] == ["a", "c"]
    assert hour.starts() == ["a", "b", "c"]


def test_a_command_that_tells_of_no_part_is_started_once(hour):
    (one,) = hour.run(parts(hour, '{("a", n): lambda: sys.exit(3) for n in range(9)}'))
    assert one["ended"] == "with exit code 3" and "found" not in one and hour.starts() == ["a"]


def test_parts_of_other_code_are_not_kept(hour):
    hour.run(parts(hour, '{("b", n): lambda: sys.exit(3) for n in range(9)}', code="a"))
    (one,) = hour.run(parts(hour, code="b"))
    assert len(one["found"]) == 3 and hour.starts()[-3:] == ["a", "b", "c"]


def test_a_step_whose_parts_cannot_be_told_costs_its_own_line_only(hour):
    def none():
        raise subprocess.CalledProcessError(1, "matrix", stderr="no such module\n")

    hour.run(parts(hour, '{("b", n): lambda: sys.exit(3) for n in range(9)}'))
    one, fine = hour.run(dataclasses.replace(parts(hour), parts=none), hour.step("well", WELL))
    assert one["said"] == ["no such module"] and "found" not in one and fine["found"]
    assert [part["name"] for part in one["so far"]] == ["a", "c"], "what was told stays"


ENDED = """
import sys
from pathlib import Path
from tools import first_hour
from tools.steps import Step

child = "import os; print('begun', os.getpid()); import time; time.sleep(60)"
first_hour.equality = lambda jobs: [Step("slow", "whether", ("-c", child), lambda found: [])]
first_hour.main(["--emulated", "--results", sys.argv[1]])
"""


@pytest.mark.long
def test_whoever_is_ended_from_outside_ends_the_step_that_runs(tmp_path):
    """As a batch system does at its limit: what went on alone would write into the same record as the next call."""
    hour = subprocess.Popen([sys.executable, "-c", ENDED, str(tmp_path)], cwd=HOUSE, stdout=subprocess.PIPE, text=True)
    pid = next(int(line.split()[1]) for line in hour.stdout if line.startswith("begun"))
    hour.terminate()
    assert hour.wait(20) == 143
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)
