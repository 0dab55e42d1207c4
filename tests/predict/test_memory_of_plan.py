"""`hl.memory` with a machine has the bytes of the same plan in a search on this machine, and the same verdict."""

from dataclasses import replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.core.what.catalog import machine
from hybridlab.predict.plans.plan import ASKED, CONDITIONS, NAMED, Plan

SEARCHED = [name for name in Plan._fields if name not in CONDITIONS]
SMALL_A100 = replace(machine("a100"), name="a100-40", memory=40e9)
ASKED_ABOUT = [  # model, machine, devices, batch, and conditions of all plans
    ("gpt-18.4b", "a100", 16, 16, {}),
    ("gpt-18.4b", SMALL_A100, 16, 16, {}),
    ("llama3-8b", "h100", 8, 8, {}),
    ("llama3-8b", "h100", 8, 8, {"recompute": "selective"}),
    ("llama3-8b", "h200", 8, 8, {"fused": False, "software": "fsdp-2023"}),
    ("llama3-70b", "b200", 8, 8, {"precision": "fp8", "optimizer": "muon"}),
    ("mixtral-8x7b", "h100", 16, 16, {"skew": 0.6}),
]


def fields(one: Plan) -> dict:
    """The fields that a search varies; by name where they have names."""
    found = {name: getattr(one, name) for name in SEARCHED}
    return found | {name: names[found[name]] for name, names in NAMED.items() if name in found}


@pytest.mark.parametrize("model, kind, gpus, batch, conditions", ASKED_ABOUT)
def test_it_is_that_of_a_plan(model, kind, gpus, batch, conditions):
    """Ten plans that fit and ten that do not, drawn from a search with all switches."""
    planned = hl.plan(model, kind, gpus, batch, **dict.fromkeys(ASKED, True), **conditions)
    draw = np.random.default_rng(0)
    for fits in (True, False):
        for place in draw.choice(np.flatnonzero(planned.fits == fits), 10):
            one = planned.one(place)
            found = hl.memory(model, batch, machine=kind, **conditions | fields(one))
            assert found == planned.choice(one).memory and found.total == planned.bytes[place], one
            assert found.fits(kind) == fits, one


def test_a_fused_kernel_saves_no_scores_unless_they_are_recomputed():
    usual = {"batch": 32, "p": 4, "t": 8, "machine": "h100"}
    ask = lambda **more: hl.memory("llama3-70b", **usual | more).activations
    assert ask() == ask(fused=True) < ask(fused=False)
    assert ask(recompute="selective") == ask(recompute="selective", fused=False)


def test_without_a_machine_it_is_that_of_an_a100():
    one = {"batch": 96, "p": 12, "t": 8}
    assert hl.memory("gpt3-175b", **one) == hl.memory("gpt3-175b", machine="a100", **one)
    assert hl.memory("gpt3-175b", **one) == hl.memory("gpt3-175b", software="megatron-2021", fused=False, **one)


def test_a_machine_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="h10"):
        hl.memory("gpt3-175b", 96, machine="h10")
