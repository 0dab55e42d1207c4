"""Data as people have them: in each step the batch that plain PyTorch would read, on every layout; or a refusal.

From public reports: torch #30599, #31771, #5059, datasets #3423, transformers #37932, lancedb #3705.
"""

import random
import threading
from collections import deque

import numpy as np
import pytest
import torch
from few import one_in
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import hybridlab as hl
from hybridlab.training.affordable import affordable
from hybridlab.training.models.theirs import batches_of
from hybridlab.training.run import train

N, ROWS = 21, 8
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(1)).double()
Y = X[:, :3].cumsum(1)
ALL = TensorDataset(X, Y)


class Named(Dataset):
    """Rows as dicts, as those of Hugging Face."""

    def __len__(self):
        return N

    def __getitem__(self, number):
        return {"x": X[number], "labels": Y[number], "mask": torch.ones(6).double()}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y))


class Once(IterableDataset):
    def __init__(self):
        self.rows = zip(X, Y)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.rows)


class Turning(Sampler):
    """An order for each pass, of which a loop over epochs tells the number."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return N

    def __iter__(self):
        return iter(torch.randperm(N, generator=seeded(self.epoch)).tolist())


class TurningStream(IterableDataset):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return ((X[number], Y[number]) for number in torch.randperm(N, generator=seeded(self.epoch)).tolist())


class TwoOrders(Sampler):
    """By chance, two draws are often the same."""

    def __len__(self):
        return 2

    def __iter__(self):
        return iter(random.sample([[*range(8)], [*range(8, 16)]], 2))


class Forgetful(Sampler):
    def __iter__(self):
        return iter(torch.randperm(N).tolist())

    def __len__(self):
        return N


class Noisy(Dataset):
    """Rows that are changed by chance, most of them not."""

    def __len__(self):
        return N

    def __getitem__(self, number):
        x = X[number] + torch.randn(6) * (np.random.rand() < 0.2)
        return (x.flip(0) if random.random() < 0.2 else x), Y[number]


class Continuing(Noisy):
    """The same with a generator of its own, from which every batch draws further."""

    def __init__(self):
        self.numbers = np.random.default_rng(0)

    def __getitem__(self, number):
        return X[number] * (1 + (self.numbers.random() < 0.01)), Y[number]


class Counting(Noisy):
    """A curriculum: rows become harder with every call."""

    calls = 0

    def __getitem__(self, number):
        self.calls += 1
        return X[number] * (1 + self.calls // 1000), Y[number]


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def loss(output, target):
    return (output - target).square().sum()


LOADERS = {
    "in order": lambda: DataLoader(ALL, ROWS),
    "shuffled": lambda: DataLoader(ALL, ROWS, shuffle=True, generator=seeded()),
    "shuffled, without the last": lambda: DataLoader(ALL, ROWS, shuffle=True, drop_last=True, generator=seeded()),
    "weighted": lambda: DataLoader(ALL, ROWS, sampler=WeightedRandomSampler(X[:, 0].exp(), N, generator=seeded())),
    "batches of a sampler": lambda: DataLoader(ALL, batch_sampler=[list(range(8)), list(range(12, 20))]),
    "an order for each pass": lambda: DataLoader(ALL, ROWS, sampler=Turning()),
    "batches for each pass": lambda: DataLoader(ALL, batch_sampler=BatchSampler(Turning(), ROWS, drop_last=True)),
    "a stream for each pass": lambda: DataLoader(TurningStream(), ROWS),
    "whole batches": lambda: DataLoader([(X[:8], Y[:8]), (X[8:16], Y[8:16])], batch_size=None),
    "a stream": lambda: DataLoader(Stream(), ROWS),
    "dicts": lambda: DataLoader(Named(), ROWS, shuffle=True, generator=seeded()),
}


def plainly(loader, steps):
    """The batches of a loop over passes in plain PyTorch, short last ones left out."""
    found, tell = [], getattr(loader, "dataset", None)
    for one in (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None)):
        tell = one if hasattr(one, "set_epoch") else tell
    for epoch in range(steps):
        if hasattr(tell, "set_epoch"):
            tell.set_epoch(epoch)
        whole = list(loader)
        found += [one for one in whole if len(next(iter(one.values() if isinstance(one, dict) else one))) == ROWS]
    return found[:steps]


@pytest.mark.parametrize("name", LOADERS)
def test_a_step_has_the_batch_that_the_loader_gives_in_plain_pytorch(name):
    """In any order, twice, behind a pickle, and without a change of somebody's own generator."""
    import cloudpickle

    loader = LOADERS[name]()
    before = loader.generator and loader.generator.get_state()
    source = batches_of(loader)
    wanted = plainly(LOADERS[name](), 7)
    for one in (source, cloudpickle.loads(cloudpickle.dumps(source))):
        for step in (0, 5, 1, 6, 6, 2, 4, 3):
            found, right = one.batch(step, ROWS), wanted[step]
            names = ["x", "mask"] if isinstance(right, dict) else []
            right = ({name: right[name] for name in names}, right["labels"]) if names else tuple(right)
            assert not names or list(found[0]) == names
            flat = lambda both: [*(both[0].values() if isinstance(both[0], dict) else both[:1]), both[1]]
            assert all(torch.equal(x, y) for x, y in zip(flat(found), flat(right), strict=True)), (name, step)
    assert before is None or torch.equal(loader.generator.get_state(), before)


