"""TensorBoard event files with the events of a training run, in addition to its other listeners."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hybridlab.core.files import folder
from hybridlab.training.job import Job
from hybridlab.training.rates import rate_of
from hybridlab.world.processes import torchrun


@contextmanager
def logged(log: str | Path | None, job: Job, tell: Callable | None) -> Iterator[Callable | None]:
    """A context whose value receives the events of a training run. It calls `tell`, and if a folder `log` is given, it
    writes the loss, the learning rate and the tokens per second of each step into event files there.

    Each event has its step number, so a resumed run continues its curves. Under torchrun, rank 0 writes.

    raises  ValueError if TensorBoard is not installed, or the folder cannot be written
    """
    if log is None or (torchrun.present() and os.environ["RANK"] != "0"):
        yield tell
        return
    try:
        from torch.utils.tensorboard import SummaryWriter  # imported here, since it may not be installed
    except ImportError:
        raise ValueError(
            f"log={log} needs tensorboard, which is not installed: pip install tensorboard, or give on_event"
        ) from None
    with SummaryWriter(str(folder(log))) as writer:

        def told(rank: int, event: dict):
            if "loss" in event:
                scalars = {name: event[name] for name in ("loss", "tokens_per_second")}
                for name, value in (scalars | {"rate": rate_of(job, event["step"])}).items():
                    writer.add_scalar(name, value, event["step"])
            if tell:
                tell(rank, event)

        yield told
