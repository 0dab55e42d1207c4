"""Predict the time of a matmul that overlaps with its messages piece by piece, and the width that hides them.

Before a matmul, t ranks gather t parts of its input; or after it, they sum and scatter its output. In pieces, a rank
computes the matmul of one part while the next part, or the sum of the previous one, makes a hop. With c seconds for a
matmul and μ for a hop:

    one after another   t·c + (t - 1)·μ
    in pieces           c + (t - 1)·max(c, μ)

So hops are hidden if c ≥ μ. For m positions in a part, a stream of width h and N local outputs (or inputs), a matmul
takes 2·m·h·N/F seconds at F FLOP/s, a hop m·h·w/W at W bytes/s for numbers of w bytes. Batch, context, h and t cancel:

    c ≥ μ   if   N ≥ w·F / 2W

In two directions only ⌈(t - 1)/2⌉ hops follow each other; all but the first are sent during the matmuls of two parts.
Two costs are left out: a short GEMM reaches a lower rate, and copies take processors or bandwidth from the GEMM.

Source: Wang et al. 2023, "Overlap Communication with Dependent Computation via Decomposition", ASPLOS. Relatives:
`modes.parts.overlapped`, which runs it; `ring`, the same question for attention; notebook 30.
"""

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.time.overlap import Piece, Tracks


def in_pieces(ways: int, matmul: float, hop: float, overlapped: bool = True, directions: int = 1) -> list[Piece]:
    """The matmuls and the hops of one rank.

    ways        t, the number of ranks and of parts
    matmul      seconds of the matmul of one part
    hop         seconds until a part has reached the next rank
    overlapped  whether a hop takes place during a matmul
    directions  1, or 2: parts come from both neighbours at the same time

    >>> from hybridlab.predict.time.overlap import length
    >>> length(in_pieces(4, matmul=2, hop=1)), length(in_pieces(4, matmul=2, hop=1, overlapped=False))
    (8.0, 11.0)
    >>> length(in_pieces(4, matmul=2, hop=3)), length(in_pieces(4, matmul=2, hop=3, overlapped=False))
    (11.0, 17.0)
    >>> length(in_pieces(4, matmul=2, hop=3, directions=2))
    9.0
    """
    does, here, done = Tracks(), 0.0, 0
    for step in range(1 + hops(ways, directions)):
        does.wait(here)
        last = step == hops(ways, directions)
        here = does.send("tp", f"hop {step + 1}", hop * (not last))
        if not overlapped:
            does.wait(here)
        for part in range(done, min(done + (directions if step else 1), ways)):
            does.work(f"part {part}", matmul)
            done += 1
    return does.pieces


def hops(ways: int, directions: int = 1) -> int:
    """The number of hops that follow each other.

    >>> [hops(ways, directions=2) for ways in (1, 2, 3, 8)]
    [0, 1, 1, 4]
    """
    return -(-(ways - 1) // directions)


def seconds(ways: int, matmul: float, hop: float, overlapped: bool = True, directions: int = 1) -> float:
    """The length of `in_pieces` in closed form.

    >>> print(seconds(4, 2, hop=3), seconds(4, 2, hop=3, overlapped=False), seconds(4, 2, hop=3, directions=2))
    11 17 9
    """
    many = hops(ways, directions)
    return ways * matmul + (exposed(matmul, hop, many, directions) if overlapped else many * hop)


def exposed(matmul: Amount, hop: Amount, many: Amount, directions: Amount = 1) -> Amount:
    """The seconds of `in_pieces` without a matmul: the first hop is sent during one matmul, each later one
    during as many as there are directions.

    many  hops that follow each other, see `hops`

    >>> print(exposed(matmul=2, hop=3, many=3), exposed(matmul=2, hop=3, many=2, directions=2))
    3 1
    """
    later = np.maximum(many - 1, 0) * np.maximum(hop - directions * matmul, 0)
    return np.minimum(many, 1) * np.maximum(hop - matmul, 0) + later


def least_width(rate: float, link: Link, width: int = 2, directions: int = 1) -> float:
    """N, the local width of a matrix for which a hop takes as long as the matmul next to it; a wider matrix hides the
    hop. In two directions it is half of that, for all hops but the first.

    rate        FLOP/s of the matmuls
    link        to the next rank; its latency is left out
    width       bytes of a number
    directions  1 or 2

    An H100 at 600 TFLOP/s, with 450 GB/s in each direction of NVLink. Llama-3-70B on 8 ranks: its gate and up matrices
    have 2·28,672/8 = 7,168 local outputs, so their gather is hidden; q, k and v have 10,240/8 = 1,280, just too few.

    >>> round(least_width(rate=6e14, link=Link(0, 1 / 450e9)))
    1333
    """
    return width * rate * link.beta / 2 / directions
