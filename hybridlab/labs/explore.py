"""`hl.explore`: the explorer of `show`, handed the `run` that starts real processes, which pictures do not know."""

from hybridlab.show.live.explorer import Explorer
from hybridlab.show.live.explorer import explore as _explore


def explore(*shown, **choices) -> Explorer:
    return _explore(*shown, **{"run": _run} | choices)


explore.__doc__ = _explore.__doc__


def _run(schedule, **more):
    from hybridlab.training.run import run  # here, because it loads torch: a picture alone needs none

    return run(schedule, **more)
