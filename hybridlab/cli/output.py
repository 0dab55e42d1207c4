"""The output of commands: JSON for every parser, characters for any terminal, and the exit that shells expect."""

import contextlib
import errno
import functools
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

CLOSED = 128 + signal.SIGPIPE  # the exit code of shells if the reader has closed the pipe
INTERRUPTED = 128 + signal.SIGINT
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
NUMBERS = "nan and inf as text"
PATIENCE = 1.0  # seconds before a terminal is told what a command does


def as_json(value) -> str:
    """A value as JSON. JSON has no nan and no infinity, so these are texts that float() reads.

    >>> as_json({"loss": float("nan"), "gaps": [1.0, float("-inf")], 3: (True, None)})
    '{"loss": "nan", "gaps": [1.0, "-inf"], "3": [true, null]}'
    """
    return json.dumps(_speakable(value), allow_nan=False)


def _speakable(value):
    if isinstance(value, dict):
        return {name: _speakable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_speakable(one) for one in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Tell a terminal what is being done, and for how many seconds, if it takes longer than one; then erase it."""
    if not sys.stderr or not sys.stderr.isatty():
        yield
        return
    screen, over, start = sys.stderr, threading.Event(), time.monotonic()

    def tell():
        while not over.wait(PATIENCE):
            screen.write(f"\r{what}, {time.monotonic() - start:.0f} s")
            screen.flush()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        if time.monotonic() - start > PATIENCE:
            screen.write("\r\033[K")


def to_the_end(main):
    """Wrap a command so that a failure to write its output causes no traceback: main(arguments) -> exit code.

    A letter that the terminal lacks is written as \\xb5. If the pipe is closed, nothing more is written, and the exit
    code is `CLOSED`; if a training run was saved, a sentence says where. If the disk is full, a one-sentence message
    says so.
    """

    @functools.wraps(main)
    def command(arguments=None) -> int:
        for stream in (sys.stdout, sys.stderr):
            if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            code = main(arguments)
            if sys.stdout:
                sys.stdout.flush()
            return code
        except BrokenPipeError as error:
            _say_no_more()
            if more := _more(error):
                _told(f"the output was closed before its end{more}")
            return CLOSED
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            what = error.filename or "the output" + ", or a file that ranks need" * (error.errno == errno.EFBIG)
            _say_no_more()
            _told(f"cannot write {what}: {error.strerror}{_more(error)}")
            return 1

    return command


def _more(error: Exception) -> str:
    """The note on an error: the checkpoint that a training run has saved."""
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()))


def _told(sentence: str):
    with contextlib.suppress(OSError):
        sys.stderr.write(f"hybridlab: {sentence}\n")


def _say_no_more():
    """Discard the rest of stdout's buffer; Python would write it at its end, and fail a second time."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def of_messages(measured) -> str:
    """The time of messages, in words: on the fastest edge, and on the slowest one."""
    from hybridlab.predict.time.costs import Costs, links_in

    schedule, links = measured.schedule, Costs(**links_in(measured.origin))
    taken = sorted((links.of_message(number), edge) for number, edge in schedule.inside.items())
    taken = [(seconds, edge) for seconds, edge in taken if seconds]
    if not taken:
        return "no message leaves its rank"
    (least, _), (most, (a, b)) = taken[0], taken[-1]
    slowest = f", and {most * 1e6:.0f} µs between stages {a} and {b}" if len(taken) > 1 else ""
    return f"one message takes {least * 1e6:.0f} µs here{slowest}"
