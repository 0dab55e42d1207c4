"""Notebook 32: a layer of experts on real ranks: compared with one device, with its bytes counted and its waiting
timed.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch

from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.experts.uneven import EXPERTS, by_rank, whole_numbers
from hybridlab.labs.trials.against import gap
from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.experts import DISPATCH, exchanged, popular

# Scores of four tokens for four experts, from a softmax: each row adds up to 1.
SCORES = ((0.10, 0.50, 0.30, 0.10), (0.24, 0.06, 0.16, 0.54), (0.05, 0.70, 0.05, 0.20), (0.15, 0.45, 0.35, 0.05))
COUNT = 8  # bytes of a number of tokens
WEIGHT = 8  # bytes of every other number: all are in double precision here


class On(NamedTuple):
    """A layer of experts, and the tokens of each rank; every token chooses some experts."""

    tokens: tuple[int, ...]
    experts: int
    chosen: int
    width: int = 4

    @property
    def ranks(self) -> Mesh:
        return Mesh(ep=len(self.tokens))

    @property
    def owned(self) -> list[int]:
        """The number of experts of each rank."""
        return [end - begin for begin, end in even(self.experts, len(self.tokens))]

    def __str__(self):
        """
        >>> print(On((6, 6), 4, 2))
        2 ranks with 6 and 6 tokens, and 4 experts, of which a token chooses 2
        """
        *first, last = map(str, self.tokens)
        tokens = f"{', '.join(first)} and {last}"
        experts = f"{self.experts} experts, of which a token chooses {self.chosen}"
        return f"{len(self.tokens)} ranks with {tokens} tokens, and {experts}"


CASE = On((6, 6), 4, 2)


# --- inputs of all ranks, and the part of each rank -----------------------------------------------------------------


def whole(case: On):
    """(tokens, choices, weights, y's gradient, all experts) of all ranks together, the same on each rank."""
    import torch
    from torch.nn import functional

    from hybridlab.training.models.experts import Many
    from hybridlab.training.models.gpt import Mlp

    draw = torch.Generator().manual_seed(1)
    dense = lambda *shape: torch.randn(shape, dtype=torch.float64, generator=draw)
    rows, shape = sum(case.tokens), Shape(width=case.width, heads=1, inner=2 * case.width)
    experts = Mlp(shape, lambda inputs, outputs: Many(case.experts, inputs, outputs)).double()
    with torch.no_grad():
        for weight in experts.parameters():
            weight.copy_(dense(*weight.shape))
    scores = functional.softmax(
        dense(rows, case.experts) - 0.4 * torch.arange(case.experts), 1
    )  # the first experts are popular
    best = scores.topk(case.chosen)
    weights = best.values / best.values.sum(1, keepdim=True)
    return dense(rows, case.width), best.indices, weights, dense(rows, case.width), experts


class Home(NamedTuple):
    """A rank's part of the inputs: its tokens, their choices and weights, its experts; and y's gradient."""

    x: object
    chosen: object
    weights: object
    experts: object
    by_y: object


def home(comm, case: On) -> Home:
    """This rank's part, ready for a backward."""
    import copy

    from torch import nn

    x, chosen, weights, by_y, experts = whole(case)
    here, mine = comm.coordinates["ep"], copy.deepcopy(experts)
    rows, own = _span(case.tokens, here), _span(case.owned, here)
    for layer in (mine.up, mine.down):
        layer.weight, layer.bias = (nn.Parameter(one.detach()[own].clone()) for one in (layer.weight, layer.bias))
    return Home(
        x[rows].clone().requires_grad_(), chosen[rows], weights[rows].clone().requires_grad_(), mine, by_y[rows]
    )


def right(comm, case: On) -> dict:
    """{name: value on one device}, this rank's part: y, and the gradients of x, of the weights and of its experts.

    "y without weights" is the sum of the results of each token's experts, for a mistake in y.
    """
    import torch

    from hybridlab.modes.parts.token_order import dispatch

    x, chosen, weights, by_y, experts = whole(case)
    x.requires_grad_(), weights.requires_grad_()
    y = dispatch(x, chosen, weights, experts)
    y.backward(by_y)
    here = comm.coordinates["ep"]
    rows, own = _span(case.tokens, here), _span(case.owned, here)
    alone = dispatch(x, chosen, torch.ones_like(weights), experts).detach()[rows]
    found = {"y": y.detach()[rows], "y without weights": alone, "x": x.grad[rows], "the weights": weights.grad[rows]}
    return found | {f"experts' {name}": weight.grad[own] for name, weight in experts.named_parameters()}


def gradients(mine: Home) -> dict:
    """{name: the gradient on this rank}; None if there is none."""
    its = {"x": mine.x.grad, "the weights": mine.weights.grad}
    return its | {f"experts' {name}": weight.grad for name, weight in mine.experts.named_parameters()}


def rows_of(case: On, here: int) -> tuple[int, int]:
    """(rows that a rank sends to experts, rows that its own experts get); both include rows that stay on the rank."""
    chosen, own = whole(case)[1], _span(case.owned, here)
    return case.tokens[here] * case.chosen, int(((chosen >= own.start) & (chosen < own.stop)).sum())


def _span(lengths: Sequence[int], here: int) -> slice:
    return slice(sum(lengths[:here]), sum(lengths[: here + 1]))


# --- runs of the notebook on ranks ----------------------------------------------------------------------------------


def counts(pool, case: On = CASE) -> Table:
    """The number of rows that each rank has for each expert; ranks first exchange these numbers."""
    rows = [(f"{rank}", *map(str, home)) for rank, home in enumerate(pool.run(_counts, case))]
    owner = [rank for rank, owned in enumerate(case.owned) for _ in range(owned)]
    heads = [f"expert {expert} (on rank {rank})" for expert, rank in enumerate(owner)]
    return Table(("of rank", *heads), tuple(rows))


def _counts(comm, case):
    from hybridlab.modes.parts.token_order import in_order

    return in_order(home(comm, case).chosen, case.experts)[1].tolist()


def beside(comm, move, case: On = CASE) -> float:
    """The largest difference between a rank's y and gradients and those of one device, if `move(x, received, sent)`
    sends rows."""
    from hybridlab.modes.parts import dispatch

    mine, wanted = home(comm, case), right(comm, case)
    by_move = lambda comm, x, axis, cut, join, sent, received: move(x, received, sent)
    with patch.object(dispatch, "all_to_all", by_move):
        y = dispatch.by_all_to_all(mine.x, mine.chosen, mine.weights, mine.experts, comm, case.owned)
    y.backward(mine.by_y)
    return max(gap(found, wanted[name]) for name, found in ({"y": y.detach()} | gradients(mine)).items())


def counted(pool, every: Sequence[int], tokens: int = 24, experts: int = 16, width: int = 8) -> Table:
    """Bytes of one forward, the mean over ranks, for several numbers of choices: both methods, with their formulas."""
    rows = []
    for chosen in every:
        case = On((tokens,) * pool.size, experts, chosen, width)
        means = [sum(one) / pool.size for one in zip(*pool.run(_forward_bytes, case))]
        rows.append((str(chosen), *(f"{one:,.0f} / {other:,}" for one, other in zip(means, moved(case)))))
    return Table(("choices", "all-to-all: counted / formula", "all-gather: counted / formula"), tuple(rows))


def moved(case: On) -> list[int]:
    """Bytes of the messages' tensors for both methods, in the forward, if all ranks have the same number of tokens."""
    shape = Shape(width=case.width, heads=1, experts=case.experts, chosen=case.chosen)
    every = (exchanged(shape, case.tokens[0], len(case.tokens), way, "forward") for way in DISPATCH)
    return [WEIGHT * sum(numbers for *_, numbers in its) for its in every]


def _forward_bytes(comm, case):
    from hybridlab.modes.parts.dispatch import by_all_gather, by_all_to_all

    found = []
    for way, more in ((by_all_to_all, {}), (by_all_gather, {"rows": case.tokens})):
        mine, start = home(comm, case), len(comm.ledger)
        way(mine.x, mine.chosen, mine.weights, mine.experts, comm, case.owned, **more)
        found.append(sum(comm.ledger.bytes[start:]))
    return found


def stepped(pool, exponents: Sequence[float], choices: int = 2048, each: float = 3e-4, times: int = 5) -> dict:
    """{loads: seconds of a layer's forward, predicted and measured}, for loads by Zipf's law.

    Emulated work: an expert waits `each` seconds for every row. Routing, counts and both messages are real. The fastest
    of several runs counts, timed on its slowest rank.
    """
    found = {}
    for exponent in exponents:
        loads = whole_numbers(popular(EXPERTS, 1, exponent), choices)
        homes = pool.run(_waited, loads, each, times)
        predicted = each * max(by_rank(loads, pool.size))
        found[f"Zipf, exponent {exponent:g}"] = predicted, min(max(one) for one in zip(*homes))
    return found


def _waited(comm, loads, each, times):
    import torch

    from hybridlab.modes.parts.dispatch import by_all_to_all

    owned = [end - begin for begin, end in even(len(loads), comm.size)]
    every = torch.arange(len(loads)).repeat_interleave(torch.tensor(loads))[comm.rank :: comm.size]
    x, weights = torch.ones(len(every), 32), torch.ones(len(every), 1)

    def experts(x_AD, counts):
        time.sleep(each * len(x_AD))
        return x_AD

    took = []
    for _ in range(times):
        comm.barrier()
        begin = time.perf_counter()
        by_all_to_all(x, every[:, None], weights, experts, comm, owned)
        took.append(time.perf_counter() - begin)
    return took


DROPPING = Shape(layers=1, width=16, heads=2, context=8, experts=4, chosen=2, routing=Routing(capacity=1.0))


def drops(ranks: Sequence[int] = (1, 2, 4), rows: int = 4) -> Table:
    """The choices of a batch that are dropped because an expert is full, on one device and along ep."""
    from hybridlab.training.make_job import job_of
    from hybridlab.world.processes.launch import ranks as start

    found = {}
    for size in ranks:
        mesh = Mesh(ep=size) if size > 1 else Mesh(pp=1)
        job = job_of(mesh, microbatches=1, batch=rows, shape=DROPPING, dtype="float64")
        with start(mesh) as pool:
            found[size] = [choice for home in pool.run(_dropped, job) for choice in home]
    first, total = found[ranks[0]], rows * DROPPING.context * DROPPING.chosen
    as_first = lambda size: "" if size == ranks[0] else "the same" if found[size] == first else "others"
    table = [
        (f"ep={size}" if size > 1 else "one device", f"{sum(found[size])} of {total}", as_first(size)) for size in ranks
    ]
    return Table(("layout", "choices dropped", "compared with one device"), tuple(table))


def _dropped(comm, job):
    """Whether each choice of this rank's rows is dropped, in order."""
    from hybridlab.training.loop import Trainer

    trainer, found = Trainer(comm, job), []
    (router,) = trainer.tallying.values()
    router.register_forward_hook(lambda module, given, made: found.append(made[0] == DROPPING.experts))
    trainer.gradients(0)
    return [choice for one in found for choice in one.flatten().tolist()]