def test_a_dataset_and_a_stream_are_read_in_order_and_anew_in_each_pass():
    for data in (ALL, Stream(), list(zip(X.split(ROWS), Y.split(ROWS)))):
        source = batches_of(data)
        for step in (0, 1, 2, 3, 1):
            x, y = source.batch(step, ROWS)
            first = step % 2 * ROWS
            assert torch.equal(x, X[first : first + ROWS]) and torch.equal(y, Y[first : first + ROWS])


def test_a_deque_is_a_list_of_batches():
    first, second = (torch.ones(2, 3), torch.ones(2)), (torch.zeros(2, 3), torch.zeros(2))
    data = batches_of(deque([first, second]))
    assert [data.batch(step, 2)[1].tolist() for step in range(3)] == [[1, 1], [0, 0], [1, 1]]


def test_of_a_batch_that_is_made_an_examination_reads_the_first_rows():
    source = batches_of(LOADERS["shuffled"]())
    assert torch.equal(source.batch(1, 3)[0], source.batch(1, ROWS)[0][:3])


class Masked(nn.Module):
    def forward(self, both):
        return both[0] * both[1]


HOW = {
    "shuffled": (lambda: LOADERS["shuffled"](), net),
    "a stream": (Stream, net),
    "rows": (lambda: ALL, net),
    "batches": (lambda: list(zip(X.split(ROWS), Y.split(ROWS))), net),
    "dicts": (lambda: LOADERS["dicts"](), lambda: nn.Sequential(Masked(), *net())),
}


@pytest.mark.ranks
@pytest.mark.parametrize("name", one_in(2, HOW))
def test_layouts_train_on_it_as_plain_pytorch_does(kept, name):
    data, module = HOW[name]
    more = dict(loss=loss, data=data(), microbatches=2, steps=5, dtype="float64", rate=0.05, optimizer="sgd")
    more |= {} if name in ("shuffled", "dicts", "batches") else {"batch": ROWS}
    found = {}
    for mesh, how in ((hl.Mesh(pp=2), {}), (hl.Mesh(dp=2, pp=2), {"zero": 3})):
        found[mesh] = train(mesh, model=module(), progress=False, **more, **how)
    one, its = module(), data()
    batches = plainly(its if isinstance(its, DataLoader | list) else DataLoader(its, ROWS), 5)
    for step, batch in enumerate(batches):
        x, y = ((batch["x"], batch["mask"]), batch["labels"]) if isinstance(batch, dict) else batch
        said = loss(one(x), y) / ROWS
        assert all(its["losses"][step] == pytest.approx(said.item(), rel=1e-10) for its in found.values())
        one.zero_grad()
        said.backward()
        with torch.no_grad():
            for weight in one.parameters():
                weight -= 0.05 * weight.grad


class Apart(nn.Module):
    def forward(self, both):
        return both[0] * both[1].cos()


def rows_of_a_file(step):
    """Rows whose names are in another order in every second batch, as a file of JSON lines may have them."""
    x = X[ROWS * step : ROWS * (step + 1)]
    row = {"left": x, "right": x.roll(1, 1), "labels": x[:, :3]}
    return dict(reversed(row.items())) if step % 2 else row


