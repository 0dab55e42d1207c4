"""gloo, as it serves ranks that share a device: collectives go through host memory, messages not at all.

As with CUDA: a collective takes a snapshot and returns; its thread brings the result with a copy, which autograd counts
as a change of the tensor; `wait` keeps the host. Messages raise, where the real gloo would hand a device's address to a
socket.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from emulated_gpu.groups import Group


class Work(dist.Work):
    """A collective under way."""

    def __init__(self, future):
        super().__init__()
        self.future = future

    def wait(self, timeout=None):
        self.future.result()
        return True

    def is_completed(self):
        return self.future.done()


class Staged(Group):
    """The process group of ranks that share a device."""

    def __init__(self, about):
        super().__init__(about)
        self.thread = ThreadPoolExecutor(1)

    def _start(self, transfer, reads, writes):
        twins = {id(x): x.detach().cpu() for x in reads}
        for x in writes:
            twins.setdefault(id(x), torch.empty(x.shape, dtype=x.dtype))
        return Work(self.thread.submit(self._finish, transfer, writes, twins))

    def _finish(self, transfer, writes, twins):
        transfer(self.host, lambda x: twins[id(x)]).wait()
        for x in writes:
            x.detach().copy_(twins[id(x)])

    def _message(self, op, x, peer):
        raise RuntimeError(f"gloo: {op} of a tensor on {x.device}: its address would be taken for one of host memory")

    def shutdown(self):
        self.thread.shutdown(cancel_futures=True)
        super().shutdown()
