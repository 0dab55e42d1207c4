"""Predicted weights: a pipeline without flush computes with the weights that it expects at the time of the update.

In PipeDream, the gradient of a microbatch is applied p-1-s updates after its forward on stage s, to weights that have
changed meanwhile. Here its forward and backward use a prediction of those weights: the last update, repeated for each
update that is still missing. With AdamW, an update follows the smoothed gradient, as the papers propose.

Sources: SpecTrain, Chen et al. 2018, arXiv:1809.02839; XPipe, Guan et al. 2019, arXiv:1911.04610. Relatives:
`versions`; the proof in `training.replay`; notebook 15.
"""

from hybridlab.runtime.versions import Versions


class Predicted(Versions):
    """Versions whose weights are predictions; the optimizer updates the real ones.

    late  {stage: the largest number of updates between the version that a microbatch uses and its own update}
    """

    def __init__(self, comm, layout, stages, named, make, schedule, rank, sums, stash=True):
        self.late = dict.fromkeys(stages, 0)
        for one in (part for action in schedule.program[rank] for part in action.each if part.kind == "F"):
            missing = one.microbatch // schedule.windows[one.stage] - one.version
            self.late[one.stage] = max(self.late[one.stage], missing)
        super().__init__(comm, layout, stages, named, make, schedule, rank, sums, stash)

    def latest(self, stage) -> dict:
        """The newest real weights of a stage, by name."""
        return self.updated[stage]

    def update(self, stage, version):
        """Compute the next real weights with one optimizer step, and predict version + 1 from them."""
        used, before = self.held[stage][version], self.updated[stage]
        self.held[stage][version] = before
        super().update(stage, version)
        if version in self.held[stage]:  # microbatches in flight still use it
            self.held[stage][version] = used
        if self.late[stage]:
            self.held[stage][version + 1] = later(before, self.updated[stage], self.late[stage])


def later(before: dict, weights: dict, updates: int) -> dict:
    """The weights after some more updates, if each repeats the last one.

    >>> import torch
    >>> one, two = ({"w": torch.nn.Parameter(torch.tensor([x]))} for x in (1.0, 1.5))
    >>> later(one, two, updates=3)["w"].tolist()
    [3.0]
    """
    found = {}
    for name, weight in weights.items():
        moved = weight.detach() + updates * (weight.detach() - before[name].detach())
        found[name] = moved.requires_grad_(weight.requires_grad)
    return found
