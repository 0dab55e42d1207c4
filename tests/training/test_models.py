"""The reference models beside the GPT: each part against torch or a second way to compute it, and the digits."""

import hashlib
import math

import numpy as np
import pytest
import torch
from few import one_in
from torch import nn
from torch.nn import functional

from hybridlab.core.what.seams import Tallies
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.partition import partition
from hybridlab.runtime.halves import input_half, weight_half
from hybridlab.runtime.tallies import tallying
from hybridlab.training.data.images import Digits
from hybridlab.training.data.text import Text
from hybridlab.training.models.batch_norm import BatchNorm
from hybridlab.training.models.conv import ConvNet, label_loss
from hybridlab.training.models.gallery import GALLERY, named
from hybridlab.training.models.gpt import GPT, token_loss
from hybridlab.training.models.graph import graph_of
from hybridlab.training.models.inception import Inception
from hybridlab.training.models.modern import Modern, Norm, Rotary, SwiGLU
from hybridlab.training.models.resnet import ResNet
from hybridlab.training.models.transformer import Transformer
from hybridlab.training.models.unet import Rise, UNet, image_loss
from hybridlab.training.stages import Links

SMALL = dict(layers=2, width=24, heads=6, context=8, style="llama")
DOUBLE = torch.float64
NETS = (ConvNet, UNet, ResNet, Inception)
LAYERS_IN_A_ROW = {UNet: 4, Inception: 1}  # behind the first


def random(*size, seed=0, dtype=DOUBLE):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def modern(dtype=DOUBLE, seed=0, **more):
    return Modern(Shape(**SMALL | more), seed, dtype)


def batch_of(make, rows=4, step=0, dtype=DOUBLE):
    """(input, target, loss) of one global batch of what a model is there for."""
    if make is modern:
        tokens, targets = Text.of().batch(step, rows, SMALL["context"])
        return torch.from_numpy(tokens), torch.from_numpy(targets), token_loss
    if make is UNet:
        return *(torch.from_numpy(image).to(dtype) for image in Digits.load().noisy(step, rows)), image_loss
    images, labels = Digits.load().batch(step, rows)
    return torch.from_numpy(images).to(dtype), torch.from_numpy(labels), label_loss


def settle(model):
    for module in model.modules():
        if isinstance(module, Tallies):
            module.settle()


# ---- all of them


@pytest.mark.slow
@pytest.mark.parametrize("make", [modern, *NETS])
def test_the_seed_alone_makes_a_model(make):
    torch.manual_seed(1)
    one = make(seed=3, dtype=DOUBLE)
    torch.manual_seed(2)
    again, other, single = make(seed=3, dtype=DOUBLE), make(seed=4, dtype=DOUBLE), make(seed=3, dtype=torch.float32)
    x = batch_of(make)[0]
    assert one(x).dtype == DOUBLE
    assert torch.equal(one(x), again(x)) and not torch.allclose(one(x), other(x))
    for weight, rounded in zip(one.parameters(), single.parameters()):
        assert torch.equal(weight.float(), rounded)


@pytest.mark.parametrize("make", [modern, *NETS])
def test_layers_in_sequence_are_the_model(make):
    model = make(dtype=DOUBLE, **dict(layers=6, skips=True) if make is modern else {})
    x, *_ = batch_of(make)
    made = [x]
    for number, layer in enumerate(model.layers()):
        skipped = [number - 1, *([model.skips[number]] if number in model.skips else [])]
        made.append(layer(*(made[1 + one] for one in model.takes.get(number, skipped))))
    assert torch.equal(made[-1], model(x))
    assert len(model.layers()) >= 8  # four ranks with two chunks each


@pytest.mark.parametrize("make", [modern, *NETS])
def test_the_gradient_is_the_slope_of_the_loss(make):
    model = make(dtype=DOUBLE)
    x, target, loss = batch_of(make)
    loss(model(x), target).backward()
    step = [random(*weight.shape, seed=number) for number, weight in enumerate(model.parameters())]
    slope = sum(float((weight.grad * way).sum()) for weight, way in zip(model.parameters(), step))
    values = []
    with torch.no_grad():
        for by in (1e-6, -2e-6):  # there, and as far on the other side
            for weight, way in zip(model.parameters(), step):
                weight += by * way
            values.append(float(loss(model(x), target)))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", one_in(3, [modern, *NETS]))
