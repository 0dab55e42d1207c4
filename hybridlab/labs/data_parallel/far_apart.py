"""Copies that seldom exchange their updates, in notebook 21: losses for several intervals; the check of an outer step.

The student's function does one outer step on a rank. It runs for a few rounds on real ranks; in each round, every copy
has another change. `judge` compares the weights of all ranks with those of one process that has the changes of all
copies.
"""

from typing import NamedTuple

import numpy as np

import hybridlab as hl
from hybridlab.labs.data_parallel.on_ranks import TINY
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of

WEIGHTS, ROUNDS = 6, 3  # rounds: in the second one the momentum is not zero, and in the third it has been used
NEAR = 1e-9
BATCH, STEPS = 16, 128  # sequences of both copies together
INSIDE = {"optimizer": "adamw", "rate": 3e-3}


# --- the student's outer step --------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One run: the number of ranks, and the constants of the outer step."""

    ranks: int
    rate: float
    momentum: float

    def __str__(self) -> str:
        return f"{self.ranks} ranks, rate = {self.rate:g}, momentum = {self.momentum:g}"


CASES = Case(2, 0.7, 0.9), Case(3, 0.7, 0.9), Case(2, 1.0, 0.0)


def begin() -> np.ndarray:
    """The weights before the first round."""
    return np.random.default_rng(0).normal(size=WEIGHTS)


def moved(rank: int, number: int) -> np.ndarray:
    """The change of a copy's weights in a round: new minus old."""
    return 0.1 * np.random.default_rng([rank, number]).normal(size=WEIGHTS)


def play(comm, answer, case):
    """On each rank: [(weights, momentum) after each round], and the number of numbers in each all-reduce."""
    import torch

    old, speed, told = torch.tensor(begin()), torch.zeros(WEIGHTS, dtype=torch.float64), []
    first = len(comm.ledger)
    for number in range(ROUNDS):
        now = old + torch.tensor(moved(comm.rank, number))
        pair = answer(comm, old.clone(), now, speed.clone(), case.rate, case.momentum)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            return [], []
        old, speed = (torch.as_tensor(x, dtype=torch.float64) for x in pair)
        told.append((old.tolist(), speed.tolist()))
    rows = comm.ledger.rows()[first:]
    return told, [row["bytes"] // 8 for row in rows if row["op"] == "all_reduce"]


def judge(case, homes) -> str:
    """The mistake in the weights of the ranks, in words; empty if there is none."""
    try:
        found = np.array([told for told, _ in homes], dtype=float).reshape(case.ranks, ROUNDS, 2, WEIGHTS)
    except (TypeError, ValueError):
        return f"return the new weights and the new momentum, {WEIGHTS} numbers each."
    right = replayed(case)
    if np.allclose(found, right, rtol=0, atol=NEAR):
        sums = homes[0][1]
        return "" if sums == [WEIGHTS] * ROUNDS else f"right, but it all-reduced {sums} numbers: one for each weight."
    for words, wrong in _slips(case):
        if np.allclose(found[:, :, 0], wrong, rtol=0, atol=NEAR):
            return words
    for number in range(ROUNDS):
        if not np.allclose(found[:, number], right[number], rtol=0, atol=NEAR):
            gap = np.abs(found[:, number, 0] - right[number, 0]).max()
            if gap <= NEAR:
                return f"the weights of round {number} are right, but the momentum that you return is not."
            return f"after round {number} the weights differ from those of the replay by up to {gap:.2g}."
    return ""


def replayed(case, sign=-1.0, mean=True, reset=False, nesterov=True, ranks=None) -> np.ndarray:
    """(weights, momentum) after each round in one process, (rounds, 2, weights); or the same with a mistake."""
    ranks = range(case.ranks) if ranks is None else ranks
    old, speed, found = begin(), np.zeros(WEIGHTS), []
    for number in range(ROUNDS):
        move = sign * sum(moved(rank, number) for rank in ranks) / (len(ranks) if mean else 1)
        speed = (0 if reset else case.momentum) * speed + move
        old = old - case.rate * ((move + case.momentum * speed) if nesterov else speed)
        found.append((old, speed))
    return np.array(found)


def _slips(case):
    """(the mistake in words, the weights that it gives on each rank after each round)."""
    every = lambda **how: np.stack([replayed(case, **how)[:, 0]] * case.ranks)
    own = np.stack([replayed(case, ranks=[rank])[:, 0] for rank in range(case.ranks)])
    yield (
        "each rank used its own change: all-reduce the changes first, so that all copies stay equal.",
        own,
    )
    yield "that is the sum of the changes. Their mean is the sum / comm.size.", every(mean=False)
    yield "the weights went back: the change is old - now, so that it has the sign of a gradient.", every(sign=1.0)
    yield "the momentum was forgotten: return it, and use the one that you are given.", every(reset=True)
    yield "that is momentum without Nesterov: subtract rate · (move + momentum · speed).", every(nesterov=False)


# --- losses --------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A training run: its losses, and the number and the bytes of the all-reduces between the copies."""

    losses: list[float]
    sums: int
    bytes: int


def train_apart(pool, every: int = 1, **more) -> Run:
    """A tiny GPT, trained by two copies that exchange their updates every few steps."""
    about = {"sums": "local", "sync_every": every, "microbatches": 1, "batch": BATCH, "steps": STEPS, **INSIDE}
    return Run(*pool.run(_run, job_of(hl.Mesh(dp=pool.size), shape=TINY, **about | more))[0])


def _run(comm, one) -> Run:
    trainer = Trainer(comm, one)
    before = len(comm.ledger)
    losses = [loss for number in range(one.steps) for loss in trainer.step(number)[0]]
    sizes = [row["bytes"] for row in comm.ledger.rows()[before:] if row["purpose"] == one.keeper.purpose]
    return Run(losses, len(sizes), sum(sizes))
