"""Times of overlapping work, and of failures: communication during compute, branches, experts, goodput."""

from hybridlab.predict.time.branches import speedup
from hybridlab.predict.time.goodput import Troubles, daly, replay
from hybridlab.predict.time.overlap import Layer, chain, length
from hybridlab.predict.time.with_experts import with_experts

__all__ = ["Layer", "Troubles", "chain", "daly", "length", "replay", "speedup", "with_experts"]
