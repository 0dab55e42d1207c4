"""Numbers may come as arrays, tensors, tuples or whole floats, in an answer and in what a function returns."""

import json
from collections import namedtuple

import numpy as np
import pytest
import torch
from test_exercises import run_cell

from hybridlab import labs
from hybridlab.labs.exercises.plain import plain
from hybridlab.labs.slices.solutions import CUT
from hybridlab.labs.zero.solutions import STRETCH

pytestmark = pytest.mark.usefixtures("first_attempt")

FORMS = [list, tuple, np.array, torch.tensor, lambda numbers: [*map(np.float32, numbers)]]
RIGHT = {
    "zero_fsdp.stages": [120, 31.4, 16.6, 1.9],
    "zero_fsdp.design": [3.0, 4.0, 2.0],
    "interleaved.bubbles": [3 / 19, 3 / 16],
    "pipedream.versions": [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("task", RIGHT)
def test_several_numbers_are_read_in_every_form(task, form):
    assert labs.answer(task, form(RIGHT[task])).right


@pytest.mark.parametrize(
    "one", [4, 4.0, "4", np.int64(4), np.array(4), torch.tensor(4.0), np.array([4]), torch.tensor([4.0])]
)
def test_one_number_is_read_in_every_form(one):
    assert all(labs.answer(task, one).right for task in ("pipedream.deque", "zero_fsdp.hybrid", "interleaved.design"))


def test_other_values_stay_as_they_are():
    Pair = namedtuple("Pair", "a b")
    for one in ("4.0", 2.5, 1e300, float("inf"), Pair(1.0, 2.0), np.ndarray, print, None, True):
        assert plain(one) is one
    assert plain({"plan": np.array(["keep"])}) == {"plan": ["keep"]} and json.dumps(plain((np.float32(0.5), [1.0])))


SHARDS = ["1.0 * number * size, (number + 1) * size", "torch.arange(number, number + 2) * size"]
LENGTHS = ["torch.tensor(ends).diff()", "[1.0 * (b - a) for a, b in zip(ends, ends[1:])]"]
CELLS = [STRETCH.but("return number * size, (number + 1) * size", f"return {form}") for form in SHARDS]
CELLS += [CUT.but("return [high - low for low, high in zip(ends, ends[1:])]", f"return {form}") for form in LENGTHS]


@pytest.mark.ranks
@pytest.mark.parametrize("cell", CELLS)
def test_what_a_function_returns_is_read_in_every_form(cell):
    assert run_cell(cell).right
