"""Seams: declared, tried before work begins, and no attribute that has such a name by chance is mistaken for one."""

import ast
import copy
import pickle
import sys
from pathlib import Path

import cloudpickle
import pytest
import torch
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.core.what import seams
from hybridlab.core.what.seams import Attends, DrawsByPlace, Positions, Recalls, Seam, Tallies
from hybridlab.core.what.shape import Routing, Shape
from hybridlab.training.models.gallery import GALLERY, named
from hybridlab.training.models.gpt import Attention, Dropout
from hybridlab.training.models.model import Model
from hybridlab.training.models.transformer import Transformer

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ALL = [seam for seam in vars(seams).values() if isinstance(seam, type) and issubclass(seam, Seam) and seam is not Seam]

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
    assert of(wrapped) == {Attends, Recalls}


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
        "its attend cannot be called as required: give it attend(q_BNTH,",
    ),
    "other arguments": (
        Own(attend=lambda q, k: q, widths=WIDTHS),
        "required: give it attend(q_BNTH, k_BKTH, v_BKTH)",
    ),
    "a submodule": (Own(attend=nn.Tanh(), widths=WIDTHS), "its attend is a submodule, where a mode puts a function"),
    "no widths": (
        Own(attend=ATTEND),
        "has no widths: give it widths, of type tuple, or leave Attends",
    ),
    "a width": (Own(attend=ATTEND, widths=4), "its widths is of type int: give it widths, of type tuple, or leave"),
    "no tally": (Rows(), "1 (Rows) declares Tallies and has no tally"),
    "of another mode": (
        OwnHalves(),
        "1 (OwnHalves) declares Halved and its much is of type int: give it much",
    ),
}


def noise(step, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def vectors(step, rows):
    x = noise(step, rows, 8)
    return x, x[:, :5].cumsum(1)


def square_loss(y, target):
    return (y - target).square().sum()


NAMED = {"enters": "B T", "targets": "B T", "sizes": {"T": 8}}  # so that cp would begin


@pytest.mark.parametrize("mesh", [hl.Mesh(dp=2), hl.Mesh(cp=2)], ids=str)
@pytest.mark.parametrize("case", LACKING)
def test_a_layer_without_what_it_declares_is_refused_in_a_sentence(case, mesh):
    layer, says = LACKING[case]
    with pytest.raises(ValueError) as caught:
        hl.check(mesh, model=nn.Sequential(nn.Linear(8, 8), layer), loss=square_loss, data=vectors, **NAMED)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_layer_that_has_what_it_declares_is_not_refused():
    seams.refuse(nn.Sequential(Own(attend=ATTEND, widths=WIDTHS), Own(attend=lambda *qkv: qkv[0], widths=WIDTHS)))


# ---- what has such a name by chance


class Named(nn.Module):
    """A layer that treats each element by itself, and whose work hangs on an attribute of a given name."""

    def __init__(self, name, **its):
        super().__init__()
        self.name = name
        for attribute, value in its.items():
            setattr(self, attribute, value)

    def forward(self, x):
        value = getattr(self, self.name)
        return x + (value(x) if callable(value) else value * x) / 16


def by_chance(name) -> list[Named]:
    """Three such layers: the attribute is a number, a submodule, a method of one argument."""
    methodical = type("Methodical", (Named,), {name: lambda self, x: x.sin()})
    return [Named(name, **{name: 0.5}), Named(name, **{name: nn.Tanh()}), methodical(name)]


class Whole(nn.Sequential):
    """A model that may have, itself, an attribute of such a name."""


def filled(net, **attributes):
    draw = torch.Generator().manual_seed(0)
    for weight in net.parameters():
        weight.data = 0.3 * torch.randn(weight.shape, generator=draw)
    for name, value in attributes.items():
        setattr(net, name, value)
    return net


def between_matrices(names):
    """Such layers where vectors pass that tp and x may cut."""
    layers = [layer for name in names for layer in by_chance(name)]
    net = Whole(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), *layers, nn.Linear(8, 5))
    dims = {"0.weight": "D .", "0.bias": "D", "2.weight": "F D", "2.bias": "F", "4.weight": "D F", "4.bias": "D"}
    last = len(net) - 1
    dims |= {f"{last}.weight": "O D", f"{last}.bias": "O"}
    return Model(filled(net, **dict.fromkeys(names, 7)), square_loss, vectors, dims=dims)


