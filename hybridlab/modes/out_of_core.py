"""Out of core: saved activations fit into a given capacity, because some of them are moved to the host.

`KeepingWork` is a `ModelWork` whose forwards save their tensors in an `Arena`. A swap moves the tensors that one
forward has saved, except weights, the batch and the stage's input: the input belongs to an edge of the stage graph and
stays on the device, where a recomputation starts from it.

Source: Wahib et al. 2020, arXiv:2008.11421 (KARMA). Relatives: the rows SWAP_OUT and SWAP_IN of `core.when.law`;
`scheduling.out_of_core.swapped`, which inserts them; `runtime.copies`, which executes them.
"""

import math
import re
from collections import Counter
from functools import partial

import torch
from torch.autograd.graph import saved_tensors_hooks

from hybridlab.modes.mode import Mode, Option
from hybridlab.runtime.arena import Arena, Kept, Look
from hybridlab.runtime.copies import OUT, Coming, Leaving, engines
from hybridlab.runtime.work import ModelWork
from hybridlab.world.talk.message import Message

MEANS = {"swap": "swapping", "recompute": "recomputing", "mixture": "swapping and recomputing"}
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class KeepingWork(ModelWork):
    """A `ModelWork` on a device with a given memory capacity.

    about  as in `ModelWork`
    arena  the memory of the device;  carried  {"SWAP_OUT", "SWAP_IN": bytes copied}
    sizes  bytes of one loan, for each stage;  guests  {(stage, microbatch): bytes of another rank}
    """

    def __init__(self, arena: Arena, *about, sizes=()):
        super().__init__(*about)
        self.arena, self.engines, self.carried, self.stored = arena, engines(self.device), Counter(), {}
        self.sizes, self.guests = sizes, {}

    def load(self, inputs, targets, *more):
        super().load(inputs, targets, *more)
        self.batch = list(zip(inputs, targets))
        self.stored = {}

    def bind(self, action, part):
        return partial(self._doing, str(action), super().bind(action, part))

    def _doing(self, action, call, arrived):
        self.arena.doing = action
        return call(arrived)

    def swap(self, action, before: list):
        """Start copying the saved tensors of a forward to the host, or back, once the copies in `before` have
        finished."""
        kept = self.stored[action.stage, action.microbatch].saved
        self.carried[action.kind] += sum(one.size for one in kept)
        load = Leaving(kept) if action.kind == OUT else Coming(kept, self.device, str(action))
        return self.engines.start(action.kind, load, before)

    def move(self, comm, action, other: int, tag: int) -> Message:
        """Start sending the saved tensors of a forward to another rank, or receiving them: all in one message."""
        if action.kind == OUT:
            row = self._packed(action)
            return comm.isend(row, other, tag).then(lambda _: self.arena.give(row.untyped_storage()))
        row = torch.empty(int(self.sizes[action.stage]), dtype=torch.uint8, device=self.device)
        self.arena.take(row.untyped_storage(), str(action))
        return comm.irecv(row, other, tag).then(lambda row: self._unpacked(action, row))

    def _packed(self, action):
        """Return the bytes that a move sends, and free the saved tensors. Ranks that shard a stage send the same
        number.
        """
        place = action.stage, action.microbatch
        if place in self.guests:
            return self.guests.pop(place)
        row, kept = (
            torch.zeros(int(self.sizes[action.stage]), dtype=torch.uint8, device=self.device),
            self.stored[place],
        )
        for one, part in zip(kept.saved, row.split([one.size for one in kept.saved] + kept.padding(len(row)))):
            part.copy_(one.flat.view(torch.uint8))
            one.host = torch.empty_like(one.flat, device="meta")
            one.end()
        self.arena.take(row.untyped_storage(), str(action))
        return row

    def _unpacked(self, action, row):
        """Keep the bytes that have come: for another rank, or as the saved tensors of one of this rank's forwards."""
        place = action.stage, action.microbatch
        if place not in self.stored:
            self.guests[place] = row
            return
        kept = self.stored[place]
        self.arena.give(row.untyped_storage())
        for one, part in zip(kept.saved, row.split([one.size for one in kept.saved] + kept.padding(len(row)))):
            one.flat, one.host = torch.empty_like(one.host, device=self.device), None
            one.flat.view(torch.uint8).copy_(part)
            self.arena.take(one.flat.untyped_storage(), str(action))

    # forwards save, backwards free

    def forward(self, stage, microbatch, version, arrived):
        one = self._begun(stage, microbatch, arrived)
        with saved_tensors_hooks(one.keep, one.find):
            leaving = super().forward(stage, microbatch, version, arrived)
        _, outputs = self.kept[stage, microbatch]
        return [tuple(map(one.handed_on, edge, its)) for edge, its in zip(leaving, outputs)]

    def pass_on(self, stage, microbatch, version, arrived):
        if self.draws.on:  # otherwise it is an evaluation, without a backward
            self._begun(stage, microbatch, arrived)
        return super().pass_on(stage, microbatch, version, arrived)

    def backward(self, stage, microbatch, version, arrived):
        leaving = super().backward(stage, microbatch, version, arrived)
        self.stored.pop((stage, microbatch)).end()
        return leaving

    def weight_half(self, stage, microbatch, version, arrived):
        leaving = super().weight_half(stage, microbatch, version, arrived)
        self.stored.pop((stage, microbatch)).end()
        return leaving

    def _begun(self, stage, microbatch, arrived) -> "Keeping":
        """The tensors that one forward will save; if it is recomputed, it continues with those saved at first."""
        if (stage, microbatch) not in self.stored:
            module = self.weights.stages[stage]
            batch = [one if isinstance(one, tuple) else (one,) for one in self.batch[microbatch]]
            there = [*module.parameters(), *module.buffers(), *(x for one in batch for x in one)]
            self.stored[stage, microbatch] = Keeping(self.arena, there, [x for one in arrived for x in one])
        return self.stored[stage, microbatch]


