"""Stopping a training run early and saving it: on a signal, or when its output is closed.

The request is a file in the folder of checkpoints. The first rank looks for it after every step
(`training.resume.Saver`): ranks of any machine see it, and no signal has to reach them.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hybridlab.core.files import is_folder
from hybridlab.training.checkpoints.folder import newest

STOP = "stop"  # a file of this name in the folder asks the run to end after the current step
Tell = Callable[[int, dict], object]


@contextmanager
def stopping_gently(folder: Path | None, tell: Tell | None) -> Iterator[Tell | None]:
    """A context in which the first Ctrl-C, or a batch system's SIGTERM, asks the ranks to save and stop. The second one
    stops at once, as without this context. A closed terminal also asks the ranks to stop, and so does a `tell` that
    fails, such as one that writes into a closed pipe. It is not called again, and its error is raised when everything
    is saved.

    folder  of checkpoints; None: nothing can be saved, so every signal and error ends the training at once
    tell    the function that receives every event

    raises  ValueError if a folder has the name of that file; KeyboardInterrupt after the second signal, or if the
            terminal is gone, with the last checkpoint
    """
    if folder is None:
        yield tell
        return
    stop, asked, failed = folder / STOP, [], []
    folder.mkdir(parents=True, exist_ok=True)
    if is_folder(stop):
        raise ValueError(f"{stop} is a folder, but a file of this name asks a run to stop: rename it")
    stop.unlink(missing_ok=True)

    def ask(number, frame):
        stop.touch()
        asked.append(number)
        again = signal.SIG_IGN if number == signal.SIGHUP else before[number]  # a shell and its terminal both send it
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
    """The signals that ask to stop, without a hang-up that is ignored (nohup). Only a main thread receives signals."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *[signal.SIGHUP] * hangs_up)


def _last(folder: Path) -> str:
    last = newest(folder)
    return f"the last checkpoint is {last}" if last else f"no checkpoint is in {folder} yet"
