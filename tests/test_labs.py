"""The exercises of notebooks 00, 01 and 10: what `test_exercises` feeds them, and that they are worth asking."""

import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs.tasks import LAYER_TIMES

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("first_attempt")]  # long: many cases

NAIVE_ORDER = "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1"
GPIPE_ORDER = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1"
ONE_F_ONE_B = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"

RIGHT = {
    "start.all_reduce": [[10.0, 10.0, 10.0, 10.0], (10, 10, 10, 10)],
    "start.swap": [[101.0, 100.0], (101, 100)],
    "tour.bubble": [7 / 31, 0.226, "0.2258"],
    "tour.schedule": [ONE_F_ONE_B, hl.schedule("1f1b", ranks=2, microbatches=2)],
    "naive.utilisation": [0.25, 1 / 4, "0.25"],
    "naive.slots": [5, 5.0, "5"],
    "naive.speedup": [1, 1.0, "1"],
    "naive.balance": [[4, 2, 2], (4, 2, 2), [4.0, 2.0, 2.0]],
    "naive.bottleneck": [40, 40.0],
}
WRONG = {  # (answer, a piece of the sentence that it must get)
    "start.all_reduce": [
        ([1.0, 2.0, 3.0, 4.0], "still holds its own"),
        ([10.0], "There are 1 numbers"),
        ([10.0, 2.0, 3.0, 4.0], "All four must be equal"),
        (10, "Give the list"),
    ],
    "start.swap": [
        ([100.0, 101.0], "Both ranks still hold"),
        ([100.0, 100.0], "Rank 0 still holds its own number, 100"),
        ([101.0, 101.0], "Rank 1 still holds its own number, 101"),
        ([0.0, 0.0], "Rank 0 must end with 101"),
        ([1, 2, 3, 4], "use the pool that is called pair"),
    ],
    "tour.bubble": [(7 / 24, "idle / ideal"), (0.9, "Too large"), (0.01, "Too small")],
    "tour.schedule": [
        (NAIVE_ORDER, "It takes 12 units; 9 are possible"),
        (GPIPE_ORDER, "rank 1 holds 2 activations at once; 1 will do"),
        ("0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1", "waits on itself"),
        ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1", "add 1B1"),
        ("0F0,0B0\n1F0,1B0", "Make it 2, 2, 2"),
        ("0F0,0X0", "is no action"),
        ("nowhere.csv", "No such file"),
    ],
    "naive.utilisation": [(0.75, "idle share"), (25, "between 0 and 1"), (0.5, "Too large")],
    "naive.slots": [(9, "naive order"), (3, "others start later"), (6, "Too large")],
    "naive.speedup": [(4, "never two at work"), (0.25, "in the same time"), (2, "Too large")],
    "naive.balance": [
        ([3, 3, 2], "30 50 40 ms: stage 1 is the slowest. 40 ms are possible"),
        ([5, 2, 1], "60 40 20 ms: stage 0"),
        ([4, 2, 3], "hold 9 layers; the model has 8"),
        ([4, 4], "three stages"),
        ([8, 0, 0], "at least one layer"),
        ([4.5, 1.5, 2], "whole numbers"),
    ],
    "naive.bottleneck": [(30, "That is the mean"), (20, "Too small"), (50, "Too large")],
}
NONSENSE = [None, "", "abc", [], {}, [None] * 4, ["a", "b"], [[1], [2]], object(), float, 1j, b"x", 10**400]
NONSENSE += [[10**400, 1], float("nan"), float("inf"), [float("nan")] * 4, [float("inf")] * 3]


def test_an_unknown_task_is_refused():
    for ask in (labs.question, lambda task: labs.answer(task, 1)):
        with pytest.raises(ValueError, match="there is no exercise 'no.such': choose one of start.all_reduce"):
            ask("no.such")


def test_the_balancing_exercises_are_worth_asking():
    """The even cut is not the best one on three stages, and on four the mean cannot be reached."""
    even = labs.answer("naive.balance", [len(part) for part in ((0, 1, 2), (3, 4, 5), (6, 7))])
    assert not even.right and sum(LAYER_TIMES) / 4 == 30
    assert not labs.answer("naive.bottleneck", 30).right


@pytest.mark.ranks
def test_what_the_last_hints_say_solves_the_exercises_on_real_ranks():
    import torch

    def my_sum(comm):
        x = torch.tensor([comm.rank + 1.0])
        comm.all_reduce(x)
        return x.item()

    def my_swap(comm):
        x, theirs = torch.tensor([100.0 + comm.rank]), torch.zeros(1)
        if comm.rank == 0:
            comm.send(x, to=1)
            comm.recv(theirs, source=1)
        else:
            comm.recv(theirs, source=0)
            comm.send(x, to=0)
        return theirs.item()

    with hl.ranks(4) as pool, hl.ranks(2) as pair:
        assert labs.answer("start.all_reduce", pool.run(my_sum)).right
        assert labs.answer("start.swap", pair.run(my_swap)).right
