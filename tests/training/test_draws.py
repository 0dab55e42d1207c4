"""First weights drawn by place: a part is what the whole is there, so no rank makes more of a model than it holds."""

import math
import resource
import sys

import cloudpickle
import pytest
import torch
from few import first, one_in
from torch import nn

import hybridlab as hl
from hybridlab.core.what.catalog import model as known
from hybridlab.core.what.shape import Shape
from hybridlab.training.make_job import job_of
from hybridlab.training.models import draws
from hybridlab.training.models.draws import normal, stream, tensors_of
from hybridlab.training.models.gallery import GALLERY, model_of, named
from hybridlab.training.models.gpt import Dropout
from hybridlab.training.models.layered import Layered
from hybridlab.training.models.model import Model
from hybridlab.training.models.one_row import passed
from hybridlab.training.stages import cut, parameters_of_layers

cloudpickle.register_pickle_by_value(sys.modules[__name__])
DTYPES = (torch.float64, torch.float32, torch.bfloat16)
TIED = Shape(layers=4, width=16, heads=4, context=31, vocabulary=259, tied=True)
MODELS = {name: make for name, (_, make) in GALLERY.items()} | {"tied": lambda: model_of(TIED)}


def numbers(number=0, shape=(300, 200), box=(), deviation=1.0, dtype=torch.float64):
    out = torch.empty(torch.empty(shape, device="meta")[box].shape, dtype=dtype)
    return normal(stream(number), deviation, shape, box, out)


# ---- numbers


@pytest.mark.slow
def test_numbers_are_normal():
    z = numbers(shape=(1000, 1000)).flatten()
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        spread = math.sqrt(math.prod(range(1, 2 * power, 2)) / len(z))  # of zᵖ: at most √E z²ᵖ
        assert abs(float((z**power).mean()) - moment) < 4 * spread, power
    for bound in (0.5, 1, 2, 3, 4):
        within = math.erf(bound / math.sqrt(2))
        assert abs(float((z.abs() < bound).double().mean()) - within) < 4 * math.sqrt(within * (1 - within) / len(z))
    assert numbers(deviation=0.02).std() == pytest.approx(0.02, rel=0.02)


@pytest.mark.slow
def test_neighbours_and_streams_are_strangers():
    z = numbers()
    others = [numbers(1), numbers(2), numbers(3)] + [z.roll(by, dim) for dim in (0, 1) for by in (1, 2)]
    for other in others:
        assert abs(float((z * other).mean())) < 4 / math.sqrt(z.numel())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_narrower_dtype_rounds_the_same_numbers(dtype):
    assert torch.equal(numbers(deviation=0.02, dtype=dtype), numbers(deviation=0.02).to(dtype))


@pytest.mark.parametrize("at_once", [1, 7, 200, 1000, 1 << 16])
def test_blocks_are_seen_by_nobody(monkeypatch, at_once):
    shape, box = (9, 5, 40), (slice(2, 9), slice(0, 4), slice(3, 39))
    whole = numbers(shape=shape)
    monkeypatch.setattr(draws, "BLOCK", at_once)
    assert torch.equal(numbers(shape=shape), whole)
    assert torch.equal(numbers(shape=shape, box=box), whole[box])
    assert numbers(shape=shape, box=(slice(3, 3), *box[1:])).shape == (0, 4, 36)


# ---- models


