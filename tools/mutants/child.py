"""Pytest in a child process: some tests of some files, in an order, and a note of everything that happens.

Notes are lines of JSON in the lane's room, written at once: a child that is killed has told what it was doing.
"""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings

from tools.mutants import tracer

NOTES = "notes"
ALWAYS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
DOCTESTS, PLAIN = ["-m", "not notebooks"], ["-m", "not notebooks", "--slow"]  # as in `make test`
NOTEBOOK = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", "--nbval-sanitize-with=tests/nbval.cfg"]


@dataclass
class Told:
    """What a child has noted.

    started  every test that began, in order;  tests  {test: its seconds}, of those that passed
    ranks    those that start processes;  running  the test that was under way when the child ended, or None
    failed   what did not pass: tests, files that cannot be collected, "import"
    """

    started: list[str] = field(default_factory=list)
    tests: dict[str, float] = field(default_factory=dict)
    ranks: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    running: str | None = None


def told(room: Path) -> Told:
    """What the child has noted that ran last in this room."""
    found, file = Told(), room / NOTES
    for line in file.read_text().splitlines() if file.exists() else ():
        what, test, seconds = json.loads(line)
        match what:
            case "start":
                found.started.append(test)
                found.running = test
            case "passed":
                found.tests[test] = seconds
            case "failed":
                found.failed.append(test)
            case "ranks":
                found.ranks.add(test)
            case "end":
                found.running = None
    return found


class Notes:
    """A plugin of pytest that leaves out some tests, orders the others, and notes how they end."""

    def __init__(self, file: Path, left_out=frozenset(), order=()):
        self.file = file.open("a", buffering=1)
        self.left_out, self.place = left_out, {test: n for n, test in enumerate(order)}
        self.number, self.seconds, self.passed = 0, {}, {}

    def note(self, what, test, seconds=0.0):
        self.file.write(json.dumps([what, test, round(seconds, 4)]) + "\n")

    def pytest_collectreport(self, report):
        if report.failed:
            self.note("failed", report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid not in self.left_out]
        items.sort(key=lambda item: self.place.get(item.nodeid, len(self.place)))
        for item in items:
            if item.get_closest_marker("ranks"):
                self.note("ranks", item.nodeid)

    def pytest_runtest_logstart(self, nodeid):
        self.note("start", nodeid)
        self.seconds[nodeid], self.passed[nodeid] = 0.0, False

    def pytest_runtest_logreport(self, report):
        test = report.nodeid
        self.seconds[test] += report.duration
        if report.when == "call":
            self.passed[test] = report.passed
        if report.failed:
            self.passed[test] = False
            self.note("failed", test)

    def pytest_runtest_logfinish(self, nodeid):
        self.note("end", nodeid)
        if self.passed[nodeid]:
            self.note("passed", nodeid, self.seconds[nodeid])


class Traced(Notes):
    """The same, and tells the tracers of all processes which test is under way: the first is number 1."""

    def __init__(self, file: Path, number: Path):
        super().__init__(file)
        self.cell = number.open("r+b", buffering=0)

    def pytest_runtest_logstart(self, nodeid):
        super().pytest_runtest_logstart(nodeid)
        self.cell.seek(0)
        self.cell.write(b"%08d" % len(self.seconds))


def run(room: Path, units: list[str], first: str | None, left_out: set, order: list[str]) -> int:
    """In a child: import one module, then run the tests of these units until one fails; pytest's exit code."""
    notes = Notes(room / NOTES, left_out, order)
    if first:
        try:
            __import__(first)
        except BaseException:
            notes.note("failed", "import")
            raise
    return _pytest(units, notes, "-x")


def trace(room: Path, unit: str, package: Path) -> int:
    """In a child: run all tests of a unit, and note which functions they call."""
    shutil.copy(tracer.__file__, room / "sitecustomize.py")
    (room / tracer.NUMBER).write_bytes(tracer.BEFORE)
    os.environ |= {tracer.FOLDER: str(room), tracer.PACKAGE: f"{package}/"}
    os.environ["PYTHONPATH"] += f":{room}"
    tracer.start()
    return _pytest([unit], Traced(room / NOTES, room / tracer.NUMBER))


def collect(room: Path) -> int:
    """In a child: find all tests."""
    return _pytest([], Collected(room / NOTES), "--collect-only")


class Collected(Notes):
    """Notes which tests there are."""

    def pytest_collection_finish(self, session):
        for item in session.items:
            self.note("passed", item.nodeid)


def _pytest(units, notes, *more) -> int:
    settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    settings.load_profile("mutants")
    return int(pytest.main([*ALWAYS, *_kind(units), *more, *units], plugins=[notes]))


def _kind(units) -> list[str]:
    """The options that these units are run with."""
    if any(unit.endswith(".ipynb") for unit in units):
        return NOTEBOOK
    return PLAIN if not units or any(unit.startswith("tests/") for unit in units) else DOCTESTS
