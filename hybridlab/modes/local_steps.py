"""Local steps: each copy takes optimizer steps on its own data, and copies exchange their updates only occasionally.

Plain data parallelism all-reduces every gradient. Here a copy divides its loss by its own tokens and updates its own
weights. After every H steps, Δ = mean(θ_old - θ_copy) over the copies is used like a gradient in an outer step, SGD
with Nesterov momentum; then all copies continue from the same weights. This is DiLoCo. With outer rate 1 and no outer
momentum, the copies take the mean of their weights: local SGD. With H = 1 and SGD inside as well, it is plain data
parallelism.

Streaming DiLoCo divides the layers into P fragments: layer l belongs to fragment l mod P. One fragment is exchanged
every H/P steps; its all-reduce may take τ further steps, and its result is mixed into the weights that the copy has by
then. The peak load of the link is divided by P, and the exchange is hidden.

Only weights are exchanged: the inner optimizer's state and a layer's running averages, such as a batch norm's, stay
local to each copy.

Bytes on each rank's wire in H steps: 2Ψ(d-1)/d numbers, as in one step of plain data parallelism.

Source: Douillard et al. 2023, arXiv:2311.08105, with outer rate 0.7 and momentum 0.9, also in the reproduction of
Jaghouar et al. 2024, arXiv:2407.07852; streaming: Douillard et al. 2025, arXiv:2501.18512; local SGD: Stich 2018,
arXiv:1805.09767. The names of the options follow torchft (`sync_every`). Relatives: `modes.parts.apart`,
`predict.bytes.local_steps`, `training.replay_copies`, notebook 21.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from hybridlab.core.where.layout import Layout
from hybridlab.modes.data_parallel import LOCAL, DataParallel
from hybridlab.modes.mode import Option
from hybridlab.modes.parts.apart import Apart, OuterStep
from hybridlab.predict.bytes.local_steps import BESIDES, EVERY, Rounds
from hybridlab.predict.bytes.transfer import Transfer, transfer
from hybridlab.predict.plans import divisions

WITH = f"sums={LOCAL}"


class LocalSteps(DataParallel):
    """The runtime part of this mode: its differences from plain data parallelism."""

    name, purpose = "local steps", "moves"
    options = {
        "sync_every": Option(
            EVERY, "with sums=local: steps between two exchanges of a weight", int, least=1, beside=WITH
        ),
        "fragments": Option(
            1, "with sums=local: groups of layers that are exchanged at different steps", int, least=1, beside=WITH
        ),
        "sync_delay": Option(
            0, "with sums=local: steps that hide an exchange, before its result is used", int, least=0, beside=WITH
        ),
        "mix": Option(
            0.0,
            "with sums=local: fraction of a copy's weights in the mix after an exchange",
            float,
            least=0,
            beside=WITH,
        ),
        "outer_rate": Option(0.7, "with sums=local: learning rate of the outer step", float, least=0, beside=WITH),
        "outer_momentum": Option(
            0.9, "with sums=local: Nesterov momentum of the outer step", float, least=0, beside=WITH
        ),
    }
    factors = {}
    besides = BESIDES

    def takes_part(self, mesh, chosen):
        return chosen["sums"] == LOCAL

    def completed(self, mesh, chosen, dtype):
        return {}

    def title(self, job):
        return "all-reduces of moves"

    def said(self, job):
        return f"local steps, sums every {rounds_of(job)}"

    def refuse(self, job):
        divisions.refuse(job.sizes, job.division, "sums")
        if job["offload"]:
            raise ValueError(f"{WITH} exchanges the optimizer's weights: leave out offload")
        if not job.flushes:
            raise ValueError(f"{job.schedule.name} updates every stage independently: leave out {WITH}")
        rounds_of(job).refuse(len(job.layers))
        for name in ("mix", "outer_momentum"):
            if job[name] >= 1:
                raise ValueError(f"{name}={job[name]} is not possible: give 0 or more, and less than 1")

    def placed(self, layout: Layout, job) -> Layout:
        """Copies do not add up their gradients: no gradient is a partial sum along dp."""
        return layout.with_params(lambda param: {"partial": tuple(axis for axis in param.partial if axis != "dp")})

    def kept(self, job, comm, stages, named, program):
        fragment_of = {name: layer % job["fragments"] for name, layer in job.once(layer_of).items()}
        about = job.steps - 1, job["outer_rate"], job["outer_momentum"], job["mix"]
        outer = OuterStep(rounds_of(job), fragment_of, *about)
        return Apart(comm, job.layout, stages, named, program, False, self.policy(job), outer)

    def alone(self, job) -> int:
        return job.mesh["dp"]

    def busiest(self, job, rank):
        rounds, size = rounds_of(job), self._size(job, rank)
        later = rounds.every * (1 + job.steps // rounds.every)  # at a job's last step, all exchanges end
        return max(range(later, later + rounds.every), key=lambda step: sum(map(size, rounds.begun(step))))

    def one_model(self, job, rank):
        return job.mesh.group(rank, tuple(axis for axis in job.mesh.axes if axis != "dp"))

    def seldom(self, job) -> Iterator[Transfer]:
        rounds = rounds_of(job)
        for ranks in job.mesh.groups("dp"):
            size = self._size(job, ranks[0])
            for fragment in range(rounds.fragments) if len(ranks) > 1 else ():
                times = rounds.number(fragment, job.steps)
                yield transfer(job.mesh, "moves", "all_reduce", ranks, size(fragment) * times)

    def _size(self, job, rank: int) -> Callable[[int], int]:
        """A function size(fragment): the bytes of a rank's updates in this fragment."""
        layout, fragments, layers = job.layout, job["fragments"], job.once(layer_of)
        of = Counter[int]()
        for name in layout.held(rank):
            of[layers[name] % fragments] += layout.size(name, rank) * job.widths.gradient
        return of.__getitem__


def rounds_of(job) -> Rounds:
    """The steps after which a job's fragments are exchanged."""
    return Rounds(job["sync_every"], job["fragments"], job["sync_delay"])


def layer_of(job) -> dict[str, int]:
    """{parameter: the index of the first layer that uses it}."""
    name = {id(weight): name for name, weight in job.whole.named_parameters()}
    found = [(name[id(weight)], number) for number, layer in enumerate(job.layers) for weight in layer.parameters()]
    return dict(reversed(found))


MODE = LocalSteps()
