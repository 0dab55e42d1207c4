"""Modules cut by torch's tracer: pieces that do what the module does, with its weights under their names."""

import pathlib
import re

import pytest
import torch
import torch.distributed as dist
from few import first
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import hybridlab as hl
from hybridlab.training.models.batch_norm import BatchNorm


class Net(nn.Module):
    """A long skip, a size, a weight that is read twice, an operation in place; inputs by name, an output of two."""

    def __init__(self):
        super().__init__()
        self.enter, self.middle, self.leave = (nn.Linear(4, 4) for _ in range(3))
        self.token = nn.Parameter(torch.ones(1, 4))

    def forward(self, x, scale=None):
        kept = self.enter(x) * scale
        y = torch.relu_(self.middle(kept))
        y = y + self.token.expand(x.shape[0], 4)
        return {"main": self.leave(y + kept), "beside": y * self.token}


def loss(made, target):
    return (made["main"] - target).square().sum() + made["beside"].square().sum()


def data(step, rows):
    drawn = torch.Generator().manual_seed(step)
    x = torch.randn(rows, 4, generator=drawn)
    return {"x": x, "scale": x.cos()}, x.flip(1)


class Asked:
    """The same by a method, with rows of its own for evaluation."""

    def __init__(self, first=0):
        self.first = first

    def batch(self, step, rows, seed):
        return data(self.first + step, rows)

    @property
    def unseen(self):
        return Asked(1000)


class Rows(Dataset):
    """Rows as dicts, whose names are not in the order of the forward's arguments."""

    def __len__(self):
        return 12

    def __getitem__(self, number):
        x, target = plain(number, 1)
        return {"scale": x[0].cos(), "x": x[0], "labels": target[0]}


def square(made, target):
    return (made - target).square().sum()


def plain(step, rows):
    return data(step, rows)[0]["x"], data(step, rows)[1]


@pytest.fixture(scope="module")
def model():
    return hl.Model.traced(Net(), loss, data, cuts=["middle", "leave"])


def test_pieces_do_what_the_module_does_for_any_number_of_rows(model):
    net, layers = model.whole, model.layers(model.whole)
    for rows in (1, 2, 5):
        x, target = model.batch(0, rows)
        whole = model.call(net, x)
        for layer in layers:
            x = layer(x)
        assert len(layers) == 3 and all(torch.equal(one, other) for one, other in zip(x, whole, strict=True))
        assert torch.equal(model.loss(x, target), loss(net(**data(0, rows)[0]), target))


def test_weights_are_the_modules_own_and_only_where_they_are_read(model):
    its = {id(weight): name for name, weight in model.whole.named_parameters()}
    read = [sorted(its[id(weight)] for weight in layer.parameters()) for layer in model.layers(model.whole)]
    assert read == [["enter.bias", "enter.weight"], ["middle.bias", "middle.weight", "token"],
                    ["leave.bias", "leave.weight", "token"]]  # fmt: skip  # tied: two pieces read it


def loaded(**more):
    every = TensorDataset(*(torch.cat([one[n] for one in map(plain, range(12), [1] * 12)]) for n in (0, 1)))
    return DataLoader(every, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(0), **more)


@pytest.mark.parametrize("rows", [Asked(), Rows(), DataLoader(Rows(), batch_size=4)], ids=["method", "rows", "loader"])
def test_inputs_with_names_reach_the_arguments_of_these_names(rows):
    model = hl.Model.traced(Net(), loss, rows, cuts=["middle", "leave"])
    named = next(iter(DataLoader(Rows(), batch_size=4))) if not isinstance(rows, Asked) else Asked().batch(0, 4, 0)[0]
    inputs, target = model.batch(0, 4)
    expected = Net.forward(model.whole, **{name: named[name] for name in ("x", "scale")})
    assert torch.equal(model.loss(model.call(model.whole, inputs), target), loss(expected, target))


def test_evaluation_reads_the_rows_that_an_object_keeps_for_it():
    model = hl.Model.traced(Net(), loss, Asked(), cuts=["middle"])
    assert torch.equal(model.batch(3, 4, unseen=True)[1], data(1003, 4)[1])


@pytest.mark.ranks
def test_a_loader_feeds_a_module_that_is_cut_by_name():
    net = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 4)))
    model = hl.Model.traced(net, square, loaded(), cuts=["1"])
    assert hl.check(hl.Mesh(pp=2), model=model, batch=4, microbatches=2).ok


def test_sizes_do_not_travel(model):
    first, second, _ = model.between(2, torch.float64)
    assert first.shape == (2, 4) and [x.dtype for x in second] == [torch.float64] * len(second)


@pytest.mark.ranks
@pytest.mark.parametrize("how", first(1, [{"pp": 2, "schedule": "zb_h1"}, {"dp": 2, "zero": 3}]))
def test_it_trains_as_the_module_does(model, how):
    axes = {name: how[name] for name in how if name in ("pp", "dp")}
    report = hl.check(hl.Mesh(**axes), model=model, batch=8, **{k: v for k, v in how.items() if k not in axes})
    assert report.ok


@pytest.mark.long
@pytest.mark.ranks
def test_the_page_on_own_models_is_right():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "own-model.md").read_text()
    *_, code = re.findall(r"```python\n(.*?)```", page, re.S)
    names = {"__name__": "page"}
    exec(code, names)
    assert hl.check(hl.Mesh(pp=3), model=names["traced"], batch=8).ok