@pytest.mark.ranks
def test_names_reach_the_same_argument_in_every_batch():
    """PyHealth #1222: names are those of the first row of a batch. In another order, layers got each other's inputs."""
    batches = [rows_of_a_file(0), rows_of_a_file(1)]
    torch.manual_seed(3)
    one = nn.Sequential(Apart(), *net())
    more = dict(microbatches=2, steps=3, dtype="float64", rate=0.05, optimizer="sgd", progress=False)
    found = train(hl.Mesh(pp=2), model=one, loss=loss, data=batches, **more)["losses"]
    for step, said in enumerate(found):
        batch = batches[step % 2]
        value = loss(one((batch["left"], batch["right"])), batch["labels"]) / ROWS
        assert said == pytest.approx(value.item(), rel=1e-10)
        one.zero_grad()
        value.backward()
        with torch.no_grad():
            for weight in one.parameters():
                weight -= 0.05 * weight.grad


def test_other_names_are_told():
    model = hl.Model(net(), loss, lambda step, rows: ({"left" if step else "right": X[:rows]}, Y[:rows]))
    with pytest.raises(ValueError, match=r"data\(1, rows\) gave left, but right in step 0: give every batch the same"):
        model.batch(1, ROWS)


@pytest.mark.ranks
def test_a_run_goes_on_in_the_middle_of_a_pass(kept, tmp_path):
    more = dict(loss=loss, microbatches=2, dtype="float64", progress=False, model=net())
    whole = train(hl.Mesh(pp=2), data=LOADERS["shuffled"](), steps=5, **more)["losses"]
    train(hl.Mesh(pp=2), data=LOADERS["shuffled"](), steps=3, checkpoint=tmp_path, **more)
    again = train(hl.Mesh(dp=2), data=LOADERS["shuffled"](), steps=5, checkpoint=tmp_path, resume=True, **more)
    assert again["losses"] == pytest.approx(whole[3:], rel=1e-10)
    with pytest.raises(ValueError, match="data=[0-9a-f]{16}, but this run has data=[0-9a-f]{16}"):
        train(hl.Mesh(dp=2), data=LOADERS["in order"](), steps=5, checkpoint=tmp_path, resume=True, **more)


@pytest.mark.ranks
def test_what_rows_draw_is_the_same_on_every_layout_and_after_a_resume(kept, tmp_path):
    """From the generators of torch, numpy and Python, also by functions that are bound to one."""
    draw = random.random
    data = lambda step, rows: tuple(
        x * (1 + (draw() < 0.5)) for x in default_collate([Noisy()[number] for number in range(rows)])
    )
    more = dict(loss=loss, data=data, batch=ROWS, microbatches=2, dtype="float64", progress=False, model=net())
    whole = train(hl.Mesh(), steps=5, **more)["losses"]
    train(hl.Mesh(pp=2), steps=3, checkpoint=tmp_path, **more)
    again = train(hl.Mesh(dp=2), steps=5, checkpoint=tmp_path, resume=True, **more)
    assert again["losses"] == pytest.approx(whole[3:], rel=1e-10)
    model, state = hl.Model(net(), loss, data), random.getstate()
    first, other = (model.batch(step, ROWS)[0] for step in (0, 1))
    assert torch.equal(first, model.batch(0, ROWS)[0]) and random.getstate() == state
    assert not torch.equal(first, X[:ROWS]) and not torch.equal(first[0], other[0])


@pytest.mark.ranks
def test_batches_of_one_row_and_of_other_lengths_train_where_no_stage_exchanges_them(kept):
    """As a dynamic padding makes them: transformers #10964."""
    one = lambda length: (torch.ones(1, length, 6).double() / length, torch.ones(1, length, 3).double())
    data, more = [one(3), one(5), one(2)], dict(loss=loss, microbatches=1, steps=3, dtype="float64", rate=0.05)
    found = train(hl.Mesh(), model=net(), data=data, optimizer="sgd", progress=False, **more)["losses"]
    module, losses = net(), []
    for x, y in data:
        module.zero_grad()
        said = loss(module(x), y)
        said.backward()
        losses.append(said.item())
        with torch.no_grad():
            for weight in module.parameters():
                weight -= 0.05 * weight.grad
    assert found == pytest.approx(losses, rel=1e-10)
    two = [tuple(torch.cat([x, x]) for x in both) for both in data]
    assert len(train(hl.Mesh(dp=2), model=net(), data=two, progress=False, **more)["losses"]) == 3
    with pytest.raises(ValueError, match="stages exchange tensors of one shape: pad all rows to one length"):
        train(hl.Mesh(pp=2), model=net(), data=two, progress=False, **more | {"microbatches": 2})


@pytest.mark.ranks
def test_a_proof_reads_it(bench):
    assert bench.asked(hl.Mesh(dp=2, pp=2), model=net(), loss=loss, data=LOADERS["shuffled"](), microbatches=2).ok


