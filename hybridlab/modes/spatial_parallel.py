"""Spatial parallelism: images are sharded into strips (h shards their rows, w their columns), or by both into tiles.

One image may be too large for one device. Here each rank saves its part of all activations. Weights are the same
everywhere, and a rank's pixels are one more part of the batch, so gradients are added over h and w as over replicas
(the layout's record says so: `core.where.rules`). Most layers treat each pixel separately and need no message. The
others are in `cut_layers`. A test run finds any further ones before training starts (`pixelwise`).

A batch norm uses the statistics of the full microbatch: they are summed over h and w, but
not over dp, where other microbatches are. After a mean over all pixels, every rank has the same values, so each counts
a fraction of the loss.

Each layer's outputs are divided evenly. If there are fewer outputs than ranks, some ranks have none, and wait for the
others.

Source: Dryden et al. 2019, arXiv:1903.06681 (LBANN). Relatives: `halos`, `cut_layers`; `context_parallel`, the same for
a sequence; `predict.bytes.spatial`; notebook 34.
"""

from collections.abc import Iterator
from functools import partial

from hybridlab.core.what.seams import Normalises
from hybridlab.core.where.layout import Cut, even
from hybridlab.modes.mode import Mode, done
from hybridlab.modes.parts.cut_layers import KNOWN, forward_of, is_known, is_mean, normalised, sights_of, unfit
from hybridlab.modes.parts.halos import COLUMNS, ROWS
from hybridlab.modes.parts.pixelwise import of_one_pixel, refuse_mixing
from hybridlab.predict.bytes.spatial import moved
from hybridlab.predict.bytes.transfer import Transfer, transfer

RULES = {"Y": "h", "X": "w"}
DIMS = {"h": ROWS, "w": COLUMNS}


class SpatialParallel(Mode):
    """The runtime part of this mode."""

    name, axis, purpose = "spatial parallelism", "h", "space"
    axes = ("h", "w")

    def refuse(self, job):
        for letter, axis in RULES.items():
            if job.mesh[axis] > 1 and letter not in job.model.enters.split():
                raise ValueError(
                    f"{axis}={job.mesh[axis]} shards the {letter} of images, but the inputs of this model have no "
                    f'dimension of that name: give enters="B C Y X" if its inputs are images, or leave out {axis}'
                )
        for name, layer in job.whole.named_modules():
            if is_known(layer) and (reason := unfit(layer)):
                raise ValueError(
                    f"{name} ({type(layer).__name__}) {reason}, and h and w cannot shard this: leave both out"
                )
        refuse_mixing(job, RULES, {name: not is_mean(layer) for name, layer in job.once(_known).items()}, KNOWN)

    def data(self, job):
        return RULES

    def joined(self, job, layer):
        means = any(map(is_mean, job.layers[layer].modules()))
        left = job.between[layer]  # a tuple has more than the pixel that a mean leaves
        return "YX" if means and not isinstance(left, tuple) and left.shape[2:] == (1, 1) else ""

    def fit(self, module, comm, job):
        ranks = job.mesh.group(comm.rank, self.axes)
        comm.open(*job.mesh.groups(self.axes))
        for name in job.once(_known):
            layer, cuts = module.get_submodule(name), _cuts(job, name)
            if isinstance(layer, Normalises):
                layer.normalise = partial(normalised, comm=comm, cuts=cuts, ranks=ranks)
            else:
                passed = job.passed[name]
                layer.forward = forward_of(layer, comm, cuts, ranks, of_one_pixel(passed.entered, passed.left))

    def loss(self, comm, job, whole):
        if any(letter in job.leaving[-1].split() for letter in RULES):
            return whole
        ways = job.mesh["h"] * job.mesh["w"]
        return lambda output, target: whole(output, target) / ways  # all ranks have the same output

    # its messages

    def sends(self, job, layer, when, here) -> Iterator[tuple[str, int]]:
        """The all-reduces of batch norms and means. Halos differ from rank to rank: see `transfers`."""
        width = job.widths.value
        for name in job.once(_by_layer).get(layer, ()) if when != "again" else ():
            module, channels = job.once(_known)[name], _channels(job, name)
            if _goes(job, name, when) and isinstance(module, Normalises):
                yield from [("all_reduce", channels * max(width, 4))] * 2
            elif _goes(job, name, when) and is_mean(module):
                yield "all_reduce", here["B"] * channels * width

    def transfers(self, job) -> Iterator[Transfer]:
        yield from super().transfers(job)
        for group, program in self.playing(job):
            for (stage, when), times in done(program).items():
                for layer, phase in [
                    (one, phase) for one in job.bounds[stage] for phase in self.phases_of(job, one, when)
                ]:
                    for ranks, size in _halos(job, layer, phase, job.mesh.coordinates(group[0])):
                        yield transfer(job.mesh, "halos", "isend", ranks, times * size * job.accumulate)


def _known(job) -> dict:
    """{name: layer} of the layers that do not treat each pixel separately."""
    return {name: layer for name, layer in job.whole.named_modules() if is_known(layer) and name in job.passed}


def _by_layer(job) -> dict[int, list[str]]:
    """{layer: the names of the known layers in it}."""
    found = {}
    for name in job.once(_known):
        for layer in job.passed[name].layers:
            found.setdefault(layer, []).append(name)
    return found


def _cuts(job, name) -> dict[str, Cut]:
    """The layout of a layer's input."""
    shape = job.passed[name].entered
    return {axis: Cut(dim, even(shape[dim], job.mesh[axis])) for axis, dim in DIMS.items() if job.mesh[axis] > 1}


def _channels(job, name) -> int:
    return job.passed[name].entered[1]


def _goes(job, name, when: str) -> bool:
    """Whether a layer sends a message in this phase: a gradient is sent back only if its input requires one."""
    passed = job.passed[name]
    return when == "forward" or (when == "backward" and (passed.wanted or job.stage_of(passed.layers[0]) > 0))


def _messages(job) -> dict[str, dict]:
    """{name: {(sender, receiver): pixels of a channel}} of the layers that send halos; places are (h, w)."""
    found = {}
    for name, layer in job.once(_known).items():
        if sights := sights_of(layer):
            shape = job.passed[name].entered
            spans = [even(shape[dim], job.mesh[axis]) for axis, dim in DIMS.items()]
            found[name] = moved(spans, [sights[dim] for dim in DIMS.values()])
    return found


def _halos(job, layer: int, when: str, at: dict[str, int]):
    """((sender, receiver), bytes) of a layer's halos, among the ranks that differ from these coordinates only in h and
    w.
    """
    messages = job.once(_messages)
    for name in job.once(_by_layer).get(layer, ()):
        if name in messages and _goes(job, name, when):
            each = job.rows * _channels(job, name) * job.widths.value
            for places, pixels in messages[name].items():
                ranks = [job.mesh.rank(**at | _there(job, place)) for place in places]
                yield tuple(ranks if when == "forward" else ranks[::-1]), each * pixels


def _there(job, place) -> dict[str, int]:
    return {axis: at for axis, at in zip(DIMS, place) if axis in job.mesh.axes}


MODE = SpatialParallel()
