"""Ranks that disagree about an operation are told so in one sentence, where torch would give wrong numbers or abort."""

import sys

import cloudpickle
import pytest
import torch

import hybridlab as hl
from hybridlab.world.explain.compare import Comparison
from hybridlab.world.talk.journal import Post
from hybridlab.world.talk.lengths import MOST, exchanged, unfitting

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def other_dtype(comm):
    comm.all_to_all(torch.ones(4, dtype=torch.float64 if comm.rank == 1 else torch.float32))


def other_shape(comm):
    comm.all_to_all(torch.ones((4, 2) if comm.rank == 1 else (4, 3)))


def turned_parts(comm):
    """As many elements everywhere: cut along one dim, joined along the other."""
    comm.all_to_all(torch.ones((6, 4) if comm.rank == 1 else (4, 6)), cut=0, join=1)


def other_lengths(comm):
    sent, received = ([1, 3], [1, 1]) if comm.rank == 0 else ([1, 3], [2, 3])
    comm.all_to_all(torch.arange(4.0), sent=sent, received=received)


def other_lengths_in_all(comm):
    """gloo aborts."""
    sent, received = ([1, 3], [1, 1]) if comm.rank == 0 else ([1, 3], [4, 3])
    comm.all_to_all(torch.arange(4.0), sent=sent, received=received)


def other_dim(comm):
    comm.reduce_scatter(torch.ones(4, 4), dim=comm.rank)


def other_sizes_scattered(comm):
    comm.reduce_scatter(torch.ones(4), sizes=[3, 1] if comm.rank else [1, 3])


def other_sizes_gathered(comm):
    comm.all_gather(torch.ones(2), sizes=[3, 2] if comm.rank else [2, 3])


def other_dim_gathered(comm):
    comm.all_gather(torch.ones(2, 2), dim=comm.rank)


def other_order_on_one_line(comm):
    a, b = torch.ones(3), 2 * torch.ones(3)
    _ = (comm.all_reduce(a), comm.all_reduce(b)) if comm.rank else (comm.all_reduce(b), comm.all_reduce(a))


def turned_message(comm):
    comm.send(torch.ones(2, 3), 1) if comm.rank == 0 else comm.recv(torch.ones(3, 2), 0)


MISFITS = {
    other_dtype: "rank 1 calls all_to_all #1 of .*float64, cut 0, join 0",
    other_shape: r"rank 1 calls all_to_all #1 of \(\*, 2\)",
    turned_parts: r"rank 0 sends 2 by 6 and 3 by 6 are expected by rank 1|rank 0 sends 2 by 6 and 3 by .* by rank 1",
    other_lengths: "rank 0 sends 3 and 2 are expected by rank 1, in all_to_all #1 .*give sent= and received= that fit",
    other_lengths_in_all: "rank 0 sends 3 and 4 are expected by rank 1, in all_to_all #1",
    other_dim: "rank 1 calls reduce_scatter #1 .*sum, dim 1",
    other_sizes_scattered: "rank 1 calls reduce_scatter #1 .*lengths 3,1",
    other_sizes_gathered: "all_gather #1 .*lengths 3,2",
    other_dim_gathered: "rank 1 calls all_gather #1 .*dim 1",
    other_order_on_one_line: "in that order different tensors are combined",
    turned_message: r"rank 0's send of \(2, 3\) .* does not fit rank 1's recv of \(3, 2\)",
}


@pytest.fixture(scope="module")
def pool():
    with hl.ranks(2) as pool:
        yield pool


@pytest.mark.ranks
@pytest.mark.parametrize("wrong", MISFITS, ids=lambda wrong: wrong.__name__)
def test_ranks_that_disagree_are_told(pool, wrong):
    with pytest.raises(hl.RankError, match=MISFITS[wrong]) as caught:
        pool.run(wrong)
    assert caught.value.kind in ("mismatch", "order") and "\n" not in str(caught.value)


