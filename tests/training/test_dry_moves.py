"""Dry runs of schedules that move saved activations, and of steps whose norm is in the schedule: the memory of each
rank is that of the simulator, and the bytes are those of the formulas.
"""

from dataclasses import replace

import pytest
from few import one_in
from test_dry_run import assert_bytes_are_those_of_the_formulas

from hybridlab.core.dry import KINDS
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.room import during
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule
from hybridlab.training.dry.dry_run import dry_run
from hybridlab.training.dry.moving import AtOnce
from hybridlab.training.dry.one_rank import played
from hybridlab.training.make_job import job_of

EIGHT = Shape(layers=8, width=32, heads=4, context=32)
ABOUT = {"shape": replace(EIGHT, layers=4), "microbatches": 5, "optimizer": "adamw"}
ACTIVATIONS = list(KINDS).index("activations")
CASES = {
    "lent": (Mesh(pp=4), {"schedule": "bpipe"}),
    "on the host": (Mesh(pp=2), {"schedule": "pipeoffload"}),
    "lent, sharded": (Mesh(dp=2, pp=4), {"schedule": "bpipe", "zero": 1}),
    "on the host, sharded": (Mesh(pp=2, tp=2), {"schedule": "pipeoffload"}),
    "within half of the memory": (Mesh(pp=2), {"schedule": "gpipe", "device_memory": 0.5}),
    "swapped and recomputed": (Mesh(pp=2), {"schedule": "gpipe", "device_memory": 0.5, "make_room": "mixture"}),
}
NORMS = {
    "before": (Mesh(pp=2), {"schedule": "zb_h1", "validated": "before", "clip": 1.0}),
    "after": (Mesh(pp=4), {"schedule": "zb_h2", "validated": "after", "clip": 1.0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", one_in(4, CASES))
def test_each_rank_saves_what_the_simulator_says(case):
    """The bytes that the law adds up, if copies take no time, except boundary tensors, which the law counts also while
    they are sent."""
    mesh, how = CASES[case]
    job = job_of(mesh, **ABOUT | how)
    flow, stored = flow_of(job.schedule), during(flow_of(job.schedule), job.room)
    for rank in (one for one in range(mesh.size) if mesh.place(one, "dp") == 0):
        arena = played(job, rank)[0].work.arena
        seat = mesh.line(rank).index(rank)
        first, last = flow.program[seat : seat + 2]
        more = stored[first:last].max() - arena.peak
        assert 0 <= more <= 2 * max(job.room.boundary) < 0.1 * arena.peak, (rank, more)
        assert arena.held == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", one_in(7, CASES | NORMS))
def test_ranks_send_what_the_formulas_say(case):
    mesh, how = (CASES | NORMS)[case]
    assert_bytes_are_those_of_the_formulas(mesh, **ABOUT | how)


def held(name: str, ranks: int, **more) -> list[int]:
    """The largest bytes of activations on each rank."""
    made = schedule(name, ranks=ranks, microbatches=6, **more)
    runs = [dry_run(Mesh(pp=ranks), made, rank=rank, shape=EIGHT) for rank in range(ranks)]
    return [int(one.held[:, ACTIVATIONS].max()) for one in runs]


@pytest.mark.slow
def test_a_loan_takes_one_microbatch_from_the_first_rank_to_the_last():
    """In 1F1B the ranks hold 4, 3, 2, 1 microbatches; with loans 3, 3, 2, 3. Stages of blocks are as long as each
    other; the first keeps its tokens too, and on the last one two guests stand beside the head."""
    plain, lent = held("1f1b", 4), held("bpipe", 4)
    assert simulate(schedule("bpipe", 4, 6)).peak_live == [3, 3, 2, 3]
    one = plain[2] / 2
    assert plain[0] - lent[0] == pytest.approx(one, rel=0.05)
    assert lent[1:3] == pytest.approx(plain[1:3], rel=0.05)
    assert lent[3] - plain[3] == pytest.approx(2 * one, rel=0.05)


@pytest.mark.slow
def test_what_is_on_the_host_is_not_held(monkeypatch):
    """Half of the chunks wait on the host: 4, 4 in flight in place of 6, 5 on two ranks."""
    there, away = held("pipeoffload", 2, offloaded=0), held("pipeoffload", 2)
    assert all(few < 0.8 * many for few, many in zip(away, there))
    monkeypatch.setattr(AtOnce, "start", lambda engine, way, load, before=(): engine)
    with pytest.raises(MemoryError, match="rank 0 has no room"):  # nothing has left
        held("pipeoffload", 2)
