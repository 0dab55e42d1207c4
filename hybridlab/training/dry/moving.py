"""The work of a dry run whose schedule moves saved activations: to the host and back, or to another rank.

A move takes no time here: memory is freed and allocated at once, as in `core.when.room`. A copy on the host
does not count. The message of a loan is in flight, and activations stored for another rank count as activations.

Relatives: `modes.out_of_core.KeepingWork`, which moves; `runtime.copies`, the engines of real ranks.
"""

import torch

from hybridlab.modes.out_of_core import KeepingWork
from hybridlab.runtime.copies import Coming, Leaving
from hybridlab.training.dry.alive import Alive
from hybridlab.training.dry.counted import CountedWork


class AtOnce:
    """Engines whose copies end as soon as they begin. The object also serves as the copy: there is nothing to wait
    for."""

    begin = end = 0

    def __init__(self, alive: Alive):
        self.alive = alive

    def start(self, way: str, load: Leaving | Coming, before=()) -> "AtOnce":
        """Copy a load."""
        if isinstance(load, Leaving):
            load.hosts = [torch.empty_like(one.flat) for one in load.kept]
            self.alive.forget(self.alive.of(load.hosts))
        else:
            self.alive.came()
            load.room()
            self.alive.name("activations", self.alive.came())
        load.over()
        return self

    def wait(self):
        """Nothing to wait for."""

    def done(self) -> bool:
        """Always."""
        return True


class MovingWork(CountedWork, KeepingWork):
    """The work of a stage whose activations move, with a record of the memory after every action; the arguments are
    those of `CountedWork` and `KeepingWork`."""

    def __init__(self, alive: Alive, *about, sizes=()):
        super().__init__(alive, *about, sizes=sizes)
        self.engines = AtOnce(alive)

    def _packed(self, action):
        row = self.in_flight(super()._packed, action)
        if kept := self.stored.get((action.stage, action.microbatch)):
            self.alive.forget(self.alive.of(one.host for one in kept.saved))
        return row

    def move(self, comm, action, other: int, tag: int):
        return self.in_flight(super().move, comm, action, other, tag)

    def _unpacked(self, action, row):
        self.alive.came()
        super()._unpacked(action, row)
        guest = self.guests.get((action.stage, action.microbatch))
        self.alive.name("activations", self.alive.came() if guest is None else self.alive.of([guest]), from_now=True)
