"""Values of wrong types end in one sentence at every public function, before the work; numpy's whole numbers do not."""

import inspect
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch

import hybridlab as hl
from hybridlab.core.what.routing import Routing
from hybridlab.signatures import WrongType
from hybridlab.training.make_job import job_of

SCHEDULE = hl.schedule("1f1b", ranks=2, microbatches=2)
LINEAR = {
    "model": torch.nn.Sequential(torch.nn.Linear(2, 2)),
    "loss": lambda y, target: (y - target).square().sum(),
    "data": lambda step, rows: (torch.ones(rows, 2), torch.ones(rows, 2)),
    "mesh": hl.Mesh(pp=1),
}
WRONG = {
    "simulate takes schedule as Schedule, not '1f1b', a str: give hl.schedule(": lambda: hl.simulate("1f1b"),
    "simulate takes costs as Costs | None, not 3, an int: give hl.Costs(": lambda: hl.simulate(SCHEDULE, 3),
    "check takes mesh as Mesh | None, not '1f1b', a str: give hl.Mesh(": lambda: hl.check("1f1b", hl.Mesh(pp=2)),
    "check takes mesh as Mesh | None, not 4, an int": lambda: hl.check(4),
    "check takes steps as int, not 1.0, a float": lambda: hl.check(hl.Mesh(pp=2), steps=1.0),
    "check takes accumulate as int, not 1.5, a float": lambda: hl.check(hl.Mesh(pp=2), accumulate=1.5),
    "check takes zero as int, not '1', a str": lambda: hl.check(hl.Mesh(pp=2), zero="1"),
    "check takes steps as int, not True, a bool": lambda: hl.check(hl.Mesh(pp=2), steps=True),
    "train takes rate as float | Callable, not '0.1', a str": lambda: hl.train(hl.Mesh(pp=2), rate="0.1"),
    "train takes every as int, not '1', a str": lambda: hl.train(hl.Mesh(pp=2), checkpoint="x", every="1"),
    "run takes schedule as Schedule, not '1f1b', a str": lambda: hl.run("1f1b"),
    "run takes costs as Costs, not 2, an int": lambda: hl.run(SCHEDULE, costs=2),
    "dry_run takes rank as int, not 'x', a str": lambda: hl.dry_run(rank="x"),
    "plan takes gpus as int, not '8', a str": lambda: hl.plan("gpt3-175b", "a100", "8", 64),
    "memory takes batch as int, not 'x', a str": lambda: hl.memory("gpt3-175b", "x"),
    "schedule takes ranks as int, not '2', a str": lambda: hl.schedule("1f1b", ranks="2", microbatches=2),
    "draw takes timelines as Timeline | Layout | DryRun | Layer | Passage | str, not 3, an int": lambda: hl.draw(3),
    "lower takes schedule as Schedule, not 3, an int": lambda: hl.lower(3),
    "validate takes schedule as Schedule, not 'x', a str": lambda: hl.validate("x"),
    "traffic takes schedule as Schedule, not 'x', a str": lambda: hl.traffic("x"),
    "ranks takes n_or_mesh as int | Mesh, not '3', a str": lambda: hl.ranks("3"),
    "weights takes folder as str | Path, not 3, an int": lambda: hl.weights(3),
    "Shape takes layers as int, not '4', a str": lambda: hl.Shape(layers="4"),
    "Shape takes layers as int, not 4.5, a float": lambda: hl.Shape(layers=4.5),
    "Room takes capacity as float, not '3', a str": lambda: hl.Room(capacity="3"),
    "Costs takes post as float, not [1], a list": lambda: hl.Costs(post=[1]),
    "schedule takes copies as tuple[int, ...] | None, not (1.5, 2.5), a tuple": lambda: hl.schedule(
        "pipedream", 4, 8, copies=(1.5, 2.5)
    ),
    "plan takes model as str | Shape, not None, a NoneType": lambda: hl.plan(None, "a100", 8, 64),
    "cut=[1.5, 2.5] has an entry that is not a number of layers: give whole": lambda: hl.dry_run(cut=[1.5, 2.5]),
    "cut=[range(0, 2), 3] has an entry that is not a number of layers": lambda: hl.dry_run(cut=[range(2), 3]),
    "cannot read the data file 3: give the name of a file": lambda: hl.dry_run(data=3),
    "Mesh(4) names no axis: name each axis and its length, such as hl.Mesh(dp=2, pp=4)": lambda: hl.Mesh(4),
    "Mesh(dp=2, pp=2) has no rank 'a': choose from 0 to 3": lambda: hl.Mesh(dp=2, pp=2).coordinates("a"),
    "Mesh(dp=2, pp=2) has no coordinate dp='a': choose from 0 to": lambda: hl.Mesh(dp=2, pp=2).rank(dp="a"),
    "nan is not an amount of memory: give bytes, such as 64MiB or": lambda: hl.dry_run(device_memory=float("nan")),
    "-1 is not an amount of memory: give bytes, such as 64MiB or 2e6, or a": lambda: hl.check(device_memory=-1),
    "64XB is not an amount of memory: give bytes, such as 64MiB or 2e6, or a": lambda: hl.train(device_memory="64XB"),
    "1.2.3 is not an amount of memory: give bytes, such as 64MiB or 2e6, or": lambda: hl.train(device_memory="1.2.3"),
    "zero=4 is not possible: give a number from 0 to 3": lambda: hl.plan("gpt3-175b", "a100", 64, 64, zero=4),
    "redone=2 is not possible: give a number from 0 to 1": lambda: hl.plan("gpt3-175b", "a100", 64, 64, redone=2),
    "rate=1e+30 is not possible: give a number, at least 0 and less than 9.2e+18": lambda: hl.dry_run(rate=1e30),
    "seed=1180591620717411303424 is not possible: give a number, at least 0 and less than 9.2e": lambda: hl.dry_run(
        seed=2**70
    ),
    "layers=1000000000000 is not a valid size: give a whole number from 1 to 1e+09": lambda: hl.Shape(layers=10**12),
    "terms=0 is not a valid number of loss terms: give the number in one row": lambda: hl.dry_run(terms=0, **LINEAR),
    "terms=-1 is not a valid number of loss terms": lambda: hl.train(terms=-1, **LINEAR),
    "1f1b has 4 ranks in 1 copies, but Mesh(pp=3) has 3 in 1: give dp=1, pp=4": lambda: hl.run(
        hl.schedule("1f1b", 4, 8), mesh=hl.Mesh(pp=3)
    ),
    "axis pp has length 2.0: give a whole number of ranks, 1 or more": lambda: hl.Mesh(pp=2.0),
}


