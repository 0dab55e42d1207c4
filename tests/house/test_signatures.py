"""Signatures: every argument of a verb is named, typed and told, and a misspelt one is answered with the right one."""

import doctest
import inspect
import re

import pytest
from few import one_in

import hybridlab as hl
from hybridlab.modes import registry
from hybridlab.modes.mode import Mode, Option
from hybridlab.predict.plans import plan as plans
from hybridlab.scheduling import registry as registry_of_schedules
from hybridlab.signatures import is_spelled
from tools import stub

VERBS = sorted(name for name in hl._HOME if inspect.isfunction(getattr(hl, name)))
SPELLED = [name for name in VERBS if is_spelled(getattr(hl, name))]
MISSPELT = {
    "schedule": ({"name": "1f1b", "ranks": 2, "microbatches": 2, "chunk": 2}, "chunks"),
    "check": ({"microbatchs": 2}, "microbatches"),
    "train": ({"mesh": None, "optimiser": "sgd"}, "optimizer"),
    "run": ({"schedule": None, "stpes": 2}, "steps"),
    "dry_run": ({"zeros": 1}, "zero"),
    "plan": ({"model": "gpt3-175b", "machine": "a100", "gpus": 8, "batch": 8, "recomputed": "full"}, "recompute"),
    "memory": ({"model": "gpt3-175b", "batch": 96, "sequences": True}, "sequence"),
    "explore": ({"microbatch": 2}, "microbatches"),
}


def parameters(name):
    return inspect.signature(getattr(hl, name)).parameters.values()


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_hides_its_arguments(name):
    assert [one.name for one in parameters(name) if one.kind == one.VAR_KEYWORD] == []


@pytest.mark.parametrize("name", SPELLED)
def test_every_argument_of_a_table_has_a_type_and_a_meaning(name):
    told = inspect.getdoc(getattr(hl, name))
    assert [one.name for one in parameters(name) if one.annotation is one.empty] == []
    assert [one.name for one in parameters(name) if not re.search(rf"\b{one.name}\b", told)] == []


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_argument_is_answered_with_the_right_one(name):
    given, right = MISSPELT[name]
    wrong = next(one for one in given if one not in inspect.signature(getattr(hl, name)).parameters)
    with pytest.raises(TypeError, match=f"{name} has no argument '{wrong}': did you mean '{right}'"):
        getattr(hl, name)(**given)


def test_what_is_said_keeps_its_order():
    with pytest.raises(ValueError, match="with t=1, p=1, zero=3: "):
        hl.plan("gpt-5.9b", "a100", gpus=128, batch=64, t=1, p=1, zero=3)


def test_every_option_of_a_schedule_and_every_field_of_a_plan_is_told():
    families = [list(inspect.signature(make).parameters)[2:] for make in registry_of_schedules.GENERATORS.values()]
    assert set().union(*families) == registry_of_schedules.OPTIONS.keys()
    assert tuple(plans.MEANINGS) == plans.Plan._fields


def test_what_belongs_to_a_model_is_no_argument_of_emulated_work():
    with pytest.raises(ValueError, match='zero applies only to a model, and emulated work has none: .*work="model"'):
        hl.run(hl.schedule("1f1b", ranks=2, microbatches=2), zero=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, SPELLED))
def test_the_examples_of_a_verb_hold(name):
    verb = getattr(hl, name)
    names = {**inspect.getmodule(inspect.unwrap(verb)).__dict__}
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(verb), names, name, None, None)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples).failed == 0


def test_the_options_of_a_mode_from_outside_are_arguments_too():
    class Toy(Mode):
        name, purpose, options = "toy", "toys", {"toys": Option(3, "how many toys", int)}

    mode = registry.register(Toy())
    try:
        assert inspect.signature(hl.check).parameters["toys"].default == 3 and "how many toys" in hl.check.__doc__
    finally:
        registry.unregister(mode)
    assert "toys" not in inspect.signature(hl.check).parameters


@pytest.mark.slow
def test_the_stub_for_editors_is_what_the_package_says():
    assert stub.FILE.read_text(encoding="utf-8") == stub.stub(), "write it again: python -m tools.stub"
