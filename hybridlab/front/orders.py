"""Kinds of actions and their law, and changes to a schedule: groups of microbatches, replicas, dispatches, token
slices, clipping, several steps."""

from numbers import Integral

from hybridlab.core.when.law import LAW
from hybridlab.doors import FEW, both, door, doors, each_is, span
from hybridlab.scheduling.dispatched import dispatched, dual_batch
from hybridlab.scheduling.interleaved import groups, table
from hybridlab.scheduling.norms import in_a_row, with_norm
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.token_slices import on_slices

__all__ = ["LAW", "dispatched", "dual_batch", "groups", "in_a_row", "on_slices", "replicate", "table", "with_norm"]

MANY = span(1, 10**4, "give a number from 1 to 10000")  # of stages and microbatches of a list that is made here
dispatched, in_a_row, on_slices, replicate = doors(dispatched, in_a_row, on_slices, replicate, steps=FEW, slices=FEW)
dual_batch = door(dual_batch, microbatches=MANY, blocks=MANY)
groups, table = doors(
    groups,
    table,
    ranks=FEW,
    microbatches=FEW,
    group=FEW,
    chunks=MANY,
    sizes=both(each_is(Integral, "give whole numbers"), MANY),
)
