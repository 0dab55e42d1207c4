"""Tensors of somebody's own in other forms: views of weights between layers, and interleaved, complex or sparse ones.

The other side is plain PyTorch: one process, the whole batch, ordinary autograd. The cases are from public reports
about other libraries: torch #173709 (a view of a weight that outlives its forward), TransformerEngine #66 (weights that
are chunks of one buffer), audiolm-pytorch #127 (complex inputs), torchmd-net #181 (a model that knows only float32),
Mixtral and DeepSeek (routers in float32), torch #79542 and pytorch_sparse #168 (sparse tensors), torch #3349 (an LSTM
between layers), torch #49891 (weights that nobody reads).
"""

import sys

import cloudpickle
import pytest
import torch
from few import one_in
from owned import DP2, PP2, data, plain, squares, trained
from torch import nn

import hybridlab as hl
from hybridlab.training.models.reading import refuse_shared_memory

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def spectra(step, rows):
    x, y = data(step, rows)
    return torch.fft.fft(x), y


def pixels(step, rows):
    x, y = data(step, rows)
    return (40 * x + 128).clamp(0, 255).to(torch.uint8), y


class Queries(nn.Module):
    """Learned queries beside the stream: a view of a weight."""

    def __init__(self):
        super().__init__()
        self.queries, self.inner = nn.Parameter(torch.randn(1, 6)), nn.Linear(6, 6)

    def forward(self, x):
        return self.inner(x), self.queries.expand(len(x), -1)


class Asked(nn.Module):
    def forward(self, both):
        return both[0].tanh() * both[1]


class Handing(nn.Module):
    """Hands its weight on as it is."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return self.inner(x), self.inner.weight


class Tied(nn.Module):
    def forward(self, both):
        return both[0].tanh() @ both[1]


def queried(seed):
    return nn.Sequential(nn.Linear(6, 6), Queries(), Asked(), nn.Linear(6, 3))


def asked_first(seed):
    return nn.Sequential(Queries(), Asked(), nn.Linear(6, 3))


def handed(seed):
    return nn.Sequential(nn.Linear(6, 6), Handing(), Tied(), nn.Linear(6, 3))


def interleaved(seed):
    both, net = torch.randn(6, 12), nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    net[0].weight, net[2].weight = nn.Parameter(both[:, :6]), nn.Parameter(both[:, 6:])
    return net


LAYOUTS = {
    "stages": (PP2, {}),
    "a split backward": (PP2, {"schedule": "zb_h1"}),
    "recomputation": (PP2, {"recompute": "full"}),
    "shared weights": (DP2, {"zero": 3, "microbatches": 2}),
}


@pytest.mark.ranks
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", one_in(2, [queried, handed, asked_first, interleaved]))
def test_views_of_weights_are_handed_on(make, layout):
    mesh, more = LAYOUTS[layout]
    assert trained(hl.Model(make, squares, data), mesh, **more) == pytest.approx(plain(make), rel=1e-10)


def test_weights_that_lie_between_one_another_share_nothing():
    net = interleaved(0)
    refuse_shared_memory(net, squares)
    both = torch.zeros(6, 10)
    net[0].weight, net[2].weight = nn.Parameter(both[:, :5]), nn.Parameter(both[:, 5:])  # a row's ends, side by side
    refuse_shared_memory(net, squares)
    net[3].weight = nn.Parameter(net[0].weight.data[:3])
    with pytest.raises(ValueError, match="0.weight and 3.weight are two parameters in the same memory"):
        refuse_shared_memory(net, squares)


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 6)

    def forward(self, x):
        return self.inner(torch.view_as_real(x).flatten(1))


def heard(seed):
    return nn.Sequential(Spectrum(), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.ranks
def test_complex_inputs_take_the_dtype_of_the_computation():
    model = hl.Model(heard, squares, spectra)
    assert trained(model, PP2) == pytest.approx(plain(heard, data=spectra), rel=1e-10)
    assert hl.check(PP2, model=model, batch=8).ok


class Pixels(nn.Module):
    """It makes its numbers of one width, as most models for images do."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return self.inner(x.float() / 255)


