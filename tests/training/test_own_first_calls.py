"""What a first call leaves, what asks for other processes, and shapes and numbers that depend on a microbatch.

The cases are from public code: Glow's ActNorm (a first batch), DETR (a number of boxes, all-reduced in the loss),
flash-attention (rows without padding), ids in a float tensor. The other side is plain PyTorch.
"""

import sys
from pathlib import Path

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from owned import DP2, PP2, data, plain, squares, trained
from torch import nn
from torch.distributed import get_world_size, is_initialized

import hybridlab as hl
from hybridlab.training.models.asking import alone

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def around(*middle):
    def net(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 6), *(make() for make in middle), nn.Tanh(), nn.Linear(6, 3))

    return net


# ---- a layer that keeps something of its first input


class Keeping(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.inner, self.first, self.scale = nn.Linear(6, 6), first, None

    def forward(self, x):
        if self.scale is None:
            self.scale = self.first(x.detach())
        return self.inner(x) * self.scale


class InADict(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.kept = nn.Linear(6, 6), {}

    def forward(self, x):
        return self.inner(x) * self.kept.setdefault("mask", x[:1].detach() > 0)


FIRST = {
    "of all rows": (lambda: Keeping(lambda x: 1 / x.abs().max()), "scale"),
    "of one row": (lambda: Keeping(lambda x: x[0].abs()), "scale"),
    "of the last row": (lambda: Keeping(lambda x: x[-1].abs()), "scale"),
    "in a dict": (InADict, "kept"),
}


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("case", FIRST)
def test_what_a_layer_computes_from_its_first_input_is_refused(case, dtype):
    """Under dp each copy has another first input: it was trained so, or told to move work out of a forward."""
    make, name = FIRST[case]
    with pytest.raises(ValueError, match=rf"keeps (1\.)?{name}, computed from its first input.*in each call"):
        hl.dry_run(DP2, model=around(make)(0), loss=squares, data=data, microbatches=2, dtype=dtype)


def test_what_a_layer_computes_once_from_the_shape_of_its_input_is_a_constant():
    assert hl.dry_run(DP2, model=around(lambda: Keeping(lambda x: torch.ones_like(x[0])))(0), loss=squares, data=data)


class Normed(nn.Module):
    scale = None

    def forward(self, output, target):
        if self.scale is None:
            self.scale = target.abs().mean()
        return squares(output, target) / self.scale


class Plainly:
    scale = None
    __call__ = Normed.forward


def closed():
    scale = None

    def loss(output, target):
        nonlocal scale
        scale = target.abs().mean() if scale is None else scale
        return squares(output, target) / scale

    return loss


@pytest.mark.parametrize("make", [Normed, Plainly, lambda: Plainly().__call__, closed])
def test_what_a_loss_computes_in_its_first_call_is_refused_again_and_again(make):
    """The examination was the first call: each rank divided by the scale of two rows, and the proof said equal."""
    loss = make()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"the loss keeps something .*\n?.*compute it in each call, or before"):
            hl.dry_run(DP2, model=around()(0), loss=loss, data=data, microbatches=2)


class Window(nn.Module):
    weight = None

    def forward(self, output, target):
        if self.weight is None:
            self.weight = torch.arange(1, 4, dtype=output.dtype)
        return ((output - target).square() * self.weight).sum()


def test_a_constant_that_a_loss_makes_once_is_no_state():
    loss = Window()
    assert hl.dry_run(DP2, model=around()(0), loss=loss, data=data, microbatches=2)


# ---- code that looks for other processes


def summed(output, target):
    rows = torch.tensor(float(len(output)))
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(rows)
    return squares(output, target) * len(output) / rows


def by_names(output, target):
    return squares(output, target) * (get_world_size() if is_initialized() else 1)


def by_rank(output, target):
    return squares(output, target) * (1 + dist.get_rank())


class Shared(nn.Linear):
    def forward(self, x):
        return super().forward(x) / (dist.get_world_size() if dist.is_initialized() else 1)


class Summing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (dist.get_world_size() if dist.is_initialized() else 1)


class Divided(nn.Module):
    def forward(self, x):
        return Summing.apply(x)


ASKING = {
    "a sum": ({"loss": summed}, "the loss calls torch.distributed.is_initialized"),
    "imported names": ({"loss": by_names}, "the loss calls torch.distributed.is_initialized"),
    "without asking first": ({"loss": by_rank}, "the loss calls torch.distributed.get_rank"),
    "a layer": (
        {"model": around(lambda: Shared(6, 6))(0)},
        r"1 \(Shared\) calls torch.distributed.is_initialized",
    ),
    "a backward": ({"model": around(Divided)(0)}, "a backward calls torch.distributed.is_initialized"),
}


@pytest.mark.parametrize("case", ASKING)
def test_code_that_asks_for_other_processes_is_told_before_a_rank_waits_for_them(case):
    """A deadlock under pp; under dp a loss that was divided twice."""
    own, why = ASKING[case]
    ask = {"model": around()(0), "loss": squares, "data": data} | own
    with pytest.raises(ValueError, match=rf"{why} \(test_own_first_calls.py:\d+\).*leave it out") as found:
        hl.dry_run(PP2, **ask)
    assert "\n" not in str(found.value)
    assert not dist.is_initialized() and type(dist.distributed_c10d._world).__name__ == "_World"


# ---- shapes that depend on the rows


def ragged(step, rows):
    drawn = torch.Generator().manual_seed(step)
    lengths = torch.randint(2, 8, (rows,), generator=drawn)
    ids = torch.randint(1, 10, (rows, 7), generator=drawn) * (torch.arange(7) < lengths[:, None])
    return ids, ids.float()[:, :3].cos()


class Unpadded(nn.Module):
    """The tokens of all rows in one dim, without padding."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 6)

    def forward(self, ids):
        return self.words(ids[ids != 0]), ids != 0


class Trimmed(nn.Module):
    """No longer than the longest row of a microbatch."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 6, padding_idx=0)

    def forward(self, ids):
        return self.words(ids[:, : int((ids != 0).sum(1).max())])


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, both):
        return self.inner(both[0]).tanh(), both[1]


