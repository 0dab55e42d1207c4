"""Run a list of commands, the steps, each once, and store their results in a folder and on a page.

A step that was run on this machine with this code is not run again, so an interrupted call can be continued. A step may
consist of parts, notebooks or jobs. The result of each part is stored as soon as it is printed, and only missing parts
are run. A step, or a part of one, has a time limit. If one fails or is stopped, the others still have their results.

Relatives: `tools.first_hour`, the steps for a GPU.
"""

import contextlib
import datetime
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hybridlab.core.files import put
from hybridlab.measuring.gpu_suite import FOLDERS
from tools.course import HOUSE

LINES, LETTERS = 5, 160  # of what a step said: lines that are kept where it found nothing, letters of a line shown
CODE = (".py", ".cpp", ".ipynb")


@dataclass(frozen=True)
class Step:
    """One step: its name, its question, its command (the words after "python"), and a summary of its results.

    headlines  given its results, the JSON objects that it printed: lines for the page
    missing    why it cannot run here; "" if it can
    parts      the names of its parts, which are appended to its command; empty for a step without parts
    part       the key under which an object names its part
    code       letters that change with the code that it runs
    """

    name: str
    settles: str
    command: tuple[str, ...]
    headlines: Callable[[list[dict]], list[str]]
    missing: str = ""
    parts: Callable[[], list[str]] | None = None
    part: str = "name"
    code: str = ""


def run(
    steps: list[Step],
    folder: Path,
    title: str,
    key: dict,
    *,
    limit: float,
    again: bool = False,
    only: Sequence[str] = (),
) -> list[dict]:
    """Run the missing steps; returns every step's record, in order. The page is written after each step.

    title  of the page;  key  the machine; a record is valid for this key and the code of its step
    limit  seconds for each step, or for each part of one;  again  whether to repeat finished steps
    only   names of the steps to run; by default all. The others keep their records
    """
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for number, step in enumerate(steps, 1):
        heading = f"== {number} of {len(steps)}, {step.name}:"
        file = folder / f"{step.name}.json"
        record = (
            _record(step, file, key, heading, limit, again)
            if not only or step.name in only
            else _of_another_call(step, file, key)
        )
        print(heading, in_words(record), flush=True)
        records.append(record)
        (folder / "README.md").write_text(page(title, key, records), "utf-8")
    return records


def _record(step, file, key, heading, limit, again) -> dict:
    """The record of a step; it is run, unless its record is valid."""
    key = key | ({"code": step.code} if step.code else {})
    kept = {} if again else _kept(file)
    if step.missing:
        return told(step) | {"ended": "not run", "why": step.missing}
    if holds(kept, key):
        return kept
    print(heading, step.settles, flush=True)
    keep = lambda record: _keep(record | {"key": key}, file)
    return keep(ran(step, limit, kept if kept.get("key") == key else {}, keep))


def _of_another_call(step, file, key) -> dict:
    """The stored record of a step that was not asked for, if it is of this machine."""
    kept = _kept(file)
    if kept and _machine(kept["key"]) == _machine(key):
        return kept
    return told(step) | {"ended": "not run", "why": "not asked for"}


def _machine(key: dict) -> dict:
    return {name: one for name, one in key.items() if name != "code"}


def _kept(file) -> dict:
    """The stored record of a step; empty if there is none."""
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def _keep(record, file) -> dict:
    text = without_paths(json.dumps(record, indent=1, ensure_ascii=False))
    put(file, text + "\n")
    return json.loads(text)


def told(step: Step) -> dict:
    """The stored record of a step."""
    command = shlex.join(("python", *step.command)) + (" NAME…" if step.parts else "")
    return {"step": step.name, "settles": step.settles, "command": command}


def holds(record: dict, key: dict) -> bool:
    """Whether a record has the results of its step, on this machine with this code."""
    return record.get("key") == key and "found" in record


def ran(step: Step, limit: float, kept: dict | None = None, keep: Callable[[dict], object] = id) -> dict:
    """Run a step in separate processes, and show its output as it comes. A stopped step has the results "so far".

    kept  the record of an interrupted call: its parts are not run again
    keep  called with the current record after each part
    """
    kept, when = kept or {}, datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        parts = step.parts() if step.parts else []
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").splitlines()[-LINES:]
        ended = {"when": when, "took": 0.0, "ended": _ending(error.returncode, limit), "said": said}
        return kept | told(step) | ended
    found, begin = [], time.monotonic()
    if parts:
        found, begin = list(kept.get("so far", ())), begin - kept.get("took", 0)
    about = lambda: told(step) | {"when": when, "took": round(time.monotonic() - begin, 1)}
    missing = lambda: [part for part in parts if part not in {one.get(step.part) for one in found}]

    def hear(line) -> bool:
        one = _object(line)
        if not one or (parts and one.get(step.part) not in parts):
            return False
        found.append(one)
        if parts:
            keep(about() | {"ended": "was broken off", "so far": found})
        return bool(parts)

    lines, endings = _until_told(step.command, missing, limit, hear) if missing() or not parts else ([], {"": 0})
    ended = (_ending(code, limit) + (f" in {part}" if part else "") for part, code in endings.items())
    record = about() | {"ended": "; ".join(ended)}
    if not found:
        return record | {"said": lines[-LINES:]}
    headlines = _headlines(step, found)
    for one in found:
        if "file" in one:  # it keeps its rows there itself
            one.pop("rows", None)
    whole = not missing() if parts else endings[""] is not None
    return record | {"headlines": headlines, "found" if whole else "so far": found}