@pytest.mark.parametrize("says", WRONG)
def test_a_wrong_type_ends_in_one_sentence(says):
    with pytest.raises((TypeError, ValueError)) as found:
        WRONG[says]()
    assert str(found.value).startswith(says) and "\n" not in str(found.value)


def test_it_is_a_value_error_too_as_all_that_does_not_fit():
    with pytest.raises(ValueError):
        hl.simulate(3)
    assert issubclass(WrongType, TypeError)


class Odd:
    """Of no type that any function takes."""

    def __repr__(self):
        return "Odd()"


def takes_anything(one) -> bool:
    return (
        one.annotation is one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) or "Any" in str(one.annotation)
    )


FUNCTIONS = [name for name in hl._HOME if inspect.isfunction(getattr(hl, name)) and name not in ("explore", "play")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_looks_at_the_type_of_every_argument(name):
    """Those of the explorer and of the game are choices of a widget, which says itself what they may be."""
    function = getattr(hl, name)
    named = inspect.signature(function).parameters
    needed = [one.name for one in named.values() if one.default is one.empty and one.kind != one.VAR_POSITIONAL]
    for one in (one for one in named.values() if not takes_anything(one)):
        given = dict.fromkeys(needed, Odd()) if needed[:1] == [one.name] else {}
        if not given and needed:
            continue  # an argument before it is refused first
        with pytest.raises(WrongType, match=rf"^{name} takes {one.name} as .*, not Odd\(\), an Odd"):
            function(**given or {one.name: Odd()})


def test_whole_numbers_of_numpy_count():
    two = np.int64(2)
    assert hl.Mesh(pp=two) == hl.Mesh(pp=2) and type(hl.Mesh(pp=two).axes["pp"]) is int
    assert hl.schedule("1f1b", ranks=two, microbatches=two).to_csv() == SCHEDULE.to_csv()
    assert hl.Shape(layers=two) == hl.Shape(layers=2) and type(hl.Shape(layers=two).layers) is int


def test_an_error_of_a_rank_is_whole_behind_a_pool_of_processes():
    error = hl.RankError("rank 1 fails", rank=1, kind="ValueError", message="m", where="f.py:3", traceback_text="lines")
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is hl.RankError and str(other) == "rank 1 fails" and vars(other) == vars(error)


def test_none_is_the_usual_value_of_every_argument_that_has_one():
    asked = ("gpt3-175b", "a100", 1024, 1536)
    more = {"software": None, "precision": None, "grids": None, "zero": None}
    assert hl.plan(*asked, **more).software == hl.plan(*asked).software
    assert hl.dry_run(hl.Mesh(pp=1), rank=None, machine=None, steps=None, zero=None).rank == 0


@pytest.mark.parametrize("room", ["64MiB", "6.4e7", 64_000_000, 0.75, np.float32(0.75), "0.75", 6e20])
def test_memory_of_a_device_is_read_alike_in_python_and_on_a_command_line(room):
    job = job_of(hl.Mesh(pp=2), device_memory=room)
    assert job["device_memory"] in (2**26, 6.4e7, 0.75, 6e20) and job.room.capacity > 0


HALF = [np.float32(0.5), np.float64(0.5), Fraction(1, 2), np.array(0.5), torch.tensor(0.5)]


@pytest.mark.parametrize("half", HALF, ids=lambda one: type(one).__name__)
def test_real_numbers_of_anybody_become_floats_so_that_a_checkpoint_can_note_them(half):
    job = job_of(hl.Mesh(pp=1), rate=half, decay=half, clip=half)
    assert [type(one) for one in (job.rate, job.decay, job.clip)] == [float] * 3 and job.rate == 0.5
    assert type(hl.Shape(dropout=half).dropout) is float
    assert type(Routing(balance="loss", pace=half).pace) is float


def test_whole_numbers_and_truths_of_anybody_become_pythons():
    job = job_of(hl.Mesh(pp=1), steps=torch.tensor(2), seed=np.uint8(1), stash=np.bool_(True), rate=1)
    assert [type(one) for one in (job.steps, job.seed, job.stash)] == [int, int, bool]
    assert type(hl.Shape(documents=np.array([8, 24])).documents[0]) is int
