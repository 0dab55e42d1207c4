"""The engine that students write: the last interpreter plays every list, and what watches it is not deceived."""

import pytest

from hybridlab.labs.engine.broken import symptoms
from hybridlab.labs.engine.case import Case, counted, lists
from hybridlab.labs.engine.trial import pipeline
from hybridlab.labs.exercises.all_solutions import SOLUTIONS

SIZES = [(p, m) for p in (2, 3, 4) for m in (p, 2 * p, 3 * p)]
PLAYED = [(name, p, m, 1) for name in ("naive", "gpipe", "1f1b") for p, m in SIZES]
PLAYED += [("interleaved", p, m, v) for p, m in SIZES for v in (2, 3)]


def written(task):
    """The function of a task's solution."""
    from hybridlab.labs.engine import toy

    names = {"torch": pytest.importorskip("torch"), "toy": toy}
    body = SOLUTIONS[task].cell.rpartition("\nlabs.answer(")[0]
    exec(body, names)
    return next(value for name, value in names.items() if name.startswith("my_"))


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b", "interleaved"])
def test_one_interpreter_plays_every_list(name):
    cases = tuple(case for case in PLAYED if case[0] == name)
    assert pipeline("chunks", cases, "right")(written("interleaved.engine")) == (True, "right")


@pytest.mark.ranks
def test_the_solution_has_no_symptoms():
    assert {line.partition(": ")[2] for line in symptoms(written("1f1b.engine"), "play", "1f1b")} == {
        "gradients of one device"
    }


@pytest.mark.ranks
def test_the_patient_of_notebook_10_is_right_on_two_ranks_and_wrong_before_the_one_in_the_middle():
    from hybridlab.labs.engine import toy
    from tools.course import books

    (cell,) = (one for one in books()["10_naive"].cells if one.id == "naive-clinic-patient")
    names = {"torch": pytest.importorskip("torch"), "toy": toy}
    exec(cell.source, names)
    right = "gradients of one device"
    assert symptoms(names["broken"], "naive", "naive", 2, 1) == [f"rank {rank}: {right}" for rank in range(2)]
    first, *others = symptoms(names["broken"], "naive", "naive", 3, 1)
    assert "gradients differ" in first and others == [f"rank {rank}: {right}" for rank in (1, 2)]


@pytest.mark.parametrize("name, p, m, v", PLAYED)
def test_what_a_list_asks_for_is_what_the_schedule_holds_and_sends(name, p, m, v):
    import hybridlab as hl

    schedule = hl.schedule(name, ranks=p, microbatches=m, **({"chunks": v} if v > 1 else {}))
    held, sent = zip(*(counted(Case(name, p, m, v), rank) for rank in range(p)))
    assert list(held) == hl.simulate(schedule).peak_live
    assert sum(sent) == 2 * m * (v * p - 1)
    assert [len(program) for program in lists(name, p, m, v)] == [2 * m * v] * p


def test_a_stage_is_watched():
    torch = pytest.importorskip("torch")
    from hybridlab.labs.engine.toy import microbatches, stage
    from hybridlab.labs.engine.watched import Watch, Watched

    watch = Watch()
    one = Watched(stage(0, 1), watch)
    y = one(microbatches(1)[0][0])
    assert watch.holds == 1
    y.sum().backward(retain_graph=True)
    assert watch.holds == 1, "what may be used again is held"
    del y
    assert watch.holds == 0
    with torch.no_grad():
        one(microbatches(1)[0][0])
    assert watch.holds == 0 and [kind for kind, *_ in watch.did] == ["F", "B", "F"]


def test_an_input_that_is_not_marked_or_is_overwritten_is_noted():
    pytest.importorskip("torch")
    from hybridlab.labs.engine.toy import microbatches, stage
    from hybridlab.labs.engine.watched import Watch, Watched

    watch, (first, second) = Watch(), (x for x, _ in microbatches(2))
    one = Watched(stage(1, 2), watch, number=1)
    room = first.clone().requires_grad_()
    y = one(room)
    room.data.copy_(second)
    y.sum().backward()
    assert watch.overwrote == [(0, 1)] and not watch.unmarked
    one(second).sum().backward()
    assert watch.overwrote == [(0, 1)] and watch.unmarked
    begins = Watch()
    Watched(stage(0, 2), begins, number=0)(first)
    assert not begins.unmarked, "the first stage gets data, and sends no gradient back"
