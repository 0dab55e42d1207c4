"""A rank's namespace: the variables of its `%%ranks` cells, and the execution of one more cell in it.

This is the rank's side of `cells`. The namespace lives as long as the process does.
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

CALM_SECONDS = 0.3  # after an error, for the other ranks to come to the end of the cell
VARIABLES = {"__name__": "__main__", "__builtins__": builtins}


def run_cell(comm, source: str, name: str, chosen: list[int], folder: str) -> dict | None:
    """Run one cell on this rank, unless it is not among the chosen ones.

    folder  a private place where the ranks of this run tell each other that they have come to the end
    returns "text" and "value" of the last expression (the value only if it can travel), or "fault" (type, message,
    lines of the traceback, when)
    raises  what the cell raises, if another rank may still be waiting for this one
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
    """Put values of the notebook under their names into this rank's namespace."""
    VARIABLES.update(values)


def evaluate(source: str, name: str, variables: dict):
    """Run a cell's text; returns the value of its last line if that is an expression, else None.

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
    """Let tracebacks find the text of a cell under its name."""
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
    """Say that this rank has come to the end of the cell and left no operation open."""
    if 0 not in comm.ledger.end_ns:
        open(os.path.join(folder, str(comm.rank)), "w").close()


def _everybody_arrives(folder, size) -> bool:
    """Whether no rank is left that may be waiting for another one; then the processes, and all variables, can stay."""
    until = time.monotonic() + CALM_SECONDS
    while len(os.listdir(folder)) < size:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
