"""Recording of messages that a program sends directly through `torch.distributed`, in the ledger and the journal.

Every collective and message of torch is one of torch's operators c10d.…, for any caller (a program, DDP, FSDP, DTensor,
functional collectives, pipelining). A kernel above the backend's records it and calls the backend. Messages of `Comm`
pass below it (`network`), since they are recorded already.

The bytes are those of the full tensor, as everywhere in the ledger; the purpose is `THEIRS`; the source is the line
that called torch: for DDP's all-reduces, the line of the backward. Not recorded: receives from any source, tensors made
in inference mode, and ranks that torchrun started, for which there is no journal.
"""

import sys
from collections import deque

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork
from torch.distributed import distributed_c10d

from hybridlab.world import WORLD
from hybridlab.world.talk.groups import Group, label_of
from hybridlab.world.talk.ledger import LIBRARY, THEIRS
from hybridlab.world.talk.message import WATCHERS, looked_after
from hybridlab.world.talk.network import ABOVE

# {operator: its name in the ledger, and the argument that is the full tensor, or of which each rank has a part}
COLLECTIVES = {
    "allreduce_": ("all_reduce", "tensors"),
    "allreduce_coalesced_": ("all_reduce", "tensors"),
    "_allgather_base_": ("all_gather", "output_tensor"),
    "allgather_into_tensor_coalesced_": ("all_gather", "outputs"),
    "allgather_": ("all_gather", "output_tensors"),
    "allgather_coalesced_": ("all_gather", "output_lists"),
    "_reduce_scatter_base_": ("reduce_scatter", "input_tensor"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "inputs"),
    "reduce_scatter_": ("reduce_scatter", "input_tensors"),
    "alltoall_base_": ("all_to_all", "input"),
    "alltoall_": ("all_to_all", "input_tensors"),
    "broadcast_": ("broadcast", "tensors"),
    "reduce_": ("reduce", "tensors"),
    "scatter_": ("scatter", "output_tensors"),
    "gather_": ("gather", "input_tensors"),
    "barrier": ("barrier", None),
}
PARTS = ("scatter", "gather")  # only the root has the full tensor: every rank counts its part for each
UNEQUAL = ("all_gather", "all_to_all", *PARTS)  # ranks may pass tensors of different shapes
MOST = 10_000  # messages in transit
OURS = (WORLD, LIBRARY)  # files between the network and a program
MESSAGES = ("send", "recv_")


class Overheard:
    """The kernels of one rank, active as long as this object exists. They write into the ledger of `comm`."""

    def __init__(self, comm):
        self._comm = comm
        self._under_way = deque(maxlen=MOST)  # torch keeps the C++ part of a Watched alive, but not the rest
        self._library = torch.library.Library("c10d", "IMPL")
        for name in (*COLLECTIVES, *MESSAGES):
            operator = getattr(torch.ops.c10d, name).default
            self._library.impl(name, self._kernel(name, operator), "ADInplaceOrView")

    def _kernel(self, name, operator):
        words = [argument.name for argument in operator._schema.arguments]
        write = self._message if name in MESSAGES else self._collective

        def kernel(*given, **named):
            told = dict(zip(words, given)) | named
            return write(name, told, lambda: _below(operator, given, named))

        return kernel

    def _collective(self, name, told, call):
        op, full = COLLECTIVES[name]
        group = self._group(told["process_group"])
        if group.size == 1:
            return call()
        tensors = list(_tensors(told[full])) if full else []
        size = sum(x.nbytes for x in tensors) * (group.size if op in PARTS else 1)
        agreed = tensors[0] if len(tensors) == 1 and op not in UNEQUAL else None
        root = group.ranks[told["root_rank"]] if "root_rank" in told else None
        waits = not told.get("async_op", True)
        ledger = self._comm.ledger
        row = ledger.begin(op, group, size, agreed, purpose=THEIRS, how=_how(), root=root, waits=waits)
        result = call()
        work = dist.Work.unbox(result[-1] if isinstance(result, tuple) else result)
        if waits:
            if work:  # NCCL gives none for a collective that the current stream waits for
                work.wait()
            ledger.end(row)
        else:
            note, end = ledger.when_over(row), looked_after if _on_streams(told["process_group"], tensors) else _waited
            WATCHERS.put(lambda: (end(work), note()))
        return result

    def _message(self, name, told, call):
        group = self._group(told["process_group"])
        peer = group.ranks[told["dst" if name == "send" else "src"]]
        (x,) = told["tensors"]
        op = name.strip("_")
        waits = _waits(op)
        pair = Group(self._label((self._comm.rank, peer)), (self._comm.rank, peer), None)
        ledger = self._comm.ledger
        how = {"purpose": THEIRS, "peer": peer, "tag": told["tag"], "waits": waits}
        row = ledger.begin(op if waits else f"i{op}", pair, x.nbytes, x, **how)
        work = Watched(dist.Work.unbox(call()), ledger, row)
        if waits:
            work.wait()
            return FakeWork().boxed()  # torch waits once more
        self._under_way.append(work)
        return work.boxed()

    def _group(self, boxed) -> Group:
        ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(boxed)))
        return Group(self._label(ranks), ranks, None)

    def _label(self, ranks) -> str:
        """The axes of the mesh along which some ranks differ."""
        places = [self._comm.mesh.coordinates(rank) for rank in ranks]
        return label_of(axis for axis in self._comm.mesh.axes if len({place[axis] for place in places}) > 1)


class Watched(dist.Work):
    """Another program's message in transit: a rank that waits for it is recorded as waiting. gloo allows one wait."""

    def __init__(self, work, ledger, row):
        super().__init__()
        self._work, self._ledger, self._row = work, ledger, row

    def wait(self, *timeout):
        if self._work:
            work, self._work = self._work, None
            self._ledger.waiting(self._row)
            work.wait(*timeout)
            self._ledger.end(self._row)
        return True

    def is_completed(self):
        return not self._work or self._work.is_completed()


def _waited(work):
    work.wait()


def _on_streams(group, tensors) -> bool:
    """Whether the device, and not the host, waits for these tensors. Then no other thread may wait: its stream is the
    default stream, so all work on it would wait too.
    """
    devices = {x.device for x in tensors} - {torch.device("cpu")}
    return any(dist.ProcessGroup.unbox(group)._get_backend(one).name() != "gloo" for one in devices)


def _below(operator, given, named):
    with torch._C._ExcludeDispatchKeyGuard(ABOVE):
        return operator(*given, **named)


def _tensors(nested):
    """Every tensor of a tensor, of a list, or of lists of lists."""
    if isinstance(nested, torch.Tensor):
        yield nested
    else:
        for one in nested:
            yield from _tensors(one)


def _calls():
    """The frames of torch.distributed's own functions in the current call, the innermost first."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(OURS):
        if frame.f_code.co_filename == distributed_c10d.__file__:
            yield frame
        frame = frame.f_back


def _waits(function: str) -> bool:
    """Whether a message comes from `send` or `recv`, which wait for it, or from `isend`, `irecv`, a pipeline."""
    return any(frame.f_code.co_name == function for frame in _calls())


def _how() -> str:
    """The reduction as a word; "" if there is none, or it is unknown: torch does not let Python read it."""
    op = next((frame.f_locals["op"] for frame in _calls() if "op" in frame.f_locals), None)
    return str(op).rpartition(".")[2].lower() if isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType) else ""