def healthy(comm):
    """What looks like a disagreement, and is none."""
    for _ in range(3):
        comm.all_to_all(
            torch.ones(2, 3), sent=[2, 0] if comm.rank else [1, 1], received=[1, 0] if comm.rank else [1, 2]
        )
        comm.all_to_all(torch.ones(4, 2 + comm.rank), cut=0, join=1, received=[2, 3])
        comm.all_gather(torch.ones(2 + comm.rank), sizes=[2, 3])
        comm.reduce_scatter(torch.ones(2, 5), dim=1, sizes=[2, 3])
        comm.all_reduce(torch.ones(3)), comm.all_reduce(torch.zeros(3))
        a = torch.ones(2, 3)
        comm.send(a, 1) if comm.rank == 0 else comm.recv(torch.empty(6), 0)
        comm.send(a[None], 1) if comm.rank == 0 else comm.recv(torch.empty(2, 3), 0)
    return True


@pytest.mark.ranks
def test_ranks_that_agree_are_left_alone(pool):
    assert pool.run(healthy) == [True, True]


def _changed_on_the_way(comm, how):
    x = torch.ones(1000)
    if how == "gathered":
        message = comm.iall_gather(x)
    elif how == "summed":
        message = comm.iall_reduce(x)
    elif comm.rank == 0:
        message = comm.isend(x, 1)
    else:
        message = comm.irecv(x, 0)
    if comm.rank == 0 and how == "data":
        x.data.zero_()
    if comm.rank == 0 and how in ("numpy", "gathered"):
        x.numpy()[:] = 7
    if comm.rank == 0 and how == "summed":  # its numbers change anyway: what is noticed is torch's count of changes
        x.add_(1)
    message.wait()


@pytest.mark.ranks
@pytest.mark.parametrize("how", ["data", "numpy", "gathered", "summed"])
def test_a_tensor_that_is_changed_before_its_wait_is_told(pool, capfd, how):
    pool.run(_changed_on_the_way, how)
    assert "was changed before wait(): wait first" in capfd.readouterr().err
    pool.run(_changed_on_the_way, "not at all")
    assert "was changed" not in capfd.readouterr().err


def _extremes(comm, op, dtype):
    nan = float("nan")
    x = torch.tensor([[1, nan, -3, 5, -0.5], [2, 4, -4, nan, float("inf")]], dtype=dtype)[comm.rank]
    return comm.all_reduce(x.clone(), op=op), x


@pytest.mark.ranks
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["max", "min"])
def test_a_nan_is_the_largest_and_the_smallest_of_all(pool, op, dtype):
    (found, one), (again, other) = pool.run(_extremes, op, dtype)
    expected = (torch.maximum if op == "max" else torch.minimum)(one, other)
    assert torch.equal(found.nan_to_num(77), expected.nan_to_num(77)) and torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(77), again.nan_to_num(77)) and found.dtype == dtype


def test_lengths_too_many_to_be_told_are_summed_up():
    """Thirty ranks: of each text only a sum travels, and the sums agree where all lengths do."""
    size = 30
    length = lambda one, other: (17 * one + 31 * other) % 1000 + 100
    said = lambda place, wrong=0: exchanged(
        [length(place, other) for other in range(size)], [length(other, place) for other in range(size)], None, place,
        [length(place, other) + wrong * (other == 3) for other in range(size)],
        [length(other, place) for other in range(size)],
    )  # fmt: skip
    right = {place: said(place) for place in range(size)}
    assert max(map(len, right.values())) <= MOST and unfitting(right, size) is None
    assert unfitting(right | {5: said(5, wrong=1)}, size)
    assert unfitting({place: right[place] for place in range(size - 1)}, size) is None, "one has not come yet"


def test_the_longest_source_cuts_no_lengths():
    """A post that is cut would say lengths that nobody has given."""
    from hybridlab.world.talk.journal import TEXT, _shortened

    fields = ["all_to_all", "(*, 100000, 100000)", "float32 on cuda", "cut 0, join 1", "1" * MOST, "10-20", "/x" * 300]
    short = _shortened("\n".join(fields).encode()).decode().split("\n")
    assert short[:6] == fields[:6] and len("\n".join(short)) <= TEXT


def test_two_calls_on_one_line_in_one_order_are_fine():
    comparison = Comparison()
    for rank in (0, 1):
        for turn, columns in ((1, "4-20"), (2, "22-40")):
            source = "/no/lab.py:7"
            comparison.add(Post(rank, turn, "all_reduce", (0, 1), turn, 12, "(3,)", "float32", "sum", None, None, None,
                                source, "", columns))  # fmt: skip
    assert comparison.misfit() is None
