"""Spatial parallelism: nets on strips and tiles train as on one device, every byte is claimed, mutants are caught."""

import sys
from collections import Counter

import cloudpickle
import pytest
import torch
from few import one_in
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.core.dry import KINDS
from hybridlab.modes import spatial_parallel
from hybridlab.modes.parts import halos
from hybridlab.predict.bytes.transfer import by_axis
from hybridlab.training.make_job import job_of
from hybridlab.training.models.batch_norm import BatchNorm, normalised
from hybridlab.training.models.conv import Convolution, Scores
from hybridlab.training.models.model import Model
from hybridlab.world.talk import windows

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NETS = ("conv", "unet", "resnet")
MESHES = [  # what else is asked
    (hl.Mesh(h=2, w=2), {}),
    (hl.Mesh(h=2), {}),
    (hl.Mesh(w=2), {"accumulate": 2}),
    (hl.Mesh(h=3), {"optimizer": "adamw", "rate": 0.01, "clip": 0.1}),
    (hl.Mesh(w=4), {}),
    (hl.Mesh(h=8), {}),  # where the picture is 2×2, six ranks have no pixel
    (hl.Mesh(dp=2, h=2), {"zero": 1}),
    (hl.Mesh(dp=2, w=2), {"zero": 2, "sums": "each"}),
    (hl.Mesh(dp=2, h=2, w=2), {"zero": 3}),
    # Adam's bound does not know how batch norms make the noise of one step grow in the next: one step
    (hl.Mesh(w=2, dp=2, h=2), {"optimizer": "adamw", "rate": 0.01, "sums": "buckets", "steps": 1}),
    (hl.Mesh(pp=2, h=2), {"schedule": "1f1b"}),
    (hl.Mesh(pp=2, h=4), {"schedule": "zb_h1"}),
    (hl.Mesh(pp=2, w=2), {"schedule": "interleaved", "chunks": 2}),
    (hl.Mesh(h=2, pp=2, w=2), {"schedule": "1f1b", "ahead": 2}),
    (hl.Mesh(dp=2, pp=2, h=2), {"zero": 1, "schedule": "zb_h1"}),
    (hl.Mesh(h=2, w=2), {"schedule": hl.schedule("gpipe", 1, 2, recompute="always")}),
]


def pictures(step, rows, size=(13, 11)):
    """Random pictures with labels."""
    draw = torch.Generator().manual_seed(step)
    return torch.randn(rows, 2, *size, generator=draw), torch.randint(10, (rows,), generator=draw)


def label_loss(scores_BV, labels_B):
    return functional.cross_entropy(scores_BV, labels_B, reduction="sum")


def pools(seed):
    """A net with all kinds of layers that look beyond a pixel; sizes that nothing divides."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 5, padding=2),
        nn.Sequential(BatchNorm(6), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)),
        nn.Conv2d(6, 6, (3, 2), padding="same", dilation=2, groups=2),
        nn.Sequential(nn.AvgPool2d(2, 1), nn.GELU(), nn.Upsample(scale_factor=(2, 1))),
        Convolution(6, 4, stride=2),
        Scores(4),
    )


ODD = Model(pools, label_loss, pictures, enters="B C Y X")
CASES = [
    pytest.param(net, mesh, more, marks=() if (net, number) == ("unet", 0) else pytest.mark.long)
    for number, (mesh, more) in enumerate(MESHES)
    for net in NETS
]


@pytest.mark.ranks
@pytest.mark.parametrize("net, mesh, more", CASES, ids=str)
def test_a_net_trains_as_on_one_device_and_every_byte_is_claimed(bench, net, mesh, more):
    report = bench.asked(mesh, **{"model": net, "microbatches": 2} | more)
    assert report.ok, report
    assert report.bytes["inside stages, along h and w"][0] > 0


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    [pytest.param(*one, marks=() if number == 0 else pytest.mark.long) for number, one in enumerate(MESHES)],
)
def test_pools_and_odd_sizes_train_as_on_one_device(bench, mesh, more):
    report = bench.asked(mesh, **{"model": ODD, "microbatches": 2} | more)
    assert report.ok, report


# ---- mutants


def local_statistics(patch):
    """A batch norm knows its own pixels only."""
    alone = lambda x, weight, bias, eps, **_: normalised(x, weight, bias, eps)
    patch.setattr(spatial_parallel, "normalised", alone)


def not_folded(patch):
    """Gradients of a halo stay where they were made."""
    plain = windows.Flight.wait

    def wait(self):
        deliver, adds = self._deliver, self._deliver.__name__ == "add_up"
        mine = lambda pieces: deliver({place: one for place, one in pieces.items() if one._base is not None})
        self._deliver = mine if adds else deliver
        return plain(self)

    patch.setattr(windows.Flight, "wait", wait)


def one_short(patch):
    """The last row of a halo is taken for one beyond the border."""

    def saw(self, x, dim, span):
        self.x_BCYX, self.here[dim] = x.clone(), span
        if span[1] < self.whole[dim]:
            self.x_BCYX.narrow(dim, span[1] - span[0] - 1, 1).zero_()

    patch.setattr(halos.View, "saw", saw)


def padded_inside(patch):
    """Every rank pads its strip as if it were the picture."""

    def convolved(comm, x, weight, bias, cuts, sights, groups=1):
        stride, padding = zip(*((sight.stride, sight.before) for sight in sights.values()))
        return functional.conv2d(x, weight, bias, stride, padding, 1, groups)

    patch.setattr(halos, "convolved", convolved)


def counted_by_all(patch):
    """Behind the mean every rank counts the whole loss."""
    patch.setattr(spatial_parallel.SpatialParallel, "loss", lambda self, comm, job, whole: whole)


def not_added(patch):
    """Each rank takes the mean over its own pixels."""
    patch.setattr(halos, "mean", lambda comm, x, cuts, ranks: x.mean((2, 3), keepdim=True))


MUTANTS = [local_statistics, not_folded, one_short, padded_inside, counted_by_all, not_added]


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", one_in(3, MUTANTS), ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(bench, mutant):
    asked = {"model": "conv", "microbatches": 1}
    assert bench.right(hl.Mesh(h=2), **asked)
    report = bench.asked(hl.Mesh(h=2), **asked, sabotage=mutant)
    assert not report.ok and report.largest_gap > 1e-4, report


# ---- what cannot be cut


class Flat(nn.Module):
    def forward(self, x):
        return x.flatten(1)


class Flipped(nn.Module):
    def forward(self, x):
        return x.flip(2)


class Placed(nn.Module):
    """Where a pixel stands is added to it."""

    def forward(self, x):
        return x + torch.arange(x.shape[2], device=x.device)[:, None]


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return self.pool(self.pool(x))


class Standardized(nn.Conv2d):
    """Weight standardization (public report: mmdetection #515): by its class it is a Conv2d."""

    def forward(self, x):
        off = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(x, off / off.std((1, 2, 3), keepdim=True), self.bias, self.stride, self.padding)


class Padded(nn.Conv2d):
    """The same in the second half of a convolution."""

    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, 2 * weight, bias)


