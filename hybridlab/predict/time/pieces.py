"""Predict the time of a matmul that overlaps with its messages piece by piece, and the width that hides them.

Before a matmul, t ranks gather t parts of its input; or after it, they sum and scatter its output. In pieces, a rank
computes the matmul of one part while the next part, or the sum of the previous one, makes a hop. With c seconds for a
matmul and μ for a hop:

    one after another   t·c + (t - 1)·μ
    in pieces           c + (t - 1)·max(c, μ)

So hops are hidden if c ≥ μ. For m positions in a part, a stream of width h and N local outputs (or inputs), a matmul
takes 2·m·h·N/F seconds at F FLOP/s, a hop m·h·w/W at W bytes/s for numbers of w bytes. Batch, context, h and t cancel:

    c ≥ μ   if   N ≥ w·F / 2W

Two costs are left out: a short GEMM reaches a lower rate, and copies take processors or bandwidth from the GEMM.

Source: Wang et al. 2023, "Overlap Communication with Dependent Computation via Decomposition", ASPLOS. Relatives:
`modes.parts.overlapped`, which runs it; `ring`, the same question for attention; notebook 30.
"""

from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.time.overlap import Piece, Tracks


def in_pieces(ways: int, matmul: float, hop: float, overlapped: bool = True) -> list[Piece]:
    """The matmuls and the hops of one rank.

    ways        t, the number of ranks and of parts
    matmul     seconds of the matmul of one part
    hop         seconds until a part has reached the next rank
    overlapped  whether a hop takes place during a matmul

    >>> from hybridlab.predict.time.overlap import length
    >>> length(in_pieces(4, matmul=2, hop=1)), length(in_pieces(4, matmul=2, hop=1, overlapped=False))
    (8.0, 11.0)
    >>> length(in_pieces(4, matmul=2, hop=3)), length(in_pieces(4, matmul=2, hop=3, overlapped=False))
    (11.0, 17.0)
    """
    does, here = Tracks(), 0.0
    for part in range(ways):
        does.wait(here)
        here = does.send("tp", f"hop {part + 1}", hop * (part + 1 < ways))
        if not overlapped:
            does.wait(here)
        does.work(f"part {part}", matmul)
    return does.pieces


def seconds(ways: int, matmul: float, hop: float, overlapped: bool = True) -> float:
    """The length of `in_pieces` in closed form.

    >>> seconds(4, matmul=2, hop=3), seconds(4, matmul=2, hop=3, overlapped=False)
    (11, 17)
    """
    return matmul + (ways - 1) * max(matmul, hop) if overlapped else ways * matmul + (ways - 1) * hop


def least_width(rate: float, link: Link, width: int = 2) -> float:
    """N, the local width of a matrix for which a hop takes as long as the matmul next to it; with more, it is hidden.

    rate   FLOP/s of the matmuls
    link   to the next rank; its latency is left out
    width  bytes of a number

    An H100 at 600 TFLOP/s, with 450 GB/s in each direction of NVLink. Llama-3-70B on 8 ranks: its gate and up matrices
    have 2·28,672/8 = 7,168 local outputs, so their gather is hidden; q, k and v have 10,240/8 = 1,280, just too few.

    >>> round(least_width(rate=6e14, link=Link(0, 1 / 450e9)))
    1333
    """
    return width * rate * link.beta / 2
