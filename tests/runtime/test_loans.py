"""Activations that move, on real ranks: lent to another rank (BPipe), or copied to the host (PipeOffload).

The results are those of one device, and bytes and memory are those of the formulas.
"""

from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.out_of_core import KeepingWork
from hybridlab.runtime import player
from hybridlab.runtime.loans import Loan
from hybridlab.training.make_job import job_of
from hybridlab.training.out_of_core import copied, weighed

FOUR, EIGHT = (Shape(layers=layers, width=16, heads=2, context=8) for layers in (4, 8))
SPARSE = replace(EIGHT, experts=4, chosen=2, inner=16)
LENT = {"schedule": "bpipe", "microbatches": 7, "shape": FOUR}
OFFLOADED = {"schedule": "pipeoffload", "microbatches": 6, "shape": EIGHT}
COPIED, MESSAGES = "kept on the host, there and back", "messages between stages"


def lent_bytes(job):
    """There and back: bytes of a stage for each of its loans."""
    keeps = weighed(job).keeps
    moves = [one for program in job.schedule.program for one in program if one.lent and one.kind == "SWAP_OUT"]
    return sum(keeps[one.stage] for one in moves)


@pytest.mark.parametrize("p, m, loans", [(4, 7, 4), (4, 3, 0), (6, 8, 8), (8, 9, 12)])
def test_every_loan_of_a_rank_travels_there_and_back(p, m, loans):
    """Rank x < p - c lends the forwards c-1 … m-2."""
    program = hl.schedule("bpipe", p, m).program
    assert sum(one.lent and one.kind == "SWAP_OUT" for rank in program for one in rank) == 2 * loans
    c = -(-(p + 2) // 2)
    assert loans == max(0, p - c) * max(0, m - c)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    [
        (Mesh(pp=4), {}),
        pytest.param(Mesh(pp=6), {"shape": EIGHT, "microbatches": 8, "ahead": 2}, marks=pytest.mark.long),
        pytest.param(Mesh(dp=2, pp=4), {"zero": 1, "accumulate": 2}, marks=pytest.mark.long),
        pytest.param(Mesh(pp=4, tp=2), {"optimizer": "adamw", "rate": 0.01}, marks=pytest.mark.long),
        pytest.param(Mesh(pp=4), {"shape": Shape(layers=4, tied=True, skips=True)}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_lent_activations_give_the_results_of_one_device(bench, mesh, more):
    more = LENT | more
    report, plain = bench.asked(mesh, **more), bench.asked(mesh, **more | {"schedule": "1f1b"})
    assert report.ok, report
    assert report.gaps == plain.gaps and report.losses == plain.losses  # not one bit is another
    job = job_of(mesh, dtype="float64", **more)
    lines = mesh.size // job.schedule.ranks
    further = report.bytes[MESSAGES][0] - plain.bytes[MESSAGES][0]
    assert further == job.steps * job.accumulate * lines * lent_bytes(job) > 0
    assert COPIED not in report.bytes


@pytest.mark.ranks
def test_a_rank_holds_no_more_than_the_bound(kept):
    """In bytes: rank 0 holds three microbatches, where in 1F1B it holds four."""
    wide = replace(FOUR, width=64)  # so that the head saves little more than a block
    real = hl.run(hl.schedule("bpipe", 4, 7), work="model", model=wide, steps=2)
    keeps, capacity = real.room.keeps, real.room.capacity
    assert max(real.origin["peak_held"]) <= capacity < 4 * keeps[0]
    assert real.origin["peak_held"][0] >= 3 * keeps[0]


@pytest.mark.ranks
def test_emulated_loans_take_as_long_as_predicted(kept):
    made, costs = hl.schedule("bpipe", 4, 6), hl.Costs(F=0.03, B=0.06, swap=0.05)
    real, ideal = hl.run(made, costs=costs, steps=2), hl.simulate(made, costs)
    assert ideal.length <= real.length < 1.25 * ideal.length
    lanes = [{one.lane for one in real.spans if one.rank == rank} for rank in range(4)]
    assert {"out", "in"} <= lanes[0] & lanes[3] and not {"out", "in"} & (lanes[1] | lanes[2])


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    [
        (Mesh(pp=4), {}),
        pytest.param(Mesh(dp=2, pp=2), {"zero": 1}, marks=pytest.mark.long),
        pytest.param(Mesh(pp=2, tp=2), {"optimizer": "adamw", "rate": 0.01}, marks=pytest.mark.long),
        pytest.param(Mesh(dp=2, pp=2), {"zero": 3, "accumulate": 2}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_offloaded_chunks_give_the_results_of_one_device(bench, mesh, more):
    report = bench.asked(mesh, **OFFLOADED | more)
    assert report.ok, report
    job = job_of(mesh, dtype="float64", **OFFLOADED | more)
    counted, formula = report.bytes[COPIED]
    assert counted == formula == job.steps * copied(job) > 0


@pytest.mark.parametrize(
    "more, said",
    [
        ({"device_memory": 0.5}, "device_memory=0.5 manages the saved activations, and so does pipeoffload"),
        ({"recompute": "full"}, "recompute='full' manages the saved activations, and so does pipeoffload"),
        ({"sequence": True, "mesh": Mesh(pp=2, tp=2)}, "leave out sequence"),
        ({"driven": True}, "give driven=False"),
        ({"shape": SPARSE, "mesh": Mesh(pp=2, ep=2)}, "pipeoffload needs to know .* leave out ep and fold"),
        ({"shape": SPARSE, "mesh": Mesh(pp=2, tp=2), "fold": True}, "save as many tokens as arrive"),
        (
            {"shape": SPARSE, "mesh": Mesh(pp=2, ep=2), "schedule": "gpipe", "device_memory": 0.5},
            "device_memory needs to know .* leave out device_memory",
        ),
    ],
)
def test_another_manager_of_activations_is_refused(more, said):
    more = OFFLOADED | more
    with pytest.raises(ValueError, match=said):
        job_of(more.pop("mesh", Mesh(pp=2)), **more)


# ---- mistakes


def returns_another_guest(patch):
    """The rank that lends its memory sends back the activations of another microbatch."""
    right = KeepingWork._packed

    def packed(work, action):
        others = [place for place in work.guests if place != (action.stage, action.microbatch)]
        if (action.stage, action.microbatch) in work.guests and others:
            place = action.stage, action.microbatch
            work.guests[place], work.guests[others[0]] = work.guests[others[0]], work.guests[place]
        return right(work, action)

    patch.setattr(KeepingWork, "_packed", packed)


def returns_those_of_the_step_before(patch):
    """Stale: the first activations that came for a microbatch go back in every step."""
    right, first = KeepingWork._unpacked, {}

    def unpacked(work, action, row):
        if (action.stage, action.microbatch) not in work.stored:
            row.copy_(first.setdefault((action.stage, action.microbatch), row.clone()))
        return right(work, action, row)

    patch.setattr(KeepingWork, "_unpacked", unpacked)


def a_backward_that_waits_for_no_loan(patch):
    patch.setattr(Loan, "go_on", lambda loan: None)  # otherwise it may have come back by chance
    patch.setattr(player, "until_over", lambda one, loans: one.wait() if not hasattr(one, "go_on") else None)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mistake",
    [
        returns_another_guest,
        pytest.param(returns_those_of_the_step_before, marks=pytest.mark.long),
        pytest.param(a_backward_that_waits_for_no_loan, marks=pytest.mark.long),
    ],
)
def test_a_mistake_is_caught(bench, mistake):
    assert bench.right(Mesh(pp=4), **LENT)
    try:
        report = bench.asked(Mesh(pp=4), sabotage=mistake, **LENT)
    except hl.RankError:
        return
    assert not report.ok