class Keeping:
    """The tensors that autograd saves in one forward.

    arena    the arena that counts the memory on the device
    there    tensors that always stay on the device: weights, the batch
    entered  the stage's input, which stays on the device;  saved  all other tensors, which a swap moves
    """

    def __init__(self, arena: Arena, there, entered):
        self.arena, self.there, self.saved, self._kept = arena, {_memory(x) for x in there}, [], {}
        self.entered = [self._new(x) for x in {_memory(x): x for x in entered}.values()]
        self.stays = self.there | self._kept.keys()

    def _new(self, x) -> Kept:
        kept = self._kept[_memory(x)] = Kept(self.arena, x)
        return kept

    def keep(self, x):
        """The handle that autograd keeps instead of a tensor."""
        if _memory(x) in self.there:
            return x.detach()
        if _memory(x) not in self._kept:
            self.saved.append(self._new(x))
        return Look(self._kept[_memory(x)], x)

    def find(self, kept):
        """The tensor of a handle."""
        return kept.tensor() if isinstance(kept, Look) else kept

    def handed_on(self, leaving, output):
        """The output of the stage, copied to separate memory: the graph then holds only the tensors that it saves."""
        if _memory(output) in self.stays:
            return leaving
        saved = _memory(output) in self._kept
        output.data = output.new_empty(()).expand(output.shape)  # the backward reads only its shape
        return leaving.clone() if saved else leaving

    def padding(self, size: int) -> list[int]:
        """The padding bytes after the saved tensors in a row of this size, if there are any tensors."""
        left = size - sum(one.size for one in self.saved)
        return [left] if left else []

    def end(self):
        """Free everything at the end of the backward."""
        for one in [*self.entered, *self.saved]:
            one.end()


def _memory(x) -> int:
    """The identity of a tensor's memory."""
    return x.untyped_storage()._cdata


def room_of(text: str | float) -> float:
    """A capacity: bytes, or a fraction of the memory that a run in core needs. The text or number comes from the user.

    raises  a ValueError that says which values are valid

    >>> room_of("64KiB"), room_of("2e6"), room_of(0.5)
    (65536.0, 2000000.0, 0.5)
    """
    spelled = re.fullmatch(r"(\d+\.?\d*(?:e\+?\d+)?|\d*\.\d+) ?([KMG]i?B|B)?", str(text))
    size = float(spelled[1]) * UNITS[spelled[2] or "B"] if spelled else 0
    if not 0 < size < math.inf:
        raise ValueError(
            f"{text} is not an amount of memory: give bytes, such as 64MiB or 2e6, or a fraction, such as 0.5"
        )
    return size


class OutOfCore(Mode):
    """The runtime part of this mode. It sends no messages: its copies go to the host and back."""

    name, purpose = "out of core", "copies"
    options = {
        "device_memory": Option(
            None,
            "memory for saved activations on a device: 64MiB, a number of bytes, or a fraction of their size",
            room_of,
        ),
        "make_room": Option(
            "swap",
            "with device_memory: how to save memory: swap, recompute, or the best mixture found",
            str,
            tuple(MEANS),
            beside="device_memory",
        ),
        "copy_time": Option(
            1.0,
            "with device_memory: time to copy one stage's activations one way, in units of one forward",
            float,
            least=0,
            beside="device_memory",
        ),
    }

    def takes_part(self, mesh, chosen):
        return chosen["device_memory"] is not None

    def title(self, job):
        return "copied to the host and back"

    def said(self, job):
        return f"room for {job.room.capacity:,.0f} bytes ({job['make_room']})"

    def refuse(self, job):
        if not job.flushes:
            raise ValueError(
                f"{job.schedule.name} keeps several versions of its weights: leave out device_memory, or choose a "
                "schedule with one update per step"
            )
        if job.schedule.slices > 1:
            raise ValueError(
                f"device_memory={job['device_memory']} is invalid: it plans the copies of each stage separately, and "
                f"the slices of {job.schedule.name} share keys and values. Leave device_memory out"
            )
        if job.driven:
            raise ValueError("driven=True has no fixed order, so swaps cannot be planned: leave out driven")
        if job["recompute"] != "none":
            raise ValueError(
                f"recompute={job['recompute']!r} saves activations outside of the planned memory: give "
                "make_room='recompute'"
            )
        if job["sequence"]:
            raise ValueError("sequence=True already manages the saved activations: leave out sequence or device_memory")


def refuse_moves(job):
    """Raise ValueError if the schedule copies activations, and another option manages them too."""
    for option, usual in (("device_memory", None), ("recompute", "none"), ("sequence", False)):
        if job[option] != usual:
            raise ValueError(
                f"{option}={job[option]!r} manages the saved activations, and so does {job.schedule.name}, which "
                f"moves them: leave out {option}"
            )


MODE = OutOfCore()
