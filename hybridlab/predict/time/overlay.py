"""The prediction that a measured run is laid over."""

from hybridlab.core.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate


def predicted_for(real: Timeline) -> Timeline:
    """The same program at the costs and the latency measured in the run itself, messages as they went there.

    raises  ValueError when the timeline is not a measured one
    """
    return simulate(real.schedule, Costs.measured(real), rendezvous=real.origin.get("rendezvous", True))
