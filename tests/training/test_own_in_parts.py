"""Models of somebody's own along tp: what a part cannot do is refused, and what arrives beside the stream is kept."""

import functools
import types

import pytest
import torch
from torch import nn
from torch.nn import functional

import hybridlab as hl

D, H = 6, 8


def loss(output, target):
    return (output - target).square().sum()


def data(step, rows):
    x = torch.randn(rows, D, generator=torch.Generator().manual_seed(step))
    return x, x.cumsum(1)


def words(step, rows):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, 12, (rows, 7), generator=generator), torch.randn(rows, 3, generator=generator)


class ScaledEmbedding(nn.Embedding):  # Gemma's
    def forward(self, tokens):
        return super().forward(tokens) * self.embedding_dim**0.5


class LowRank(nn.Linear):  # LoRA as a subclass
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.a, self.b = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))

    def forward(self, x):
        return super().forward(x) + x @ self.a.T @ self.b.T


class Standardised(nn.Linear):
    def forward(self, x):
        return functional.linear(x, self.weight - self.weight.mean(), self.bias)


class Renamed(nn.Linear):
    """A subclass that computes what its base does."""


class Pool(nn.Module):
    def forward(self, x):
        return x.mean(1)


DIMS = {"0.weight": "V D", "1.weight": "F D", "1.bias": "F", "3.weight": "D F", "3.bias": "D"}


def net(seed, embedding=nn.Embedding, up=nn.Linear, down=nn.Linear, then=lambda net: None):
    made = nn.Sequential(embedding(12, D), up(D, H), nn.GELU(), down(H, D), Pool(), nn.Linear(D, 3))
    then(made)
    return made


def half(module, arrived, left):
    return left / 2


def patched(made):
    made[3].forward = types.MethodType(lambda self, x: functional.linear(x, self.weight) + self.bias, made[3])


NOT_PLAIN = {
    "a scaled embedding": (
        {"embedding": ScaledEmbedding},
        "0 is sharded along tp, but ScaledEmbedding has its own forward",
    ),
    "low rank, by outputs": ({"up": LowRank}, "1 is sharded along tp, but LowRank has its own forward"),
    "low rank, by inputs": ({"down": LowRank}, "3 is sharded along tp, but LowRank has its own forward"),
    "standardised": ({"up": Standardised}, "1 is sharded along tp, but Standardised has its own forward"),
    "a forward put on": ({"then": patched}, "3 is sharded along tp, but Linear has its own forward"),
    "a hook": (
        {"then": lambda net: net[3].register_forward_hook(half)},
        "3 is sharded along tp, but has a forward hook",
    ),
    "a pre-hook": (
        {"then": lambda net: net[1].register_forward_pre_hook(lambda _, x: (x[0] * 2,))},
        "1 is sharded along tp, but has a forward pre-hook",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", NOT_PLAIN)
def test_a_layer_that_does_more_than_torchs_is_not_cut(case):
    """Its part was made from weight and bias alone: trained without a word, and another function."""
    changed, said = NOT_PLAIN[case]
    model = hl.Model(functools.partial(net, **changed), loss, words, dims=DIMS)
    with pytest.raises(ValueError, match=said + ".*move its work into a separate layer"):
        hl.train(hl.Mesh(tp=2), model=model, batch=8, steps=1, progress=False)


@pytest.mark.ranks
def test_plain_layers_subclasses_that_change_nothing_and_padding_are_cut():
    padded = functools.partial(net, up=Renamed, embedding=functools.partial(nn.Embedding, padding_idx=7))
    report = hl.check(hl.Mesh(tp=2), model=hl.Model(padded, loss, words, dims=DIMS), batch=8)
    assert report.ok, report


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, H), nn.Linear(H, D)

    def forward(self, x, mask, *, scale=1.0):
        return self.down(functional.gelu(self.up(x))) * mask * scale


class Around(nn.Module):
    """Calls a pair as its owner likes: by place or by name, with more than the stream."""

    def __init__(self, by_name):
        super().__init__()
        self.mlp, self.by_name = Masked(), by_name

    def forward(self, x):
        if self.by_name:
            return x + self.mlp(x=x, mask=x > 0, scale=0.5)
        return x + self.mlp(x, x > 0, scale=0.5)


INSIDE = {"mlp.up.weight": "F D", "mlp.up.bias": "F", "mlp.down.weight": "D F", "mlp.down.bias": "D"}


@pytest.mark.ranks
@pytest.mark.parametrize("by_name", [False, True])
def test_all_arguments_of_a_pair_arrive_by_place_or_by_name(by_name):
    model = hl.Model(
        lambda seed: nn.Sequential(nn.Linear(D, D), Around(by_name), nn.Linear(D, D)),
        loss,
        data,
        dims={f"1.{name}": dims for name, dims in INSIDE.items()},
    )
    report = hl.check(hl.Mesh(tp=2), model=model, batch=8)
    assert report.ok, report


class Residual(nn.Module):
    def __init__(self, between=functional.gelu, norm=False, residual=True):
        super().__init__()
        self.norm = nn.LayerNorm(D) if norm else nn.Identity()
        self.up, self.down, self.between, self.residual = nn.Linear(D, H), nn.Linear(H, D), between, residual

    def forward(self, x):
        return x * self.residual + self.down(self.between(self.up(self.norm(x))))


OF_GRADIENTS = "sharded along tp=2, this model differs from the unsharded one by up to"
OF_FORWARDS = r"1 \(Residual\) computes something different on a shard along tp=2: .*compute only elementwise"
UNFIT = {
    "a residual inside": ({}, OF_GRADIENTS),
    "a residual and a norm inside": ({"norm": True}, OF_GRADIENTS),
    "a softmax between": ({"between": lambda x: x.softmax(-1), "residual": False}, OF_FORWARDS),
}


@pytest.mark.ranks
@pytest.mark.parametrize("case", UNFIT)
def test_a_module_that_is_another_in_parts_is_told_before_it_is_trained(case):
    """Its losses look plausible: 32.265, 43.761 for 32.265, 43.767."""
    how, said = UNFIT[case]
    model = hl.Model(
        lambda seed: nn.Sequential(nn.Linear(D, D), Residual(**how), nn.Linear(D, D)),
        loss,
        data,
        dims={f"1.{name.removeprefix('mlp.')}": dims for name, dims in INSIDE.items()},
    )
    with pytest.raises(ValueError, match=said):
        hl.train(hl.Mesh(tp=2), model=model, batch=8, steps=1, progress=False)


@pytest.mark.ranks
def test_an_encoder_layer_of_torch_is_told_and_none_of_its_modules_is_missed():
    """Its attention has a Linear that is never called: that was a KeyError."""
    encoder = functools.partial(nn.TransformerEncoderLayer, D, 2, H, dropout=0.0, batch_first=True)
    model = hl.Model(
        lambda seed: nn.Sequential(nn.Linear(D, D), encoder(), nn.Linear(D, D)),
        loss,
        lambda step, rows: (torch.ones(rows, 5, D).cumsum(1) / (step + 1), torch.zeros(rows, 5, D)),
        dims={"1.linear1.weight": "F D", "1.linear1.bias": "F", "1.linear2.weight": "D F"},
    )
    with pytest.raises(ValueError, match="this model differs from the unsharded one by up to"):
        hl.train(hl.Mesh(tp=2), model=model, batch=4, steps=1, progress=False)