class OfInstances(BatchNorm):
    """It says that it is a batch norm, and takes the statistics of every picture alone."""

    def __init__(self, channels):
        super().__init__(channels)
        self.normalise = lambda x, weight, bias, eps: functional.instance_norm(x, None, None, weight, bias, eps=eps)


class Squeezed(nn.Module):
    """Squeeze and excitation: convolutions of one pixel after a mean, as in published nets."""

    def __init__(self):
        super().__init__()
        self.see, self.mean, self.excite = nn.Conv2d(2, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(2, 2, 1)

    def forward(self, x):
        x = self.see(x)
        return x * self.excite(self.mean(x)).sigmoid()


class Both(nn.Module):
    """A map and one number of each picture."""

    def __init__(self):
        super().__init__()
        self.mean = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return x, self.mean(x).flatten(1)


def patched():
    """A forward that somebody has put around the layer's own."""
    layer = nn.Conv2d(2, 2, 1)
    own = layer.forward
    layer.forward = lambda x: 2 * own(x)
    return layer


def doubled():
    """A hook that changes every pixel by itself."""
    layer = nn.Conv2d(2, 2, 3, padding=1)
    layer.register_forward_hook(lambda layer, arrived, made: 2 * made.tanh())
    return layer


def head(*before):
    return Model(nn.Sequential(*before, Scores(2)), label_loss, pictures, enters="B C Y X")


def same(step, rows):
    x, _ = pictures(step, rows, (6, 6))
    return x, x


def two(step, rows):
    x, _ = same(step, rows)
    return x, (x, x[:, :, 0, 0])


def squares(output, target):
    return sum(map(square, output, target))


def spread(output, target):
    """Pixels are compared across the picture."""
    return ((output - target.mean((2, 3), keepdim=True)) ** 2).sum()


def square(output, target):
    return ((output - target) ** 2).sum()


PICTURES = "B C Y X"
FLAT = Model(nn.Sequential(nn.Sequential(Flat(), nn.Linear(2 * 13 * 11, 10))), label_loss, pictures, enters=PICTURES)
ONE = nn.Sequential(nn.Conv2d(2, 2, 1))
REFUSED = [
    ("h=2 shards the Y of images, but the inputs of this model have no dimension of that name", "gpt"),
    (r"layer 0 \(Flipped\) mixes pixels outside of Conv2d, MaxPool2d", head(Flipped())),
    (r"layer 1 \(Placed\) mixes pixels", head(nn.ReLU(), Placed())),
    (r"layer 0 \(InstanceNorm2d\) mixes pixels", head(nn.InstanceNorm2d(2))),
    (r"layer 0 \(GroupNorm\) mixes pixels", head(nn.GroupNorm(1, 2))),
    (r"layer 0 \(Sequential\) mixes pixels", head(nn.Sequential(Flipped(), nn.Conv2d(2, 2, 1)))),
    (r"layer 0 \(Sequential\) mixes pixels", FLAT),
    (r"0 \(Conv2d\) pads otherwise than with zeros", head(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"))),
    (r"0 \(MaxPool2d\) has ceil_mode=True", head(nn.MaxPool2d(2, ceil_mode=True))),
    (r"0 \(AvgPool2d\) does not count its padding", head(nn.AvgPool2d(3, 1, 1, count_include_pad=False))),
    (r"0 \(AvgPool2d\) has its own divisor", head(nn.AvgPool2d(3, divisor_override=2))),
    (r"0 \(Upsample\) does not take the nearest", head(nn.Upsample(scale_factor=2, mode="bilinear"))),
    (r"0 \(Upsample\) does not take the nearest", head(nn.Upsample(size=(20, 20)))),
    (r"0 \(AdaptiveAvgPool2d\) makes more than one pixel", head(nn.AdaptiveAvgPool2d(2))),
    (r"0 \(Standardized\) has its own forward, and h and w cannot", head(Standardized(2, 2, 3, padding=1))),
    (r"0 \(Padded\) has its own forward", head(Padded(2, 2, 1))),
    (r"0 \(Conv2d\) has its own forward", head(patched())),
    (r"0 \(OfInstances\) does not normalize by the mean and the variance of a microbatch", head(OfInstances(2))),
    (r"layer 1 \(Placed\) mixes pixels", head(nn.Conv2d(2, 2, 1), Placed(), nn.Conv2d(2, 2, 1))),
    (r"0\.pool is used on images of several sizes", head(Shared())),
    ("the losses of the parts of an image do not add up", Model(ONE, spread, same, enters=PICTURES, targets=PICTURES)),
    ("the losses of the parts of an image do not add up to the loss of", Model(ONE, square, same, enters=PICTURES)),
    ("the losses of the parts of an image do", Model(nn.Sequential(*ONE, Both()), squares, two, enters=PICTURES)),
]


@pytest.mark.parametrize("words, model", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_cut_is_refused_in_a_sentence(words, model):
    with pytest.raises(ValueError, match=words):
        job_of(hl.Mesh(h=2), "1f1b", 1, model=model)


@pytest.mark.ranks
def test_means_in_the_middle_and_hooks_of_single_pixels_train_as_on_one_device(bench):
    """Squeeze and excitation, a scale after a convolution, and a stage that begins after a mean over all pixels."""
    net = nn.Sequential(doubled(), Squeezed(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(2, 10, 1), nn.Flatten())
    model = Model(net, label_loss, pictures, enters=PICTURES)
    for mesh, cut in ((hl.Mesh(h=2), [5]), (hl.Mesh(pp=2, h=2), [3, 2])):  # a stage begins after the mean
        report = bench.asked(mesh, model=model, microbatches=2, batch=4, cut=cut)
        assert report.ok and report.largest_gap < 1e-11, report


def of_means(step, rows):
    x, _ = same(step, rows)
    return x, x.mean((2, 3), keepdim=True)


@pytest.mark.ranks
def test_a_mean_at_the_end_is_counted_once(bench):
    model = Model(nn.Sequential(*ONE, nn.AdaptiveAvgPool2d(1)), square, of_means, enters=PICTURES)
    report = bench.asked(hl.Mesh(h=2), model=model, microbatches=2, batch=4)
    assert report.ok and report.largest_gap < 1e-11, report


# ---- what it is for


def large(step, rows):
    return torch.randn(rows, 2, 48, 48, generator=torch.Generator().manual_seed(step)), torch.zeros(rows).long()


def deep(seed):
    return nn.Sequential(*(Convolution(enter, 8) for enter in (2, 8, 8, 8)), Scores(8))


def kept(mesh):
    """What a middle rank of a dry run sends along h, and the most that it keeps for its backward, in bytes."""
    model = Model(deep, label_loss, large, enters="B C Y X")
    run = hl.dry_run(mesh, "1f1b", 1, model=model, dtype="float32", rank=mesh.size // 2)
    return run.bytes.get("space", 0), run.kept[:, list(KINDS).index("activations")].max()


@pytest.mark.slow
def test_a_rank_keeps_its_part_of_what_a_backward_needs():
    """Of strips of 12 rows: a quarter, and for each border the three rows that its outputs see."""
    (nothing, whole), (sent, strip) = kept(hl.Mesh(pp=1)), kept(hl.Mesh(h=4))
    assert nothing == 0 < sent
    assert whole / 4 < strip < 0.4 * whole


@pytest.mark.long
def test_a_dry_run_sends_what_the_formula_says():
    job = job_of(hl.Mesh(h=2, w=2), "1f1b", 1, model="unet", dtype="float32", optimizer="adamw")
    foreseen = by_axis(spatial_parallel.MODE.transfers(job))
    found = sum(
        (Counter(hl.dry_run(job.mesh, "1f1b", 1, model="unet", dtype="float32", rank=rank).axes) for rank in range(4)),
        Counter(),
    )
    assert {key[1:]: size for key, size in found.items() if key[0] == "space"} == foreseen
