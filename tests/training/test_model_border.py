"""Wrong values of a model, and arguments that would be ignored, are refused in a sentence before a rank starts."""

import pytest
import torch
from torch import nn

import hybridlab as hl

PP2 = hl.Mesh(pp=2)


def squares(output, target):
    return ((output - target) ** 2).sum()


def data(step, rows):
    drawn = torch.Generator().manual_seed(step)
    return [torch.randn(rows, width, generator=drawn, dtype=torch.float64) for width in (4, 3)]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"skips": [1, 2]}, "Model takes skips as dict"),
        ({"dims": ["F D"]}, "Model takes dims as dict"),
        ({"terms": True}, "Model takes terms as int"),
        ({"terms": float("nan")}, "Model takes terms as int"),
        ({"enters": 3}, "Model takes enters as str"),
        ({"layers": [1]}, "Model takes layers as Callable"),
        ({"call": 3}, "Model takes call as Callable"),
        ({"skip": {2: 0}}, "Model has no argument 'skip': did you mean 'skips'"),
    ],
)
def test_a_model_takes_values_of_its_types(more, why):
    with pytest.raises(TypeError, match=why):
        hl.Model(net(), squares, data, **more)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"skips": {"2": "0"}}, "skips={'2': '0'} does not name layers: give their indices"),
        ({"takes": {2: ("a",)}}, r"takes={2: \('a',\)} does not name layers"),
        ({"enters": "B C Y X"}, "enters='B C Y X' names 4 dims, but the inputs have 2"),
        ({"targets": "B C Y"}, "targets='B C Y' names 3 dims, but the targets have 2"),
    ],
)
def test_links_and_names_must_fit_a_model(more, why):
    with pytest.raises(ValueError, match=why):
        hl.dry_run(PP2, model=net(), loss=squares, data=data, **more)


class Turns(nn.Module):
    """A module that counts its calls."""

    def __init__(self, kept):
        super().__init__()
        self.kept, self.calls, self.a, self.b = kept, 0, nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        if self.kept is None:
            self.calls += 1
            return self.b(self.a(x) * self.calls)
        self.kept.append(1)
        return self.b(self.a(x) * len(self.kept))


def test_a_traced_module_may_not_count():
    """A trace keeps the number of its one call, on both sides of a proof."""
    with pytest.raises(ValueError, match="a forward changes calls"):
        hl.Model.traced(Turns(None), squares, data, cuts=["b"])
    with pytest.raises(ValueError, match="Turns returns different results for the same input"):
        hl.Model.traced(Turns([]), squares, data, cuts=["b"])


def test_a_module_is_traced_with_inputs_in_its_own_dtype():
    """As where the same module is given without a trace: data in float64, weights in float32."""
    assert len(hl.Model.traced(net(), squares, data, cuts=["2"]).layers(net())) == 2
    wrong = lambda step, rows: (torch.ones(rows, 5), torch.ones(rows, 3))
    with pytest.raises(ValueError, match="Sequential fails on the first batch of data .*: give inputs that"):
        hl.Model.traced(net(), squares, wrong, cuts=["2"])
    with pytest.raises(ValueError, match=r"cuts='2' is a string: give a list of names, \['2'\]"):
        hl.Model.traced(net(), squares, data, cuts="2")


INTERLEAVED = hl.schedule("interleaved", ranks=2, microbatches=4, chunks=2)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"schedule": INTERLEAVED, "microbatches": 8}, "microbatches=8 was given, but interleaved was made with"),
        ({"schedule": INTERLEAVED, "chunks": 3}, "chunks=3 was given, but interleaved was made with chunks=2"),
        ({"schedule": INTERLEAVED, "copies": (1, 1)}, "copies has no effect on a finished schedule"),
        ({"rows": 3, "batch": 16}, "rows=3 and batch=16 disagree: 4 microbatches have 4 rows each"),
        ({"active": 5}, "active=5 has no effect without zero=3"),
        ({"stash": False}, "stash=False has no effect on 1f1b"),
        ({"weights": ""}, "weights='' is an empty path"),
    ],
)
def test_an_argument_that_would_be_ignored_is_refused(more, why):
    with pytest.raises(ValueError, match=why):
        hl.dry_run(PP2, **more)


def test_the_same_numbers_twice_are_no_contradiction():
    hl.dry_run(PP2, schedule=INTERLEAVED, microbatches=4, chunks=2, rows=3, batch=12)


@pytest.mark.parametrize("name", ["checkpoint", "log"])
def test_an_empty_folder_is_not_the_current_one(name):
    """A name from an unset variable: a training run would write its checkpoints anywhere, and delete older ones."""
    with pytest.raises(ValueError, match=f"{name}='' is an empty path: give a folder"):
        hl.train(PP2, steps=1, **{name: ""})


def tied():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4, bias=False), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    return model


def test_weights_that_no_model_can_have_are_refused():
    """A tied weight with two values, of which one would be dropped; numbers whose imaginary part would be."""
    two = {name: x.clone() for name, x in tied().state_dict().items()}
    hl.dry_run(PP2, model=tied(), loss=squares, data=data, weights=two)
    with pytest.raises(
        ValueError, match="0.weight and 2.weight are one tied weight in the model, but differ in weights"
    ):
        hl.dry_run(PP2, model=tied(), loss=squares, data=data, weights=two | {"2.weight": two["2.weight"] + 1})
    turned = {name: x.to(torch.complex64) for name, x in net().state_dict().items()}
    with pytest.raises(ValueError, match="0.weight is complex in weights, but real in the model"):
        hl.dry_run(PP2, model=net(), loss=squares, data=data, weights=turned)


@pytest.mark.parametrize("at", [True, 1.5, "1", None])
def test_a_step_of_a_change_of_layout_is_a_whole_number(at):
    plan = hl.reshard(PP2, to=hl.Mesh(dp=2), model=net(), loss=squares, data=data)
    for verb, name in ((plan.train, "train"), (plan.check, "check")):
        with pytest.raises(ValueError, match=f"{name} takes at as int"):
            verb(at=at)
