"""Data in the forms of PyTorch: datasets, loaders and lists, as the batch of each step.

A layout is compared with one device, so a step must have the same batch on any rank and in any order of requests. Here
a step is a place in a pass over the data; a new pass begins when the previous one has ended. A short last batch of a
pass is left out, as with `drop_last=True`: all steps have the same number of rows. Before a pass, a `set_epoch` of the
data or of a sampler is called with its number, as usual loops over epochs do.

No worker is started. Each rank reads the rows itself, in the order of the loader in plain PyTorch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from itertools import count, islice

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, default_collate

from hybridlab.training.models.batches import Batches, even, length
from hybridlab.training.models.carried import MANY, values
from hybridlab.training.models.left_behind import drawing


def batches_of(data):
    """A source of batches for `Model`, made from data in one of these forms; anything else is returned unchanged.

    data  a DataLoader, a Dataset with numbered rows, an IterableDataset, or a list of batches

    raises  ValueError for data that would not give the same batch for the same step on all ranks

    >>> rows = torch.utils.data.TensorDataset(torch.arange(5.0)[:, None], torch.arange(5))
    >>> batches_of(rows).batch(step=1, rows=2)
    (tensor([[2.],
            [3.]]), tensor([2, 3]))
    """
    if callable(data) or hasattr(data, "batch") or isinstance(data, str):
        _refuse_iterators(data)
        return data
    if isinstance(data, DataLoader):
        return _of_loader(data)
    if isinstance(data, IterableDataset):
        return Streamed(data)
    if isinstance(data, MutableSequence) and not isinstance(data, Dataset):  # a deque too
        return Listed(list(data))
    if isinstance(data, Iterator):
        raise ValueError(
            f"data={type(data).__name__} can be read only once, but every rank reads it: give a list of batches, or an "
            "IterableDataset whose __iter__ starts from the first row"
        )
    if hasattr(data, "dtype") or isinstance(data, tuple | Mapping):
        raise ValueError(
            f"data={type(data).__name__} has no batches: give torch.utils.data.TensorDataset(inputs, targets), or a "
            "list of batches"
        )
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return Numbered(data)
    return data


def _refuse_iterators(function):
    """Refuse a function that takes its batches from an iterator: no rank could read a batch again."""
    for name, one in values(function, most=MANY) if callable(function) else ():
        if isinstance(one, Iterator):
            raise ValueError(
                f"data reads from {name}, an iterator that gives each batch only once, but every rank reads it: give "
                "the DataLoader, the dataset or a list of batches itself"
            )


class Numbered(Batches):
    """A dataset with numbered rows, read in order."""

    def __init__(self, dataset):
        self.dataset = dataset

    def read(self, step, rows):
        in_a_pass = len(self.dataset) // rows
        if not in_a_pass:
            raise ValueError(f"data has {len(self.dataset)} rows, but a step needs {rows}: give a smaller batch")
        _begin_pass(step // in_a_pass, self.dataset)
        first = step % in_a_pass * rows
        return default_collate(_rows(self.dataset, list(range(first, first + rows))))


class Listed(Batches):
    """A list of batches, read in order."""

    def __init__(self, batches: list):
        if not batches:
            raise ValueError("data has no batches: give a list of (inputs, targets)")
        self.batches, self.rows = even(batches, [length(one) for one in batches])

    def read(self, step, rows):
        return self.batches[step % len(self.batches)]


class Dealt(Batches):
    """A loader of numbered rows: its own sampler draws the order of each pass, from its own seeded generator."""

    def __init__(self, loader: DataLoader):
        self.dataset, self.collate = loader.dataset, loader.collate_fn
        self.drawn = _Orders(loader)
        self.single = loader.batch_sampler is None  # then each of its rows is already a batch
        order = self.drawn.of(0)
        if not order:
            raise ValueError(
                "data=DataLoader has no batches, because it has too few rows: give more, or drop_last=False"
            )
        self.rows = length(self._fetched(order[0])) if self.single else even(order, list(map(len, order)))[1]

    def read(self, step, rows):
        order = self.drawn.of(0)
        in_a_pass = len(order) if self.single else sum(len(one) == self.rows for one in order)
        numbers = self.drawn.of(step // in_a_pass)[step % in_a_pass]
        _begin_pass(step // in_a_pass, self.dataset)
        return self._fetched(numbers)

    def _fetched(self, numbers):
        return self.collate(self.dataset[numbers] if self.single else _rows(self.dataset, numbers))


class _Orders:
    """The order of every pass of a loader, as in plain PyTorch: each pass continues the draws of the previous one."""

    def __init__(self, loader: DataLoader):
        sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        how = {"sampler": sampler, "batch_size": None} if loader.batch_sampler is None else {"batch_sampler": sampler}
        collate = _itself if loader.batch_sampler is None else list
        self.numbers = DataLoader(_Itself(), collate_fn=collate, generator=loader.generator, **how)
        inner = getattr(sampler, "sampler", sampler)
        self.samplers = [sampler, inner]
        every = {id(one): one for one in (loader.generator, getattr(inner, "generator", None)) if one is not None}
        self.generators, self.kept = list(every.values()), {}
        self.begun = self.states = [one.get_state() for one in self.generators]
        self.last = -1
        first = self.of(0)
        self.last, self.kept, self.states = -1, {}, self.begun
        if first != self.of(0) or self._drawn_aside():
            raise ValueError(
                "data=DataLoader has a new order each time it is read, and every rank reads it: create it with "
                "generator=torch.Generator().manual_seed(0), or with a sampler that has a seed; set_epoch(number) of a "
                "sampler is called before each pass"
            )

    def _drawn_aside(self) -> bool:
        """Whether a sampler draws from a generator that is not its own; comparing two orders would miss it if they are
        short."""
        foreign = [one for one in self.samplers if not type(one).__module__.startswith("torch.")]
        drawn = any(isinstance(one, Iterable) and drawing(lambda one=one: [*one]) for one in foreign)
        for one, state in zip(self.generators, self.begun):
            one.set_state(state)
        return drawn

    def of(self, number: int) -> list:
        """The numbers of the rows of each batch of a pass."""
        if number not in self.kept:
            if number <= self.last:
                self.last, self.states = -1, self.begun
            while self.last < number:
                self._draw()
        return self.kept[number]

    def _draw(self):
        """Draw the next pass. Afterwards the generators, which belong to the user, have their earlier states."""
        before = [one.get_state() for one in self.generators]
        for one, state in zip(self.generators, self.states):
            one.set_state(state)
        self.last += 1
        with torch.random.fork_rng(devices=[]):  # the loader itself draws a number, which changes no order
            _begin_pass(self.last, *self.samplers)
            order = list(self.numbers)
        self.kept = {number: kept for number, kept in self.kept.items() if number == 0} | {self.last: order}
        self.states = [one.get_state() for one in self.generators]
        for one, state in zip(self.generators, before):
            one.set_state(state)

    def __getstate__(self):
        """The object in the form in which it is sent to ranks: generators as states."""
        return vars(self) | {"kept": {}, "last": -1, "states": self.begun}


class _Itself(Dataset):
    """A dataset whose row is its own number."""

    def __getitem__(self, number):
        return number

    def __len__(self):
        return 1


def _itself(x):
    return x


class Streamed(Batches):
    """Rows, or batches, that come in sequence: each pass reads them again, and so does a request for an earlier step.

    whole  whether each of its rows is a batch already
    """

    def __init__(self, dataset: Iterable, rows: int | None = None, collate: Callable = default_collate, whole=False):
        self.dataset, self.rows, self.collate, self.whole = dataset, rows, collate, whole
        if iter(dataset) is iter(dataset):
            raise ValueError(
                f"data={type(dataset).__name__} can be read only once, but every rank reads it: let its __iter__ start "
                "from the first row each time"
            )
        if whole:
            self.rows = length(collate(next(iter(dataset))))
        self.place = self.size = 0
        self.under_way: Iterator | None = None

    def read(self, step, rows):
        rows = self.rows or rows
        if self.under_way is None or step < self.place or rows != self.size:
            self.place, self.size, self.under_way = 0, rows, self._passes(rows)
        for _ in range(step - self.place):
            next(self.under_way)
        self.place = step + 1
        return self.collate(next(self.under_way))

    def _passes(self, rows):
        """Batch after batch, pass after pass; the incomplete batch at the end of a pass is left out."""
        for number in count():
            _begin_pass(number, self.dataset)
            begun, some = iter(self.dataset), 0
            taken = lambda begun=begun: next(begun, None) if self.whole else list(islice(begun, rows))
            while (one := taken()) is not None and (self.whole or len(one) == rows):
                if self.whole and length(self.collate(one)) != rows:
                    break
                some += 1
                yield one
            if not some:
                raise ValueError(f"data has fewer than {rows} rows, but a step needs {rows}: give a smaller batch")

    def __getstate__(self):
        return vars(self) | {"under_way": None}


def _begin_pass(number: int, *given):
    """Tell datasets and samplers the number of the pass that begins, if they have a method for it."""
    for one in given:
        if callable(told := getattr(one, "set_epoch", None)):
            told(number)


def _of_loader(loader: DataLoader) -> Batches:
    if isinstance(loader.dataset, IterableDataset):
        if loader.num_workers > 1 or (loader.num_workers and loader.worker_init_fn):
            raise ValueError(
                f"data=DataLoader has num_workers={loader.num_workers} for a {type(loader.dataset).__name__}, and "
                "each worker would read its own rows, but ranks start no worker: give num_workers=0"
            )
        return Streamed(loader.dataset, loader.batch_size, loader.collate_fn, whole=loader.batch_size is None)
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if isinstance(sampler, DistributedSampler):
        raise ValueError(
            "data has a DistributedSampler: it divides the rows among ranks, but here the layout does; give the "
            "DataLoader without it"
        )
    if getattr(sampler, "generator", loader) is None:  # torch's samplers that draw have one
        raise ValueError(
            f"data has a {type(sampler).__name__} without a generator: every rank would read different rows; give "
            "DataLoader(…, generator=torch.Generator().manual_seed(0))"
        )
    return Dealt(loader)


def _rows(dataset, numbers: list) -> list:
    """The rows with these numbers, read as a loader does."""
    if hasattr(dataset, "__getitems__"):
        return dataset.__getitems__(numbers)
    return [dataset[number] for number in numbers]