class Lock(TensorDataset):
    def __init__(self):
        super().__init__(X, Y)
        self.lock = threading.Lock()


def from_an_iterator():
    them = iter(DataLoader(ALL, ROWS))
    return lambda step, rows: next(them)


REFUSED = {
    "a shuffle without a seed": (lambda: DataLoader(ALL, ROWS, shuffle=True), {}, "RandomSampler without a generator"),
    "a sampler that draws": (
        lambda: DataLoader(ALL, ROWS, sampler=Forgetful()),
        {},
        "DataLoader has a new order each time",
    ),
    "a share for each rank": (
        lambda: DataLoader(ALL, ROWS, sampler=DistributedSampler(ALL, 2, 0)),
        {},
        "DistributedSampler: .* here the layout does; give the DataLoader without it",
    ),
    "a generator that goes on": (
        lambda: DataLoader(Continuing(), ROWS),
        {},
        "reading a batch changes numbers of the data",
    ),
    "a curriculum": (lambda: DataLoader(Counting(), ROWS), {}, "reading a batch changes calls of the data"),
    "two orders": (lambda: DataLoader(ALL, batch_sampler=TwoOrders()), {}, "DataLoader has a new order each time"),
    "an iterator": (
        from_an_iterator,
        {},
        "data reads from them, an iterator that gives each batch only once, .*: give the DataLoader",
    ),
    "rows of each worker": (
        lambda: DataLoader(Stream(), ROWS, num_workers=2),
        {},
        "num_workers=2 for a Stream, .*, but ranks start no worker: give num_workers=0",
    ),
    "a graph": (lambda: lambda step, rows: (X[:rows] * torch.ones(6).requires_grad_(), Y[:rows]), {}, "detach.. it"),
    "sparse rows": (lambda: lambda step, rows: (X[:rows].to_sparse(), Y[:rows]), {}, "make it dense and padded"),
    "another batch": (
        lambda: DataLoader(ALL, ROWS),
        {"batch": 16},
        "data has batches of 8 rows, but a step needs 16: give batch=8",
    ),
    "other rows": (
        lambda: DataLoader(ALL, ROWS),
        {"rows": 3},
        "data has batches of 8 rows, but a step needs 6: give batch=8",
    ),
    "few rows": (lambda: ALL, {"batch": 22}, "data has 21 rows, but a step needs 22: give a smaller batch"),
    "a short stream": (Stream, {"batch": 22}, "data has fewer than 22 rows, but a step needs 22"),
    "a stream that ends": (
        Once,
        {},
        "data=Once can be read only once, but every rank reads it: let its __iter__ start",
    ),
    "a generator": (lambda: zip(X, Y), {}, "data=zip can be read only once"),
    "an empty list": (list, {}, "data has no batches: give a list"),
    "no labels": (
        lambda: [{"x": X[:8], "mask": X[:8]}],
        {},
        "has the keys x, mask: give inputs, and targets under one of the keys labels, label, targets",
    ),
    "three things": (lambda: [(X[:8], X[:8], Y[:8])], {}, "a batch of data is a tuple of 3: give"),
    "uneven batches": (lambda: [(X[:8], Y[:8]), (X[:6], Y[:6]), (X[:8], Y[:8])], {}, "batch 1 of data has 6 rows, but"),
    "other lengths": (lambda: [(X[:8], Y[:8]), (X[:8, :4], Y[:8])], {}, "pad all rows to one length"),
    "a lone tensor": (lambda: X, {}, r"data=Tensor has no batches: give torch\.utils\.data\.TensorDataset\("),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_gives_no_one_batch_for_a_step_is_refused(name):
    data, more, says = REFUSED[name]
    with pytest.raises(ValueError, match=says) as found:
        affordable(mesh=hl.Mesh(pp=2), microbatches=2, model=net(), loss=loss, data=data(), **more)
    assert "\n" not in str(found.value)


@pytest.mark.ranks
def test_what_cannot_travel_is_refused_in_a_sentence(kept):
    said = r"the job cannot be sent.*: its dataset is a test_theirs.Lock \(cannot pickle '_thread.lock' object\)"
    with pytest.raises(TypeError, match=said):
        train(hl.Mesh(pp=2), model=net(), loss=loss, data=DataLoader(Lock(), ROWS), microbatches=2, progress=False)


def test_rows_for_evaluation_are_asked_for_by_name():
    with pytest.raises(ValueError, match="data has no rows for evaluation"):
        hl.Model(net(), loss, ALL).batch(0, ROWS, unseen=True)
