"""Stopping a training early and saving it: on a signal, or when its output is closed.

The wish travels as a file in the folder of checkpoints, which the first rank looks for after every step
(`training.resume.Saver`): ranks of any machine see it, and no signal has to reach them.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hybridlab.training.checkpoints.folder import newest

STOP = "stop"  # a file of this name in the folder asks the run to end after the step under way
Tell = Callable[[int, dict], object]


@contextmanager
def stopping_gently(folder: Path | None, tell: Tell | None) -> Iterator[Tell | None]:
    """While it lasts, the first Ctrl-C, or a batch system's SIGTERM, asks the ranks to save and stop; the second stops
    at once, as without it. A terminal that hangs up asks too, and so does a `tell` that fails, such as one that writes
    into a closed pipe: it is not called again, and its error is raised when all is saved.

    folder  of checkpoints; None: nothing can be kept, so every signal and error ends the training as it is
    tell    what is called with every event

    raises  KeyboardInterrupt after the second signal, or when the terminal is gone, with the last checkpoint
    """
    if folder is None:
        yield tell
        return
    stop, asked, failed = folder / STOP, [], []
    folder.mkdir(parents=True, exist_ok=True)
    stop.unlink(missing_ok=True)

    def ask(number, frame):
        stop.touch()
        asked.append(number)
        again = signal.SIG_IGN if number == signal.SIGHUP else before[number]  # a shell and its terminal both hang up
        signal.signal(number, again)

    def told(rank, event):
        try:
            if tell and not failed:
                tell(rank, event)
        except Exception as error:
            failed.append(error)
            stop.touch()

    before = {number: signal.signal(number, ask) for number in _signals()}
    try:
        yield told if tell else None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted at once; {_last(folder)}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.unlink(missing_ok=True)
    if failed:
        failed[0].add_note(_last(folder))
        raise failed[0]
    if signal.SIGHUP in asked:
        raise KeyboardInterrupt(f"the terminal was closed; {_last(folder)}")


def _signals() -> tuple[signal.Signals, ...]:
    """Those that ask; no hang-up where it is ignored already, as nohup has it. Only a main thread can hear them."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *[signal.SIGHUP] * hangs_up)


def _last(folder: Path) -> str:
    last = newest(folder)
    return f"the last checkpoint is {last}" if last else f"no checkpoint is in {folder} yet"
