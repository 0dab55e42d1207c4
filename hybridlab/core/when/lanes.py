"""The lanes of a rank: messages, collectives and copies to the host and back overlap with its compute actions."""

import numpy as np

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.law import KIND

LANES = ("compute", "send", "receive", "reduce", "out", "in")
COMPUTE, SEND, RECEIVE, REDUCE, OUT, IN = range(len(LANES))


def lanes(flow: Flow) -> np.ndarray:
    """The lane of every action of a schedule, as indices of `LANES`."""
    of_kind = np.array([LANES.index(kind.lane) for kind in KIND.values()])
    return of_kind[flow.schedule.rows[flow.first_row, 0]]


def messages(flow: Flow, lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every message of a lowered schedule: (its SENDs, its RECVs), two equally long columns of action numbers."""
    receives = np.flatnonzero(lane == RECEIVE)
    return flow.maker[flow.takes.values[flow.takes.starts[receives]]], receives
