"""A student's pipeline without flush, on real ranks: a stage that is called with its weights, and the right results.

The replay has no ranks and no messages: every microbatch goes through all stages, and each stage uses
the weight version that its rank's list names; then every stage makes its next version.
"""

import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.multiprocessing.reductions import StorageWeakRef

from hybridlab.labs.engine import toy
from hybridlab.labs.engine.case import Case, lists
from hybridlab.labs.engine.rank import UNMARKED, messages
from hybridlab.labs.trials.watched import Watched

RATE = 0.5  # the learning rate; a power of two, so that w - rate · g has the same last bit however it is written

UNMARKED_WEIGHTS = "the weights of this version keep no gradient: autograd fills .grad only after requires_grad_()"

Weights = list[Tensor]


def weights(number: int, stages: int) -> Weights:
    """The weights with which a stage begins: the matrix and the bias of each layer."""
    return [weight.detach().clone() for weight in toy.stage(number, stages).parameters()]


def version_of(program, microbatch: int) -> int:
    """The version that a forward uses: the number of backwards before it in the list of its rank.

    >>> [version_of(lists("1f1b", ranks=3, microbatches=4)[0], k) for k in range(4)]
    [0, 0, 0, 1]
    """
    return [kind for kind, _ in program[: program.index(("F", microbatch))]].count("B")


# --- right results, and results of known mistakes------------------------------------------------------------------


class Update(NamedTuple):
    """Inputs of an update: weights, gradients of one microbatch, and their sum over microbatches with this version."""

    newest: Weights
    used: Weights  # by the forward
    gradients: Weights
    summed: Weights
    microbatches: int


RULES: dict[str, Callable[[Update], Weights]] = {  # -> the newest weights
    "right": lambda of: _step(of.newest, of.gradients, RATE),
    "from the version": lambda of: _step(of.used, of.gradients, RATE),
    "divided by m": lambda of: _step(of.newest, of.gradients, RATE / of.microbatches),
    "one .grad": lambda of: _step(of.newest, of.summed, RATE),
    "never updated": lambda of: of.newest,
}


def replay(case: Case, rule: str = "right") -> list[Weights]:
    """The weights of every stage after all microbatches, computed in one process.

    >>> [len(its) for its in replay(Case("1f1b", 2, 3))]
    [4, 4]
    """
    programs, stages = lists(*case), range(case.stages)
    call, sums = [_Stage(number, case.stages) for number in stages], {}
    made = [[weights(number, case.stages)] for number in stages]
    for k, (x, target) in enumerate(toy.microbatches(case.microbatches)):
        versions = [version_of(programs[s], k) for s in stages]
        used = [[w.requires_grad_() for w in made[s][versions[s]]] for s in stages]
        for s in stages:
            x = call[s](used[s], x)
        found = iter(torch.autograd.grad(toy.loss(x, target), sum(used, [])))
        for s in stages:
            gradients, earlier = [next(found) for _ in used[s]], sums.get((s, versions[s]))
            summed = [a + b for a, b in zip(earlier, gradients)] if earlier else gradients
            sums[s, versions[s]] = summed
            made[s].append(RULES[rule](Update(made[s][-1], used[s], gradients, summed, case.microbatches)))
    return [versions[-1] for versions in made]


def _step(old: Weights, gradients: Weights, rate: float) -> Weights:
    return [(w - rate * gradient).detach() for w, gradient in zip(old, gradients)]


# --- on the ranks -------------------------------------------------------------------------------------------------


class Did(NamedTuple):
    """The result of a run on one rank."""

    problem: str  # the reason why the answer is not a list of weights, in words
    gap: float  # the largest difference from the replay
    like: str  # the rule that gives the same weights to the last bit, if there is one
    order: list[tuple]
    changed: int  # the microbatch whose backward found different weights from those of its forward; -1: none
    most: int  # versions that existed at the same time
    sent: int
    bytes: int
    left: int


def play(comm, answer, case: Case) -> Did:
    """On each rank: the student's function, with a stage that is watched."""
    program = lists(*case)
    stage, data = _Stage(comm.rank, case.stages), toy.microbatches(case.microbatches)
    talk, before = Watched(comm, []), len(comm.ledger)
    try:
        found = answer(talk, stage, weights(comm.rank, case.stages), program, data, RATE)  # only it holds version 0
    except (TypeError, RuntimeError) as error:
        if stage.unmarked and ("None" in str(error) or "does not require grad" in str(error)):
            error.args = (stage.unmarked,)
        raise
    rights = {rule: replay(case, rule)[comm.rank] for rule in RULES}
    forwards = [k for kind, k in program[comm.rank] if kind == "F"]
    order = [(kind, forwards[which] if which < len(forwards) else which) for kind, which in stage.did]
    changed = forwards[stage.changed[0]] if stage.changed else -1
    return Did(*_compared(found, rights), order, changed, stage.most, *messages(talk, before))


def _compared(found, rights) -> tuple[str, float, str]:
    wanted = rights["right"]
    if not isinstance(found, list | tuple) or len(found) != len(wanted):
        what = f"a list of {len(found)}" if isinstance(found, list | tuple) else type(found).__name__
        return f"returned {what}, not its {len(wanted)} weights", float("nan"), ""
    if not all(isinstance(one, Tensor) and one.shape == right.shape for one, right in zip(found, wanted)):
        return "returned tensors of different shapes from its weights", float("nan"), ""
    found = [one.detach() for one in found]
    same = lambda right: all(map(torch.equal, found, right))
    gap = max((one - right).abs().max().item() for one, right in zip(found, wanted))
    return "", gap, next((rule for rule, right in rights.items() if same(right)), "")


class _Stage:
    """A stage as a function of its weights, which notes its forwards and backwards and the versions that it meets."""

    def __init__(self, number: int, stages: int):
        self.inner = toy.stage(number, stages)
        self.names = [name for name, _ in self.inner.named_parameters()]
        self.did, self.changed, self.most, self.unmarked = [], [], 0, ""
        self._number = number
        self._met, self._forwards = [], 0

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        which, self._forwards = self._forwards, self._forwards + 1
        self.did.append(("F", which))
        self._meet(weights)
        if not all(w.requires_grad for w in weights):
            self.unmarked = UNMARKED_WEIGHTS
        elif self._number and not x.requires_grad:
            self.unmarked = UNMARKED
        y = functional_call(self.inner, dict(zip(self.names, weights)), (x,))
        if y.requires_grad:
            before, its = [w.detach().clone() for w in weights], [weakref.ref(w) for w in weights]
            y.register_hook(lambda _: self._back(which, before, its))
        return y

    def _back(self, which, before, its):
        self.did.append(("B", which))
        now = [one() for one in its]
        if not all(w is None or torch.equal(w, old) for w, old in zip(now, before)):
            self.changed.append(which)

    def _meet(self, weights):
        """A version exists as long as its first matrix exists."""
        storage = weights[0].untyped_storage()
        self._met.append((StorageWeakRef(storage), storage.data_ptr()))
        self._met = [(one, place) for one, place in self._met if not one.expired()]
        self.most = max(self.most, len({place for _, place in self._met}))
