"""A ring all-reduce made of sends and receives, and the route of its chunks."""

from hybridlab.world.talk.ring import all_reduce, route

__all__ = ["all_reduce", "route"]
