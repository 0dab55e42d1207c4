"""The prediction that a measured run is laid over."""

from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate


def predicted_for(real: Timeline) -> Timeline:
    """The same program, simulated with the costs, the latency and the links that the run itself has shown.

    raises  ValueError when the timeline is not a measured one
    """
    rendezvous = real.origin.get("rendezvous", True)
    return simulate(real.schedule, Costs.measured(real), rendezvous=rendezvous, room=real.room)
