"""Moments: a driver, the warm parent of its ranks, or a rank is struck by a signal at any moment, again and again.

    python tests/faults/moments.py [--tries 500] [--seed 0] [--only grade] [--out results/moments.json]

Every try is a command of its own (`struck.COMMANDS`), with a folder of its own for temporary files. After the strike
it must end in time and say who was struck, and leave neither a process nor a file; of checkpoints there is a whole one,
or none. A grade goes on: who was struck stands in the row of that submission, and the others are graded. What has ended
before the strike came is right when it ended well.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from faults.struck import COMMANDS, STUDENTS, begun, marked, there  # the path comes first

from hybridlab.training.checkpoints import folder, index
from hybridlab.training.run import provenance

LIMIT, LEAVE = 45.0, 8.0  # seconds to end, of which ten are patience with a rank that stands still; to be gone


def tried(number: int, seed: int, usual: dict[tuple[str, str], float], names: list[str]) -> dict:
    """One try: {command, struck, signal, moment, wrong}; wrong is empty where all is as it should be."""
    chance = random.Random(f"{seed}/{number}")
    name = chance.choice(names)
    who, what = chance.choice(COMMANDS[name].strikes)
    moment = chance.uniform(0, usual[name, who])  # from when the victim is there
    with tempfile.TemporaryDirectory(prefix="moment-") as place:
        told = {"try": number, "command": name, "struck": who, "signal": what, "moment": round(moment, 2)}
        process, kept, room = begun(name, str(number), place)
        while who != "driver" and process.poll() is None and not there(process.pid, str(number), who):
            time.sleep(0.05)
        time.sleep(moment)
        victims = [] if process.poll() is not None else struck(process.pid, str(number), who, what, chance)
        if not victims and process.poll() is None:
            told["struck"] = "nobody"  # who was to be struck was not there yet, or no more
        begin = time.monotonic()
        try:
            told_by = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            told_by = None
        told["seconds"] = round(time.monotonic() - begin, 2)
        ended = (process.returncode, *told_by, who, what, victims) if told_by else None
        told["wrong"] = JUDGES.get(name, judged)(*ended) if ended else "still running"
        told["wrong"] = told["wrong"] or left(str(number), room) or damaged(kept)
        for pid in marked(str(number)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    return told


def struck(driver: int, number: str, who: str, what: str, chance) -> list[int]:
    """Strike one of them; returns [its rank], or [-1] where it has none, or [] where nobody of the kind was there."""
    with contextlib.suppress(OSError):  # it may end just now
        if found := there(driver, number, who):
            at = chance.randrange(len(found))
            os.kill(found[at], getattr(signal, what))
            return [at if who == "rank" else -1]
    return []


def judged(code: int, out: str, said: str, who: str, what: str, victims: list[int]) -> str:
    """What is wrong with how a command of one's own ended."""
    if "Traceback" in said and not (who == "driver" and what == "SIGINT" and interrupted(code, said)):
        return f"a traceback: {said[-300:]}"
    if code == 0 or not victims:
        return "" if code == 0 else f"nobody was struck, and it ended with {code}: {said[-300:]}"
    if who == "driver":
        return of_driver(code, said, what)
    return unnamed(said, who, what, victims) or ("" if code == 1 else f"ended with {code}: {said[-300:]}")


def of_driver(code: int, said: str, what: str) -> str:
    """What is wrong with how a driver that was struck ended."""
    number = getattr(signal, what)
    right = code in (-number, 128 + number, 130) or interrupted(code, said)
    return "" if right else f"ended with {code}: {said[-300:]}"


def interrupted(code: int, said: str) -> bool:
    """Whether Ctrl-C came while Python itself was still starting, or leaving: then it tells so in its own words."""
    return code == -signal.SIGINT or (code == 1 and said.rstrip().endswith("KeyboardInterrupt"))


def unnamed(said: str, who: str, what: str, victims: list[int]) -> str:
    """What is missing where it does not say who was struck, and by what."""
    name = f"rank {victims[0]}" if who == "rank" else "the parent process of the ranks"
    because = {"SIGSTOP": ""}.get(what, what) if who == "rank" else "has ended"
    return "" if f"{name} " in said and because in said else f"{name} is not named: {said[-600:]}"


