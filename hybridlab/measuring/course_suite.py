"""The course suite: every notebook runs on this machine, and its measurements are recorded.

The notebooks themselves define the measurements and their names, by calls of `labs.machines`: this suite runs the
notebooks and records these calls.

See also `measuring.recorded` (reads the records) and `labs.machines`.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain
from pathlib import Path

from hybridlab.measuring.row import device_of_ranks, row

SECONDS_PER_CELL = 120  # also the limit of `make test`
WHOLE = "the whole notebook"  # the last row of each notebook
TO = "HYBRIDLAB_RECORD"  # names the file into which a notebook's rows are written


def notebooks(folder: str | Path = "notebooks") -> list[Path]:
    """The notebooks of the course, in order.

    raises  ValueError when the folder holds none
    """
    if paths := sorted(Path(folder).glob("*.ipynb")):
        return paths
    raise ValueError(
        f"the course suite runs the notebooks, but {folder}/ has none: start it in the folder that contains notebooks/"
    )


def rows(only: Sequence[str] = (), folder: str | Path = "notebooks", jobs: int = 1) -> Iterator[dict]:
    """The rows of each notebook, as soon as it has ended; if one fails, this is reported, and the next one runs.

    only    the names of the notebooks to run; by default all
    jobs    notebooks that run at the same time
    raises  ValueError if there is no notebook of this name
    """
    paths = {path.stem: path for path in notebooks(folder)}
    if unknown := [name for name in only if name not in paths]:
        raise ValueError(f"there is no notebook {unknown[0]!r} in {folder}/: choose {', '.join(paths)}")
    return _in_lanes([paths[name] for name in only or paths], jobs)


def without(rows: list[dict], notebooks: Sequence[str]) -> list[dict]:
    """The rows of a record, without those of these notebooks, and without those of an interrupted notebook.

    >>> rows = [{"name": "a step"}, {"name": WHOLE, "notebook": "10_naive"}, {"name": "a step"}]
    >>> len(without(rows, ())), len(without(rows, ["10_naive"]))
    (2, 0)
    """
    kept, mine = [], []
    for one in rows:
        mine.append(one)
        if one["name"] == WHOLE:
            kept += [] if one["notebook"] in notebooks else mine
            mine = []
    return kept


def is_whole(rows: list[dict], folder: str | Path = "notebooks") -> bool:
    """Whether every notebook has rows."""
    return {path.stem for path in notebooks(folder)} <= {row["notebook"] for row in rows if row["name"] == WHOLE}


def _in_lanes(paths: list[Path], jobs: int) -> Iterator[dict]:
    if jobs == 1:  # in this thread, which an interrupt reaches
        yield from chain.from_iterable(map(_told_by, paths))
        return
    lanes = ThreadPoolExecutor(jobs)
    running = [lanes.submit(lambda path=path: [*_told_by(path)]) for path in paths]
    try:
        for one in as_completed(running):
            yield from one.result()
    finally:
        lanes.shutdown(wait=False, cancel_futures=True)


def _told_by(path: Path) -> Iterator[dict]:
    import nbformat
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    with tempfile.TemporaryDirectory(prefix="hybridlab-") as place:
        told, begin, failed = Path(place) / "rows", time.monotonic(), {}
        try:
            execute(nbformat.read(path, as_version=4), path.parent, **{TO: str(told)})
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            failed = {"failed": _in_one_line(error)}
        took = time.monotonic() - begin
        if told.exists():
            yield from map(json.loads, told.read_text(encoding="utf-8").splitlines())
        took = round(took, 1)
        yield row(WHOLE, "s", [took], device=device_of_ranks(), notebook=path.stem, **failed)


def _in_one_line(error) -> str:
    """
    >>> from nbclient.exceptions import CellExecutionError, DeadKernelError
    >>> _in_one_line(CellExecutionError("", "ValueError", "no")), _in_one_line(DeadKernelError("Kernel died"))
    ('ValueError: no', 'DeadKernelError: Kernel died')
    """
    name, said = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", error)
    return f"{name}: {said}"


def execute(notebook, folder, through=False, **environment):
    """The notebook with the outputs of a fresh kernel that runs in `folder`; raises nbclient's errors.

    through  whether it continues after a cell that raises; the error is then one of its outputs
    """
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        coalesce_streams=True,
        allow_errors=through,
    )
    # without anyone's stored answers
    client.execute(env=os.environ | {"HYBRIDLAB_PROGRESS": "off"} | environment)
    return notebook
