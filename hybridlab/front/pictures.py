"""Pictures in addition to the timeline of `hl.draw`, and its annotations: braces and outlines, rows of tracks, a map of
plans, a box of ranks.
"""

from hybridlab.show.layouts.memory_bars import size
from hybridlab.show.live.rank_box import box_of_ranks
from hybridlab.show.plans.plan_map import plan_map
from hybridlab.show.timelines.notes import busy_and_idle, fill_work_drain, triangles
from hybridlab.show.timelines.tracks import Row, tracks

__all__ = ["Row", "box_of_ranks", "busy_and_idle", "fill_work_drain", "plan_map", "size", "tracks", "triangles"]
