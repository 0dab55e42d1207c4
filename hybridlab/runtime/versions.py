"""Weight versions: a pipeline without flush updates its weights while older microbatches are still in flight.

Each stage keeps the versions of its weights that its program still needs: a backward uses the weights of its forward
(PipeDream's weight stashing), or the version stated in the schedule (`0F3#2` is the forward of microbatch 3 with
version 2). An update never overwrites weights in use. It creates the next version.

A stage may have several copies, each with its own microbatches. Together they compute every version from the mean of
their gradients, and so hold the same numbers.

Relatives: `scheduling.pipedream`, the row OPT of `core.when.law`, the test in `training.replay`, notebook 15. Source:
Narayanan et al. 2019 (PipeDream, SOSP) and 2021, arXiv:2006.09503 (2BW).
"""

from collections import Counter
from functools import partial

import torch
from torch.func import functional_call

from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.layout import Layout
from hybridlab.runtime.pending import Sum, Sums

ENDS_A_USE = ("F", "C", "R", "B", "W", "OPT")  # kinds that use a version once; W ends the use that I began


class Versions:
    """The versions of the weights of one rank's stages; every step begins with the latest version as version 0.

    comm      the communicator of this rank
    layout    of the parameters on the mesh
    schedule  the schedule that is run
    rank      its rank in the schedule
    stages    {stage: module};  named  {stage: {name in the layout: weight}}, in the order of the module's parameters
    make      make({name in the layout: weight}) -> the optimizer of one stage
    sums      the dtype in which copies of a stage reduce their gradients
    stash     False: one version, whose numbers change while microbatches are in flight. Their backward then uses
              different weights from their forward, and the gradient is wrong for both: PipeDream avoids this
    held      {stage: {version: {name: weight}}};  peak  {stage: the maximum number held at once}

    Opens the groups of the layout, so all ranks must create their weights at the same time.
    """

    def __init__(
        self, comm, layout: Layout, stages: dict, named: dict, make, schedule: Schedule, rank: int, sums, stash=True
    ):
        self.comm, self.layout, self.sums = comm, layout, sums
        self.stages, self.windows, self.stash = stages, schedule.windows, stash
        comm.open(*layout.groups)
        self.packs = {stage: self._packs(its, stages[stage]) for stage, its in named.items()}
        weights = _own if stash else _unwatched
        self.updated = {stage: weights(module) for stage, module in stages.items()}
        self.optimizers = {stage: make(dict(zip(its, self.updated[stage].values()))) for stage, its in named.items()}
        parts = [part for action in schedule.program[rank] for part in action.each]
        self.uses = Counter((part.stage, part.version) for part in parts if part.kind in ENDS_A_USE)
        self.held = {stage: {0: _own(module)} for stage, module in stages.items()}
        self.begin()

    def _packs(self, named, module) -> list:
        """[(the ranks that reduce a pack, its weights' names in their stage)], for stages with several copies."""
        own = dict(zip(named, _own(module)))
        numbers = sorted({self.layout[name].pack for name in named})
        packs = [self.layout.packs[number] for number in numbers]
        every = [(self.layout.summed(pack[0], self.comm.rank), [own[name] for name in pack]) for pack in packs]
        return [(ranks, names) for ranks, names in every if len(ranks) > 1]

    def arm(self, last: bool):
        """Nothing to prepare: every run of the schedule is a full step."""

    def finish(self):
        """Nothing to finish: the schedule has already updated the weights."""

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
        """Add the gradients of a backward to the sum of the microbatch's window."""
        window = self.gradients.setdefault((stage, microbatch // self.windows[stage]), {})
        for name, weight in self.held[stage][version].items():
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
            window[name] = gradient if name not in window else window[name] + gradient
            weight.grad = None
        self._used(stage, version)

    def reduce(self, comm, action):
        """Start reducing a window's gradients over the stage's copies. Returns a handle to wait for."""
        found, under_way = self.gradients[action.stage, action.version], Sums()
        for ranks, names in self.packs[action.stage]:
            flat = torch.cat([found[name].reshape(-1) for name in names]).to(self.sums)
            take = partial(self._take, found, names, len(ranks))
            under_way.append(Sum(self.comm.iall_reduce(flat, ranks), take))
        return under_way

    def _take(self, found, names, copies, flat):
        flat = averaged(flat, copies)
        for name, piece in zip(names, flat.split([found[name].numel() for name in names])):
            found[name] = piece.view_as(found[name]).to(found[name].dtype)

    def update(self, stage, version):
        """Compute version + 1 with one optimizer step."""
        gradients, optimizer = self.gradients.pop((stage, version)), self.optimizers[stage]
        new = self.held[stage][version]
        if self.stash:
            new = self.updated[stage] = _succeeded(optimizer, new)
        for name, weight in self.updated[stage].items():
            weight.grad = gradients[name]
        optimizer.step()
        for weight in self.updated[stage].values():
            weight.grad = None
        self._used(stage, version)
        self.held[stage][version + 1] = new
        different = {id(weights) for weights in self.held[stage].values()}
        self.peak[stage] = max(self.peak[stage], len(different))

    def _used(self, stage, version):
        """Note that one use of a version has ended; a version without further uses is freed. Version -1, used in an
        evaluation, is never freed.
        """
        self.left[stage, version] -= 1
        if not self.left[stage, version]:
            del self.held[stage][version]


def averaged(summed, copies: int):
    """The mean over a stage's copies: each has already divided its losses by the loss terms of its window."""
    return summed / copies


def _succeeded(optimizer, old) -> dict:
    """Copies of some weights, which replace the originals in the optimizer."""
    new = {name: weight.detach().clone().requires_grad_(weight.requires_grad) for name, weight in old.items()}
    heir = {id(old[name]): new[name] for name in old}
    for group in optimizer.param_groups:
        group["params"] = [heir.get(id(weight), weight) for weight in group["params"]]
    for weight in [one for one in optimizer.state if id(one) in heir]:
        optimizer.state[heir[id(weight)]] = optimizer.state.pop(weight)
    return new


def _own(module) -> dict:
    """A module's weights, by name."""
    return dict(module.named_parameters())


def _unwatched(module) -> dict:
    """A module's weights as parameters with the same numbers, whose changes autograd does not record."""
    return {name: torch.nn.Parameter(weight.data, weight.requires_grad) for name, weight in _own(module).items()}