def test_training_on_real_data_lowers_the_loss(make):
    model, losses = make(dtype=torch.float32), []
    weights = list(model.parameters())
    for step in range(12):
        x, target, loss = batch_of(make, rows=16, step=step, dtype=torch.float32)
        losses.append(loss(model(x), target) / target.numel())
        for weight, gradient in zip(weights, torch.autograd.grad(losses[-1], weights)):
            weight.data -= (0.3 if make is modern else 0.1) * gradient
        settle(model)
    assert sum(losses[-3:]) / 3 < 0.8 * losses[0]


@pytest.mark.parametrize("make", [modern, *NETS])
def test_a_backward_in_two_halves_is_the_whole_one(make):
    first, *rest = make(dtype=DOUBLE).layers()
    rest, x = rest[: LAYERS_IN_A_ROW.get(make, 3)], first(batch_of(make)[0]).detach()
    through = nn.Sequential(*rest)
    found = []
    for halves in (False, True):
        entered = x.clone().requires_grad_()
        y = through(entered)
        gradient = random(*y.shape)
        if halves:
            (by_x,), kept = input_half([y], [gradient], [entered])
            assert all(weight.grad is None for weight in through.parameters())
            weight_half(kept)
        else:
            y.backward(gradient)
            by_x = entered.grad
        found.append([by_x, *(weight.grad for weight in through.parameters())])
        through.zero_grad()
    assert all(torch.equal(whole, half) for whole, half in zip(*found))


@pytest.mark.parametrize(
    "through",
    [
        lambda x, square, bias: (x @ square + bias).tanh() @ square,  # one below the other
        lambda x, square, bias: (x @ square[:2].T).tanh() + (x @ square[2:].T) * bias[:2],  # beside each other
        lambda x, square, bias: (x @ square.T @ (square + bias)).exp().sum(0),
    ],
)
def test_a_weight_that_two_layers_share_gets_the_gradients_of_both(through):
    """And what autograd keeps for its square is read once or twice."""
    weight, bias, found = nn.Parameter(random(4, 4)), nn.Parameter(random(4, seed=1)), []
    for halves in (False, True):
        entered, square = random(2, 4, seed=2).requires_grad_(), weight * weight
        y = through(entered, square / 4, bias)
        if halves:
            _, kept = input_half([y], [torch.ones_like(y)], [entered])
            weight_half(kept)
        else:
            y.sum().backward()
        found.append([weight.grad, bias.grad])
        weight.grad = bias.grad = None
    assert all(torch.allclose(whole, half, rtol=1e-12) for whole, half in zip(*found))


# ---- the modern transformer


@pytest.mark.parametrize("more", [{}, dict(kv_heads=2), dict(tied=True), dict(inner=20), dict(heads=0)], ids=str)
def test_parameters_are_counted_by_formula(more):
    shape = Shape(**SMALL | more)
    assert sum(weight.numel() for weight in Modern(shape).parameters()) == shape.parameters


def test_names_are_those_of_the_gpt():
    ours, gpts = ({name for name, _ in model.named_parameters()} for model in (modern(), GPT(Shape(layers=2))))
    assert ours - gpts == {f"blocks.{block}.mlp.gate.weight" for block in range(2)}
    assert all(name.endswith("bias") or name == "embed.position.weight" for name in gpts - ours)


def test_shapes_of_other_models_are_refused():
    with pytest.raises(ValueError, match="style='gpt' does not fit Modern: give style='llama'"):
        modern(style="gpt")
    with pytest.raises(ValueError, match="a head of width 3 cannot be rotated in pairs: choose heads so that"):
        modern(heads=8)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_rms_norm_divides_by_the_root_of_the_mean_square(dtype):
    norm, x_BD = Norm(5).to(dtype), 1e-2 * random(3, 5).to(dtype)  # so small that eps counts
    norm.weight.data = random(5, seed=1).to(dtype)
    by_hand = [[v / math.sqrt(sum(u * u for u in row) / 5 + 1e-5) for v in row] for row in x_BD.tolist()]
    assert torch.allclose(norm(x_BD), torch.tensor(by_hand, dtype=dtype) * norm.weight, rtol=1e-6, atol=0)
    assert torch.equal(norm(x_BD), functional.rms_norm(x_BD, (5,), norm.weight, 1e-5))


