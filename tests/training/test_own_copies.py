"""Copies and dtypes: what ranks compute with is what the owner's module has.

The other side is plain PyTorch: one process, the whole batch, ordinary autograd. The cases are from public reports
about other libraries: fairscale #816, torch #17356, #28294, #35487, #63929, #117275, #129732, #136929, #159942,
accelerate #1415, apex #837, Lightning #6013, Megatron-LM #5790.
"""

import functools
import random
import sys
import weakref

import cloudpickle
import numpy as np
import pytest
import torch
from owned import data, squares, stepped, trained
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.training.models.copies import copied, in_dtype

cloudpickle.register_pickle_by_value(sys.modules[__name__])
PP2, SPLIT = hl.Mesh(pp=2), {"schedule": "zb_h1"}
FULL = {"zero": 3, "microbatches": 2}


def around(*middle):
    return lambda seed: nn.Sequential(nn.Linear(6, 6), *(make() for make in middle), nn.Linear(6, 3))


def plain(make, loss=squares, data=data):
    """The losses of three steps, in float64."""
    torch.manual_seed(0)
    np.random.seed(0)
    net = make(0)
    rotated = [(layer, layer.turns) for layer in net.modules() if isinstance(layer, Turned)]
    net = net.double()
    for layer, turns in rotated:
        layer.turns = turns.to(torch.complex128)
    return stepped(net, loss, data)


class Lambda(nn.Module):
    """As many write it: a function that reads the layer itself."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.act = lambda x: self.inner(x).tanh()

    def forward(self, x):
        return self.act(x)


def patched(seed):
    """A forward that somebody has put around the layer's own, as accelerate's hooks do."""
    net = around(lambda: nn.Linear(6, 6))(seed)
    old = net[1].forward

    def new(module, *given):
        return 2 * old(*given)

    net[1].forward = functools.update_wrapper(functools.partial(new, net[1]), old)
    return net


def hooked(seed):
    net = around(lambda: nn.Linear(6, 6))(seed)
    middle = net[1]
    middle.register_forward_hook(lambda module, given, made: made * middle.weight.sum())
    return net


class Turned(nn.Module):
    """Rotary positions, as the first code of Llama has them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(3), torch.arange(3.0)), persistent=False)

    def forward(self, x):
        return torch.view_as_real(torch.view_as_complex(x.reshape(-1, 3, 2)) * self.turns).flatten(1)


class Numpys(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(np.random.randn(6, 6)))

    def forward(self, x):
        return x @ self.weight


class Whole(nn.Module):
    """A frozen weight of packed integers, as of a quantised model."""

    def __init__(self):
        super().__init__()
        self.whole = nn.Parameter(torch.arange(36, dtype=torch.uint8).view(6, 6), requires_grad=False)

    def forward(self, x):
        return x @ (self.whole >> 1).to(x.dtype) / 18


class Force(nn.Module):
    """The derivative of an energy by the inputs, as in potentials between atoms."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]


class Marked(nn.Module):
    """A weight with attributes that the forward reads: torch's deep copy of a weight has none."""

    def __init__(self):
        super().__init__()
        self.weight, self.inner = nn.Parameter(torch.eye(6)), nn.Linear(6, 6)
        self.weight.gain, self.weight.after = 3.0, lambda x: self.inner(x)

    def forward(self, x):
        after = getattr(self.weight, "after", self.inner)
        return after(x @ self.weight) * getattr(self.weight, "gain", 1.0)


CARRIED = {
    "attributes of a weight": around(Marked),
    "a lambda": around(Lambda),
    "a forward around the forward": patched,
    "a hook that knows its layer": hooked,
    "complex buffers": around(Turned),
    "draws of numpy": around(Numpys),
    "forces first": lambda seed: nn.Sequential(Force(), nn.Linear(6, 3)),
    "forces": around(nn.Tanh, Force),
}


@pytest.mark.ranks
@pytest.mark.parametrize("case", CARRIED)
def test_ranks_train_what_the_owner_has(case):
    model = hl.Model(CARRIED[case], squares, data)
    for mesh, how in ((PP2, SPLIT), (hl.Mesh(dp=2), FULL)):
        assert trained(model, mesh, **how) == pytest.approx(plain(CARRIED[case]), rel=1e-10)


@pytest.mark.ranks
@pytest.mark.parametrize("make", [around(Marked), around(Lambda), patched, hooked])
def test_a_given_module_with_functions_trains_too(make):
    torch.manual_seed(0)
    model = hl.Model(make(0), squares, data)
    assert trained(model, PP2, **SPLIT) == pytest.approx(plain(make), rel=1e-10)


class Doubling(nn.Parameter):
    @classmethod
    def __torch_function__(cls, function, types, given=(), named=None):
        made = super().__torch_function__(function, types, given, named or {})
        return made * 2 if function is torch.Tensor.matmul else made


class OfAClass(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = Doubling(torch.eye(6))

    def forward(self, x):
        return x.matmul(self.weight).as_subclass(torch.Tensor)


class Forgetful(nn.Linear):
    """Its state leaves out a number, as some leave out locks and caches."""

    def __init__(self):
        super().__init__(6, 6)
        self.gain = 3.0

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "gain"}

    def forward(self, x):
        return super().forward(x) * getattr(self, "gain", 1.0)


