"""The timeline of a schedule that has a deadlock, up to the time at which no rank can continue."""

from dataclasses import replace

from hybridlab.core.when.play import Stuck
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate


def halted(schedule: Schedule, stuck: Stuck, costs: Costs | None = None) -> Timeline:
    """The predicted timeline of the actions that the ranks do before they wait for each other.

    schedule  with a deadlock
    stuck     the error that names it, of this schedule
    costs     as in `simulate`

    The actions that never begin are not in its schedule. `origin["stuck"]` has an entry for each waiting rank:
    [rank, the action that it would do next, the rank that it waits for (-1: none)].

    raises  Stuck, the same error, if no rank does anything

    >>> one = Schedule.from_csv("0F0,0F1,0B0,0B1\\n1F0,1B1,1F1,1B0")
    >>> try: simulate(one)
    ... except Stuck as stuck: halted(one, stuck).origin["stuck"]
    [[0, '0B0', 1], [1, '1B1', 1]]
    """
    if not any(stuck.done):
        raise stuck
    played = simulate(schedule.with_programs([one[:done] for one, done in zip(schedule.program, stuck.done)]), costs)
    waits = [[rank, action, stuck.whom[rank]] for rank, (action, _) in stuck.waiting.items()]
    return replace(played, origin=played.origin | {"stuck": waits})