def test_swiglu_is_the_published_formula():
    mlp, x_BTD = SwiGLU(Shape(**SMALL, inner=10)).to(DOUBLE), random(2, 3, 24)
    gate, up, down = (module.weight for module in (mlp.gate, mlp.up, mlp.down))
    inside = (x_BTD @ gate.T) * torch.sigmoid(x_BTD @ gate.T) * (x_BTD @ up.T)
    assert (gate.shape, down.shape) == ((10, 24), (24, 10))
    assert torch.allclose(mlp(x_BTD), inside @ down.T, rtol=0, atol=1e-14)


def by_complex_numbers(x_BNTH, first=0):
    """Rotary positions as multiplications by e^(i·position·speed)."""
    z_BNTP = torch.view_as_complex(x_BNTH.unflatten(-1, (-1, 2)).contiguous())
    pairs = z_BNTP.shape[-1]
    turns = [[np.exp(1j * (first + t) / 10_000 ** (p / pairs)) for p in range(pairs)] for t in range(x_BNTH.shape[2])]
    return torch.view_as_real(z_BNTP * torch.tensor(np.array(turns))).flatten(-2)


def test_rotary_positions_multiply_complex_numbers():
    rotary, x_BNTH = Rotary(6), random(2, 3, 9, 6)
    assert torch.allclose(rotary(x_BNTH), by_complex_numbers(x_BNTH), rtol=0, atol=1e-14)
    rotary.first = 1000
    assert torch.allclose(rotary(x_BNTH), by_complex_numbers(x_BNTH, 1000), rtol=0, atol=1e-12)


def test_a_part_of_a_sequence_is_turned_as_in_the_whole():
    rotary, x_BNTH = Rotary(4), random(1, 2, 9, 4)
    whole = rotary(x_BNTH)
    rotary.first = 5
    assert torch.equal(rotary(x_BNTH[:, :, 5:]), whole[:, :, 5:])


def test_what_matches_is_how_far_apart_not_where():
    rotary, q, k = Rotary(8), random(1, 1, 1, 8), random(1, 1, 1, 8, seed=1)
    matches = []
    for where in (0, 40):
        turned = []
        for x, position in ((q, where + 3), (k, where)):
            rotary.first = position
            turned.append(rotary(x))
        matches.append(float((turned[0] * turned[1]).sum()))
    assert matches[0] == pytest.approx(matches[1], rel=1e-12)
    assert matches[0] != pytest.approx(float((q * k).sum()), rel=1e-2)


def test_angles_are_exact_in_every_dtype():
    rotary, ones = Rotary(2), torch.ones(1, 1, 1, 2)
    rotary.first = 257  # bfloat16 knows 256 and 258
    assert torch.equal(rotary(ones.bfloat16()), rotary(ones).bfloat16())


def test_neighbouring_heads_share_keys_and_values():
    attention = modern(kv_heads=2).blocks[0].attention
    x_BTD = random(2, 8, 24)
    projected = (project(x_BTD) for project in (attention.q, attention.k, attention.v))
    q, k, v = (x.unflatten(2, (-1, 4)).transpose(1, 2) for x in projected)
    q, k, v = by_complex_numbers(q), *(x.repeat_interleave(3, 1) for x in (by_complex_numbers(k), v))
    later = torch.ones(8, 8).triu(1).bool()
    shares = (q @ k.transpose(2, 3) / 2).masked_fill(later, -torch.inf).softmax(3)  # √4 = 2
    assert torch.allclose(attention(x_BTD), attention.out((shares @ v).transpose(1, 2).flatten(2)), rtol=0, atol=1e-14)


