"""Buffers stay as they are in every step: a first batch does not show what a forward does with a later one."""

import sys

import cloudpickle
import pytest
import torch
from owned import DP2, PP2, data, squares, trained
from torch import nn

import hybridlab as hl
from hybridlab.training.models.batch_norm import BatchNorm
from hybridlab.training.unchanged import Unchanged

cloudpickle.register_pickle_by_value(sys.modules[__name__])
LATER = 3  # the step with the large number


def rare(step, rows):
    """Batches with large numbers in one later step."""
    x, target = data(step, rows)
    return x.clamp(-1, 1) * (9 if step == LATER else 1), target


class Largest(nn.Module):
    """Divides by the largest number that it has seen above 5."""

    def __init__(self, write):
        super().__init__()
        self.inner, self.write = nn.Linear(6, 3), write
        self.register_buffer("top", torch.tensor(1.0))

    def forward(self, x):
        if x.max() > 5:
            with torch.no_grad():
                self.write(self, x.max())
        return self.inner(x) / self.top


def replaced(layer, most):
    layer.top = most.clone()


def written(layer, most):
    layer.top.copy_(most)


@pytest.mark.ranks
@pytest.mark.parametrize("mesh", [PP2, DP2], ids=str)
@pytest.mark.parametrize("write", [replaced, written])
def test_a_buffer_that_only_a_later_step_changes_ends_the_training(write, mesh):
    """A rank trained with other numbers, and a checkpoint had the old ones."""
    model = nn.Sequential(Largest(write), nn.Linear(3, 3))
    says = "Largest changed its buffer top in this step, .* compute it in each forward"
    assert len(trained(model, mesh, data=rare, loss=squares, steps=LATER)) == LATER
    with pytest.raises(hl.RankError, match=says):
        trained(model, mesh, data=rare, loss=squares, steps=LATER + 1)


def test_tallies_may_change_and_an_error_inside_is_kept():
    layer = BatchNorm(2)
    with Unchanged(layer):
        layer(torch.ones(4, 2, 3, 3))
    with pytest.raises(KeyError), Unchanged(nn.BatchNorm1d(2)):
        raise KeyError
    norm = nn.BatchNorm1d(2)
    with pytest.raises(ValueError, match="BatchNorm1d changed its buffer num_batches_tracked"), Unchanged(norm):
        norm(torch.ones(4, 2))
