"""What ranks would not have of an owner's module, process or data: one sentence says so, and what to do.

From public reports about other libraries: torch #17356, #129732, #159942; `test_own_copies` has what is carried.
"""

import sys
import threading
import weakref
from dataclasses import dataclass

import cloudpickle
import pytest
import torch
from torch import nn

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])
PP2 = hl.Mesh(pp=2)


def squares(output, target):
    return (output - target).square().sum()


def data(step, rows):
    x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(step))
    return x, x[:, :3].flip(1)


def around(*middle):
    return lambda seed: nn.Sequential(nn.Linear(6, 6), *(make() for make in middle), nn.Linear(6, 3))


class Locked(nn.Linear):
    def __init__(self):
        super().__init__(6, 6)
        self.lock = threading.Lock()


class Weakly(nn.Linear):
    def __init__(self):
        super().__init__(6, 6)
        self.itself = weakref.ref(self)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Embedding(6, 6, sparse=True)

    def forward(self, x):
        return x + self.inner((x > 0).long()).sum(1)


class Cast(nn.Module):
    """A forward that surrounds all layers with autocast: in float64 nobody could see it."""

    def __init__(self):
        super().__init__()
        self.some = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 3)])

    def layers(self):
        return [*self.some]

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.some[1](self.some[0](x)).to(x.dtype)


REFUSED = {
    "a lock": (around(Locked)(0), "1.lock cannot be copied to the ranks"),
    "a weak reference": (around(Weakly)(0), "1 has a weak reference .itself.*give a function"),
    "sparse gradients": (around(Sparse)(0), "layer 1 .Sparse. makes sparse gradients.*leave out sparse=True"),
    "autocast around layers": (Cast(), "Cast.forward calls its layers with torch.autocast"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_copied_or_summed_is_told(case):
    model, why = REFUSED[case]
    with pytest.raises(ValueError, match=why):
        hl.dry_run(PP2, model=model, loss=squares, data=data)


def test_settings_of_this_process_that_ranks_have_not_are_refused():
    ask = {"model": around(nn.Tanh)(0), "loss": squares, "data": data}
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match='set_default_dtype.float64. is not set on the ranks.*dtype="float64"'):
            hl.check(PP2, **ask)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu"), pytest.raises(ValueError, match="ranks do not compute with torch.autocast"):
        hl.check(PP2, **ask)


def longer(step, rows):
    x = torch.randn(rows, 3 + (step > 3), 6, generator=torch.Generator().manual_seed(step))
    return x, x[..., :3]


@pytest.mark.ranks
def test_rows_of_another_length_are_told_where_stages_exchange_them():
    model = hl.Model(around(nn.Tanh), squares, longer)
    told = r"data\({}, rows\) gave rows of shapes .*pad all rows to one length"
    with pytest.raises(Exception, match=told.format(4)):
        hl.train(PP2, model=model, batch=8, steps=6, progress=False)
    sooner = hl.Model(around(nn.Tanh), squares, lambda step, rows: longer(3 + step, rows))
    with pytest.raises(ValueError, match=told.format(1)):
        hl.train(PP2, model=sooner, batch=8, steps=6, progress=False)
    assert len(hl.train(hl.Mesh(dp=2), model=model, batch=8, microbatches=2, steps=6, progress=False)["losses"]) == 6


def test_names_of_rows_are_told():
    rows = [{"x": torch.ones(6), "labels": torch.ones(3), "name": f"row {number}"} for number in range(8)]
    model = hl.Model(around(nn.Tanh), squares, torch.utils.data.DataLoader(rows, 4))
    with pytest.raises(ValueError, match="has a list and not a tensor: leave 'name' out"):
        hl.dry_run(PP2, model=model, batch=4)


@dataclass
class Output:
    scores: torch.Tensor


class Answering(nn.Module):
    """A module that answers in a form of its own, or with its loss."""

    def __init__(self, form):
        super().__init__()
        self.first, self.last, self.form = nn.Linear(6, 6), nn.Linear(6, 3), form

    def forward(self, x):
        return self.form(self.last(self.first(x).tanh()))


@pytest.mark.parametrize(
    "form, why", [(Output, "Answering returns a Output, which"), (torch.sum, "returns a number for the full batch")]
)
def test_outputs_that_pieces_cannot_hand_on_are_told(form, why):
    with pytest.raises(ValueError, match=why):
        hl.Model.traced(Answering(form), squares, data, cuts=["last"])