def test_some_heads_are_found_from_the_widths():
    """A rank of tensor parallelism: with a slice of the weights, a summand."""
    shape, x_BTD = dict(kv_heads=2), random(2, 8, 24)
    whole, summands = modern(**shape).blocks[0].attention(x_BTD), []
    for half in (0, 1):
        part = modern(**shape).blocks[0].attention
        for linear, dim in ((part.q, 0), (part.k, 0), (part.v, 0), (part.out, 1)):
            linear.weight.data = linear.weight.data.chunk(2, dim)[half]
        summands.append(part(x_BTD))
    assert torch.allclose(sum(summands), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("make", [modern, lambda: GPT(Shape(**SMALL | dict(style="gpt")), dtype=DOUBLE)])
def test_attending_can_be_replaced(make):
    class First(nn.Module):
        def forward(self, q_BNTH, k_BKTH, v_BKTH):
            return v_BKTH[:, :, :1].expand_as(q_BNTH)

    attention, x_BTD = make().blocks[0].attention, random(2, 8, 24)
    expected = attention.out(attention.v(x_BTD[:, :1])).expand(2, 8, 24)
    for attend in (lambda q, k, v: v[:, :, :1].expand_as(q), First()):
        attention.attend = attend
        assert torch.allclose(attention(x_BTD), expected, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_microbatches_give_what_the_batch_gives():
    x, target, loss = batch_of(modern)
    model = modern(dropout=0.2, layers=5, skips=True)
    whole = loss(model(x), target)
    whole.backward()
    gradients = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    parts = []
    for row in (0, 2):
        model.draws.row = row
        parts.append(loss(model(x[row : row + 2]), target[row : row + 2]))
        parts[-1].backward()
    assert torch.allclose(sum(parts), whole, rtol=1e-14)
    for weight, gradient in zip(model.parameters(), gradients):
        assert torch.allclose(weight.grad, gradient, rtol=1e-10, atol=1e-13)


def test_a_skip_is_added_to_what_enters_a_block():
    for block in (modern().blocks[0], GPT(Shape(**SMALL | dict(style="gpt")), dtype=DOUBLE).blocks[0]):
        x_BTD, skipped_BTD = random(2, 8, 24), random(2, 8, 24, seed=1)
        assert torch.equal(block(x_BTD, skipped_BTD), block(x_BTD + skipped_BTD))


# ---- batch norm


def norms(channels=3):
    """Ours and torch's, with the same weights."""
    ours, torchs = BatchNorm(channels).to(DOUBLE), nn.BatchNorm2d(channels, dtype=DOUBLE)
    for norm in (ours, torchs):
        norm.weight.data, norm.bias.data = random(channels, seed=1), random(channels, seed=2)
    return ours, torchs


BATCH = 2 + 3 * random(8, 3, 5, 4)


def test_a_microbatch_is_normalised_as_by_torch():
    ours, torchs = norms()
    for part in BATCH.split(2):
        found = []
        for norm in (ours, torchs):
            x = part.clone().requires_grad_()
            y = norm(x)
            y.backward(random(*y.shape, seed=3))
            found.append([y, x.grad, norm.weight.grad, norm.bias.grad])
        assert all(torch.equal(one, other) for one, other in zip(*found))


@pytest.mark.parametrize("sizes", [[8], [2, 2, 2, 2], [1, 4, 3]], ids=str)
def test_running_averages_are_those_of_the_global_batch(sizes):
    ours, torchs = norms()
    for step in range(3):
        batch = BATCH + step
        torchs(batch)
        for part in batch.split(sizes):
            ours(part)
        ours.settle()
        assert torch.allclose(ours.running_mean, torchs.running_mean, rtol=1e-13, atol=0)
        assert torch.allclose(ours.running_var, torchs.running_var, rtol=1e-13, atol=0)
    ours.draws.on = False
    assert torch.allclose(ours(BATCH), torchs.eval()(BATCH), rtol=1e-12)


def test_tallies_of_replicas_are_added():
    alone, _ = norms()
    replicas = [norms()[0] for _ in range(2)]
    for number, part in enumerate(BATCH.split(2)):
        alone(part)
        replicas[number // 2](part)
    total = sum(norm.tally for norm in replicas)
    for norm in replicas:
        norm.tally.copy_(total)
        norm.settle()
    alone.settle()
    for norm in replicas:
        assert torch.allclose(norm.running_mean, alone.running_mean, rtol=1e-14, atol=0)
        assert torch.allclose(norm.running_var, alone.running_var, rtol=1e-14, atol=0)


def test_a_layer_that_tallies_is_known_by_its_first_weight():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(BatchNorm(3), nn.Linear(3, 1)), BatchNorm(1))
    assert tallying(net) == {"1.0.weight": net[1][0], "2.weight": net[2]}
    assert tallying(net[2]) == {"weight": net[2]}
    del net[2].weight, net[2].bias
    with pytest.raises(ValueError, match="2 keeps a tally but has no weight to identify its copies: give 2 a weight"):
        tallying(net)


def test_a_forward_that_is_done_again_is_counted_once():
    once, twice = norms()[0], norms()[0]
    once(BATCH)
    with torch.no_grad():
        kept = twice(BATCH)
    assert not twice.tally.any()
    assert torch.equal(twice(BATCH), kept) and torch.equal(twice.tally, once.tally)


def test_evaluation_neither_tallies_nor_learns():
    norm, _ = norms()
    norm.draws.on = False
    before = [buffer.clone() for buffer in norm.buffers()]
    norm(BATCH)
    norm.settle()
    assert all(torch.equal(*pair) for pair in zip(before, norm.buffers()))
    assert torch.allclose(norm(BATCH[:1]), norm(BATCH)[:1])


def test_a_settled_tally_is_empty_and_an_empty_one_settles_nothing():
    norm, _ = norms()
    norm(BATCH)
    norm.settle()
    settled = norm.running_mean.clone(), norm.running_var.clone()
    assert settled[0].any() and not norm.tally.any()
    norm.settle()
    assert torch.equal(norm.running_mean, settled[0]) and torch.equal(norm.running_var, settled[1])


def test_the_tally_stays_exact_whatever_the_dtype():
    norm = BatchNorm(1)
    for _ in range(100):
        norm(1000 + torch.tensor([-0.1, 0.1]).view(2, 1, 1, 1))  # squares in float32: steps of 0.06
    norm.settle()
    assert float(norm.running_var) == pytest.approx(0.9 + 0.1 * 0.01 * 200 / 199, rel=1e-3)
    for dtype in (torch.bfloat16, DOUBLE):
        assert norm.to(dtype).tally.dtype == DOUBLE and norm.running_mean.dtype == dtype
    assert norm.to("meta").tally.is_meta
    assert set(norm.state_dict()) == {"weight", "bias", "running_mean", "running_var"}


def test_what_never_varies_has_no_variance_below_zero():
    norm = BatchNorm(1, momentum=1.0)
    for value in (1e6 + 0.1, 1e6 + 0.3, 1e6 + 0.7):  # squares of 1e12: rounded to 1e-4, up or down
        norm.to(DOUBLE)(torch.full((7, 1, 1, 1), value, dtype=DOUBLE))
        norm.settle()
        assert 0 <= float(norm.running_var) < 1e-3


def test_one_element_has_no_variance():
    norm, x_BCYX = BatchNorm(3), torch.ones(1, 3, 1, 1)
    with pytest.raises(ValueError, match="one element per channel, which has no variance: use larger microbatches"):
        norm(x_BCYX)
    norm.draws.on = False
    assert norm(x_BCYX).shape == x_BCYX.shape


# ---- nets for images


@pytest.mark.parametrize("make", NETS)
def test_microbatches_normalise_for_themselves_in_training_only(make):
    model = make(dtype=DOUBLE)
    x, *_ = batch_of(make, rows=6)
    by_parts = lambda: torch.cat([model(part) for part in x.split(2)])
    assert not torch.allclose(model(x), by_parts(), rtol=1e-3)
    settle(model)
    model.draws.on = False
    assert torch.allclose(model(x), by_parts(), rtol=1e-12, atol=1e-13)


def test_heights_of_the_unet_fit_where_skips_arrive():
    model, sizes = UNet(width=4), {-1: (3, 1, 8, 8)}
    for number, layer in enumerate(model.layers()):
        takes = [number - 1, *([model.skips[number]] if number in model.skips else [])]
        sizes[number] = tuple(layer(*(torch.zeros(sizes[one]) for one in takes)).shape)
    heights = [sizes[number][1:3] for number in range(10)]
    assert heights == [(4, 8)] * 2 + [(8, 4)] * 2 + [(16, 2)] * 2 + [(8, 4)] * 2 + [(4, 8), (1, 8)]
    assert all(sizes[there - 1][2] * 2 == sizes[source][2] for there, source in model.skips.items())


def test_skips_of_the_unet_cross_stages():
    four = range(0, 3), range(3, 6), range(6, 8), range(8, 10)
    assert Links.of(four, graph_of(10, UNet().skips, {})).crossing == {
        (0, 1): (2,),
        (1, 2): (5, 3),
        (2, 3): (7,),
        (0, 3): (1,),
    }
    eight = range(0, 2), range(2, 4), *(range(layer, layer + 1) for layer in range(4, 10))
    assert Links.of(eight, graph_of(10, UNet().skips, {})).skips == ((0, 6), (1, 4))


def test_what_a_skip_brings_matters():
    model = UNet(dtype=DOUBLE)
    x, *_ = batch_of(UNet)
    whole = model(x)
    for there in model.skips:
        without = lambda _, arrived: (arrived[0], torch.zeros_like(arrived[1]))
        hook = model.layers()[there].register_forward_pre_hook(without)
        assert not torch.allclose(model(x), whole, rtol=1e-2)
        hook.remove()
    assert torch.equal(model(x), whole)


def test_a_layer_that_leads_up_joins_two_pictures():
    rise, below_BCYX, skipped_BCYX = Rise(3, 2, 4).to(DOUBLE), random(2, 3, 4, 4), random(2, 2, 8, 8, seed=1)
    larger_BCYX = torch.from_numpy(np.kron(below_BCYX.numpy(), np.ones((2, 2))))
    weight = rise.convolution.conv.weight
    parts = (larger_BCYX, weight[:, :3]), (skipped_BCYX, weight[:, 3:])
    joined_BCYX = sum(functional.conv2d(*part, padding=1) for part in parts)
    expected = nn.BatchNorm2d(4, dtype=DOUBLE)(joined_BCYX).clamp(min=0)
    assert torch.allclose(rise(below_BCYX, skipped_BCYX), expected, rtol=0, atol=1e-13)


def test_weights_are_drawn_so_that_relu_keeps_the_size():
    for layer in ConvNet(width=32).layers()[1:-1]:
        outputs, inputs, *square = layer.conv.weight.shape
        expected = math.sqrt(2 / (inputs * math.prod(square)))
        assert float(layer.conv.weight.detach().std()) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("name", GALLERY)
def test_a_row_has_as_many_terms_as_targets(name):
    """The loss of a batch is divided by its terms: tokens, labels or pixels."""
    model = named(name)
    _, targets = model.batch(0, 3)
    assert targets.numel() == 3 * model.terms


def test_the_modern_model_is_as_wide_inside_as_a_gpt_has_weights():
    """Three matrices in place of two: 8/3 of the width, and not 4, in whole eights."""
    shape = named("modern").shape
    assert shape.inner == 8 * math.ceil(8 / 3 * shape.width / 8)


def test_losses_are_sums():
    scores_BV, labels_B = random(5, 10), torch.tensor([3, 1, 4, 1, 5])
    by_hand = sum(float(row.exp().sum().log() - row[label]) for row, label in zip(scores_BV, labels_B))
    assert float(label_loss(scores_BV, labels_B)) == pytest.approx(by_hand, rel=1e-14)
    assert float(image_loss(torch.tensor([[1.0, -2.0]]), torch.tensor([[4.0, -4.0]]))) == 9 + 4


def multiplications(model, x):
    """By layer: each output of a convolution or a linear layer takes as many as one row of its weights has numbers."""
    counts = []
    for layer in model.layers():
        counts.append(0)
        hooks = [
            module.register_forward_hook(
                lambda module, _, y: counts.append(counts.pop() + y.numel() * module.weight[0].numel())
            )
            for module in layer.modules()
            if isinstance(module, nn.Conv2d | nn.Linear)
        ]
        x = layer(x)
        for hook in hooks:
            hook.remove()
    return counts


def test_layers_of_the_resnet_are_so_uneven_that_the_cut_matters():
    model = ResNet()
    work = multiplications(model, torch.zeros(1, 1, 8, 8))
    weights = [sum(weight.numel() for weight in layer.parameters()) for layer in model.layers()]
    slowest = lambda by: max(sum(work[layer] for layer in layers) for layers in partition(by, 4))
    assert work[1] == 3 * 64 * 9 * 8 * 8 and work[4] == 16 * (9 + 1) * 8 * 16  # there, with a shortcut of 1×1
    assert round(slowest([1] * len(work)) / slowest(work), 1) == 1.9
    assert round(slowest(weights) / slowest(work), 1) == 3.1


# ---- digits


def test_the_digits_are_those_of_the_repository():
    images, labels = (np.concatenate(pair) for pair in zip(Digits.load().train, Digits.load().validation))
    assert images.shape == (1797, 8, 8) and images.dtype == np.uint8 and (images.min(), images.max()) == (0, 16)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()[:16] == "87ff0c9e40dc7e2c"


def test_a_batch_depends_on_seed_and_step_only():
    digits = Digits.load()
    images, labels = digits.batch(step=3, rows=6, seed=1)
    again = digits.batch(step=3, rows=6, seed=1)
    assert np.array_equal(images, again[0]) and np.array_equal(labels, again[1])
    assert (images.shape, images.dtype, labels.dtype) == ((6, 1, 8, 8), np.float64, np.int64)
    assert images.min() == 0 and images.max() == 1
    for other in (dict(step=4, seed=1), dict(step=3, seed=2)):
        assert not np.array_equal(images, digits.batch(rows=6, **other)[0])


def test_unseen_digits_are_never_trained_on():
    digits = Digits.load()
    assert (len(digits.train[1]), len(digits.validation[1])) == (1618, 179)
    seen, unseen = ({image.tobytes() for image in one.train[0]} for one in (digits, digits.unseen))
    assert not seen & unseen
    drawn = digits.unseen.batch(step=0, rows=50)[0] * 16
    assert all(image.astype(np.uint8).tobytes() in unseen for image in drawn)


def test_noise_is_drawn_by_place():
    digits = Digits.load()
    noisy, clean = digits.noisy(step=2, rows=64, noise=0.5)
    assert np.array_equal(clean, digits.batch(step=2, rows=64)[0])
    fewer = digits.noisy(step=2, rows=5, noise=0.5)
    assert np.array_equal(noisy[:5], fewer[0]) and np.array_equal(clean[:5], fewer[1])
    noise = noisy - clean
    assert abs(noise.mean()) < 4 * 0.5 / noise.size**0.5 and noise.std() == pytest.approx(0.5, rel=0.05)
    assert not np.allclose(noise, np.subtract(*digits.noisy(step=3, rows=64)))


def test_the_reference_convolutions_widen_twice():
    outputs = [layer.conv.weight.shape[0] for layer in ConvNet(width=4).layers() if hasattr(layer, "conv")]
    assert outputs == [4, 4, 8, 8, 8, 16, 16]


def test_the_usual_conv_net_has_eight_channels_and_an_own_width_scales_it():
    first = lambda **width: next(ConvNet(**width).parameters()).shape[0]
    assert first() == first(width=8) == 8 and first(width=3) == 3


def test_unseen_batches_are_of_the_text_that_training_does_not_see():
    model = Transformer(Shape(layers=1, width=8, heads=2, context=8))
    text = model.data
    for unseen, kept in ((False, text), (True, text.unseen)):
        inputs, targets = kept.batch(3, 2, 8, 0)
        batch = model.batch(3, 2, unseen=unseen)
        assert batch[0].tolist() == inputs.tolist() and batch[1].tolist() == targets.tolist()
    assert model.batch(3, 2)[0].tolist() != model.batch(3, 2, unseen=True)[0].tolist()


@pytest.mark.parametrize("name", [name for name in GALLERY if "net" in name or name in ("conv", "inception")])
def test_pictures_say_which_dims_are_rows_and_columns(name):
    assert named(name).enters == "B C Y X"