def of_grade(code: int, out: str, said: str, who: str, what: str, victims: list[int]) -> str:
    """What is wrong with how a grade ended: it goes on, and at most one submission suffers."""
    if who == "driver" and victims and code:
        return of_driver(code, said, what)
    if code or "Traceback" in said:
        return f"ended with {code}: {said[-300:]}"
    rows = {row["student"]: row for row in json.loads(out.splitlines()[-1])["students"]}
    suffered = [student for student in STUDENTS if rows[student]["right"] != 1]
    if not suffered:
        return ""
    told = json.dumps(rows[suffered[0]])
    named = f"killed by {what}" in told if who == "submission" else not unnamed(told, who, what, victims or [-1])
    return "" if victims and named and len(suffered) == 1 else f"{who}, {victims}: {told}"


def of_notebook(code: int, out: str, said: str, who: str, what: str, victims: list[int]) -> str:
    """What is wrong with how a notebook ended: the error stands in its cell."""
    if code == 0 or not victims:
        return "" if code == 0 else f"nobody was struck, and it ended with {code}: {said[-300:]}"
    if who == "driver":
        return ""  # what nbclient says then is its own; what counts is that nothing is left
    if who == "kernel":
        word = "KeyboardInterrupt" if what == "SIGINT" else "died"
        return "" if word in said else f"the kernel's end is not told: {said[-300:]}"
    return unnamed(said, who, what, victims)


JUDGES = {"grade": of_grade, "notebook": of_notebook}


def left(number: str, room: pathlib.Path) -> str:
    """What it has left behind. Where a kernel listens stands in a file of Jupyter's, which a killed Jupyter leaves."""
    ours = lambda: [one.name for one in room.iterdir() if not one.match("tmp*.json")]
    end = time.monotonic() + LEAVE
    while time.monotonic() < end and (marked(number) or ours()):
        time.sleep(0.05)
    if marked(number):
        return f"processes are left: {[*marked(number).values()]}"
    return f"files are left: {sorted(ours())}" if ours() else ""


def damaged(kept: pathlib.Path) -> str:
    """What is wrong with the newest checkpoint, where there is one."""
    try:
        newest = folder.newest(kept) if kept.is_dir() else None
        if newest:
            files = index.read(newest)["files"]
            found = {name: hashlib.sha256((newest / name).read_bytes()).hexdigest() for name in files}
            assert found == {name: one["sha256"] for name, one in files.items()}, (
                "its files are not those of its record"
            )
    except Exception as error:
        return f"the newest checkpoint: {error}"
    return ""


def lives(names: list[str]) -> dict[tuple[str, str], float]:
    """{(command, who): how long they live} when nobody strikes."""
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="moment-") as place:
            process, *_ = begun(name, "usual", place)
            while process.poll() is None:
                now = time.monotonic()
                for who in {who for who, _ in COMMANDS[name].strikes}:
                    if there(process.pid, "usual", who):
                        first, _ = found.get((name, who), (now, now))
                        found[name, who] = first, now
                time.sleep(0.05)
            out, said = process.communicate()
            assert process.returncode == 0 and not (name in JUDGES and JUDGES[name](0, out, said, "", "", [])), said
    return {key: last - first for key, (first, last) in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[*COMMANDS], help="strike this command alone")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "moments.json")
    chosen = parser.parse_args()
    some = [chosen.only] if chosen.only else [*COMMANDS]
    begin, usual = time.monotonic(), lives(some)
    told = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as several:
        for one in several.map(lambda number: tried(number, chosen.seed, usual, some), range(chosen.tries)):
            told.append(one)
            if one["wrong"]:
                print(one, flush=True)
    record = {
        "command": f"python tests/faults/moments.py --tries {chosen.tries} --seed {chosen.seed}",
        "took": round(time.monotonic() - begin),
        "lives_seconds": {" ".join(key): round(one, 1) for key, one in usual.items()},
        "tries": len(told),
        "commands": Counter(one["command"] for one in told),
        "struck": Counter(f"{one['struck']} {one['signal']}" for one in told),
        "seconds_to_end": {"largest": max(one["seconds"] for one in told)},
        "wrong": [one for one in told if one["wrong"]],
        "origin": provenance(),
    }
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{len(told)} tries, {len(record['wrong'])} wrong; {chosen.out}")
    return bool(record["wrong"])


if __name__ == "__main__":
    sys.exit(main())
