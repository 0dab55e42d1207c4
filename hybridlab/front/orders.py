"""Kinds of actions and their law, and changes to a schedule: groups of microbatches, replicas, dispatches, token
slices, clipping, several steps."""

from hybridlab.core.when.law import LAW
from hybridlab.scheduling.dispatched import dispatched, dual_batch
from hybridlab.scheduling.interleaved import groups, table
from hybridlab.scheduling.norms import in_a_row, with_norm
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.token_slices import on_slices

__all__ = ["LAW", "dispatched", "dual_batch", "groups", "in_a_row", "on_slices", "replicate", "table", "with_norm"]
