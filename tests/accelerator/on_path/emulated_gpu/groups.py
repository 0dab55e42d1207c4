"""What both process groups of the emulated device have in common: tensors in host memory go by gloo, as they would."""

import torch
from torch.distributed import ProcessGroup, ProcessGroupGloo
from torch.distributed.distributed_c10d import PrefixStore


class Group(ProcessGroup):
    """A process group that does with tensors of the device what `_start` and `_message` of a subclass say.

    An operation is a `transfer(gloo, twin)`: it starts on a gloo group, with the twin on the host of each tensor.
    """

    def __init__(self, about, with_host: bool = True):
        super().__init__(about.group_rank, about.group_size)
        self.about, self.host = about, None
        if with_host:
            self.host = self._gloo("host", about.group_rank, about.group_size)
            self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, self.host)

    def _gloo(self, name: str, rank: int, size: int):
        """A further gloo group; returns when all its ranks are there."""
        return ProcessGroupGloo(PrefixStore(name, self.about.store), rank, size, self.about.timeout)

    def _by_host(self, *tensors) -> bool:
        """Whether these tensors go by gloo as they are; all of them lie at one kind of place."""
        kinds = {x.device.type for x in tensors}
        if kinds == {"cpu"} and self.host:
            return True
        if kinds != {"gpu"}:
            raise RuntimeError(f"No backend type associated with device type cpu: the tensors are on {sorted(kinds)}")
        return False

    def _do(self, transfer, reads: list, writes: list):
        if self._by_host(*reads, *writes):
            return transfer(self.host, lambda x: x)
        return self._start(transfer, reads, writes)

    # the names by which torch calls; those of 2.13 and those before

    def allreduce(self, tensors, opts):
        return self._do(lambda gloo, twin: gloo.allreduce([twin(tensors[0])], opts), tensors, tensors)

    def broadcast(self, tensors, opts):
        return self._do(lambda gloo, twin: gloo.broadcast([twin(tensors[0])], opts), tensors, tensors)

    def all_gather_single(self, out, x, opts):
        return self._do(lambda gloo, twin: gloo._allgather_base(twin(out), twin(x), opts), [x], [out])

    def reduce_scatter_single(self, out, x, opts):
        return self._do(lambda gloo, twin: gloo._reduce_scatter_base(twin(out), twin(x), opts), [x], [out])

    def all_to_all_single(self, out, x, coming, leaving, opts):
        return self._do(lambda gloo, twin: gloo.alltoall_base(twin(out), twin(x), coming, leaving, opts), [x], [out])

    _allgather_base, _reduce_scatter_base, alltoall_base = all_gather_single, reduce_scatter_single, all_to_all_single

    def send(self, tensors, to, tag):
        return self.host.send(tensors, to, tag) if self._by_host(*tensors) else self._message("send", *tensors, to)

    def recv(self, tensors, source, tag):
        return (
            self.host.recv(tensors, source, tag) if self._by_host(*tensors) else self._message("recv", *tensors, source)
        )

    def barrier(self, opts):
        return self.host.barrier(opts)
