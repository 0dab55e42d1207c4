"""What both backends of the emulated device have in common: the names by which torch calls, and gloo to carry bytes."""

from torch.distributed import PrefixStore, ProcessGroupGloo


class Group:
    """A backend that does with tensors of the device what `_start` and `_message` of a subclass say.

    An operation is a `transfer(gloo, twin)`: it starts on a gloo group, with the twin on the host of each tensor.
    """

    def __init__(self, store, rank, size, timeout):
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout

    def _gloo(self, name: str, rank: int, size: int):
        """A gloo group; returns when all its ranks are there."""
        return ProcessGroupGloo(PrefixStore(name, self.store), rank, size, self.timeout)

    def allreduce(self, tensors, opts):
        return self._start(lambda gloo, twin: gloo.allreduce([twin(tensors[0])], opts), tensors, tensors)

    def broadcast(self, tensors, opts):
        return self._start(lambda gloo, twin: gloo.broadcast([twin(tensors[0])], opts), tensors, tensors)

    def allgather(self, out, tensors, opts):
        twins = lambda twin: ([[twin(one) for one in out[0]]], [twin(tensors[0])])
        return self._start(lambda gloo, twin: gloo.allgather(*twins(twin), opts), tensors, out[0])

    def all_gather_single(self, out, x, opts):
        return self._start(lambda gloo, twin: gloo._allgather_base(twin(out), twin(x), opts), [x], [out])

    def reduce_scatter_single(self, out, x, opts):
        return self._start(lambda gloo, twin: gloo._reduce_scatter_base(twin(out), twin(x), opts), [x], [out])

    def all_to_all_single(self, out, x, coming, leaving, opts):
        return self._start(lambda gloo, twin: gloo.alltoall_base(twin(out), twin(x), coming, leaving, opts), [x], [out])

    def send(self, tensors, to, tag):
        return self._message("send", *tensors, to)

    def recv(self, tensors, source, tag):
        return self._message("recv", *tensors, source)
