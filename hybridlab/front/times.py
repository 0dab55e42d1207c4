"""Times of overlapping work, and of failures: communication during compute, branches, experts, goodput."""

from hybridlab.doors import AMOUNT, COUNT, FEW, POSITIVE, door, doors, each_is
from hybridlab.predict.time.branches import speedup
from hybridlab.predict.time.goodput import Troubles, daly, replay
from hybridlab.predict.time.overlap import Layer, Piece, chain, length
from hybridlab.predict.time.with_experts import with_experts

__all__ = ["Layer", "Troubles", "chain", "daly", "length", "replay", "speedup", "with_experts"]

chain = door(chain, layers=each_is(Layer, "give hl.times.Layer(...)"))
length = door(length, pieces=each_is(Piece, "give the pieces of hl.times.chain"))
daly, replay, speedup, with_experts = doors(
    daly, replay, speedup, with_experts, save=AMOUNT, between=POSITIVE, seconds=POSITIVE, steps=FEW, ranks=FEW,
    every=COUNT, seed=AMOUNT, branches=AMOUNT, stem=AMOUNT, join=AMOUNT, stages=FEW, attention=AMOUNT, experts=AMOUNT,
    exchange=AMOUNT, message=AMOUNT,
)  # fmt: skip
