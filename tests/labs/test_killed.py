"""A rank killed in the middle of a step: the others continue as one device, with nothing but their own state."""

import importlib
from types import SimpleNamespace

import pytest

import hybridlab as hl
from hybridlab.labs.hybrid import killed_rank
from hybridlab.labs.hybrid.killed_rank import killed


@pytest.mark.ranks
@pytest.mark.parametrize("rank, step, learning", [
    (1, 2, {}),
    pytest.param(2, 3, {"optimizer": "adamw", "rate": 0.01}, marks=pytest.mark.long),
    pytest.param(0, 0, {"schedule": "zb_h1"}, marks=pytest.mark.long),
])  # fmt: skip
def test_the_other_ranks_do_the_step_and_equal_one_device(rank, step, learning):
    found = killed(rank=rank, step=step, **learning)
    assert f"rank {rank} was killed by SIGKILL" in found.said
    assert found.step == step and len(found.losses) == 4
    assert found.moved == 0 and [size == 0 for size in found.held] == [one == rank for one in range(4)]
    assert len(found.gaps) > 25 and found.largest_gap <= 1e-10


@pytest.mark.ranks
@pytest.mark.long
def test_a_rank_without_its_averages_is_seen(monkeypatch):
    monkeypatch.setattr(killed_rank, "_continued", _forgetful())
    assert killed(optimizer="adamw", rate=0.01).largest_gap > 1e-6


def _forgetful():
    """A function, sent to ranks with its code, that continues with weights but without the optimizer's averages."""

    def forgetful(comm, job, memories, first):
        module = importlib.import_module("hybridlab.labs.hybrid.killed_rank")
        take = module._take

        def without_averages(trainer, kept):
            losses = take(trainer, kept)
            for weight, state in trainer.optimized().values():
                state.pop(weight)
            return losses

        module._take = without_averages
        return module._continued(comm, job, memories, first)

    return forgetful


@pytest.mark.parametrize("rank, kind", [(1, "ZeroDivisionError"), (0, "SIGKILL"), (1, "SIGKILL")])
def test_another_failure_is_not_taken_for_the_kill(monkeypatch, tmp_path, rank, kind):
    def fail(mesh):
        raise hl.RankError(f"rank {rank} was stopped by {kind}, in step 2", rank=rank, kind=kind)

    monkeypatch.setattr(hl, "ranks", fail)
    until = lambda: killed_rank._until_killed(SimpleNamespace(mesh=hl.Mesh(pp=2)), [tmp_path / "0"], rank=1, step=2)
    if (rank, kind) == (1, "SIGKILL"):
        assert until() == "rank 1 was stopped by SIGKILL"
    else:
        with pytest.raises(hl.RankError, match=kind):
            until()


def test_a_sharded_state_is_refused():
    with pytest.raises(ValueError, match="zero=1 shards the state.*leave out zero"):
        killed(zero=1)


def test_a_step_after_the_last_is_refused():
    with pytest.raises(ValueError, match="step=4 is not one of the 4 steps: give 0 to 3"):
        killed(step=4)
    with pytest.raises(ValueError, match="a lost rank needs another copy"):
        killed(dp=1)
