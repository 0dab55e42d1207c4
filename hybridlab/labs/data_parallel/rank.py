"""A student's data parallelism in buckets: run on real ranks for two steps, and compared with one device."""

import torch
from torch import nn

from hybridlab.labs.data_parallel.trial import Did

WIDTH, ROWS, LAYERS = 16, 4, 4
STEPS = 2  # steps: the second one shows state of the first that was not reset
UNUSED = 1  # the layer that is left out if a weight should get no gradient


class Net(nn.Module):
    """Linear layers with tanh, some of which may be left out; the same on every rank.

    >>> Net("")(torch.ones(ROWS, WIDTH)).shape, Net("tied").layers[0].weight is Net("tied").layers[3].weight
    (torch.Size([4, 16]), False)
    >>> tied = Net("tied")
    >>> tied.layers[0].weight is tied.layers[3].weight, len(list(tied.parameters()))
    (True, 7)
    """

    def __init__(self, twist: str):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.order = [LAYERS - 1, *range(LAYERS - 1)] if twist == "turned" else range(LAYERS)
        if twist == "tied":
            self.layers[3].weight = self.layers[0].weight
        if twist == "frozen":
            self.layers[2].weight.requires_grad_(False)

    def forward(self, x, without=()):
        for number in self.order:
            x = x if number in without else torch.tanh(self.layers[number](x))
        return x


def left_out(twist: str, rank: int) -> tuple[int, ...]:
    """The layers that a rank does not use."""
    return (UNUSED,) * (twist == "unused" or (twist == "unused on rank 1" and rank == 1))


def play(comm, answer, case) -> list[Did]:
    """On each rank: the student's class around a small net, for some steps."""
    net, watch = Net(case.twist), _Watch(comm)
    for weight in _summed(net):
        weight.register_hook(watch.note)
    ddp = answer(comm, net, case.bucket_bytes)
    return [_step(comm, net, ddp, watch, case, number) for number in range(STEPS)]


class _Watch:
    """For each gradient made: how many all-reduces of this step have begun, and how many of them are still open."""

    def __init__(self, comm):
        self.comm = comm
        self.begin()

    def begin(self):
        self.first, self.early, self.open = len(self.comm.ledger), 0, 0

    def note(self, gradient):
        rows = self._rows()
        self.early, self.open = len(rows), sum(not row["end_ns"] for row in rows)

    def begun(self) -> int:
        """The all-reduces of this step that have begun."""
        return len(self._rows())

    def _rows(self) -> list[dict]:
        return [row for row in self.comm.ledger.rows()[self.first :] if row["op"] == "all_reduce"]


def _step(comm, net, ddp, watch, case, number) -> Did:
    net.zero_grad(set_to_none=True)
    watch.begin()
    _loss(net, case, number, comm.rank).backward()
    begun, full = watch.begun(), _full(net, case.bucket_bytes)
    ddp.finish()
    rows = comm.ledger.rows()[watch.first :]
    sums = [row["bytes"] for row in rows if row["op"] == "all_reduce"]
    others = sorted({row["op"] for row in rows} - {"all_reduce"})
    about = _compared(net, case, number, comm.rank)
    wanted = [sum(weight.nbytes for weight in bucket) for bucket in _buckets(net, case.bucket_bytes)]
    return Did(*about, sums, wanted, others, watch.early, watch.open, begun, full)


def _loss(net, case, number, rank):
    """The mean squared error of a rank's rows in a step."""
    chance = torch.Generator().manual_seed(100 * number + rank)
    x, target = (torch.randn(ROWS, WIDTH, generator=chance) for _ in "xt")
    return ((net(x, left_out(case.twist, rank)) - target) ** 2).mean()


def _compared(net, case, number, rank):
    """(missing, own, gap, ratio): the gradients compared with those of one device, which has the rows of all ranks."""
    found = {name: weight.grad for name, weight in net.named_parameters() if weight.requires_grad}
    wanted, own = (_one_device(case, number, ranks) for ranks in (range(case.ranks), [rank]))
    missing = [name for name, gradient in found.items() if gradient is None and wanted[name].any()]
    if missing:
        return missing, False, (float("nan"), ""), float("nan")
    found = {name: torch.zeros_like(wanted[name]) if one is None else one for name, one in found.items()}
    norm = lambda gradients: torch.cat([one.flatten() for one in gradients.values()]).norm().item()
    far = lambda others: max(((found[name] - others[name]).abs().max().item(), name) for name in found)
    return missing, far(own)[0] < 1e-7, far(wanted), norm(found) / norm(wanted)


def _one_device(case, number, ranks) -> dict:
    """The gradients of the mean over the rows of some ranks; zeros for a weight without one."""
    net = Net(case.twist)
    for rank in ranks:
        (_loss(net, case, number, rank) / len(ranks)).backward()
    named = [(name, weight) for name, weight in net.named_parameters() if weight.requires_grad]
    return {name: torch.zeros_like(one) if one.grad is None else one.grad for name, one in named}


def _summed(net) -> list:
    return [weight for weight in net.parameters() if weight.requires_grad]


def _buckets(net, most) -> list[list]:
    """The weights of each bucket, filled from the last weight to the first."""
    buckets, room = [], 0
    for weight in reversed(_summed(net)):
        if not buckets or weight.nbytes > room:
            buckets.append([])
            room = most
        buckets[-1].append(weight)
        room -= weight.nbytes
    return buckets


def _full(net, most) -> int:
    """The number of buckets that have all their gradients, before the first one that has not."""
    full = [all(weight.grad is not None for weight in bucket) for bucket in _buckets(net, most)]
    return [*full, False].index(False)
