"""Odd arguments at the doors of `hl.plans`, `hl.pictures`, `hl.models`, `hl.layouts` and `hl.search`: an answer or a
sentence that says what to change, within a second."""

import inspect
import math
import time

import numpy as np
import pytest
import torch

import hybridlab as hl
from hybridlab.core.doors import door, span
from hybridlab.predict.search.profile import Rated

GPT3, A100 = hl.catalog.model("gpt3-175b").shape, hl.catalog.machine("a100")
SMALL, PLAN = hl.Shape(layers=4, width=64), hl.plans.Plan(p=2)
TIMELINE = hl.simulate(hl.schedule("gpipe", ranks=2, microbatches=2), hl.Costs(F=1, B=2))
PLANNED = hl.plan("gpt3-175b", "a100", gpus=1024, batch=1536)
PROBLEM = hl.search.Problem(hl.layouts.programs.mlp(), hl.Mesh(x=2), Rated())
MODEL = hl.models.GPT(hl.Shape(layers=1, width=16, heads=2, context=8))
OF_A_STEP = {"shape": SMALL, "plan": PLAN, "batch": 4, "machine": A100}
CALLS = {  # the arguments of a call that is right, by the name of the function
    "plans.flops": {"shape": GPT3, "batch": 1, "recompute": "none", "further": 0},
    "plans.training_seconds": {"tokens": 1e9, "parameters": 1e9, "devices": 8, "rate": 1e14},
    "plans.training_seconds_exact": {"tokens": 1e9, "shape": GPT3, "devices": 8, "rate": 1e14, "recompute": "full"},
    "plans.submeshes": {"cluster": hl.plans.Submesh(2, 4)},
    "plans.on_submeshes": {
        "seconds": lambda layers, submesh, later: len(layers) / submesh.devices,
        "layers": 4,
        "cluster": hl.plans.Submesh(1, 2),
        "microbatches": 1,
    },
    "plans.partition": {"weights": [3, 1, 1, 1, 4], "stages": 2},
    "plans.pipeline_length": {"seconds": [1.0, 2.0], "microbatches": 4},
    "plans.by_schedule": OF_A_STEP | {"schedule": None},
    "plans.seconds_of_clipping": OF_A_STEP | {"schedule": None, "validated": "before"},
    "plans.step": OF_A_STEP,
    "plans.by_step": {
        "model": "gpt3-175b",
        "machine": "a100",
        "plan": hl.plans.Plan(p=8, t=8),
        "batch": 64,
        "seconds": 30.0,
        "software": None,
        "precision": "bf16",
    },
    "plans.days": {"choice": PLANNED.best, "shape": GPT3, "batch": 1536, "tokens": 1e9},
    "plans.lines.megatron": {"plan": PLAN, "shape": GPT3, "batch": 8, "precision": "bf16"},
    "plans.lines.torchtitan": {"plan": PLAN, "shape": GPT3, "batch": 8},
    "plans.lines.slurm": {"plan": PLAN, "node": 8, "program": "x.py", "arguments": ["--a"], "hours": 4},
    "plans.slicing.lengths": {"shape": SMALL, "slices": 2, "slicing": "equal"},
    "plans.slicing.shares": {"shape": SMALL, "lengths": (16, 16)},
    "plans.slicing.with_slices": {"stages": 2, "shares": [0.5, 0.5], "F": 1.0, "B": 2.0, "latency": 0.0},
    "layouts.every_rules": {"graph": hl.layouts.programs.mlp(), "mesh": hl.Mesh(dp=2)},
    "layouts.programs.mlp": {"batch": 4, "positions": 4, "width": 8, "hidden": 8},
    "layouts.programs.net": {"batch": 4, "channels": 4, "rows": 8, "columns": 8, "kernel": 3, "classes": 4},
    "search.relative": {"seconds": 1.0, "times": 20},
    "search.mcmc": {"problem": PROBLEM, "budget": 5, "seed": 0, "alpha": 1000.0, "start": None, "back": True},
    "search.exhaustive": {"problem": PROBLEM, "most": 10**6},
    "search.chain": {"problem": PROBLEM},
    "pictures.box_of_ranks": {"mesh": hl.Mesh(dp=2, pp=2), "rank": 0, "per_node": 8},
    "pictures.bubble_formula": {"name": "gpipe", "ranks": 4, "microbatches": 8},
    "pictures.busy_and_idle": {"timeline": TIMELINE, "rank": 0},
    "pictures.fill_work_drain": {"timeline": TIMELINE, "rank": -1},
    "pictures.triangles": {"timeline": TIMELINE},
    "pictures.cut_model": {"stages": 3, "parts": 2, "copies": 2, "batch": 32},
    "pictures.matmul_on_grid": {"side": 3, "size": None},
    "pictures.plan_map": {"planned": PLANNED, "title": ""},
    "pictures.ring_all_reduce": {"ranks": 4, "size": None},
    "models.cut": {"model": SMALL, "stages": 2, "upto": None},
    "models.profiled": {"model": hl.Shape(layers=1, width=16, heads=2, context=8), "rows": 2, "repeat": 1},
    "models.sample": {"module": MODEL, "prompt": "a", "length": 2, "temperature": 0.7, "seed": 0},
}
HUGE = 10**30
ODD = [None, "1", "x", 1.5, math.nan, math.inf, -1, 0, HUGE, [], {}, (0, 1), True, object(), torch.ones(2), b"1"]
MEASURES = ("repeat", "rows")  # a large number of measurements takes long, as asked


def called(name):
    function = hl
    for part in name.split("."):
        function = getattr(function, part)
    return function


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
