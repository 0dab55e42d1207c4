"""Compute the bytes of weights, gradients and optimizer state that each rank keeps between two steps.

Ψ parameters with Adam in mixed precision take 16 Ψ bytes: 2 for the weights, 2 for their gradients, 12 for the master
copy and two averages in single precision. Here the actual widths are used, and padding counts.

Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 3. See also `core.where.layout`, `modes.zero`, notebook 22.
"""

from typing import NamedTuple

from hybridlab.core.where.layout import Layout
from hybridlab.doors import AMOUNT, COUNT, guarded


@guarded(COUNT, states=AMOUNT, matrix=AMOUNT)
class Widths(NamedTuple):
    """Bytes per element of weights, gradients and optimizer state.

    value     bytes of a weight
    gradient  bytes of its gradient
    master    bytes of the optimizer's copy of it
    states    numbers that the optimizer keeps for each weight: Adam 2, SGD 0
    matrix    numbers that it keeps for each weight, in matrices that it needs in full: Muon 1
    """

    value: int = 4
    gradient: int = 4
    master: int = 4
    states: int = 2
    matrix: int = 1


SINGLE, MIXED = Widths(), Widths(value=2, gradient=2, master=4)


def model_states(layout: Layout, rank: int, widths: Widths = SINGLE) -> dict[str, int]:
    """{"value", "optimizer", "gradient": bytes between steps}.

    layout  of the parameters on a mesh
    rank    the rank in question
    widths  bytes per element, see `Widths`

    If the master width differs from the width of the weights, there is a master copy, and it belongs to the optimizer.
    With ZeRO's stage 3 no other copy of the weights is kept: 14 Ψ/p bytes, while the paper also keeps a shard in half
    precision. With two levels the pieces of the weights are larger than the optimizer's shares, so both are kept.

    >>> from hybridlab.core.where.layout import Mesh, Param
    >>> for stage in (0, 1, 2, 3):
    ...     param = Param("w", (100,), partial=("dp",), owners=4 if stage else 1, rest=stage)
    ...     print(stage, sum(model_states(Layout(Mesh(dp=4), (param,)), 0, MIXED).values()))
    0 1600
    1 700
    2 550
    3 350
    """
    kept = layout.elements(rank)
    states = (kept["owned"] - kept["whole"]) * widths.states + kept["whole"] * widths.matrix
    apart = widths.master if widths.master != widths.value else 0
    return {
        "value": (kept["value"] - kept["alone"]) * widths.value + kept["alone"] * widths.master,
        "optimizer": states * widths.master + (kept["optimizer"] - kept["alone"]) * apart,
        "gradient": kept["gradient"] * widths.gradient,
    }
