"""Seams: declared, tried before work begins, and no attribute that has such a name by chance is mistaken for one."""

import copy
import pickle
import sys

import cloudpickle
import pytest
import torch
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.core.what import seams
from hybridlab.core.what.seams import Attends, DrawsByPlace, Positions, Seam, Tallies
from hybridlab.core.what.shape import Routing, Shape
from hybridlab.training.models.gallery import GALLERY, named
from hybridlab.training.models.gpt import Attention, Dropout
from hybridlab.training.models.model import Model
from hybridlab.training.models.transformer import Transformer

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ALL = [seam for seam in vars(seams).values() if isinstance(seam, type) and issubclass(seam, Seam) and seam is not Seam]
NAMES = sorted({name for seam in ALL for name in seam.asked} | {"site"})

# ---- what is declared


def of(module) -> set[type]:
    return {seam for layer in module.modules() for seam in ALL if isinstance(layer, seam)}


SHAPES = [
    Shape(layers=1, width=16, heads=4, context=8),
    Shape(layers=1, width=16, heads=4, context=8, style="llama", latent=12, rotary=4),
    Shape(layers=1, width=16, heads=4, context=8, experts=4, shared=1, routing=Routing(balance="bias")),
    Shape(layers=2, width=16, heads=4, context=8, parallel=True),
]


@pytest.mark.parametrize("model", [*sorted(GALLERY), *SHAPES], ids=str)
def test_the_reference_models_have_what_they_declare(model):
    model = Transformer(model) if isinstance(model, Shape) else named(model)
    module = model.made(0, torch.float32, {})
    seams.refuse(module)
    assert DrawsByPlace in of(module) or not [one for one in module.modules() if isinstance(one, Dropout)]


def test_each_seam_is_declared_by_a_reference_model_and_told_in_the_table():
    found = set().union(*(of(Transformer(shape).made(0, torch.float32, {})) for shape in SHAPES))
    assert found | of(named("conv").made(0, torch.float32, {})) == set(ALL)
    assert [seam for seam in ALL if f"`{seam.__name__}`" not in seams.__doc__] == []


def test_declarations_go_with_subclasses_copies_pickles_and_wrappers():
    class Narrow(Attention):
        pass

    layer = Attention(SHAPES[0])
    for one in (Narrow(SHAPES[0]), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(one, Attends) and not isinstance(one, Positions)
    wrapped = nn.Sequential(nn.utils.parametrizations.weight_norm(Attention(SHAPES[0]).q), nn.ModuleList([layer]))
    assert of(wrapped) == {Attends}


# ---- what is declared and not there


class Own(nn.Module, Attends):
    """Attention whose parts are given."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class Rows(nn.Module, Tallies):
    def settle(self, comm):
        pass


class Halved(Seam):
    """A seam that a mode from outside brings."""

    asked = {"half": ("x",), "much": float}


class OwnHalves(nn.Module, Halved):
    half, much = staticmethod(lambda x: x / 2), 1


ATTEND = functional.scaled_dot_product_attention  # in C: its arguments cannot be read
WIDTHS = (4, 4, 4, 4)
LACKING = {
    "nothing there": (Own(widths=WIDTHS), "1 (Own) declares Attends and has no attend: give it attend(q_BNTH, k_BKTH"),
    "a number": (
        Own(attend=3, widths=WIDTHS),
        "its attend cannot be called so: give it attend(q_BNTH, k_BKTH, v_BKTH)",
    ),
    "other arguments": (Own(attend=lambda q, k: q, widths=WIDTHS), "so: give it attend(q_BNTH, k_BKTH, v_BKTH), or"),
    "a submodule": (Own(attend=nn.Tanh(), widths=WIDTHS), "its attend is a submodule, where a mode puts a function"),
    "no widths": (
        Own(attend=ATTEND),
        "has no widths: give it widths, of type tuple, or leave Attends out of its bases",
    ),
    "a width": (Own(attend=ATTEND, widths=4), "its widths is of type int: give it widths, of type tuple, or leave"),
    "no tally": (Rows(), "1 (Rows) declares Tallies and has no tally"),
    "of another mode": (
        OwnHalves(),
        "1 (OwnHalves) declares Halved and its much is of type int: give it much, of type",
    ),
}


def noise(step, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def vectors(step, rows):
    x = noise(step, rows, 8)
    return x, x[:, :5].cumsum(1)


def square_loss(y, target):
    return (y - target).square().sum()


@pytest.mark.parametrize("case", LACKING)
def test_a_layer_without_what_it_declares_is_refused_in_a_sentence(case):
    layer, says = LACKING[case]
    with pytest.raises(ValueError) as caught:
        hl.check(hl.Mesh(dp=2), model=nn.Sequential(nn.Linear(8, 8), layer), loss=square_loss, data=vectors)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_layer_that_has_what_it_declares_is_not_refused():
    seams.refuse(nn.Sequential(Own(attend=ATTEND, widths=WIDTHS), Own(attend=lambda *qkv: qkv[0], widths=WIDTHS)))


# ---- what has such a name by chance


class Named(nn.Module):
    """A layer that treats each feature by itself, and whose work hangs on an attribute of a given name."""

    def __init__(self, name, value):
        super().__init__()
        self.name = name
        setattr(self, name, value)

    def forward(self, x):
        value = getattr(self, self.name)
        return x + (value(x) if callable(value) else value * x)


def with_a_method(name):
    """The same with a method of one argument."""
    kind = type(
        "WithMethod", (Named,), {name: lambda self, x: x.sin(), "__init__": lambda self: nn.Module.__init__(self)}
    )
    layer = kind()
    layer.name = name
    return layer


CHANCES = {
    "a number": lambda name: Named(name, 0.5),
    "a submodule": lambda name: Named(name, nn.Tanh()),
    "a method": with_a_method,
}


class Whole(nn.Sequential):
    """A model that has, itself, an attribute of that name."""


def by_chance(name, make):
    """A model with such a layer inside, and with a number of that name."""
    draw = torch.Generator().manual_seed(0)
    net = Whole(nn.Linear(8, 8), nn.Tanh(), make(name), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.Linear(8, 5))
    for weight in net.parameters():
        weight.data = 0.3 * torch.randn(weight.shape, generator=draw)
    setattr(net, name, 7)
    dims = {"0.weight": "D .", "0.bias": "D", "3.weight": "F D", "3.bias": "F", "5.weight": "D F", "5.bias": "D"}
    return Model(net, square_loss, vectors, dims=dims | {"6.weight": "O D", "6.bias": "O"})


def plain(model, steps=3, rows=8):
    """The losses of as many steps of plain PyTorch."""
    net, losses = copy.deepcopy(model.whole).double(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = vectors(step, rows)
        loss = square_loss(net(inputs), targets) / rows
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


MESHES = [
    (hl.Mesh(dp=2, pp=2, tp=2), {"zero": 1}),
    (hl.Mesh(tp=2, x=2), {"recompute": "full"}),
]


@pytest.mark.ranks
@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_by_chance_is_not_mistaken_for_a_seam(bench, name, chance):
    model = by_chance(name, CHANCES[chance])
    for mesh, more in MESHES:
        report = bench.asked(mesh, model=model, batch=8, rate=0.1, **more)
        assert report.ok, report
        assert torch.allclose(torch.tensor(report.losses), torch.tensor(plain(model)), rtol=1e-10)