@pytest.mark.parametrize(
    "cuts, said",
    [
        (["nowhere"], "no call of nowhere follows those of the cuts before it: .* such as enter, middle, leave"),
        (["leave", "middle"], "no call of middle follows those of the cuts before it"),
        (["enter"], "no operation comes before enter: leave it out"),
    ],
)
def test_cuts_that_do_not_fit_are_refused(cuts, said):
    with pytest.raises(ValueError, match=said):
        hl.Model.traced(Net(), loss, data, cuts=cuts)


class Fixed(nn.Sequential):
    def forward(self, x):
        return super().forward(x.reshape(3, 4))


class Looks(nn.Sequential):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class Around(nn.Module):
    """A net with something between its two halves."""

    def __init__(self, *between):
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.between, self.leave = nn.Linear(4, 4), nn.ModuleList(between), nn.Linear(4, 4)

    def forward(self, x):
        x = self.enter(x)
        for one in self.between:
            x = one(x)
        return self.leave(x.tanh())


class Layers(Around):
    def layers(self):
        return [self.enter, *self.between, nn.Tanh(), self.leave]


class By(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.kept = function, None

    def forward(self, x):
        return self.function(self, x)


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def keep(layer, x):
    layer.kept = x[0].detach().abs() if layer.kept is None else layer.kept
    return x * layer.kept


def hooked():
    layer = nn.Linear(4, 4)
    layer.register_full_backward_hook(lambda layer, given, made: (given[0] / 2,))
    return layer


class Drawing(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.3)


LOST = {  # what a trace loses, and what is said of it
    "dropout": (nn.Dropout(0.3), r"between.0 is torch's Dropout.*eval\(\), or give the model a method layers\(\)"),
    "draws": (Drawing(), r"Around draws random numbers.*method layers\(\) .* with hl.models.Dropout"),
    "batch norm": (
        nn.BatchNorm1d(4),
        r"changes the buffer between.0.running_mean.*eval\(\).* with hl.models.BatchNorm",
    ),
    "a first input": (By(keep), "Around keeps between.0.kept, computed from its first input"),
    "another process": (
        By(lambda layer, x: x / (dist.get_world_size() if dist.is_initialized() else 1)),
        "Around calls torch.distributed.is_initialized",
    ),
    "a number of rows": (By(lambda layer, x: x * torch.ones(len(x), 1)), r"x.shape\[0\], and not from len\(x\)"),
}


@pytest.mark.parametrize("case", LOST)
def test_what_a_trace_would_lose_is_told_with_a_remedy_for_traces(case):
    """The remedy was a layer that a trace does not take, or another reason was given."""
    layer, said = LOST[case]
    with pytest.raises(ValueError, match=said) as found:
        hl.Model.traced(Around(layer), square, plain, cuts=["leave"])
    assert "\n" not in str(found.value)


def test_a_refusal_names_the_module_and_the_cut():
    """It named a class of this package, "layer 0 (Piece)"."""
    mixing = By(lambda layer, x: x - x.mean(0))
    model = hl.Model.traced(Around(mixing), square, plain, cuts=["leave"])
    with pytest.raises(ValueError, match="layer 0 .Around before leave. mixes rows"):
        hl.dry_run(hl.Mesh(pp=2), model=model)


@pytest.mark.ranks
@pytest.mark.parametrize("make", [hooked, lambda: By(lambda layer, x: Turned.apply(x))], ids=["hook", "function"])
def test_a_backward_that_a_trace_does_not_have_is_told_and_a_list_of_layers_has_it(make):
    model = hl.Model.traced(Around(make()), square, plain, cuts=["leave"])
    told = r"torch's trace of Around gives .* has no backward of a torch.autograd.Function.*method layers\(\)"
    with pytest.raises(ValueError, match=told):
        hl.check(hl.Mesh(pp=2), model=model, batch=8)
    assert hl.check(hl.Mesh(pp=2), model=Layers(make()), loss=square, data=plain, batch=8).ok


@pytest.mark.ranks
def test_a_batch_norm_in_eval_is_traced():
    model = hl.Model.traced(Around(nn.BatchNorm1d(4).eval()), square, plain, cuts=["leave"])
    assert hl.check(hl.Mesh(pp=2), model=model, batch=8).ok


@pytest.mark.parametrize(
    "net, said",
    [
        (Fixed(nn.Linear(4, 4), nn.Linear(4, 4)), "is valid only for 3 rows|cannot trace Fixed"),
        (Looks(nn.Linear(4, 4), nn.Linear(4, 4)), r"torch cannot trace Looks \(.*give it a method layers"),
        (nn.Sequential(nn.Linear(4, 4), BatchNorm(4)), "1 is a BatchNorm, which a parallel run needs as a layer"),
    ],
    ids=["rows", "branch", "seam"],
)
def test_what_a_graph_cannot_say_is_refused(net, said):
    with pytest.raises(ValueError, match=said):
        hl.Model.traced(net, square, plain, cuts=["1"])


def test_tensor_parallelism_is_told_why_there_are_no_dims(model):
    with pytest.raises(ValueError, match="tp=2 shards dimensions .*a traced graph has no modules"):
        hl.check(hl.Mesh(tp=2), model=model, batch=4)


def test_a_module_without_layers_names_both_remedies():
    for remedy in (r"hl\.Model\.traced", r"nn\.Sequential\(module\)"):
        with pytest.raises(ValueError, match=remedy):
            hl.check(hl.Mesh(dp=2), model=Net(), loss=loss, data=plain, batch=4)
