"""A student's ZeRO 1, FSDP unit or fixed program: run on real ranks, and compared with one device."""

import contextlib
import copy
from itertools import pairwise

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import pad

from hybridlab.labs.trials.held import numbers, tensors
from hybridlab.labs.zero import clinic_case
from hybridlab.labs.zero.trial import RATE, Case, One, Unit
from hybridlab.predict.bytes.collectives import cost

ROWS = 7  # not a width of a net, so a saved matrix of another height is a weight
STEPS = 3
NEAR = 1e-5  # tolerance of weights, after steps of 0.01


def net(widths) -> nn.Sequential:
    """Linear layers with tanh between them; the same on every rank."""
    made = nn.Sequential()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for a, b in pairwise(widths):
            made.append(nn.Linear(a, b)).append(nn.Tanh())
    return made


def rows(case, step, rank):
    """(x, target): the rows of a rank in a step."""
    chance = torch.Generator().manual_seed(100 * step + rank)
    return tuple(torch.randn(ROWS, width, generator=chance) for width in (case.widths[0], case.widths[-1]))


def loss(case, module, step, rank):
    x, target = rows(case, step, rank)
    return case.scale * ((module(x) - target) ** 2).mean()


def flat(parts) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in parts])


def _sent(comm, before) -> tuple[list[str], float]:
    """(operations, bytes that this rank has sent) since row `before` of the ledger."""
    found = comm.ledger.rows()[before:]
    return [one["op"] for one in found], sum(cost(one["op"], one["group"], one["bytes"]).bytes for one in found)


# --- ZeRO 1 -------------------------------------------------------------------------------------------------------


def play_one(comm, answer, case) -> One:
    """On each rank: three steps with the student's optimizer."""
    module = net(case.widths)
    weights, before = list(module.parameters()), len(comm.ledger)
    optimizer, first = answer(comm, list(weights), RATE), ""
    for step in range(STEPS):
        module.zero_grad(set_to_none=True)
        loss(case, module, step, comm.rank).backward()
        optimizer.step()
        first = first if step else _after_one(comm, case, flat(weights))
    module.zero_grad(set_to_none=True)
    ops, sent = _sent(comm, before)
    kept = numbers(tensors(optimizer), beside=weights)
    found = flat(weights)
    gap, lost = (_farthest(found, flat(_one_device(case, STEPS, keep).parameters())) for keep in (True, False))
    moved = not torch.equal(found, flat(net(case.widths).parameters()))
    return One(gap, moved, first, lost < NEAR, ops, sent / STEPS, kept)


def _after_one(comm, case, found) -> str:
    """The state of the weights after the first step, see `One`. Only the first step shows it: later gradients depend on
    all shards.
    """
    before, right = flat(net(case.widths).parameters()), flat(_one_device(case, 1).parameters())
    start, end = comm.rank * case.share, (comm.rank + 1) * case.share
    if _farthest(found, right) < NEAR:
        return "right"
    if _farthest(found, torch.cat([before[:start], right[start:end], before[end:]])) < NEAR:
        return "own"
    copied = before[: case.share].repeat(case.ranks)[: len(found)]
    return "copied" if _farthest(found, copied) < 1.5 * RATE else ""


def _farthest(found, right) -> float:
    return (found - right).abs().max().item()


def _one_device(case, steps, keep=True):
    """The net after `steps` steps of torch's Adam over the rows of all ranks; it may `keep` its averages."""
    module = net(case.widths)
    adam = torch.optim.Adam(module.parameters(), lr=RATE)
    for step in range(steps):
        adam = adam if keep else torch.optim.Adam(module.parameters(), lr=RATE)
        adam.zero_grad()
        _whole_batch(case, module, step)
        adam.step()
    return module


def _whole_batch(case, module, step):
    for rank in range(case.ranks):
        (loss(case, module, step, rank) / case.ranks).backward()


# --- one FSDP unit ------------------------------------------------------------------------------------------------


def play_unit(comm, answer, case) -> list[Unit]:
    """On each rank: two steps with the student's unit; between them its shard is updated."""
    module = net(case.widths)
    whole = copy.deepcopy(module)
    unit = answer(comm, module)
    stored = numbers([unit.shard])
    if unit.shard.numel() == case.share != stored:
        return [Unit(stored, *[0.0] * 5, *[0] * 3, [], 0.0)]
    return [_unit_step(comm, unit, whole, case, step) for step in (0, 1)]


