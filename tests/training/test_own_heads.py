"""Attention of somebody's own along tp: a forward that reads its heads from the tensor is equal, another is refused."""

import functools
import pathlib
import re

import pytest
import torch
from few import first
from torch import nn
from torch.nn import functional

import hybridlab as hl

D, HEADS, T = 16, 4, 5


def by_shape(y, x):
    return y.view(*x.shape[:2], -1, D // HEADS)


def by_number(y, x):
    return y.view(*x.shape[:2], HEADS, D // HEADS)


def by_number_and_the_rest(y, x):
    return y.view(*x.shape[:2], HEADS, -1)


class Attention(nn.Module):
    def __init__(self, heads=by_shape, merged=lambda y, x: y.flatten(2)):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))
        self.heads, self.merged = heads, merged

    def forward(self, x):
        q, k, v = (self.heads(one(x), x).transpose(1, 2) for one in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(self.merged(y.transpose(1, 2), x))


class Fused(nn.Module):
    """One matrix for all three: its shard has queries, and no values."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (by_shape(one, x).transpose(1, 2) for one in (q, k, v))
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Around(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), attention

    def forward(self, x):
        return x + self.attention(self.norm(x))


def loss(output, target):
    return (output - target).square().sum()


def data(step, rows):
    x = torch.randn(rows, T, D, generator=torch.Generator().manual_seed(step))
    return x, x.cumsum(1)


def net(attention, seed):
    return nn.Sequential(nn.Linear(D, D), Around(attention()), nn.Linear(D, D))


def model_of(attention, matrices=("q", "k", "v")):
    name = "1.attention.{}.{}".format
    dims = {name(one, "weight"): "NH D" for one in matrices} | {name(one, "bias"): "NH" for one in matrices}
    dims |= {name("out", "weight"): "D NH", name("out", "bias"): "D"}
    return hl.Model(functools.partial(net, attention), loss, data, dims=dims, sizes={"N": HEADS})


OTHER = {  # an attention, and what is said of it
    "a number of heads and their width": (
        functools.partial(Attention, by_number),
        r"1\.attention \(Attention\) fails on a shard along tp=2 \(RuntimeError: shape '\[1, 5, 4, 4\]' is invalid for "
        r"input of size 40, test_own_heads\.py:\d+\)",
    ),
    "a number of heads": (
        functools.partial(Attention, by_number_and_the_rest),
        r"1\.attention \(Attention\) computes something different on a shard along tp=2: the input that "
        r"1\.attention\.out gets is not a shard",
    ),
    "the whole width": (
        functools.partial(Attention, merged=lambda y, x: y.reshape(x.shape)),
        r"1\.attention \(Attention\) fails on a shard",
    ),
}
REMEDY = r'.*x\.view\(b, t, -1, head_width\) and \.flatten\(2\).*"NH D" with sizes=\{"N": heads\}'


@pytest.mark.slow
@pytest.mark.parametrize("verb", first(1, [hl.check, hl.dry_run, functools.partial(hl.train, steps=1)]))
@pytest.mark.parametrize("case", OTHER)
def test_a_forward_that_counts_unsharded_heads_is_refused_before_a_rank_starts(case, verb):
    """Each head of the shard had a part of a head's width: a number of heads alone was trained without a word."""
    attention, said = OTHER[case]
    with pytest.raises(ValueError, match=said + REMEDY):
        verb(hl.Mesh(tp=2), model=model_of(attention), batch=4)


@pytest.mark.slow
def test_a_matrix_that_holds_all_three_is_refused():
    with pytest.raises(ValueError, match=r"1\.attention \(Fused\) computes something different on a shard" + REMEDY):
        hl.dry_run(hl.Mesh(tp=2), model=model_of(Fused, matrices=["qkv"]), batch=4)


class Scaled(nn.Module):
    """Units scaled by their number: the first shard begins where the whole does, and the last does not."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, 3), nn.Linear(3, D)

    def forward(self, x):
        units = self.up(x)
        return self.down(units * torch.arange(units.shape[-1]))


class Limited(Scaled):
    """Divided by the largest unit once it is above 3: with small inputs this is elementwise."""

    def forward(self, x):
        units = self.up(x)
        return self.down(units / units.amax(-1, keepdim=True).clamp(min=3))


class Uncalled(nn.Module):
    """Reads the weights of its layers instead of calling them."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, 4), nn.Linear(4, D)

    def forward(self, x):
        return functional.linear(functional.linear(x, self.up.weight, self.up.bias).relu(), self.down.weight)


@pytest.mark.slow
def test_a_sharded_layer_that_no_forward_calls_is_told():
    """It was a KeyError."""
    dims = {"1.attention.up.weight": "F D", "1.attention.up.bias": "F", "1.attention.down.weight": "D F"}
    model = hl.Model(functools.partial(net, Uncalled), loss, data, dims=dims)
    with pytest.raises(
        ValueError, match=r"1\.attention\.\w+ \(Linear\) is sharded along tp=2, but no forward calls it"
    ):
        hl.dry_run(hl.Mesh(tp=2), model=model, batch=4)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [hl.Mesh(tp=2), hl.Mesh(pp=3, tp=2)], ids=str)
@pytest.mark.parametrize("unit", [Scaled, Limited])
def test_the_last_shard_the_later_stages_and_larger_numbers_are_looked_at_too(unit, mesh):
    dims = {"1.attention.up.weight": "F D", "1.attention.up.bias": "F", "1.attention.down.weight": "D F"}
    model = hl.Model(functools.partial(net, unit), loss, data, dims=dims)
    says = rf"1\.attention \({unit.__name__}\) computes something different on a shard along tp=2"
    with pytest.raises(ValueError, match=says):
        hl.dry_run(mesh, model=model, batch=12)


@pytest.mark.ranks
@pytest.mark.parametrize("mesh, more", first(1, [(hl.Mesh(tp=2), {}), (hl.Mesh(pp=2, tp=2), {"schedule": "1f1b"})]))
def test_attention_that_reads_its_heads_from_the_tensor_is_equal(mesh, more):
    report = hl.check(mesh, model=model_of(Attention), batch=4, **more)
    assert report.ok, report


@pytest.mark.ranks
def test_the_attention_of_the_page_on_own_models_is_equal():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "own-model.md").read_text()
    (code,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.S) if "NH D" in one)
    names = {"__name__": "page"}
    torch.manual_seed(3)  # its shadows move the bias of keys, which has no true gradient, less than the ranks do
    exec(code, names)
    report = hl.check(hl.Mesh(tp=2), model=names["attending"], batch=8)
    assert report.ok, report
