"""Meetings: actions that end together, because every rank that holds a copy of a stage joins its REDUCE_GRAD."""

from typing import Any

import numpy as np


def meetings(flow: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of a `Flow`: (the meeting that each action attends, or -1; the number of actions that each meeting waits for)."""
    place = flow.schedule.place
    meeting, numbers, attendance = np.full(flow.actions, -1), {}, []
    for part in flow.parts_of_kind.get("REDUCE_GRAD", []):
        copies = flow.copies(flow.stage[part])
        homes = {(copy[0], place[copy]) for copy in copies}
        if len({rank for _, rank in homes}) > 1:
            key = (copies[0], int(flow.version[part]))
            if key not in numbers:
                numbers[key] = len(numbers)
                attendance.append(len(homes))
            meeting[flow.action_of[part]] = numbers[key]
    return meeting, np.array(attendance, dtype=np.int64)