def boxes_of(x):
    """Some of a tensor: an end, a middle part, one element, nothing cut."""
    spans = lambda at, to: tuple(slice(int(at * n), max(int(at * n) + 1, int(to * n))) for n in x.shape)
    return [spans(0.5, 1), spans(0.3, 0.7), tuple(slice(n - 1, n) for n in x.shape), ()]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", first(1, DTYPES), ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_box_drawn_alone_is_the_slice_of_the_whole(name, dtype):
    model = MODELS[name]()
    whole = tensors_of(model.made(3, dtype))
    assert all(len(x.unique()) > 5 for x in whole.values() if isinstance(x, nn.Parameter) and x.dim() > 1)
    for number in range(4):
        boxes = {name: boxes_of(x)[number] for name, x in whole.items()}
        for name, part in tensors_of(model.made(3, dtype, boxes)).items():
            assert part.dtype == whole[name].dtype and torch.equal(part, whole[name][boxes[name]]), name


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_a_model_made_by_itself_has_the_same_numbers(name):
    model = MODELS[name]()
    alone, made = (tensors_of(one) for one in (model.whole(3), model.made(3, torch.float32)))
    assert alone.keys() == made.keys() and all(torch.equal(alone[name], made[name]) for name in made)
    assert not any(x.is_meta for x in made.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_seeds_and_names_draw_apart(name):
    model = MODELS[name]()
    made = (model.made(seed, torch.float64).named_parameters() for seed in (0, 1))
    one, other = ({name: weight.detach() for name, weight in named} for named in made)
    matrices = [name for name, weight in one.items() if weight.dim() > 1]
    for weight in matrices:
        n = one[weight].numel()
        assert abs(float((one[weight] * other[weight]).mean() / other[weight].var())) < 5 / math.sqrt(n), weight
    same = [(a, b) for a in matrices for b in matrices if a < b and one[a].shape == one[b].shape]
    assert not any(torch.equal(one[a], one[b]) for a, b in same)


@pytest.mark.slow
def test_weights_of_norms_are_one_and_what_is_no_weight_is_nothing():
    for name, x in tensors_of(named("conv").made(0, torch.float64)).items():
        if "norm" in name:
            assert torch.equal(x, torch.full_like(x, float(name.endswith(("weight", "running_var"))))), name
        assert "bias" not in name or not x.any()
    gpt = dict(model_of(TIED).made(0, torch.float64).named_parameters())
    assert not any(x.any() for name, x in gpt.items() if name.endswith("bias"))
    assert all((x == 1).all() for name, x in gpt.items() if name.endswith("norm.weight"))


def test_every_layer_that_draws_is_told_where_it_stands():
    net = Layered([nn.Linear(4, 4), Dropout(0.5), nn.Linear(4, 4), Dropout(0.5)], seed=5)
    first, second = (layer for layer in net.modules() if isinstance(layer, Dropout))
    assert first.draws is second.draws is net.draws and (net.draws.seed, first.site, second.site) == (5, 0, 1)


# ---- parts of a model


def storages(module):
    """{where it is: bytes} of what a module keeps."""
    own = (x.untyped_storage() for x in tensors_of(module).values() if not x.is_meta)
    return {one.data_ptr(): one.nbytes() for one in own}


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_the_whole_of_a_job_has_no_memory_and_the_shapes_of_the_model(name):
    job = job_of(hl.Mesh(pp=2), model=MODELS[name](), dtype="float64", batch=8)
    looked_at, real = tensors_of(job.whole), tensors_of(job.model.made(0, torch.float64))
    assert all(x.is_meta for x in looked_at.values())
    told = lambda every: {name: (x.shape, x.dtype, type(x), x.requires_grad) for name, x in every.items()}
    assert told(looked_at) == told(real)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_what_passes_a_module_needs_no_numbers(name, monkeypatch):
    model = MODELS[name]()
    without = passed(model, 0, torch.float32)
    monkeypatch.setattr(Model, "by_place", False)
    monkeypatch.setattr(Model, "original", lambda model, seed, dtype: model.whole(seed))
    assert without == passed(model, 0, torch.float32) and len(without) > len(model.layers(model.whole(0)))


SHARED = [(name, mesh) for name in MODELS for mesh in (hl.Mesh(pp=4), hl.Mesh(dp=2, pp=2))]
SHARED += [(name, hl.Mesh(pp=2, tp=2)) for name in ("gpt", "modern", "tied")]


@pytest.mark.slow
@pytest.mark.parametrize("name, mesh", one_in(3, SHARED), ids=str)
def test_a_rank_keeps_its_boxes_and_the_ranks_keep_everything(name, mesh):
    job = job_of(mesh, model=MODELS[name](), batch=16)
    held = set()
    for rank in range(mesh.size):
        boxes = job.boxes(rank)
        part = job.model.made(0, torch.float32, boxes)
        here = {name for name, x in tensors_of(part).items() if not x.is_meta}
        buffers = sum(buffer.nbytes for buffer in part.buffers() if not buffer.is_meta)
        assert sum(storages(part).values()) == sum(4 * job.layout.size(one, rank) for one in job.layout.named) + buffers
        assert here == boxes.keys()
        held |= here
    assert held == tensors_of(job.whole).keys()


def growth(comm, job, rank):
    """(bytes of a rank's part, how far this process grew while it was made)."""
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    job.model.made(0, torch.float32, {name: (slice(0, 1),) for name, _ in job.whole.named_parameters()})
    before = peak()
    part = job.model.made(0, torch.float32, job.boxes(rank))
    return sum(storages(part).values()), peak() - before


@pytest.mark.ranks
def test_a_rank_of_eight_grows_by_an_eighth_of_the_model(bench):
    job = job_of(hl.Mesh(pp=8), microbatches=8, shape=Shape(layers=16, width=512, heads=8, context=64))
    whole = sum(weight.nbytes for weight in job.whole.parameters())
    ((part, grew),) = bench.pool(1).run(growth, job, 3)
    assert part == pytest.approx(whole / 8, rel=0.02) and whole > 200e6
    assert part * 0.9 < grew < part + 30e6


@pytest.mark.long
def test_gpt3_is_looked_at_on_any_machine():
    shape = known("gpt3-175b").shape
    model = model_of(shape)
    assert sum(weight.numel() for weight in model.made(0, torch.bfloat16, {}).parameters()) == shape.parameters
    assert sum(parameters_of_layers(model)) == shape.parameters + shape.vocabulary * shape.width  # a tied one twice
    assert [len(layers) for layers in cut(model, 8, "parameters")] == [13, 12, 12, 12, 12, 12, 12, 13]


# ---- anyone's model


class Shared(nn.Module):
    """Layers with a buffer of their own, which all look at one table that is in none of them; its ends are tied."""

    def __init__(self, seed=0):
        super().__init__()
        self.register_buffer("table", torch.linspace(0.5, 1.5, 8))
        self.linears = nn.ModuleList(Scaled(self.table, number) for number in range(4))
        self.linears[3].linear.weight = self.linears[0].linear.weight

    def layers(self):
        return list(self.linears)


class Scaled(nn.Module):
    def __init__(self, table, number):
        super().__init__()
        self.linear, self.looks = nn.Linear(8, 8), [table]
        self.register_buffer("shift", torch.full((8,), 0.1 * number))

    def forward(self, x):
        return self.linear(x * self.looks[0] + self.shift).tanh()


def vectors(step, rows):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return x, x.flip(1)


def square_loss(y, target):
    return (y - target).square().sum()


def test_of_anyones_model_a_rank_keeps_its_boxes():
    mine = Shared()
    model = Model(mine, square_loss, vectors)
    boxes = {"linears.0.linear.weight": (slice(2, 4), slice(0, 8)), "linears.1.shift": (), "table": ()}
    part = model.made(0, torch.float64, boxes)
    assert {name for name, x in tensors_of(part).items() if not x.is_meta} == boxes.keys()
    assert sum(storages(part).values()) == 8 * (2 * 8 + 8 + 8)  # no box keeps the whole alive
    assert part.linears[3].linear.weight is part.linears[0].linear.weight
    assert part.linears[2].looks[0] is not mine.table
    assert torch.equal(part.linears[0].linear.weight, mine.linears[0].linear.weight[2:4].double())
    part.linears[1].shift += 1
    assert torch.equal(mine.linears[1].shift, torch.full((8,), 0.1))  # the module that was given is left as it is


@pytest.mark.ranks
@pytest.mark.parametrize("mesh", [hl.Mesh(pp=2), hl.Mesh(dp=2, pp=2)], ids=str)
def test_a_buffer_that_is_in_no_layer_is_everybodys(bench, mesh):
    for whole in (Shared(), Shared):
        report = bench.asked(mesh, model=Model(whole, square_loss, vectors), batch=8, zero=int(mesh["dp"] > 1))
        assert report.ok and report.largest_gap < 1e-11, report


@pytest.mark.ranks
def test_such_a_buffer_is_saved_and_found_again(kept, tmp_path):
    ask = dict(model=Model(Shared(), square_loss, vectors), batch=8, dtype="float64", progress=False)
    whole = hl.train(hl.Mesh(pp=2), steps=3, **ask)["losses"]
    first = hl.train(hl.Mesh(pp=2), steps=2, checkpoint=tmp_path, **ask)["losses"]
    more = hl.train(hl.Mesh(dp=2), steps=3, microbatches=2, checkpoint=tmp_path, resume=True, **ask)["losses"]
    assert torch.allclose(torch.tensor(first + more), torch.tensor(whole), rtol=1e-12)


# ---- that the proof sees it


def counted_in_the_box(patch):
    """A rank numbers the elements of its box, not those of the parameter."""
    from hybridlab.training.models import draws

    right = draws.normal
    patch.setattr(draws, "normal", lambda key, deviation, shape, box, out: right(key, deviation, out.shape, (), out))


def named_by_the_process(patch):
    """The stream of a name is another one in each process, as with Python's own hash."""
    import os

    from hybridlab.training.models import draws

    patch.setattr(draws, "_number", lambda name: hash((name, os.getpid())))


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.parametrize("mutant", [None, counted_in_the_box, named_by_the_process])
def test_ranks_that_draw_otherwise_are_noticed(bench, mutant):
    mesh = hl.Mesh(dp=2, pp=2, tp=2)
    report = bench.asked(mesh, shape=TIED, zero=1, sequence=True, **({"sabotage": mutant} if mutant else {}))
    assert report.ok == (mutant is None), report
