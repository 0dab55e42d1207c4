"""Notebook 41, choosing a plan: effects of a larger t (`trades`); the map of all plans with sliders (`plan_explorer`);
a pipeline next to ZeRO 3 (`next_to_zero`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "trades": "BATCH POINTS chosen_and_printed SHAPE SLIDES in_lines reasons refusals ways_worth "
        "most_copies rows_planned side_by_side trade",
        "next_to_zero": "pipeline_or_zero",
        "plan_explorer": "explorer",
        "tasks": "dry",
    },
)
