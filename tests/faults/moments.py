"""Moments: a driver, the warm parent of its ranks, or a rank is struck by a signal at any moment, again and again.

    python tests/faults/moments.py [--tries 500] [--seed 0] [--out results/moments.json]

Every try is a command of its own (`check`, `train` that saves after each step, `run`), with a folder of its own for
temporary files. After the strike it must end in time and say who was struck, and leave neither a process nor a file;
of checkpoints there is a whole one, or none. What has ended before the strike came is right when it ended well.
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

from hybridlab.train import checkpoint, checkpoint_index
from hybridlab.train.run import provenance

ROOT = pathlib.Path(__file__).parents[2]
MARK = "HYBRIDLAB_MOMENT"  # in the surroundings of all that a try starts
TINY = ["--layers", "2", "--width", "16", "--heads", "2", "--context", "8", "--microbatches", "4"]
COMMANDS = {
    "check": ["check", "--dp", "2", "--pp", "2", *TINY, "--zero", "1", "--optimizer", "adamw"],
    "train": ["train", "--pp", "2", *TINY, "--steps", "60", "--every", "1", "--checkpoint", "{kept}"],
    "run": ["run", "--ranks", "3", "--steps", "4"],
}
DEADLY = ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT")
STRIKES = [("rank", name) for name in (*DEADLY, "SIGSTOP")] + [("parent", "SIGKILL")]
STRIKES += [("driver", name) for name in ("SIGKILL", "SIGTERM", "SIGINT")]
LIMIT, LEAVE = 45.0, 8.0  # seconds to end, of which ten are patience with a rank that stands still; to be gone


def marked(number: str) -> dict[int, str]:
    """{pid: command line} of everything that a try has started and that lives."""
    found = {}
    for one in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            folder = pathlib.Path("/proc", one)
            if f"{MARK}={number}\0".encode() in (folder / "environ").read_bytes():
                if "\nState:\tZ" not in (folder / "status").read_text():
                    found[int(one)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):  # it may end just now
        return int(pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def there(driver: int, number: str, who: str) -> list[int]:
    """Who of a kind lives: the driver, the parent of the ranks, or the ranks, which were forked in order."""
    if who == "driver":
        return [driver]
    above = {pid: parent_of(pid) for pid in marked(number)}
    parents = [pid for pid, its in above.items() if its == driver]
    return parents if who == "parent" else sorted(pid for pid, its in above.items() if its in parents)


def tried(number: int, seed: int, usual: dict[tuple[str, str], float]) -> dict:
    """One try: {command, struck, signal, moment, wrong}; wrong is empty where all is as it should be."""
    chance = random.Random(f"{seed}/{number}")
    name, (who, what) = chance.choice([*COMMANDS]), chance.choice(STRIKES)
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
            _, said = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            said = None
        told["seconds"] = round(time.monotonic() - begin, 2)
        told["wrong"] = "still running" if said is None else judged(process.returncode, said, who, what, victims)
        told["wrong"] = told["wrong"] or left(str(number), room) or damaged(kept)
        for pid in marked(str(number)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    return told


def begun(name: str, number: str, place: str):
    """The command, started; the folder of its checkpoints, and that of its temporary files."""
    kept, room = pathlib.Path(place, "kept"), pathlib.Path(place, "room")
    room.mkdir()
    words = [word.replace("{kept}", str(kept)) for word in COMMANDS[name]]
    process = subprocess.Popen(
        [sys.executable, "-m", "hybridlab", *words],
        cwd=ROOT,
        env=os.environ | {MARK: number, "TMPDIR": str(room), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, kept, room


def struck(driver: int, number: str, who: str, what: str, chance) -> list[int]:
    """Strike one of them; returns [its rank], or [-1] where it has none, or [] where nobody of the kind was there."""
    with contextlib.suppress(OSError):  # it may end just now
        if found := there(driver, number, who):
            at = chance.randrange(len(found))
            os.kill(found[at], getattr(signal, what))
            return [at if who == "rank" else -1]
    return []


def judged(code: int, said: str, who: str, what: str, victims: list[int]) -> str:
    """What is wrong with how it ended."""
    early = code == -signal.SIGINT or (code == 1 and said.rstrip().endswith("KeyboardInterrupt"))
    if "Traceback" in said and not (who == "driver" and what == "SIGINT" and early):
        return f"a traceback: {said[-300:]}"
    if code == 0 or not victims:
        return "" if code == 0 else f"nobody was struck, and it ended with {code}: {said[-300:]}"
    if who == "driver":
        number = getattr(signal, what)
        return "" if code in (-number, 128 + number, 130) or early else f"ended with {code}: {said[-300:]}"
    name = f"rank {victims[0]}" if who == "rank" else "the parent process of the ranks"
    because = {"SIGSTOP": ""}.get(what, what) if who == "rank" else "has ended"
    return (
        "" if code == 1 and f"{name} " in said and because in said else f"{name} is not named ({code}): {said[-300:]}"
    )


def left(number: str, room: pathlib.Path) -> str:
    """What it has left behind."""
    end = time.monotonic() + LEAVE
    while time.monotonic() < end and (marked(number) or any(room.iterdir())):
        time.sleep(0.05)
    if marked(number):
        return f"processes are left: {[*marked(number).values()]}"
    return f"files are left: {sorted(one.name for one in room.iterdir())}" if any(room.iterdir()) else ""


def damaged(kept: pathlib.Path) -> str:
    """What is wrong with the newest checkpoint, where there is one."""
    try:
        newest = checkpoint.newest(kept) if kept.is_dir() else None
        if newest:
            files = checkpoint_index.read(newest)["files"]
            found = {name: hashlib.sha256((newest / name).read_bytes()).hexdigest() for name in files}
            assert found == {name: one["sha256"] for name, one in files.items()}, (
                "its files are not those of its record"
            )
    except Exception as error:
        return f"the newest checkpoint: {error}"
    return ""


def lives() -> dict[tuple[str, str], float]:
    """{(command, who): how long they live} when nobody strikes."""
    found = {}
    for name in COMMANDS:
        with tempfile.TemporaryDirectory(prefix="moment-") as place:
            process, *_ = begun(name, "usual", place)
            while process.poll() is None:
                now = time.monotonic()
                for who in ("driver", "parent", "rank"):
                    if there(process.pid, "usual", who):
                        first, _ = found.get((name, who), (now, now))
                        found[name, who] = first, now
                time.sleep(0.05)
            assert process.returncode == 0, process.stderr.read()
    return {key: last - first for key, (first, last) in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "moments.json")
    chosen = parser.parse_args()
    begin, usual = time.monotonic(), lives()
    told = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as several:
        for one in several.map(lambda number: tried(number, chosen.seed, usual), range(chosen.tries)):
            told.append(one)
            if one["wrong"]:
                print(one, flush=True)
    record = {
        "command": f"python tests/faults/moments.py --tries {chosen.tries} --seed {chosen.seed}",
        "took": round(time.monotonic() - begin),
        "lives_seconds": {" ".join(key): round(one, 1) for key, one in usual.items()},
        "tries": len(told),
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
