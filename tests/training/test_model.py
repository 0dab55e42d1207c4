"""The model's heads and its random draws: shared keys and values, and dropout that depends on places alone."""

import pytest
import torch
from torch.nn import functional

from hybridlab.core.what.seams import Draws
from hybridlab.core.what.shape import Shape
from hybridlab.training.models.draws import drawn
from hybridlab.training.models.gpt import GPT, Dropout

SMALL = dict(layers=2, width=24, heads=6, context=8)
TOKENS = torch.randint(0, 256, (4, 8), generator=torch.Generator().manual_seed(0))


# ---- heads of keys and values


@pytest.mark.parametrize("more", [dict(kv_heads=1), dict(kv_heads=2), dict(kv_heads=6), dict(heads=0), dict(inner=40)])
def test_parameters_are_counted_by_formula(more):
    shape = Shape(**SMALL | more)
    assert sum(weight.numel() for weight in GPT(shape).parameters()) == shape.parameters


def test_neighbouring_heads_share_keys_and_values():
    attention = GPT(Shape(**SMALL, kv_heads=2), dtype=torch.float64).blocks[0].attention
    x_BTD = torch.randn(2, 8, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, k, v = (project(x_BTD).unflatten(2, (-1, 4)) for project in (attention.q, attention.k, attention.v))
    assert (q.shape[2], k.shape[2], v.shape[2]) == (6, 2, 2)
    causal = lambda *qkv: functional.scaled_dot_product_attention(*qkv, is_causal=True)
    heads = [causal(q[:, :, n], k[:, :, n // 3], v[:, :, n // 3]) for n in range(6)]
    assert torch.allclose(attention(x_BTD), attention.out(torch.cat(heads, 2)), atol=1e-14)


@pytest.mark.parametrize(
    "more, message",
    [
        (dict(kv_heads=4), r"kv_heads=4 does not divide heads=6: choose it from \[1, 2, 3, 6\]"),
        (dict(kv_heads=0), "kv_heads=0 does not divide heads=6"),
        (dict(dropout=1.0), "dropout=1.0 is not a probability below 1: give 0 or more, and less than 1"),
        (dict(dropout=-0.1), "dropout=-0.1"),
    ],
)
def test_shapes_that_cannot_be_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        Shape(**SMALL | more)


@pytest.mark.parametrize("block", [2, -1, 99, "x"])
def test_a_shape_is_asked_only_for_its_own_blocks(block):
    with pytest.raises(ValueError, match=r"block=.* is invalid: there are 2 blocks\. Give an index from 0 to 1"):
        Shape(**SMALL).at(block)


@pytest.mark.parametrize("name", ["", "zzz", "blocks.0.mlp", "blocks.0.mlp.middle.weight"])
def test_a_shape_is_asked_only_for_parameters_of_the_reference_model(name):
    with pytest.raises(ValueError, match="the reference model has no such parameter"):
        Shape(**SMALL).dims(name)


# ---- draws


def test_draws_are_those_of_splitmix64():
    numbers = drawn(torch.tensor(1234567), torch.arange(5))
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [number % 2**64 for number in numbers.tolist()] == known


def site(rate=0.25, number=0, first=0, **draws):
    dropout = Dropout(rate)
    dropout.site, dropout.first, dropout.draws = number, first, Draws(**draws)
    return dropout


WHOLE = (16, 32, 64)


def test_a_site_that_is_told_nothing_stands_where_the_training_begins():
    assert torch.equal(Dropout(0.25).kept(WHOLE), site(seed=0, step=0, row=0).kept(WHOLE))


def test_so_many_are_kept_and_their_mean_stays():
    kept = site().kept(WHOLE)
    deviation = (0.25 * 0.75 / kept.numel()) ** 0.5
    assert abs(kept.double().mean() - 0.75) < 4 * deviation
    ones = site()(torch.ones(WHOLE, dtype=torch.float64))
    assert torch.equal(ones, kept.double() / 0.75) and abs(ones.mean() - 1) < 4 * deviation / 0.75


def correlation(a, b):
    a, b = (x.double() - x.double().mean() for x in (a, b))
    return float((a * b).mean() / (a.std() * b.std()))


def test_nothing_that_is_near_is_alike():
    kept = site().kept(WHOLE)
    others = {name: site(**{name: 1}).kept(WHOLE) for name in ("seed", "step", "number")}
    for name, other in others.items():
        assert abs(correlation(kept, other)) < 4 / kept.numel() ** 0.5, name
    for dim in range(3):
        length = kept.shape[dim] - 1
        neighbours = kept.narrow(dim, 0, length), kept.narrow(dim, 1, length)
        assert abs(correlation(*neighbours)) < 4 / kept.numel() ** 0.5, dim
    shares = [kept.double().mean([other for other in range(3) if other != dim]) for dim in range(3)]
    for share in shares:  # no row, position or feature is favoured
        assert float((share - 0.75).abs().max()) < 5 * (0.25 * 0.75 * len(share) / kept.numel()) ** 0.5


def test_a_part_draws_what_the_whole_draws_there():
    kept = site(seed=3, step=5, number=2, row=7).kept(WHOLE)
    assert torch.equal(site(seed=3, step=5, number=2, row=7 + 4).kept((3, 32, 64)), kept[4:7])
    assert torch.equal(site(seed=3, step=5, number=2, row=7, first=10).kept((16, 5, 64)), kept[:, 10:15])


@pytest.mark.slow
def test_microbatches_draw_what_the_batch_draws():
    model = GPT(Shape(**SMALL, dropout=0.2), dtype=torch.float64)
    together = model(TOKENS)
    parts = []
    for row in (0, 2):
        model.draws.row = row
        parts.append(model(TOKENS[row : row + 2]))
    assert torch.allclose(torch.cat(parts), together, atol=1e-14)
    model.draws.step = 1
    assert not torch.allclose(model(TOKENS[2:]), together[2:])


def test_every_site_draws_for_itself_and_all_are_told_at_once():
    model = GPT(Shape(**SMALL, dropout=0.2), seed=9)
    assert [dropout.site for dropout in model.dropouts] == [0, 1, 2, 3, 4]  # the embedding, two branches in each block
    assert all(dropout.draws is model.draws for dropout in model.dropouts)
    assert model.draws == Draws(seed=9)


@pytest.mark.long
def test_a_forward_that_is_done_again_drops_the_same():
    model = GPT(Shape(**SMALL, dropout=0.2))
    with torch.no_grad():
        once = model(TOKENS)
    assert torch.equal(model(TOKENS), once)


@pytest.mark.long
def test_without_a_rate_or_in_evaluation_nothing_happens():
    x = torch.ones(WHOLE)
    assert site(rate=0.0)(x) is x
    assert site(on=False)(x) is x
    plain, dropping = GPT(Shape(**SMALL)), GPT(Shape(**SMALL, dropout=0.2))
    dropping.draws.on = False
    assert torch.equal(plain(TOKENS), dropping(TOKENS))


def test_blocks_have_dropout_on_both_branches():
    block = GPT(Shape(**SMALL, dropout=0.5), dtype=torch.float64).blocks[0]
    x_BTD = torch.randn(2, 8, 24, dtype=torch.float64)
    y_BTD = x_BTD + block.attention_dropout(block.attention(block.attention_norm(x_BTD)))
    z_BTD = y_BTD + block.mlp_dropout(block.mlp(block.mlp_norm(y_BTD)))
    assert torch.equal(block(x_BTD), z_BTD)
    half = lambda branch: (branch == 0).double().mean()
    assert 0.4 < half(y_BTD - x_BTD) < 0.6 and 0.4 < half(z_BTD - y_BTD) < 0.6


def test_a_shape_of_another_style_is_refused():
    with pytest.raises(ValueError, match="style='llama' does not fit GPT"):
        GPT(Shape(style="llama"))
