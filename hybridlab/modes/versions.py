"""Weight versions: a pipeline without flush updates while older microbatches are still under way.

Each stage keeps the versions of its weights that its program still needs: a backward must find the weights that its
forward used (PipeDream's weight stashing), or any that the schedule states (`0F3#2` is the forward of microbatch 3
with version 2). An update never writes into weights that are in use. It makes the next version beside them.

Relatives: `schedules.pipedream`, the row OPT of `core.law`, the proof in `train.replay`, notebook 15.
Source: Narayanan et al. 2019 (PipeDream, SOSP) and 2021, arXiv:2006.09503 (2BW).
"""

from collections import Counter

import torch
from torch.func import functional_call

from hybridlab.core.schedule import Schedule
from hybridlab.modes.data_parallel import Sums

ENDS_A_USE = ("F", "C", "R", "B", "W", "OPT")  # each of them uses a version once; a W ends what its I began


class Versions:
    """The versions of the weights of one rank's stages; every step begins with the latest as version 0.

    stages  {stage: module};  make  make(weights) -> the optimizer of one stage
    stash   False: one version, whose numbers change while microbatches are under way. Their backward then finds other
            weights than their forward, and its gradient belongs to no weights that ever were: what PipeDream avoids
    held    {stage: {version: {name: weight}}};  peak  {stage: the most that were held at once}
    """

    def __init__(self, stages: dict, make, schedule: Schedule, rank: int, stash: bool = True):
        self.stages, self.window, self.stash = stages, schedule.window, stash
        updated = {stage: module.parameters() if stash else _unwatched(module) for stage, module in stages.items()}
        self.optimizers = {stage: make(list(weights) or _nothing()) for stage, weights in updated.items()}
        parts = [part for action in schedule.program[rank] for part in action.each]
        self.uses = Counter((part.stage, part.version) for part in parts if part.kind in ENDS_A_USE)
        self.held = {stage: {0: dict(module.named_parameters())} for stage, module in stages.items()}
        self.begin()

    def arm(self, last: bool):
        """Every play of the schedule is a whole step."""

    def finish(self):
        """The schedule has updated the weights as it went."""

    def begin(self):
        """Start a step: the latest version of every stage becomes version 0."""
        self.held = {stage: {0: self.latest(stage)} for stage in self.stages}
        self.peak = dict.fromkeys(self.stages, 1)
        self.left, self.gradients = self.uses.copy(), {}

    def latest(self, stage) -> dict:
        """The newest weights of a stage, by name."""
        return self.held[stage][max(self.held[stage])]

    def call(self, stage, version):
        """The module of a stage with one version of its weights, or with the latest (-1), ready to be called."""
        weights = self.latest(stage) if version < 0 else self.held[stage][version]
        self._used(stage, version)
        return lambda *arrived: functional_call(self.stages[stage], weights, arrived)

    def collect(self, stage, microbatch, version):
        """Add what a backward has left at its version's weights to the sum of the microbatch's window."""
        window = self.gradients.setdefault((stage, microbatch // self.window), {})
        for name, weight in self.held[stage][version].items():
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
            window[name] = gradient if name not in window else window[name] + gradient
            weight.grad = None
        self._used(stage, version)

    def reduce(self, comm, action):
        """A window's sum is made as its microbatches come, and each stage lives on one rank: nothing to send."""
        return Sums()

    def update(self, stage, version):
        """Make version + 1 by one step of the optimizer."""
        gradients, optimizer = self.gradients.pop((stage, version)), self.optimizers[stage]
        old = self.held[stage][version]
        new = self._succeeded(optimizer, old) if self.stash else old
        for group in optimizer.param_groups:
            for weight, gradient in zip(group["params"], gradients.values()):
                weight.grad = gradient
        optimizer.step()
        optimizer.zero_grad()
        self._used(stage, version)
        self.held[stage][version + 1] = new
        different = {id(weights) for weights in self.held[stage].values()}
        self.peak[stage] = max(self.peak[stage], len(different))

    def _succeeded(self, optimizer, old) -> dict:
        """Copies of some weights, which take their place in the optimizer."""
        new = {name: weight.detach().clone().requires_grad_() for name, weight in old.items()}
        heir = {id(old[name]): new[name] for name in old}
        for group in optimizer.param_groups:
            group["params"] = [heir[id(weight)] for weight in group["params"]]
        for weight in list(optimizer.state):
            optimizer.state[heir[id(weight)]] = optimizer.state.pop(weight)
        return new

    def _used(self, stage, version):
        """One use less; a version that nobody will use again is let go. An evaluation, with -1, is no use."""
        if version < 0:
            return
        self.left[stage, version] -= 1
        if not self.left[stage, version]:
            del self.held[stage][version]


def _nothing() -> list:
    """What the optimizer of a stage without weights updates."""
    return [torch.nn.Parameter(torch.empty(0))]


def _unwatched(module) -> list:
    """The same numbers as a module's weights, as parameters that can change without autograd being told."""
    return [torch.nn.Parameter(weight.data) for weight in module.parameters()]
