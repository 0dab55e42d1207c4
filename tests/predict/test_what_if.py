"""`what_if`: the asked sizes change, and as few other fields as must."""

import math

import pytest

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.predict.plans.plan import Plan

GIVEN = dict(p=8, t=4, d=2, b=1, v=5, zero=1, sequence=True, recompute="full")


@pytest.fixture(scope="module")
def free():
    return hl.plan("gpt-39.1b", "a100", gpus=512, batch=1536, zero=0)


@pytest.fixture(scope="module")
def mine():
    """A plan with its fields fixed, as a user has one."""
    return hl.plan("llama3-70b", "h100", gpus=64, batch=128, **GIVEN)


def test_copies_follow_and_all_else_stays(free):
    found = free.what_if(p=8)
    assert found.changed == {"d": (32, 16)}
    old, new = found.before.plan, found.after.plan
    assert new == old._replace(p=8, d=16) and found.before.plan == free.best.plan
    told = repr(found)
    assert told.startswith("p=8 instead of 4 also changes d=16 instead of 32. A step is 4.3% slower, ")
    assert "GB" not in told


def test_what_must_change_for_memory_is_said(free):
    found = free.what_if(recompute="none")
    assert "With fewer changes it would need" in repr(found) and "76 GB may be used" in repr(found)
    kept = {name: getattr(free.best.plan, name) for name in ("p", "t", "d", "b", "v", "sequence")}
    bare = hl.memory("gpt-39.1b", 1536, recompute="none", **kept)
    assert math.isclose(found.missing, bare.total) and bare.total > free.room


def test_no_plan_with_these_sizes_changes_less(free):
    """Counted by hand on the whole space of one what-if."""
    found = free.what_if(t=8, b=2)
    follows = ("d", "uneven", "t", "b")
    near = lambda one: sum(a != b for name, a, b in zip(Plan._fields, one, free.best.plan) if name not in follows)
    every = free.only(t=8, b=2)
    fits = [every.one(place) for place in range(len(every.places)) if every.fits[place]]
    assert near(found.after.plan) == min(map(near, fits))
    assert all(
        every.choice(one).step.total >= found.after.step.total for one in fits if near(one) == min(map(near, fits))
    )


def test_a_plan_with_all_fields_fixed_can_be_changed(mine):
    found = mine.what_if(t=2)
    assert found.changed == {"d": (2, 4)} and found.after.plan.v == 5 and found.after.plan.sequence
    assert set(mine.what_if(cp=2).changed) == {"d"} and mine.what_if(cp=2).after.plan.cp == 2
    assert mine.what_if(v=3).after.plan.uneven
    with pytest.raises(ValueError, match="divides this model and batch with p=3: "):
        mine.what_if(p=3)
    with pytest.raises(ValueError, match="with ep=2: .* ep 1 experts"):
        mine.what_if(ep=2)
    with pytest.raises(ValueError, match="no size was asked for"):
        mine.what_if()
    with pytest.raises(ValueError, match="t=None is not possible"):
        mine.what_if(t=None)


def test_sequence_parallelism_cannot_stay_without_tensor_parallelism(mine):
    assert mine.what_if(t=1).changed["sequence"] == (True, False)


def test_saved_scores_are_recomputed_only_where_a_kernel_saves_them(mine):
    assert mine.what_if(recompute="selective").changed["fused"] == (True, False)


def test_a_sentence_names_what_differs(mine):
    assert repr(mine.what_if(t=2, p=8)).startswith("t=2 instead of 4 also changes d=4 instead of 2. ")


def test_conditions_can_be_asked_for(mine):
    found = mine.what_if(fused=False)
    assert found.changed == {} and not found.after.plan.fused and found.after.step.total > found.before.step.total


def test_nothing_to_change_is_said(mine):
    assert repr(mine.what_if(t=4)).startswith("The plan has t=4 already: p=8 t=4 d=2 b=1")
    with pytest.raises(ValueError, match="a plan has no 'u'"):
        mine.what_if(u=2)


def test_the_command_line_asks_the_same(capsys, free):
    said = ["plan", "--model", "gpt-39.1b", "--gpus", "512", "--batch", "1536", "--zero", "0", "--what-if", "p=8"]
    assert main(said) == 0
    assert repr(free.what_if(p=8)) in capsys.readouterr().out
    assert main([*said[:-1], "fused=False,redone=0.5,"]) == 0
    assert repr(free.what_if(fused=False, redone=0.5)) in capsys.readouterr().out
