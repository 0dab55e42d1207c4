"""Count the tensors that a layer with experts dispatches. For a reference model, its `Shape` has the sizes. A user's
layer needs no shape: it declares `Dispatches` and names the dim of its experts, E; its sizes are those of the tensors
in the `dispatch` of one row.

Relatives: `expert_parallel` and `cut_experts`, which compute bytes from it; `predict.bytes.experts`.
"""

from functools import partial
from typing import NamedTuple

from hybridlab.core.what.seams import ByExpert, Dispatches, Routes

EXPERTS = Dispatches, Routes, ByExpert  # a layer with experts, complete or split in parts


class Routed(NamedTuple):
    """The sizes of a layer's experts: their number, how many a token chose, the width of a token, tokens of a row."""

    experts: int
    chosen: int
    width: int
    tokens: int

    def here(self, job, here: dict[str, int]) -> int:
        """The tokens of one row, if positions have the length in `here`."""
        return self.tokens // job.sizes.get("T", 1) * here.get("T", 1)


def seams_in(job, layer: int) -> set[type]:
    """The seams of experts that a layer's modules declare."""
    return {seam for module in job.layers[layer].modules() for seam in EXPERTS if isinstance(module, seam)}


def routed_in(job, layer: int) -> list[Routed]:
    """The sizes of all experts of a layer, or of the block of which it is a part."""
    shape = getattr(job.model, "shape", None)
    if shape is None:
        return job.once(_dispatched).get(layer, [])
    return [Routed(shape.experts, shape.chosen, shape.width, shape.context)] if seams_in(job, layer) else []


def routed_first(job) -> Routed:
    """The sizes of the first experts of a model."""
    return next(one for layer in range(len(job.layers)) for one in routed_in(job, layer))


def _dispatched(job) -> dict[int, list[Routed]]:
    """{layer: the sizes of its experts}: one row goes through the model."""
    found = {}

    def noting(layer, dispatch, x_ND, chosen_NC, *more):
        found.setdefault(layer, []).append(
            Routed(job.sizes["E"], chosen_NC.shape[1], x_ND.shape[1], chosen_NC.shape[0])
        )
        return dispatch(x_ND, chosen_NC, *more)

    def listen(module):
        for number, layer in enumerate(job.model.layers(module)):
            for one in layer.modules():
                if isinstance(one, Dispatches):
                    one.dispatch = partial(noting, number, one.dispatch)

    job.one_row(listen)
    return found