def _ending(code, limit) -> str:
    return {0: "well", None: f"was stopped after {limit:.0f} s"}.get(code, f"with exit code {code}")


def _until_told(command, missing, limit, hear) -> tuple[list[str], dict[str, int | None]]:
    """Run a command until no part is missing: (lines of its last run, {part: the exit code with which it ended a run}).

    Parts are run in order, so the first missing part ended the run; the command is started again for the parts after
    it. If a command reports no part at all, the command itself failed: its exit code has the name "".
    """
    lost = {}
    while True:
        todo = [part for part in missing() if part not in lost]
        lines, code = _played((*command, *todo), limit, hear)
        left = [part for part in missing() if part not in lost]
        if not left or (left == todo and code is not None and not lost):
            return lines, lost or {"": code}
        lost[left[0]] = code
        if len(left) == 1:
            return lines, lost


def _headlines(step, found) -> list[str]:
    try:
        return step.headlines(found)
    except Exception as error:  # after any error, results are stored and the other steps run
        return [f"what it found is not understood: {type(error).__name__}: {error}"]


def _object(line) -> dict | None:
    """The JSON object in a line; None if the line is incomplete, not JSON, or an error."""
    with contextlib.suppress(ValueError):
        one = json.loads(line) if line.startswith("{") else None
        return one if one and one.keys() != {"error", "code"} else None
    return None


def _played(command, limit, hear) -> tuple[list[str], int | None]:
    """(lines that a command printed, its exit code, or None if it took too long).

    hear  called with each line; if it returns true, the line reports a part, and the time of the next one starts
    """
    process = subprocess.Popen(
        [sys.executable, "-u", *command],
        cwd=HOUSE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    late = threading.Event()
    clock = _clock(limit, late, process)
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            print(lines[-1][:LETTERS], flush=True)
            if hear(lines[-1]):
                clock.cancel()
                clock = _clock(limit, late, process)
        code = process.wait()
    finally:
        clock.cancel()
        _end(process)
    return lines, None if late.is_set() else code


def _clock(limit, late, process) -> threading.Timer:
    clock = threading.Timer(limit, lambda: (late.set(), _end(process)))
    clock.start()
    return clock


def _end(process):
    """End a command and its child processes; ranks end when their parent ends."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def code(*places: str) -> str:
    """Twelve letters that change with any file of the package, or in these other files or folders.

    >>> code("tools") == code("tools"), code("tools") == code("tools", "bench")
    (True, False)
    """
    named = sorted({file for place in ("hybridlab", *places) for file in _files(HOUSE / place)})
    each = (f"{file.relative_to(HOUSE)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in named)
    return hashlib.sha256("\n".join(each).encode()).hexdigest()[:12]


def _files(place):
    return [file for file in (place.rglob("*") if place.is_dir() else [place]) if file.suffix in CODE]


def without_paths(text: str) -> str:
    """A text without the folders of this machine.

    >>> without_paths("cannot open /home/me/run/x")
    'cannot open …/x'
    """
    return FOLDERS.sub("…/", text)


def in_words(record: dict) -> str:
    """How a step went, in one line."""
    if "why" in record:
        return record["why"]
    ended = record["ended"] if record["ended"].startswith("was") else f"ended {record['ended']}"
    return f"{ended}, {record['took']:.0f} s, {record['when'][:10]}"


def page(title: str, key: dict, records: list[dict]) -> str:
    """The results of all steps, in Markdown."""
    about = "; ".join(f"{name} {value}" for name, value in key.items())
    parts = [f"# {title}\n\n{about}."]
    for record in records:
        lines = record.get("headlines", []) + record.get("said", [])
        told = "\n".join(f"- {' '.join(line.split())}" for line in lines)
        parts.append(
            f"## {record['step']}\n\nSettles: {record['settles']}. Command: `{record['command']}`.\n\n"
            f"{in_words(record)}" + (f"\n\n{told}" if told else "")
        )
    return "\n\n".join(parts) + "\n"
