"""gloo, as it serves ranks that share a device: collectives go through host memory, messages not at all.

As with CUDA: a collective takes a snapshot, draws gloo's next tag and returns; its thread brings the result with a
copy, which autograd counts as a change of the tensor; `wait` keeps the host. Messages raise, where the real gloo would
hand a device's address to a socket.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

from emulated_gpu.groups import Group


class Work:
    """A collective under way."""

    def __init__(self, future):
        self.future = future

    def wait(self):
        self.future.result()

    def is_completed(self):
        return self.future.done()


class Staged(Group):
    """The backend of ranks that share a device."""

    SILENT = False

    def __init__(self, *about):
        super().__init__(*about)
        self.gloo, self.thread = self._gloo("staged", self.rank, self.size), ThreadPoolExecutor(1)

    def _start(self, transfer, reads, writes):
        twins = {id(x): x.detach().cpu() for x in reads}
        for x in writes:
            twins.setdefault(id(x), torch.empty(x.shape, dtype=x.dtype))
        started = transfer(self.gloo, lambda x: twins[id(x)])
        return Work(self.thread.submit(self._finish, started, writes, twins))

    def _finish(self, started, writes, twins):
        started.wait()
        for x in writes:
            x.detach().copy_(twins[id(x)])

    def _message(self, op, x, peer):
        raise RuntimeError(f"gloo: {op} of a tensor on {x.device}: its address would be taken for one of host memory")

    def shutdown(self):
        self.thread.shutdown(cancel_futures=True)
