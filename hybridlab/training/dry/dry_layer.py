"""One layer of a job: the messages of its forward and backward, each at its place, from the ledger of a dry run.

The layer is a stage alone, so that its packs of gradients and its pipeline messages belong to it alone: each rank has
three stages of one layer, and the middle one is neither the first nor the last of the model. Every module with weights
notes the number of the ledger's next row when its forward or its backward begins and ends; a message between two notes
belongs to the place between them.
"""

from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from hybridlab.core.layer import ATTENTION, PHASES, Layer, Travel
from hybridlab.core.operations import RECEIVES
from hybridlab.core.what.shape import Shape
from hybridlab.signatures import spelled
from hybridlab.training import asked
from hybridlab.training.check import UNCOUNTED
from hybridlab.training.dry.alive import Alive
from hybridlab.training.dry.counted import CountedWork
from hybridlab.training.dry.dry_run import AS_ON_GPUS
from hybridlab.training.dry.known import Known
from hybridlab.training.dry.one_rank import Dry
from hybridlab.training.fused_attention import fused_attention
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gallery import model_of
from hybridlab.world.talk.dry import META, DryComm

STAGES = 3  # of one layer each, on every rank
NAMES = {"q": "q·k·v", "k": "q·k·v", "v": "q·k·v", "up": "up", "gate": "up", "down": "down", "out": "out"}
CARRIES = {"sums", "shares"}  # purposes of messages with gradients or weights
SET_HERE = ("schedule", "chunks", "copies", "slices", "cut", "microbatches")


class Mark(NamedTuple):
    """A note: from this row of the ledger on, messages belong to (phase, what)."""

    row: int
    phase: str
    what: object


class NotedWork(CountedWork):
    """The work of a rank's stages; actions of the stage in the middle, and its packs, are noted."""

    marks: list[Mark]

    def bind(self, action, part):
        call = super().bind(action, part)
        if part.kind not in ("F", "B"):
            return call
        phase = "forward" if part.kind == "F" else "backward"

        def noted(arrived):
            mine = part.stage == self.middle and part.microbatch == self.first
            self.note("enter" if mine else "", phase)
            left = call(arrived)
            self.note("leave" if mine else "", phase)
            return left

        return noted