class Padded(nn.Module):
    def forward(self, both):
        x, there = both
        made = x.new_zeros(*there.shape, x.shape[-1])
        made[there] = x
        return made.sum(1)


class Pooled(nn.Module):
    def forward(self, x):
        return x.tanh().sum(1)


def unpadded(seed):
    return nn.Sequential(Unpadded(), Inner(), Inner(), Padded(), nn.Linear(6, 3))


def trimmed(seed):
    return nn.Sequential(Trimmed(), Pooled(), nn.Linear(6, 6), nn.Linear(6, 3))


@pytest.mark.ranks
@pytest.mark.parametrize("make, cuts", [(unpadded, ([2, 3], [4, 1])), (trimmed, ([1, 3], [2, 2]))])
def test_shapes_that_depend_on_the_rows_cross_no_cut(make, cuts):
    """A rank waited for a tensor of another size. Where no stage exchanges such tensors, it trains as plain PyTorch."""
    model = hl.Model(make, squares, ragged)
    crossing, inside = cuts
    told = r"layer \d .* returns the shape .* for some rows, but .* for others.*pad the output .* or choose a cut="
    for verb in (hl.check, hl.dry_run):
        with pytest.raises(ValueError, match=told):
            verb(PP2, model=model, batch=8, cut=crossing)
    expected = pytest.approx(plain(make, data=ragged), rel=1e-10)
    assert trained(model, PP2, cut=inside) == expected
    assert trained(model, DP2, microbatches=2) == expected


def late(step, rows):
    """The first rows are alike; only a later microbatch is shorter."""
    ids, target = ragged(step, rows)
    return torch.where((torch.arange(rows) < 6)[:, None], 1, ids), target


@pytest.mark.ranks
def test_a_later_microbatch_of_another_shape_is_told_too():
    with pytest.raises(ValueError, match="returns the shape .* for some rows, but .* for others"):
        hl.check(PP2, model=hl.Model(unpadded, squares, late), batch=8, microbatches=4)


# ---- ids as floats


class Ids(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(2000, 6)

    def forward(self, x):
        return self.words(x.long()).sum(1)


def numbered(step, rows):
    drawn = torch.Generator().manual_seed(step)
    return torch.randint(300, 2000, (rows, 3), generator=drawn).float(), torch.randn(rows, 3, generator=drawn)


@pytest.mark.ranks
def test_whole_numbers_that_bfloat16_would_round_are_told_and_integers_are_taken():
    """Each id was the id of another row, on all sides alike: the proof said equal."""
    make = lambda seed: nn.Sequential(Ids(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    model = hl.Model(make, squares, numbered)
    with pytest.raises(ValueError, match=r"step 0 have whole numbers that bfloat16 rounds, such as .*x.long\(\)"):
        hl.check(PP2, model=model, batch=8, dtype="bfloat16")
    whole = hl.Model(make, squares, lambda step, rows: (numbered(step, rows)[0].long(), numbered(step, rows)[1]))
    assert hl.check(PP2, model=whole, batch=8, dtype="bfloat16").equal
    assert trained(model, PP2) == pytest.approx(trained(whole, PP2), rel=1e-12)


class Places(nn.Module):
    """Constants on the CPU: one that the forward makes, one that the layer keeps."""

    def __init__(self):
        super().__init__()
        self.scale = torch.ones(6)

    def forward(self, x):
        return x * torch.arange(6) * self.scale


def test_a_dry_run_takes_constants_that_a_forward_makes_on_the_cpu():
    """A RuntimeError of torch about the meta device."""
    assert hl.dry_run(PP2, model=around(Places)(0), loss=squares, data=data, dtype="float32")


def test_pixels_and_the_minus_infinity_of_a_mask_are_no_ids():
    def seen(step, rows):
        x = torch.randint(0, 256, (rows, 6), generator=torch.Generator().manual_seed(step)).float()
        x[0, 0] = -10000.0
        return x, torch.zeros(rows, 3)

    assert hl.dry_run(PP2, model=around()(0), loss=squares, data=seen, dtype="bfloat16")


def test_a_package_whose_name_begins_like_torch_is_not_torch():
    place = Path(torch.__file__).parent.parent / "torchmetrics" / "sum.py"
    exec(compile("import torch\ndef ask():\n    return torch.distributed.is_initialized()", place, "exec"), names := {})
    with (
        pytest.raises(ValueError, match=r"the loss calls torch.distributed.is_initialized \(sum.py:3\)"),
        alone("the loss"),
    ):
        names["ask"]()
