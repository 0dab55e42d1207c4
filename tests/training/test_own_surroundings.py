"""What ranks would not have of an owner's module, process or data: one sentence says so, and what to do.

From public reports about other libraries: torch #17356, #129732, #159942, torch-audiomentations #49; `test_own_copies`
has what is carried.
"""

import importlib
import sys
import threading
import weakref
from dataclasses import dataclass

import cloudpickle
import pytest
import torch
from few import first
from owned import PP2, data, squares
from torch import nn

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])


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


class Head(nn.Sequential):
    """Only its last layer is for the optimizer."""

    def parameters(self, recurse=True):
        return self[-1].parameters(recurse)


class Hidden(nn.Linear):
    def named_parameters(self, *given, **named):
        return iter(())


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
    "weights that parameters() leaves out": (
        Head(nn.Linear(6, 6), nn.Linear(6, 3)),
        r"the model .Head. leaves some of its weights out of parameters\(\).*requires_grad_",
    ),
    "weights of a layer that are left out": (around(lambda: Hidden(6, 6))(0), "1 .Hidden. leaves some of its weights"),
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
    with pytest.raises(ValueError, match="has a list and not a tensor: leave out 'name'"):
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


BLOCK = """
from torch import nn

SCALE = 1.0


class Block(nn.Linear):
    def forward(self, x):
        return SCALE * super().forward(x).tanh()
"""


def a_global(module, monkeypatch, file):
    monkeypatch.setattr(module, "SCALE", 3.0)


def a_method(module, monkeypatch, file):
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: 2 * torch.tanh(x))


def a_function(module, monkeypatch, file):
    plain = torch.tanh
    monkeypatch.setattr(torch, "tanh", lambda x: 2 * plain(x))


def an_edited_file(module, monkeypatch, file):
    file.write_text(BLOCK.replace("SCALE = 1.0", "SCALE = 0.5"))


class Steep(torch.autograd.Function):
    """The same forward, another backward."""

    @staticmethod
    def forward(ctx, x):
        return x.tanh()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def only_a_backward(module, monkeypatch, file):
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: Steep.apply(x))


CHANGES = (a_global, a_method, a_function, an_edited_file, only_a_backward)


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """(a module that this process has imported from a file, the file)."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "a_block_of_somebody.py"
    file.write_text(BLOCK)
    yield importlib.import_module("a_block_of_somebody"), file
    del sys.modules["a_block_of_somebody"]


@pytest.mark.ranks
@pytest.mark.parametrize("change", first(1, CHANGES))
def test_what_this_process_has_changed_in_modules_is_told_since_ranks_import_them_anew(imported, monkeypatch, change):
    """pytest #12045, vllm #32061: a patch that spawned processes do not have. Ranks and reference would be equal."""
    module, file = imported
    ask = {"model": around(lambda: module.Block(6, 6), nn.Tanh)(0), "loss": squares, "data": data, "batch": 8}
    more = {"microbatches": 2, "steps": 2}
    assert hl.check(PP2, **ask, **more).ok
    assert len(hl.train(PP2, **ask, **more, progress=False)["losses"]) == 2
    change(module, monkeypatch, file)
    told = "has another " + ("gradient of" if change is only_a_backward else "output of layer")
    for verb in (lambda: hl.check(PP2, **ask, **more), lambda: hl.train(PP2, **ask, **more, progress=False)):
        with pytest.raises(ValueError, match=f"on a rank, this model {told}.*Ranks import modules again") as found:
            verb()
        assert "\n" not in str(found.value)