def between_convolutions(names):
    """The same where pictures pass, which h may cut."""
    layers = [layer for name in names for layer in by_chance(name)]
    net = Whole(nn.Conv2d(2, 3, 3, padding=1), *layers, nn.Conv2d(3, 2, 3, padding=1))
    return Model(filled(net), square_loss, pictures, enters="B C Y X", targets="B C Y X")


def pictures(step, rows):
    x = noise(step, rows, 2, 6, 6)
    return x, x.cumsum(2)


def plain(model, steps=3, rows=8, rate=0.1):
    """The losses of so many steps of plain PyTorch."""
    net, losses = copy.deepcopy(model.whole).double(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = model.data(step, rows)
        loss = model.loss(net(inputs), targets) / rows
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


LAYOUTS = {  # the modes that ask for anything, where they can be with any model
    "dp, pp, tp": (between_matrices, hl.Mesh(dp=2, pp=2, tp=2), {"zero": 1}),
    "tp, x, done again": (between_matrices, hl.Mesh(tp=2, x=2), {"recompute": "full"}),
    "h": (between_convolutions, hl.Mesh(h=2), {}),
}


NAMES = {"every seam": sorted({name for seam in ALL for name in seam.asked})}
ONE_BY_ONE = {seam.__name__: sorted(seam.asked) for seam in ALL}  # which say which of them was mistaken


@pytest.mark.ranks
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("of", [*NAMES, *(pytest.param(name, marks=pytest.mark.long) for name in ONE_BY_ONE)])
def test_a_name_by_chance_is_not_mistaken_for_a_seam(bench, of, layout):
    make, mesh, more = LAYOUTS[layout]
    model = make((NAMES | ONE_BY_ONE)[of])
    report = bench.asked(mesh, model=model, batch=8, rate=0.01, **more)
    assert report.ok, report
    assert torch.allclose(torch.tensor(report.losses), torch.tensor(plain(model, rate=0.01)), rtol=1e-10)


# ---- who asks


FLOORS = [Path(hl.__file__).parent / floor for floor in ("modes", "runtime", "training")]
ALLOWED = {  # what may be looked for by name, and why
    "cut_layers.py": "settings of torch's own classes, which not all of them have",
    "grid_parallel.py": "torch's RMSNorm has no bias",
    "halves.py": "nodes of autograd",
    "model.py": "what a user gave: a class's name, methods of data, a module that says its layers()",
    "draws.py": "functions of torch that fill tensors",
    "costs.py": "models for a Shape have one",
    "asked.py": "the name of a type",
    "make_job.py": "the rows that a loader of the user's gives",
    "export.py": "the config that a Hugging Face model carries",
    "theirs.py": "parts of PyTorch's loaders, which differ from class to class",
    "tp_plan.py": "sizes of a Hugging Face config, which not all of them have",
    "huggingface.py": "the same",
    "planned_layers.py": "outputs of a Hugging Face model with or without logits",
    "batches.py": "methods of data, which a user gave",
    "carried.py": "what an object, a class or a function keeps that a user gave",
    "left_behind.py": "the same, and parts of a loader",
    "examination.py": "letters that a user gave to a part's axes, and how many rows data say that they have",
    "borrowed.py": "a field of autograd's nodes for sparse gradients",
    "routed.py": "models for a Shape have one",
}


def looked_for(source: str) -> list[str]:
    """Every `hasattr`, and every `getattr` of one certain name, in a program."""
    calls = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    named = [one for one in calls if one.func.id in ("hasattr", "getattr") and isinstance(one.args[1], ast.Constant)]
    return [ast.unparse(one) for one in calls if one in named or one.func.id == "hasattr"]


def test_no_mode_looks_for_an_attribute_by_its_name():
    found = {file.name: looked_for(file.read_text()) for floor in FLOORS for file in floor.rglob("*.py")}
    assert {name for name, calls in found.items() if calls} == set(ALLOWED)
    words = {name for seam in ALL for name in seam.asked}
    assert [call for calls in found.values() for call in calls if words & set(call.split("'"))] == []


def test_a_look_by_name_would_be_seen():
    source = "for layer in net.modules():\n    if hasattr(layer, 'attend'): pass\n    getattr(layer, 'first', 0)\n"
    assert looked_for(source) == ["hasattr(layer, 'attend')", "getattr(layer, 'first', 0)"]
    assert looked_for("getattr(torch, dtype); getattr(self, f'_{kind}')") == []
