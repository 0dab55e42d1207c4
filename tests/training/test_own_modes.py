"""The modes that divide a layer, on layers of somebody's own: equal to one device, or refused before a step is trained.

From public reports about other libraries: slapo #21 and Fuser #3123 (dropout in shards), torchtitan #2387 and #2416,
Automodel #2995, PyTorch #160285 (routers and experts), Megatron-LM #1446 (norms beside a sharded sequence).
"""

import functools
import sys

import cloudpickle
import pytest
import torch
from owned import squares
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.training.make_job import job_of
from hybridlab.training.models.experts import Many

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.ranks
D, F, T = 8, 16, 4
TP2, X2, EP2 = hl.Mesh(tp=2), hl.Mesh(x=2), hl.Mesh(ep=2)
MLP = {"up.weight": "F D", "up.bias": "F", "down.weight": "D F"}


def data(step, rows):
    x = torch.randn(rows, T, D, generator=torch.Generator().manual_seed(step))
    return x, x.flip(1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.inner, self.down = nn.Linear(D, F), hl.models.Dropout(0.25), nn.Linear(F, D)
        self.outer = hl.models.Dropout(0.25)  # of all features, though it stands in the pair

    def forward(self, x):
        return self.outer(self.down(self.inner(functional.gelu(self.up(x)))))


class Attention(nn.Module):
    """Dropout of the weights of attention, (B, N, T, T): a rank has only its own heads."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))
        self.drop = hl.models.Dropout(0.25)

    def forward(self, x):
        q, k, v = (one(x).unflatten(2, (-1, 2)).transpose(1, 2) for one in (self.q, self.k, self.v))
        return self.out((self.drop((q @ k.transpose(2, 3)).softmax(3)) @ v).transpose(1, 2).flatten(2))


class Around(nn.Module):
    """A residual with a scale of every feature."""

    def __init__(self, inner):
        super().__init__()
        self.norm, self.inner, self.scale = nn.LayerNorm(D), inner(), nn.Parameter(torch.linspace(0.5, 1, D))

    def forward(self, x):
        return x + self.scale * self.inner(self.norm(x))


def around(inner):
    return lambda seed: nn.Sequential(nn.Linear(D, D), Around(inner), nn.Linear(D, D))


def named(dims, sizes=None, inner=Mlp, **more):
    dims = {f"1.inner.{name}": its for name, its in dims.items()}
    return hl.Model(around(inner), squares, data, dims=dims | more, sizes=sizes, terms=T)


HEADS = {f"{one}.{kind}": dims for one in "qkv" for kind, dims in (("weight", "NH D"), ("bias", "NH"))}
WIDTH = MLP | {"down.bias": "D"}
ENDS = {"0.weight": "D I", "0.bias": "D", "2.weight": "O D", "2.bias": "O"}
NORM = {"1.norm.weight": "D", "1.norm.bias": "D"}


@pytest.mark.parametrize("mesh", [hl.Mesh(pp=3), hl.Mesh(dp=2)], ids=str)
def test_dropout_by_place_is_no_mixture_of_rows(mesh):
    report = hl.check(mesh, model=named(MLP), batch=8, microbatches=2)
    assert report.ok, report


@pytest.mark.parametrize(
    "mesh, model",
    [
        (TP2, named(MLP)),
        (hl.Mesh(tp=3), named(MLP)),  # ranks have uneven parts
        (TP2, named(HEADS | {"out.weight": "D NH"}, {"N": 4}, Attention)),
    ],
    ids=["hidden", "uneven", "attention"],
)
def test_a_dropout_between_two_sharded_matrices_drops_what_one_device_drops(mesh, model):
    report = hl.check(mesh, model=model, batch=8)
    assert report.ok, report
    assert len(hl.train(mesh, model=model, batch=8, steps=1, progress=False)["losses"]) == 1


def test_scales_and_norms_of_a_stream_without_named_positions_are_cut_along_x():
    model = named(WIDTH, inner=Plain, **ENDS, **NORM, **{"1.scale": "D"})
    report = hl.check(X2, model=model, batch=8)
    assert report.ok, report
    hl.train(X2, model=model, batch=8, steps=1, progress=False)


class Plain(Mlp):
    def __init__(self):
        super().__init__()
        self.inner = self.outer = nn.Identity()


def test_a_layer_that_fails_on_a_shard_is_told_with_the_remedy():
    model = named(WIDTH, inner=Plain, **ENDS, **NORM)
    said = "sharded along x=2, this model fails .*must match the size.*: x shards every tensor of width D"
    with pytest.raises(ValueError, match=said):
        hl.train(X2, model=model, batch=8, steps=1, progress=False)


def test_a_sharded_sequence_needs_the_ends_of_a_language_model():
    model = hl.Model(around(Plain), squares, data, dims=named(MLP).dims, sizes={"T": T}, enters="B T", targets="B T")
    with pytest.raises(ValueError, match="sequence=True shards positions from an embedding .* leave out sequence"):
        job_of(TP2, model=model, sequence=True)


# ---- experts


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = Many(4, D, F), Many(4, F, D)

    def forward(self, x, counts):
        return self.down(functional.silu(self.up(x, counts)), counts)


def dispatch(x, chosen, weights, experts):
    """The layer's own: tokens in the order of their experts, and their outputs added, weighted."""
    order = chosen.flatten().argsort(stable=True)
    y = experts(x[order // 2], torch.bincount(chosen.flatten(), minlength=4).tolist())
    return torch.zeros_like(x).index_add(0, order // 2, y * weights.flatten()[order][:, None])


def without_router(x, chosen, weights, experts):
    return dispatch(x, chosen, weights.detach(), experts)


def weights_first(x, chosen, weights, experts):
    """The weights of choices scale the tokens, and not the outputs: torchtitan's score_before_experts."""
    order = chosen.flatten().argsort(stable=True)
    scaled = x[order // 2] * weights.flatten()[order][:, None]
    y = experts(scaled, torch.bincount(chosen.flatten(), minlength=4).tolist())
    return torch.zeros_like(x).index_add(0, order // 2, y)


class Mixture(nn.Module, hl.seams.Dispatches):
    """Experts with a shared one, without any class of this package around them."""

    def __init__(self, own):
        super().__init__()
        self.router, self.experts, self.shared = nn.Linear(D, 4, bias=False), Expert(), nn.Linear(D, D)
        self.dispatch = own

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(1).topk(2)
        return x + self.dispatch(tokens, chosen, weights, self.experts).view_as(x) + self.shared(x)


def mixed(own, seed):
    net = nn.Sequential(nn.Linear(D, D), Mixture(own), Mixture(own), nn.Linear(D, D))
    drawn = torch.Generator().manual_seed(5)
    for weight in net.parameters():
        weight.data = torch.randn(weight.shape, generator=drawn) / 3
    return net


EXPERT = {"up.weight": "E F D", "up.bias": "E F", "down.weight": "E D F", "down.bias": "E D"}
OF_EXPERTS = {f"{layer}.experts.{name}": dims for layer in (1, 2) for name, dims in EXPERT.items()}


def mixture(own=dispatch):
    return hl.Model(functools.partial(mixed, own), squares, data, dims=OF_EXPERTS, terms=T)


@pytest.mark.parametrize(
    "mesh, more",
    [
        (EP2, {}),
        (EP2, {"dispatch": "all_gather"}),
        (hl.Mesh(pp=2, ep=2), {"schedule": "zb_h1"}),
        (hl.Mesh(dp=2, ep=2), {"zero": 1, "expert_copies": {0: [1]}}),
        (TP2, {}),
        (hl.Mesh(ep=2, tp=2), {"fold": True}),
    ],
    ids=str,
)
def test_experts_of_ones_own_are_distributed_and_every_byte_is_claimed(mesh, more):
    report = hl.check(mesh, model=mixture(), batch=8, microbatches=2, **more)
    assert report.ok, report


@pytest.mark.parametrize("own", [without_router, weights_first])
def test_a_dispatch_that_a_mode_would_change_is_refused_where_one_does(own):
    ask = {"model": mixture(own), "batch": 8, "steps": 1, "progress": False}
    with pytest.raises(
        ValueError, match="sharded along ep=2, this model differs .*: a mode replaces what a layer decl"
    ):
        hl.train(EP2, **ask)
    assert len(hl.train(TP2, **ask)["losses"]) == 1, "each rank calls the layer's own"
