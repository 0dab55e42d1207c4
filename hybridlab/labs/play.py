"""`hl.play`: the game of `show`, with the `run` that starts real processes, because pictures cannot import it."""

import functools

from hybridlab.show.live.game import Game
from hybridlab.show.live.game import play as _play
from hybridlab.signatures import typed


@functools.wraps(_play)
@typed
def play(*numbers, **choices) -> Game:
    return _play(*numbers, **{"run": _run} | choices)


def _run(schedule, **more):
    from hybridlab.training.run import run  # here, because it loads torch: a game alone needs none

    return run(schedule, **more)
