"""`hl.explore`: the explorer of `show`, with the `run` that starts real processes, because pictures cannot import
it.
"""

import functools
import inspect

from hybridlab.show.live.explorer import Explorer
from hybridlab.show.live.explorer import explore as _explore
from hybridlab.signatures import checks, refuse, typed


@functools.wraps(_explore)
@typed
def explore(*shown, **choices) -> Explorer:
    refuse("explore", choices, inspect.signature(_explore).parameters)
    choices = {name: _checked[name](value) for name, value in choices.items()}
    return _explore(*shown, **{"run": _run} | choices)


_checked = checks("explore", inspect.signature(_explore))


def _run(schedule, **more):
    from hybridlab.training.run import run  # here, because it loads torch: a picture alone needs none

    return run(schedule, **more)
