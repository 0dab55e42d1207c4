"""A check that a model's code does not ask torch.distributed, whose answers differ between one process and ranks.

A layer, a loss or data may look for other processes by themselves, for example to add up a number of rows over all of
them. In its owner's process there are none. On ranks there are, but these follow a schedule: some have no loss, and
others call a layer at another time, so such a sum would wait forever, or divide once more.

Read next: `training.models.examination`, which uses it; `world.talk.overheard`, which records messages on ranks.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed import distributed_c10d

TORCH = str(Path(torch.__file__).parent / "_")[:-1]  # with the slash: torchmetrics is not torch
GROUPS = str(Path(distributed_c10d.__file__).parent / "_")[:-1]


@contextmanager
def alone(who: str) -> Iterator[None]:
    """A context that raises an error after code in it has asked torch.distributed for processes.

    who  its name in the error

    raises  ValueError with the function that was called, and the line

    >>> with alone("the loss"):
    ...     torch.distributed.is_initialized()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: the loss calls torch.distributed.is_initialized (...), which answers differently on ranks...
    """
    asked = []
    world = distributed_c10d._world
    before = type(world)

    class Listening(before):
        @property
        def default_pg(self):
            asked.extend(_asker())
            return super().default_pg

        @default_pg.setter
        def default_pg(self, group):
            self._default_pg = group

    world.__class__ = Listening
    try:
        yield
    except Exception:
        if not asked:
            raise
    finally:
        world.__class__ = before
    for function, where in asked:
        raise ValueError(
            f"{who} calls torch.distributed.{function} ({where}), which answers differently on ranks, and only some of "
            "them may call it: leave it out, since a step sums losses and gradients over ranks and divides them once"
        )


def _asker() -> Iterator[tuple[str, str]]:
    """(the function of torch.distributed that was called, the line that called it), unless torch itself did."""
    function, frame = "", sys._getframe(2)
    while frame and frame.f_code.co_filename.startswith(GROUPS):
        function, frame = frame.f_code.co_name, frame.f_back
    if frame and not frame.f_code.co_filename.startswith(TORCH):
        yield function, f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
