"""A rank's namespace: the variables of its `%%ranks` cells, and the execution of one more cell in it.

This is the rank's side of `cells`. The namespace lives as long as the process.
"""

import ast
import builtins
import functools
import linecache
import os
import time
import traceback

from hybridlab.world.cells.progress import progress
from hybridlab.world.processes import frames

CALM_SECONDS = 0.3  # after an error, for the other ranks to reach the end of the cell
VARIABLES = {"__name__": "__main__", "__builtins__": builtins}


def run_cell(comm, source: str, name: str, chosen: list[int], folder: str) -> dict | None:
    """Run one cell on this rank, unless it is not among the chosen ones.

    folder  a private folder in which the ranks of this run report that they have reached the end
    returns "text" and "value" of the last expression (the value only if it can be sent), or "fault" (type, message,
    lines of the traceback, when)
    raises  the cell's exception, if another rank may still be waiting for this one
    """
    if comm.rank not in chosen:
        return None
    register(name, source)
    VARIABLES.update(comm=comm, rank=comm.rank, progress=functools.partial(progress, comm))
    try:
        outcome = _carried(evaluate(source, name, VARIABLES))
        _arrive(comm, folder)
        return outcome
    except Exception as error:
        _arrive(comm, folder)
        if not _everybody_arrives(folder, len(chosen)):
            raise
        lines = [[line.filename, line.lineno, line.name] for line in traceback.extract_tb(error.__traceback__)]
        return {"fault": [type(error).__name__, str(error), lines, time.monotonic()]}


def store(comm, values: dict):
    """Store variables of the notebook in this rank's namespace."""
    VARIABLES.update(values)


def evaluate(source: str, name: str, variables: dict):
    """Run a cell's text, and return the value of its last line if that is an expression, else None.

    >>> evaluate("a = 6; a * 7", "cell [1]", {})
    42
    """
    *body, last = [*ast.parse(source, name).body, None][:-1] or [None]
    if not isinstance(last, ast.Expr):
        exec(compile(source, name, "exec"), variables)
        return None
    exec(compile(ast.Module(body, []), name, "exec"), variables)
    return eval(compile(ast.Expression(last.value), name, "eval"), variables)


def register(name: str, source: str):
    """Register the text of a cell under its name, so that tracebacks find it."""
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name


def _carried(value) -> dict:
    if value is None:
        return {}
    try:
        frames.encode(value)
    except TypeError:
        return {"text": repr(value)}
    return {"text": repr(value), "value": value}


def _arrive(comm, folder):
    """Report that this rank has reached the end of the cell and has no pending operation."""
    if 0 not in comm.ledger.end_ns:
        open(os.path.join(folder, str(comm.rank)), "w").close()


def _everybody_arrives(folder, size) -> bool:
    """Whether all ranks arrive, so that none still waits for another; then the processes and all variables stay."""
    until = time.monotonic() + CALM_SECONDS
    while len(os.listdir(folder)) < size:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
