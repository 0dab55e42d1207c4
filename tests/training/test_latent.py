"""Latent attention: what it computes, by its formulas; all modes train it as one device does; what is refused."""

import math

import pytest
import torch
from few import one_in
from owned import squares
from torch import nn

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes import tensor_parallel
from hybridlab.training.models.latent import LatentAttention

SIZES = {"layers": 2, "width": 16, "heads": 4, "context": 8, "style": "llama", "latent": 6, "rotary": 4}
KEYS, BOTH = Shape(**SIZES), Shape(**SIZES, query_latent=10)


def turned(x_BTP):
    """Rotary positions as multiplications by e^(i·position·speed)."""
    pairs = torch.view_as_complex(x_BTP.unflatten(-1, (-1, 2)))
    speeds = 10_000.0 ** -(torch.arange(pairs.shape[-1], dtype=torch.float64) / pairs.shape[-1])
    angles = torch.outer(torch.arange(pairs.shape[-2], dtype=torch.float64), speeds)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def absorbed(attention, x_BTD, shape):
    """The same, head by head, from the latents alone: no keys and no values are ever made."""
    c = attention.latent_norm(attention.latent(x_BTD))
    shared = turned(attention.turned(x_BTD))
    queries = attention.q(attention.q_norm(attention.q_latent(x_BTD))).unflatten(2, (shape.heads, -1))
    hidden, found, width = torch.ones(8, 8).triu(1).bool(), [], shape.head_width
    for head in range(shape.heads):
        rows = slice(head * width, (head + 1) * width)
        q, own = queries[:, :, head, :width], turned(queries[:, :, head, width:])
        scores = (q @ attention.k.weight[rows]) @ c.mT + own @ shared.mT
        weights = (scores / math.sqrt(width + shape.rotary)).masked_fill(hidden, -math.inf).softmax(-1)
        found.append((weights @ c) @ attention.v.weight[rows].T)
    return attention.out(torch.cat(found, -1))


@pytest.mark.parametrize("shape", (KEYS, BOTH, Shape(**SIZES, per_head=6)), ids=("keys", "queries too", "wide heads"))
def test_latents_are_all_that_attention_needs(shape):
    generator = torch.Generator().manual_seed(0)
    attention = LatentAttention(shape).double()
    for weight in attention.parameters():
        weight.data = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    x_BTD = torch.randn(2, 8, 16, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(attention(x_BTD), absorbed(attention, x_BTD, shape), rtol=1e-10, atol=1e-10)


def test_widths_are_those_of_the_shape():
    for shape in (KEYS, BOTH):
        wide = shape.query_width, shape.key_width, shape.value_width, shape.found_width
        assert LatentAttention(shape).widths == wide == (32, 32, 16, 16)


@pytest.mark.parametrize("latents", ({}, {"latent": 5, "rotary": 2}, {"latent": 5, "rotary": 2, "query_latent": 3}))
def test_every_weight_of_a_block_multiplies_or_scales(latents):
    shape = Shape(heads=4, style="llama", experts=3, shared=1, chosen=3, **latents)
    assert (
        shape.multiplied == sum(shape.block) + (shape.mlps - 1) * shape.block.mlp - 2 * shape.width - shape.block.norms
    )


@pytest.mark.parametrize(
    "sizes, words",
    [
        ({"latent": 0}, "rotary=4 applies only with a latent"),
        ({"latent": 0, "rotary": 0, "query_latent": 3}, "query_latent=3 applies only with a latent"),
        ({"style": "gpt"}, "give style='llama'"),
        ({"heads": 0}, "heads=1 or more"),
        ({"kv_heads": 2}, "no kv_heads"),
        ({"rotary": 3}, "rotary=3 is not even, and features are rotated in pairs"),
        ({"rotary": 0}, "rotary=0 is not even, and features are rotated in pairs"),
        ({"latent": -1}, "latent=-1 is not a valid size"),
    ],
)
def test_what_is_no_latent_is_refused(sizes, words):
    with pytest.raises(ValueError, match=words):
        Shape(**SIZES | sizes)


CASES = [
    (KEYS, Mesh(tp=2), {}),
    (BOTH, Mesh(dp=2, tp=2), {"sequence": True, "zero": 2}),
    (BOTH, Mesh(pp=2, tp=2), {"scatter": True, "schedule": "zb_h1"}),
    (BOTH, Mesh(x=2, tp=2), {}),
    (KEYS, Mesh(cp=2, tp=2), {"attend": "ring", "zigzag": True}),
    (BOTH, Mesh(cp=2), {"attend": "gather"}),
    (BOTH, Mesh(cp=2), {"attend": "ulysses", "recompute": "selective"}),
    (KEYS, Mesh(dp=2, pp=2), {"zero": 3, "recompute": "full"}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "shape, mesh, more", one_in(4, CASES), ids=lambda one: str(one) if isinstance(one, (Mesh, dict)) else ""
)
def test_ranks_train_it_as_one_device_does(bench, shape, mesh, more):
    report = bench.asked(mesh, model=shape, microbatches=2, optimizer="adamw", clip=0.05, **more)
    assert report.ok, report


def nothing_is_read_in_pairs(patch):
    patch.setattr(tensor_parallel, "_read_in_pairs", lambda job, layout: [])


@pytest.mark.ranks
def test_a_latent_whose_gradient_is_no_summand_is_found(bench):
    report = bench.asked(Mesh(tp=2), model=KEYS, microbatches=2, sabotage=nothing_is_read_in_pairs)
    assert not report.ok and "latent" in str(report)


class Normed(nn.Module):
    """Two matrices behind a norm of their own, in one module, and a scale behind them."""

    def __init__(self, width=8, inside=16):
        super().__init__()
        self.norm, self.up = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, inside)
        self.down, self.scale = nn.Linear(inside, width), nn.RMSNorm(width, eps=1e-5)

    def forward(self, x_BD):
        return self.scale(self.down(self.up(self.norm(x_BD)).tanh()))


def rows(step, number):
    chance = torch.Generator().manual_seed(step)
    return tuple(torch.randn(number, 8, generator=chance) for _ in range(2))


@pytest.mark.ranks
def test_what_a_reader_puts_into_a_pair_is_a_summand_before_its_last_matrix_and_not_behind_it(bench):
    model, dims = nn.Sequential(Normed(), Normed()), {}
    for layer in (0, 1):
        dims |= {f"{layer}.up.weight": "F D", f"{layer}.up.bias": "F", f"{layer}.down.weight": "D F"}
    model = hl.Model(model, squares, rows, dims=dims)
    report = bench.asked(Mesh(tp=2), model=model, batch=4, microbatches=2)
    assert report.ok, report
