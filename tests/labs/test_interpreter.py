"""The short interpreter of notebook 12: its gradients are those of the engine, for several schedules."""

import inspect

import pytest
import torch

import hybridlab as hl
from hybridlab.labs.engine import toy
from hybridlab.labs.one_f_one_b import interpreter

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def pool():
    with hl.ranks(hl.Mesh(pp=3), hang_s=60) as made:
        yield made


def test_its_gradients_are_those_of_the_engine_and_of_one_device(pool):
    rows = interpreter.beside_the_engine(pool)
    assert [name for name, *_ in rows] == ["naive", "gpipe", "1f1b", "interleaved"]
    for _, _, engine, alone in rows:
        assert engine <= 1e-10 and alone <= 1e-10


def test_it_counts_the_messages_of_its_schedule(pool):
    schedule = hl.schedule("1f1b", ranks=3, microbatches=4)
    assert pool.run(sent, schedule) == [4, 8, 4]


def sent(comm, schedule):
    before, stages = len(comm.ledger), {comm.rank: toy.stage(comm.rank, 3)}
    interpreter.interpret(comm, schedule, stages, toy.microbatches(4), toy.loss)
    return sum(row["op"] == "isend" for row in comm.ledger.rows()[before:])


@pytest.mark.parametrize("right, wrong", [("/ m", "/ 1"), ("data[k]", "data[0]"), ("x.grad, rank", "-x.grad, rank")])
def test_a_wrong_line_of_it_would_be_seen(pool, right, wrong):
    source = inspect.getsource(interpreter.interpret)
    assert right in source
    *_, gap = max(pool.run(mutated, source.replace(right, wrong), hl.schedule("gpipe", ranks=3, microbatches=4)))
    assert gap > 1e-4


def mutated(comm, source, schedule):
    names = {"torch": torch}
    exec(source, names)
    interpreter.interpret = names["interpret"]
    return interpreter.both(comm, schedule)


def test_it_is_short_enough_to_be_read():
    assert len(inspect.getsource(interpreter.interpret).splitlines()) <= 24
