"""Notebook 32: copies of popular experts on real ranks. A step of a layer with loans, its experts emulated."""

import time
from collections.abc import Sequence

from hybridlab.core.where.layout import even
from hybridlab.core.where.slots import Slots
from hybridlab.labs.experts.uneven import EXPERTS, whole_numbers
from hybridlab.predict.bytes.copied_experts import lent, on_ranks
from hybridlab.predict.bytes.experts import popular

FORWARD, BACKWARD = 1, 2  # time for one row


def stepped_with_loans(
    pool, every: Sequence[int], exponent: float = 1, choices: int = 1024, each: float = 5e-4, times: int = 3
) -> dict[int, tuple[int, float, float]]:
    """{the largest number of loans to one rank: (number of all loans, predicted and measured seconds of a step)}, for
    loads by Zipf's law.

    The experts are distributed over all axes of the pool's mesh: with tp, they are folded.

    Emulated work: a row takes `each` seconds in the forward, and twice as many in the backward. Routing, loans, their
    gradients and the messages of tokens are real. The fastest of several runs counts, timed on its slowest rank.
    """
    loads, found = whole_numbers(popular(EXPERTS, 1, exponent), choices), {}
    for most in every:
        slots = _slots(loads, pool.size, most)
        homes = pool.run(_stepped, loads, slots.lent, each, times)
        predicted = (FORWARD + BACKWARD) * each * max(on_ranks(loads, slots.held))
        found[most] = sum(map(len, slots.lent.values())), predicted, min(max(one) for one in zip(*homes))
    return found


def _slots(loads, ranks, most) -> Slots:
    return Slots(_owned(loads, ranks), lent(loads, ranks, most))


def _owned(loads, ranks):
    return [end - begin for begin, end in even(len(loads), ranks)]


def _stepped(comm, loads, copies, each, times):
    import torch

    from hybridlab.modes.parts.dispatch import by_all_to_all
    from hybridlab.modes.parts.lent_experts import dealt, lend

    slots, group = Slots(_owned(loads, comm.size), copies), tuple(range(comm.size))
    comm.open(group)
    chosen = torch.arange(len(loads)).repeat_interleave(torch.tensor(loads))[comm.rank :: comm.size, None]
    x, weights = torch.ones(len(chosen), 32, requires_grad=True), torch.ones(len(chosen), 1)
    experts = _waiting(slots.owned[comm.rank], each)
    lend(experts, slots.loans(comm.rank), comm, group)

    def dispatch(x, chosen, weights, experts):
        return by_all_to_all(x, chosen, weights, experts, comm, slots.sizes, group)

    took = []
    for _ in range(times):
        comm.barrier()
        begin = time.perf_counter()
        dealt(dispatch, slots.holders, comm.rank, x, chosen, weights, experts).sum().backward()
        took.append(time.perf_counter() - begin)
    return took


def _waiting(number: int, each: float):
    """Experts that wait instead of computing: each multiplies its rows by its only weight."""
    import torch

    class Waits(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x_AD):
            time.sleep(FORWARD * each * len(x_AD))
            return x_AD.view_as(x_AD)

        @staticmethod
        def backward(ctx, by_x_AD):
            time.sleep(BACKWARD * each * len(by_x_AD))
            return by_x_AD

    class Waiting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(number, 1))

        def forward(self, x_AD, counts):
            return Waits.apply(x_AD) * self.weight.repeat_interleave(torch.tensor(counts), 0)

    return Waiting()
