"""What is right stands in no frame around a student's function: it would only have to be picked up."""

import pytest
from test_exercises import run_cell, solution

from hybridlab import labs
from hybridlab.labs.exercises.all_tasks import TASKS

pytestmark = [pytest.mark.long, pytest.mark.ranks]
RETURN_TENSORS = "context.joined context.ring experts.dispatch megatron.latent megatron.loss matmul.rows matmul.cannon"
RETURN_TENSORS += " convolution.halo convolution.layer convolution.split axonn.forward layouts.by_hand"


def watched(function):
    """The function, which fails when what it returns stands in a frame that called it."""

    def around(*given):
        import sys

        import torch

        def tensors(one, deep=3):
            if isinstance(one, torch.Tensor):
                yield one
            elif deep and isinstance(one, list | tuple | dict):
                for each in one.values() if isinstance(one, dict) else one:
                    yield from tensors(each, deep - 1)

        made = function(*given)
        known = {id(one) for one in [*tensors(list(given)), *tensors(made)]}
        frame = sys._getframe(1)
        while frame:
            for name, value in frame.f_locals.items():
                for one in tensors(value):
                    for mine in tensors(made):
                        if (
                            id(one) not in known
                            and one.shape == mine.shape
                            and torch.allclose(one.double(), mine.double())
                        ):
                            raise AssertionError(f"{name} of {frame.f_code.co_name} is the result")
            frame = frame.f_back
        return made

    return around


@pytest.mark.parametrize("task", RETURN_TENSORS.split())
def test_no_frame_around_a_students_function_holds_what_it_should_return(task, monkeypatch):
    monkeypatch.setattr(labs, "answer", lambda task, value: value)
    answer = run_cell(solution(task))
    spy = tuple(map(watched, answer)) if isinstance(answer, tuple) else watched(answer)
    assert TASKS[task].check(spy)[0] is True, TASKS[task].check(spy)