def seen(seed):
    return nn.Sequential(Pixels(), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.ranks
def test_a_model_of_one_dtype_is_examined_and_proved_in_it():
    """The examination is in float64 otherwise: it said that the model's forward fails, but its layers do not."""
    model = hl.Model(seen, squares, pixels)
    assert trained(model, PP2, "float32") == pytest.approx(plain(seen, data=pixels, dtype=torch.float32), rel=1e-5)
    assert hl.check(PP2, model=model, batch=8, dtype="float32").ok
    with pytest.raises(ValueError, match=r'x.to\(weight.dtype\) for x.float\(\); or give dtype="float32"'):
        hl.check(PP2, model=model, batch=8)


class Router(nn.Module):
    """Scores in float32, in whatever dtype the model is."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        scores = nn.functional.linear(x.float(), self.weight.float()).softmax(-1)
        return x * scores.to(x.dtype)


def routed(seed):
    return nn.Sequential(nn.Linear(6, 6), Router(), nn.Linear(6, 3))


@pytest.mark.ranks
def test_a_router_in_float32_is_not_taken_for_a_mixture_of_rows():
    model = hl.Model(routed, squares, data)
    assert trained(model, PP2) == pytest.approx(plain(routed), rel=1e-6)
    for mesh in (PP2, DP2):
        assert hl.check(mesh, model=model, batch=8).ok


class Several(nn.Module):
    """Two inputs, of which one may be missing: its owner gives each separately, and its first layer gets both."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = Enter(), nn.Linear(6, 3)

    def layers(self):
        return [self.enter, self.leave]

    def forward(self, x, mask=None):
        return self.leave(self.enter((x, x > 0 if mask is None else mask)))


class Enter(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, both):
        return self.inner(both[0]) * both[1]


def masked(step, rows):
    x, y = data(step, rows)
    return (x, (x > 0.5).to(x.dtype)), y


def test_a_forward_with_a_second_argument_that_may_be_missing_gets_both_inputs():
    """It got the tuple as its first argument, and failed."""
    assert hl.dry_run(PP2, model=hl.Model(lambda seed: Several(), squares, masked), batch=8)


class Graph(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.register_buffer("edges", form(torch.eye(6)))

    def forward(self, x):
        return (self.edges @ self.inner(x).t()).t()


@pytest.mark.parametrize("form", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_buffers_are_told(form):
    net = nn.Sequential(nn.Linear(6, 6), Graph(form), nn.Linear(6, 3))
    with pytest.raises(ValueError, match=r"1.edges is sparse, but .* make torch.sparse_coo_tensor\(indices, values"):
        hl.dry_run(PP2, model=net, loss=squares, data=data)


def test_an_lstm_between_layers_is_told():
    net = nn.Sequential(nn.Unflatten(1, (3, 2)), nn.LSTM(2, 6, batch_first=True), Asked())
    with pytest.raises(ValueError, match=r"layer 1 \(LSTM\) returns a tuple inside a tuple.*from a layer around it"):
        hl.dry_run(PP2, model=net, loss=squares, data=data)


class Unread(nn.Module):
    """A module with weights that its forward does not read."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.aside = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 2)
        self.token = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return self.last(self.first(x).tanh())


@pytest.mark.ranks
@pytest.mark.parametrize("mesh, more", [(PP2, {}), (DP2, {"zero": 3, "microbatches": 2})])
def test_weights_that_a_traced_forward_does_not_read_stay_as_they_are(mesh, more):
    model = hl.Model.traced(lambda seed: Unread(), squares, data, cuts=["last"])
    assert trained(model, mesh, **more) == pytest.approx(plain(lambda seed: Unread()), rel=1e-10)


class Scales(nn.Module):
    """A table that layers share, as those of rotary positions, and flags and integers."""

    def __init__(self, table):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("flags", torch.tensor([1, 1, 0, 1, 1, 1]).bool())
        self.register_buffer("order", torch.arange(6, dtype=torch.uint8))

    def forward(self, x):
        return self.inner(x[:, self.order.long()] * self.flags) * self.table


def scaled(seed):
    torch.manual_seed(seed)
    table = torch.arange(1.0, 7.0) / 6
    return nn.Sequential(Scales(table), nn.Tanh(), Scales(table), nn.Linear(6, 3))


@pytest.mark.ranks
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("mesh, more", [(PP2, {}), (DP2, {"zero": 3, "microbatches": 2})])
def test_a_buffer_of_layers_on_two_stages_is_on_both_and_flags_are_compared(given, mesh, more):
    """In another dtype the second layer's table was on the meta device; flags ended in a NotImplementedError."""
    model = hl.Model(scaled(0) if given else scaled, squares, data)
    assert hl.check(mesh, model=model, batch=8, **more).ok
    assert trained(model, mesh, **more) == pytest.approx(plain(scaled), rel=1e-10)