class Itself(nn.Linear):
    def __deepcopy__(self, known):
        return self


class Wide(nn.Linear):
    """Keeps its weights in float32, whatever the model is converted to."""

    def _apply(self, convert, recurse=True):
        return self

    def forward(self, x):
        return super().forward(x.float()).to(x.dtype)


OTHER_COPIES = {
    "a subclass of nn.Parameter": (OfAClass, "1.weight is a Doubling, but ranks hold its numbers as an nn.Parameter"),
    "a state without an attribute": (
        Forgetful,
        "1 .Forgetful. defines how it is copied, and the copy has no gain.*__getstate__",
    ),
    "a copy that is none": (
        lambda: Itself(6, 6),
        "1 .Itself. defines how it is copied, and it returns the layer itself",
    ),
    "weights of one dtype": (lambda: Wide(6, 6), "1.weight stays in float32 when the model is computed in float64"),
}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("case", OTHER_COPIES)
def test_a_layer_whose_copy_is_another_is_refused(case, given):
    """Both sides of a proof had the copy, so the two were equal, and other than the module of the owner."""
    make, why = OTHER_COPIES[case]
    whole = around(make)(0) if given else around(make)
    with pytest.raises(ValueError, match=why):
        hl.dry_run(PP2, model=hl.Model(whole, squares, data), batch=8, dtype="float64")


class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return self.inner(x).tanh()


OF_TORCH = {
    "traced by fx": lambda: torch.fx.symbolic_trace(Smooth()),
    "compiled": lambda: torch.compile(Smooth(), backend="eager"),
    "recurrent": lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.GRU(6, 6, batch_first=True), Last()),
}


class Last(nn.Module):
    def forward(self, both):
        return both[0][:, -1]


@pytest.mark.parametrize("make", OF_TORCH.values(), ids=OF_TORCH)
def test_layers_that_torch_copies_in_its_own_way_are_taken(make):
    """One that fx has traced has lists of hooks, and ended in an AttributeError."""
    assert hl.dry_run(PP2, model=hl.Model(around(make)(0), squares, data), batch=8)


@pytest.mark.ranks
def test_frozen_integers_stay_integers_or_are_refused():
    model = hl.Model(around(Whole, nn.Tanh, Whole), squares, data)
    for mesh, how in ((PP2, SPLIT), (hl.Mesh(dp=2), {"microbatches": 2}), (hl.Mesh(dp=2), {"sums": "buckets"})):
        assert trained(model, mesh, **how) == pytest.approx(plain(model.whole), rel=1e-10)
    for more in ({"zero": 1}, {"zero": 3}, {"offload": True}):
        with pytest.raises(ValueError, match="1.whole holds integers.*register_buffer"):
            hl.dry_run(hl.Mesh(dp=2), model=model, batch=8, microbatches=2, **more)


def test_a_complex_buffer_that_a_checkpoint_would_hold_is_told(tmp_path):
    class Kept(Turned):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.ones(1, dtype=torch.complex64))

    model = hl.Model(around(Kept), squares, data)
    with pytest.raises(ValueError, match="1.kept is complex, and a checkpoint holds real numbers"):
        hl.train(PP2, model=model, batch=8, steps=1, checkpoint=tmp_path, progress=False)


def labels(step, rows):
    x, _ = data(step, rows)
    return x, x[:, :3].argmax(1)


@pytest.mark.ranks
def test_weights_of_classes_take_the_dtype_of_the_scores():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), reduction="sum")
    wide = lambda made, target: functional.cross_entropy(made, target, loss.weight.double(), reduction="sum")
    expected = plain(around(nn.Tanh), wide, labels)
    assert trained(hl.Model(around(nn.Tanh), loss, labels), PP2) == pytest.approx(expected, rel=1e-12)
    assert loss.weight.dtype is torch.float32, "the owner's loss stays as it is"


def test_functions_of_a_copy_use_the_copy():
    kept = nn.Linear(2, 2)
    kept.itself, kept.bound = weakref.ref(kept), kept.extra_repr
    kept.some = {"double": lambda x, layer=kept: 2 * layer(x)}
    kept.again = lambda depth: kept if depth == 0 else kept.again(depth - 1)
    kept.other = functools.partial(lambda x, layer: layer, layer=kept)
    new = copied(kept)
    assert new.itself() is new
    assert new.bound.__self__ is new
    assert new.again(2) is new
    assert new.other(1) is new
    with torch.no_grad():
        new.weight.zero_()
        assert (new.some["double"](torch.ones(1, 2)) == 2 * new.bias).all()
    assert kept.again(0) is kept


def test_a_complex_buffer_of_two_layers_stays_one():
    net = nn.Sequential(Turned(), Turned())
    net[1].turns = net[0].turns
    wide = in_dtype(net, torch.float64)
    assert wide[0].turns is wide[1].turns
    assert wide[0].turns.dtype is torch.complex128
    assert torch.allclose(wide[0].turns.imag, torch.arange(3.0).sin().double(), atol=1e-6)


def test_a_function_that_draws_makes_the_same_module_in_every_call_and_leaves_the_generators():
    order = lambda: nn.Linear(6, random.choice([6]))
    before = random.getstate()
    model = hl.Model(around(order, Numpys), squares, data)
    one, two = (model.original(3, torch.float32) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(one.parameters(), two.parameters()))
    assert random.getstate() == before