def _unit_step(comm, unit, whole, case, step) -> Unit:
    (x, target), before, saved = rows(case, step, comm.rank), len(comm.ledger), []
    alone, x = x.clone().requires_grad_(), x.requires_grad_()
    keep = lambda one: (saved.append(one), one)[1]
    with saved_tensors_hooks(keep, lambda one: one), _freed_is_told("forward"):
        y = unit(x)
    weights = [one for one in saved if one.dim() == 2 and ROWS not in one.shape]
    between = [numbers(found) for found in (tensors(unit), [*tensors(unit), *weights])]
    saved.clear()
    weights.clear()
    with _freed_is_told("backward"):
        ((y - target) ** 2).mean().backward()
    ops, sent = _sent(comm, before)
    after = numbers(tensors(unit))
    right = whole(alone)
    ((right - target) ** 2).mean().backward()
    return Unit(
        case.share,
        _far(y, right),
        _far(x.grad, alone.grad),
        *_updated(comm, unit, whole, case, step),
        *between,
        after,
        ops,
        sent,
    )


@contextlib.contextmanager
def _freed_is_told(what):
    """A context that replaces torch's error about a view without storage by a helpful one."""
    try:
        yield
    except RuntimeError as error:
        if "storage of size 0" not in str(error):
            raise
        raise RuntimeError(f"the {what} reads weights whose storage was freed: gather them first") from None


def _updated(comm, unit, whole, case, step) -> tuple[float, float, float]:
    """The errors of the shard and of its gradient, and the factor by which the gradient is too large.

    Then the unit's shard and one device's weights are updated.
    """
    mine = lambda parts: pad(flat(parts), (0, case.ranks * case.share - case.weights)).chunk(case.ranks)[comm.rank]
    whole.zero_grad()
    _whole_batch(case, whole, step)
    far = [_far(unit.shard, mine(whole.parameters()))]
    right = mine([one.grad for one in whole.parameters()])
    far.append(_far(unit.shard.grad, right))
    far.append((unit.shard.grad.norm() / right.norm()).item() if far[1] == far[1] and right.any() else 1.0)
    with torch.no_grad():
        for one in whole.parameters():
            one -= RATE * one.grad
        if unit.shard.grad is not None and far[1] == far[1]:
            unit.shard -= RATE * unit.shard.grad
            unit.shard.grad = None
    return tuple(far)


def _far(found, right) -> float:
    """The largest difference; nan if the first is not a tensor of that shape."""
    if not isinstance(found, torch.Tensor) or found.shape != right.shape:
        return float("nan")
    return (found - right).abs().max().item()


# --- the broken program ---------------------------------------------------------------------------------------------


def play_program(comm, answer, case: clinic_case.Case) -> clinic_case.Did:
    """Run the program on this rank for one step, for two, and for all steps, each time from the initial weights."""
    before = len(comm.ledger)
    found = [_after(steps, comm, answer, case) for steps in range(1, clinic_case.STEPS + 1)]
    right = [flat(net(case.widths).parameters()), *_by_sgd(case)]
    changed = [(one[1] - right[0]).norm() for one in ([None, found[0]], right)]
    gaps = [(one - wanted).abs().max().item() for one, wanted in zip(found, right[1:])]
    ops = [row["op"] for row in comm.ledger.rows()[before:]]
    return clinic_case.Did((changed[0] / changed[1]).item(), gaps, found[-1].tolist(), ops)


def _after(steps, comm, answer, case) -> torch.Tensor:
    """The weights after `steps` steps of the program."""
    module = net(case.widths)
    answer(comm, module, [_microbatches(case, step, comm.rank) for step in range(steps)], clinic_case.RATE)
    return flat(module.parameters())


def _microbatches(case, step, rank) -> list[tuple]:
    """(x, target) of each microbatch. All targets are positive, so that all gradients have about the same direction."""
    drawn = [rows(Case(case.ranks, case.widths), step, case.ranks * k + rank) for k in range(case.microbatches)]
    return [(x, target.abs()) for x, target in drawn]


def _by_sgd(case) -> list[torch.Tensor]:
    """The weights after each step over the microbatches of all ranks."""
    module, found = net(case.widths), []
    sgd = torch.optim.SGD(module.parameters(), lr=clinic_case.RATE, momentum=clinic_case.MOMENTUM)
    for step in range(clinic_case.STEPS):
        sgd.zero_grad()
        for x, target in (one for rank in range(case.ranks) for one in _microbatches(case, step, rank)):
            ((module(x) - target).square().mean() / case.ranks / case.microbatches).backward()
        sgd.step()
        found.append(flat(module.parameters()))
    return found
