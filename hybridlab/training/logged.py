"""What a training says after each step, as event files of TensorBoard beside whoever else hears it."""

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
    """While it lasts, what hears the events of a training: `tell`, and what writes the loss, the learning rate and the
    tokens per second of each step into event files in a folder, if it is given.

    Each step stands under its own number, so a run that goes on goes on in its curves. Under torchrun rank 0 writes.

    raises  ValueError in one sentence where TensorBoard is not installed, or nothing can be written there
    """
    if log is None or (torchrun.present() and os.environ["RANK"] != "0"):
        yield tell
        return
    try:
        from torch.utils.tensorboard import SummaryWriter  # here, since it may not be there
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
