"""Every notebook, run on a GPU: the real ones of this machine, or the emulated accelerator.

    python tests/accelerator/course.py [WORD…] [--devices N]

One notebook after the other runs to its end, cells behind one that raises too. Each tells one line of JSON: name, ok,
seconds, raised ({number of a cell: its error}). Words choose the notebooks whose names hold one of them. The exit code
is 1 when a cell raises. What a cell prints is not compared: it tells of devices and times.

Where torch sees no GPU, or HYBRIDLAB_DEVICES says gpu:N, devices are emulated: eight, or as many as --devices says.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import nbformat
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from accelerator.environment import on_devices
from hybridlab.measuring.course_suite import execute

FOLDER = Path(__file__).parents[2] / "notebooks"


def told_by(path: Path) -> dict:
    """What one notebook tells."""
    notebook, begin, said = nbformat.read(path, as_version=4), time.monotonic(), {}
    try:
        execute(notebook, path.parent, through=True)
    except (CellTimeoutError, DeadKernelError) as error:  # the other notebooks are run
        said["the end"] = f"{type(error).__name__}: {error}"
    raised = errors_in(notebook) | said
    return {"name": path.stem, "ok": not raised, "seconds": round(time.monotonic() - begin, 1), "raised": raised}


def errors_in(notebook) -> dict:
    """{number of a cell: the error with which it ended}."""
    outputs = ((n, one) for n, cell in enumerate(notebook.cells) for one in cell.get("outputs", ()))
    return {n: f"{one.ename}: {one.evalue}" for n, one in outputs if one.output_type == "error"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="of the names of the notebooks to run; all, unless given")
    parser.add_argument("--devices", type=int, default=8, help="emulated ones, where there is no GPU")
    chosen = parser.parse_args()
    where, _ = on_devices(chosen.devices)
    paths = [path for path in sorted(FOLDER.glob("*.ipynb")) if any(w in path.stem for w in chosen.words or [""])]
    wrong, begin = [], time.monotonic()
    for path in paths:
        told = told_by(path)
        wrong += [] if told["ok"] else [told["name"]]
        print(json.dumps(told), flush=True)
    seconds = time.monotonic() - begin
    print(f"{len(paths)} notebooks on {where} in {seconds:.0f} s; a cell raises in {len(wrong)}", *wrong, sep="\n  ")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
