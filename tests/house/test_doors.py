"""Odd arguments at the doors of the public namespaces: an answer or a sentence that says what to change, at once."""

import inspect
import math
import time

import numpy as np
import pytest
import torch

import hybridlab as hl
from hybridlab.doors import door, span
from tests.house.right_calls import A100, CALLS, PLAN, SMALL

HUGE = 10**30
ODD = [None, "1", "x", 1.5, math.nan, math.inf, -1, 0, HUGE, [], {}, (0, 1), True, object(), torch.ones(2), b"1"]
MEASURES = ("repeat", "rows")  # a large number of measurements takes long, as asked


def called(name):
    function = hl
    for part in name.split("."):
        function = getattr(function, part)
    return function


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_an_odd_argument_has_an_answer_or_a_sentence_at_once(name):
    function, right = called(name), CALLS[name]
    function(**right)
    for argument in right:
        for odd in ODD:
            if argument in MEASURES and odd is HUGE:
                continue
            begin = time.process_time()
            try:
                function(**right | {argument: odd})
            except (TypeError, ValueError) as error:
                assert says_what_to_do(error), (argument, odd, type(error), error)
            assert time.process_time() - begin < 2, (argument, odd)


def says_what_to_do(error) -> bool:
    words = ("give ", "choose ", " takes ", "Choose ", "Give ", "cannot read", "plan for")
    return "\n" not in str(error) and any(word in str(error) for word in words)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_numbers_of_numpy_and_torch_count_as_pythons(name):
    function, right = called(name), CALLS[name]
    whole = {one: value for one, value in right.items() if type(value) is int}
    for kind in (np.int64, torch.tensor):
        function(**right | {one: kind(value) for one, value in whole.items()})


def test_a_reference_model_may_be_named():
    weights = hl.models.parameters_of_layers("resnet")
    assert [layer.weights for layer in hl.models.profiled("resnet", rows=2, repeat=1)] == [4 * one for one in weights]
    assert sum(map(len, hl.models.cut("resnet", 2))) == len(weights)


ODD_PLANS = [("p", None), ("t", "2"), ("d", -1), ("b", math.nan), ("v", []), ("zero", 4), ("recompute", HUGE)]


@pytest.mark.parametrize("field, odd", ODD_PLANS)
def test_an_odd_field_of_a_plan_is_refused_where_the_plan_is_used(field, odd):
    with pytest.raises(ValueError, match=f"{field}=.* is not possible: give"):
        hl.plans.step(SMALL, PLAN._replace(**{field: odd}), 4, A100)


def test_many_plans_are_a_plan_too():
    both = hl.plans.step(SMALL, hl.plans.Plan(p=np.array([1, 2])), 4, A100).total
    assert [float(one) for one in both] == [
        hl.plans.step(SMALL, hl.plans.Plan(p=p), 4, A100).total for p in (1, 2)
    ]  # fmt: skip


def test_a_door_keeps_the_name_and_the_signature_of_its_function():
    def half(number: float) -> float:
        """Half of it."""
        return number / 2

    asked = door(half, number=span(0, 1, "give a fraction"))
    assert asked.__doc__ == "Half of it." and inspect.signature(asked) == inspect.signature(half)
    with pytest.raises(ValueError, match="number=2 is out of range: give a fraction"):
        asked(2)


NAMESPACES = [name for name in hl.__all__ if inspect.ismodule(getattr(hl, name))]
UNTRIED = {  # what ranks call with their tensors; what this package makes, and nobody else; base classes; no arguments
    "bytes": {"Cost"},
    "engine": {*hl.engine.__all__} - {"work"},
    "layouts": {"prepared", "run"},
    "measure": {"here", "in_turns", "product", "quickest", "steps"},
    "models": {"Memory", "Text", "parameters_of_layers", "token_loss"},
    "papers": {"dgxc", "judged"},
    "parallel": {*hl.parallel.__all__} - {"dispatch", "matmul", "token_order"},
    "pictures": {"Row", "calculator", "size", "tracks"},
    "plans": {"Plan", "Step", "imported", "replicated"},
    "ring": {"all_reduce", "route"},
    "seams": {*hl.seams.__all__} - {"declared", "draws_of"},
    "search": {"data_parallel", "one_rule", "played"},
    "spans": {"fetch", "fold"},
    "typed": {*hl.typed.__all__} - {"conjugate", "stated", "transposed"},
}


@pytest.mark.parametrize("name", NAMESPACES)
def test_every_public_function_and_constructor_is_tried_or_named_here(name):
    module = getattr(hl, name)
    every = {one for one in module.__all__ if callable(getattr(module, one))}
    assert {one for one in every if f"{name}.{one}" not in CALLS} == UNTRIED.get(name, set())


@pytest.mark.parametrize("name", NAMESPACES)
def test_tab_names_only_what_is_public(name):
    assert dir(getattr(hl, name)) == sorted(getattr(hl, name).__all__)


def test_tab_in_a_module_that_is_public_names_no_helper_of_doors_and_nothing_of_other_packages():
    assert {"megatron", "slurm", "torchtitan"} < set(dir(hl.plans.lines))
    assert not {"doors", "COUNT", "Any", "texts"} & {*dir(hl.plans.lines), *dir(hl.layouts.programs)}
