"""Predict a measured run from its own costs, to compare both."""

from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.signatures import typed


@typed
def predicted_for(real: Timeline) -> Timeline:
    """The same program, simulated with the costs, the latency and the links measured in the run.

    real  a measured timeline, as `hl.run` returns it

    raises  ValueError if the timeline was not measured

    >>> import hybridlab as hl
    >>> s = hl.schedule("gpipe", ranks=1, microbatches=1)
    >>> hl.predicted_for(hl.simulate(s))
    Traceback (most recent call last):
    ...
    ValueError: these costs were not measured: give the timeline of a real run, which hl.run returns
    """
    rendezvous = real.origin.get("rendezvous", True)
    return simulate(real.schedule, Costs.measured(real), rendezvous=rendezvous, room=real.room)
