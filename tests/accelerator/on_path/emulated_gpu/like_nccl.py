"""A backend that keeps NCCL's rules, and breaks what relies on gloo's.

* It takes tensors on the device only, in one piece. Messages have no tags: those of one pair, in one group, are matched
  in order, in both directions together.
* Ranks that meet for the first time make a communicator, and that keeps their hosts until all of them are there: two
  ranks for their messages, the group for its collectives.
* A communicator takes a stream from the pool that programs take theirs from, of the same priority: an operation waits
  for what this stream waits for, and for what the caller's does; what comes behind on it waits for the operation.
* A collective that was not asked to return at once has no Work.
* An operation returns at once. It goes in the background, one after the other within a communicator. `wait` keeps a
  stream, and not the host; what an operation brings is rubbish before (see Gate in device.cpp), and its tensors may not
  be changed, nor let go.

What it is blind to: kernels run when they are launched, so a host is kept where only its stream would be.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import torch

from emulated_gpu.groups import Group

LOOK_SECONDS = 1e-4


class Work:
    """An operation under way."""

    def __init__(self, gate, device):
        self.gate, self.device = gate, device

    def wait(self):
        """Make the current stream wait; the host goes on."""
        self.gate.wait(self.device.index)

    def is_completed(self):
        return self.gate.is_open()


class Communicator:
    """Ranks that have met: what they do together, one after the other, in a thread and on a stream."""

    def __init__(self, gloo, device):
        self.gloo, self.thread = gloo, ThreadPoolExecutor(1)
        self.stream = torch.Stream(device=device)

    def start(self, transfer, reads, writes) -> Work:
        """Begin with a snapshot of what is read, behind what both its stream and the caller's wait for. What will be
        written is rubbish from the moment when the caller's stream has nothing left to wait for."""
        gate = torch.classes.emulated_gpu.Gate()
        twins = {id(x): x.detach().cpu() for x in reads}
        room = [(x.detach(), twins.setdefault(id(x), torch.empty(x.shape, dtype=x.dtype))) for x in writes]
        device = (*reads, *writes)[0].device
        callers = torch.accelerator.current_stream(device)
        if callers.query():
            _expect(gate, room)
            room = []
        for x in reads:
            gate.watch(x.detach())
        self.stream.wait_stream(callers)
        with self.stream:
            before = torch.Event(device=device)
            before.record()
            gate.wait(device.index)
        self.thread.submit(_finish, gate, room, transfer, self.gloo, twins, before)
        return Work(gate, device)


def _expect(gate, room):
    for x, twin in room:
        gate.expect(x, twin)


def _finish(gate, room, transfer, gloo, twins, before):
    try:
        while not before.query():
            time.sleep(LOOK_SECONDS)
        _expect(gate, room)
        transfer(gloo, lambda x: twins[id(x)]).wait()
        gate.open("")
    except Exception as error:  # told where it is waited for
        gate.open(f"{type(error).__name__}: {error}")


class LikeNCCL(Group):
    """The backend of ranks that have a device each."""

    SILENT = True  # see groups.cpp

    def __init__(self, *about):
        super().__init__(*about)
        self.communicators = {}

    def _start(self, transfer, reads, writes):
        _refuse_pieces(*reads, *writes)
        return self._communicator("all", range(self.size), (*reads, *writes)[0]).start(transfer, reads, writes)

    def _message(self, op, x, peer):
        _refuse_pieces(x)
        pair = sorted((self.rank, peer))
        other = pair.index(peer)
        transfer = lambda gloo, twin: getattr(gloo, op)([twin(x)], other, 0)
        reads, writes = ([x], []) if op == "send" else ([], [x])
        return self._communicator("{} and {}".format(*pair), pair, x).start(transfer, reads, writes)

    def _communicator(self, name: str, ranks, x) -> Communicator:
        """That of some ranks of this group, on the device of x; made when first used."""
        if name not in self.communicators:
            gloo = self._gloo(name, ranks.index(self.rank), len(ranks))
            self.communicators[name] = Communicator(gloo, x.device)
        return self.communicators[name]

    def shutdown(self):
        for one in self.communicators.values():
            one.thread.shutdown(cancel_futures=True)
        self.communicators.clear()


def _refuse_pieces(*tensors):
    if not all(x.is_contiguous() for x in tensors):
        raise ValueError("Tensors must be contiguous")
