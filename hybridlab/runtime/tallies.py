"""Tallies: counts of a layer in the forwards of a step, which update its state at the end of the step.

Some layers keep statistics that no gradient changes, such as a batch norm. If every forward updated them, they would
depend on the order of microbatches and on the replica. So the layer only *counts* in the forward: its `tally` is a sum
over rows. At the end of a step, tallies are added over the ranks that hold the same layer, as its gradients are. Then
the layer's `settle()` computes its new statistics from them. They are the same on one device and for any layout.

Source: deferred batch normalization, Kim et al. 2020 (torchgpipe), arXiv:2004.09910, section 3. Relatives:
`training.models.batch_norm`, `modes.data_parallel`.
"""

from collections.abc import Iterator

from torch import nn

from hybridlab.core.what.seams import Tallies
from hybridlab.core.where.layout import Layout
from hybridlab.predict.bytes.transfer import Transfer, transfer


def tallying(module: nn.Module) -> dict[str, nn.Module]:
    """{name of its first weight: layer} of every layer that declares `Tallies`."""
    found = {}
    for name, layer in module.named_modules():
        if isinstance(layer, Tallies):
            weight = next((weight for weight, _ in layer.named_parameters()), None)
            if weight is None:
                raise ValueError(f"{name} keeps a tally but has no weight to identify its copies: give {name} a weight")
            found[f"{name}.{weight}".lstrip(".")] = layer
    return found


def settle(comm, layout: Layout, layers: dict[str, nn.Module]):
    """Add up the tallies of these layers over the ranks that add up their weights' gradients, and update the layers.

    layers  {name of a weight in the layout: the layer}, for the layers of this rank
    """
    for name, layer in layers.items():
        comm.all_reduce(layer.tally, layout.summed(name, comm.rank))
        layer.settle()


def transfers(layout: Layout, layers: dict[str, nn.Module]) -> Iterator[Transfer]:
    """The bytes sent in a step to settle tallies."""
    for name, layer in layers.items():
        for ranks in sorted({layout.summed(name, rank) for rank in range(layout.mesh.size)}):
            if len(ranks) > 1:
                yield transfer(layout.mesh, "tallies", "all_reduce", ranks, layer.tally.nbytes)
