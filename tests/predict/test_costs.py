"""Costs of any size, and of what kind they may be."""

import numpy as np
import pytest
import torch

from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule


@pytest.mark.parametrize("unit", [1.4e-9, 1 / 3 * 1e-9, 1e-300, 1, 2.5, 7e17, 1e300])
def test_a_unit_of_any_size_makes_the_same_timeline(unit):
    """Rounded to a nanosecond, 1.4e-9 would take 1e-9, and 1e-300 no time at all."""
    found = simulate(schedule("1f1b", 2, 2), Costs(F=unit, B=2 * unit, latency=unit / 8))
    assert found.length / unit == pytest.approx(9.25, rel=1e-3)


def test_costs_that_no_whole_number_of_ticks_can_hold_are_refused():
    for far in (dict(F=1e-20, B=1), dict(F=1, B=1e20), dict(F=1, latency=1e-17)):
        with pytest.raises(ValueError, match="too far apart to be simulated"):
            simulate(schedule("1f1b", 2, 2), Costs(**far))


@pytest.mark.parametrize(
    "given, says",
    [
        ({"F": "1"}, "Costs takes F as float | tuple[float, ...], not '1', a str"),
        ({"F": ("1", "2")}, "Costs takes F as float | tuple[float, ...], not ('1', '2'), a tuple"),
        ({"F": True}, "Costs takes F as float | tuple[float, ...], not True, a bool"),
        (
            {"F": 10**400},
            f"Costs takes F as float | tuple[float, ...], and {'1' + 17 * '0'}...{19 * '0'} "
            "is too large for a float: give a smaller one",
        ),
        ({"F": ()}, "F=() is empty: give one number for each stage, or one for all"),
        ({"I": ()}, "I=() is empty: give one number for each stage, or one for all"),
        ({"W": ()}, "W=() is empty: give one number for each stage, or one for all"),
        (
            {"bytes": (1, 2, 3), "bandwidth": 1},
            "bytes has 3 numbers, but 1f1b has 2 edges, counting that which leads out: give one for each",
        ),
        (
            {"latency": (1, 2, 3)},
            "latency has 3 numbers, but 1f1b has 2 edges, counting that which leads out: give one for each",
        ),
        (
            {"bandwidth": (1, 0)},
            "bandwidth=(1, 0) lets no message arrive: give more than 0, or None if bytes cost no time",
        ),
        ({"F": (1, 2, 3)}, "F has 3 numbers, but 1f1b has 2 stages: give one for each"),
        ({"unit": 3}, "Costs takes unit as str, not 3, an int"),
    ],
)
def test_costs_of_a_wrong_kind_are_refused_in_a_sentence(given, says):
    with pytest.raises((TypeError, ValueError)) as found:
        simulate(schedule("1f1b", 2, 2), Costs(**given))
    assert str(found.value) == says


@pytest.mark.parametrize("array", [np.array, torch.tensor, list, iter], ids=lambda one: one.__name__)
def test_costs_in_any_container_are_those_in_a_tuple(array):
    plain = Costs(F=(1.0, 2.0), B=(2.0, 4.0))
    other = Costs(F=array([1.0, 2.0]), B=array([2.0, 4.0]))
    assert other == plain and simulate(schedule("1f1b", 2, 2), other).length == 15
    assert {type(one) for one in other.F} == {float}


def test_a_run_and_a_bound_refuse_costs_of_other_stages_too():
    for ask in (lambda costs: costs.table(schedule("1f1b", 2, 2)), lambda costs: costs.of("F", 3)):
        with pytest.raises(ValueError, match="give one for each|has no entry 3: choose one from 0 to 2"):
            ask(Costs(F=(1, 2, 3)))
    with pytest.raises(ValueError, match="there is no kind of action 'X': choose one of F, B"):
        Costs().of("X", 0)
