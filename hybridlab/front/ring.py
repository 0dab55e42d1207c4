"""A ring all-reduce made of sends and receives, and the route that the pieces take."""

from hybridlab.world.talk.ring import all_reduce, route

__all__ = ["all_reduce", "route"]
