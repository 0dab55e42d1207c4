"""Steps: commands that are run one after the other, each once, with what they told kept in a folder and on a page.

A step that was run on this machine with this code is not run again, so whoever breaks off goes on where he was. Each
has a limit of time, and one that fails or is stopped costs nobody else a result.

Relatives: `tools.first_hour`, the steps for a GPU.
"""

import contextlib
import datetime
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hybridlab.measuring.gpu_suite import FOLDERS
from tools.course import HOUSE

LINES, LETTERS = 5, 160  # of what a step said: lines that are kept where it found nothing, letters of a line shown


@dataclass(frozen=True)
class Step:
    """One step: its name, what it settles, its command (what stands behind "python"), what to tell of its findings.

    headlines  of what it found, the JSON objects that it printed: lines for the page
    missing    why it cannot run here; "" where it can
    """

    name: str
    settles: str
    command: tuple[str, ...]
    headlines: Callable[[list[dict]], list[str]]
    missing: str = ""


def run(steps: list[Step], folder: Path, title: str, key: dict, *, limit: float, again: bool = False) -> list[dict]:
    """Run what has not been run; returns every step's record, in order. The page is written after each step.

    title  of the page;  key  what a record holds for: the machine and the code
    limit  seconds for each step;  again  repeats what is there
    """
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for number, step in enumerate(steps, 1):
        file = folder / f"{step.name}.json"
        kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if step.missing:
            record = told(step) | {"ended": "not run", "why": step.missing}
        elif not again and holds(kept, key):
            record = kept
        else:
            print(f"== {number} of {len(steps)}, {step.name}: {step.settles}", flush=True)
            text = without_paths(json.dumps(ran(step, limit) | {"key": key}, indent=1, ensure_ascii=False))
            file.write_text(text + "\n", "utf-8")
            record = json.loads(text)
        print(f"== {number} of {len(steps)}, {step.name}: {in_words(record)}", flush=True)
        records.append(record)
        (folder / "README.md").write_text(page(title, key, records), "utf-8")
    return records


def told(step: Step) -> dict:
    """What is known of a step before it runs."""
    return {"step": step.name, "settles": step.settles, "command": shlex.join(("python", *step.command))}


def holds(record: dict, key: dict) -> bool:
    """Whether a record tells what its step found, on this machine with this code."""
    return record.get("key") == key and "found" in record


def ran(step: Step, limit: float) -> dict:
    """Run a step in processes of its own; what it prints is shown as it comes. One that is stopped tells "so far"."""
    when, begin = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), time.monotonic()
    lines, code = _played(step.command, limit)
    ended = {0: "well", None: f"was stopped after {limit:.0f} s"}.get(code, f"with exit code {code}")
    record = told(step) | {"when": when, "took": round(time.monotonic() - begin, 1), "ended": ended}
    found = list(_objects(lines))
    if not found:
        return record | {"said": lines[-LINES:]}
    headlines = step.headlines(found)
    for one in found:
        if "file" in one:  # it keeps its rows there itself
            one.pop("rows", None)
    return record | {"headlines": headlines, "so far" if code is None else "found": found}


def _objects(lines):
    """The JSON objects among some lines. One that was broken off, or is no JSON, is not the step's."""
    for line in lines:
        with contextlib.suppress(ValueError):
            if line.startswith("{"):
                yield json.loads(line)


def _played(command, limit) -> tuple[list[str], int | None]:
    """(lines that a command printed, its exit code, or None if it took too long)."""
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
    clock = threading.Timer(limit, lambda: (late.set(), _end(process)))
    clock.start()
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            print(lines[-1][:LETTERS], flush=True)
        code = process.wait()
    finally:
        clock.cancel()
        _end(process)
    return lines, None if late.is_set() else code


def _end(process):
    """End a command and what it has started; ranks end when the one who started them does."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


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
    """What all steps told, in Markdown."""
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
