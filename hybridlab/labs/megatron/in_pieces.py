"""Notebook 30: a matmul whose messages overlap with it piece by piece, predicted for GPUs and timed on ranks.

Ranks that share cores wait a fixed time instead of each matmul, so that messages have the cores.
"""

import time

from hybridlab.core.what.catalog import machine
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.time.overlap import Piece, length
from hybridlab.predict.time.pieces import in_pieces, least_width
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.still import Still
from hybridlab.show.timelines.tracks import Row, Telling, tracks

RATE = 6e14  # FLOP/s of a large GEMM on an H100: about 60 % of the peak
TOKENS, WIDTH, BYTES = 4 * 8192, 8192, 2  # four sequences of Llama 3 70B; bytes of a number
WIDTHS = (640, 1280, 2560, 7168)
FORMS = {"one after another": False, "in pieces": True}
WORDS = 1 << 18  # numbers of a part on ranks: 1 MiB
PARTS = Telling(
    {"part": "F"}, (("F", "matmul of a part"), ("message", "hop of a part"), ("bubble", "no matmul"))
)  # fmt: skip


def link() -> Link:
    """The link of an H100 to the other GPUs of its server, without latency."""
    return Link(0.0, 1 / machine("h100").inside)


def widest() -> int:
    """The smallest local width for which the hops are fully overlapped on an H100.

    >>> widest()
    1333
    """
    return round(least_width(RATE, link(), BYTES))


def choose() -> Chooser:
    """The matmuls and hops of one matrix, one after another and in pieces, for t ranks and a local width."""
    choices = {"ways": ("ranks", [2, 4, 8], 8), "width": ("local width", list(WIDTHS), 1280)}
    return Chooser(still, choices, [{"width": 640}, {"width": 2560}])


def still(ways: int, width: int) -> Still:
    """The two rows for one choice.

    >>> still(8, 2560).summary.splitlines()[-1]
    'in pieces, width 2560: 2.3 ms, of which 0.0 ms without a matmul; messages 1.0 ms'
    """
    tokens = TOKENS / ways
    matmul, hop = 2 * tokens * WIDTH * width / RATE, tokens * WIDTH * BYTES * link().beta
    rows = [Row(f"{name}, width {width}", in_pieces(ways, matmul, hop, over)) for name, over in FORMS.items()]
    return tracks(*rows, title=f"One matrix of {width} local outputs on {ways} H100s", telling=PARTS)


def timed(pool, wait: float = 4e-3, times: int = 5) -> Still:
    """A gather and the matmuls of its parts on the ranks of a pool, both ways; in pieces also predicted.

    wait   seconds that a rank waits instead of each matmul
    times  number of tries of each; the fastest counts, because it was disturbed least
    """
    ways = pool.mesh["tp"]
    plain, ours = ([Piece(*one) for one in pool.run(_recorded, over, wait, times)[0]] for over in FORMS.values())
    hop = max(0.0, length(plain) - ways * wait) / (ways - 1)
    rows = [
        Row("one after another, measured", plain, True),
        Row("in pieces, predicted", in_pieces(ways, wait, hop)),
        Row("in pieces, measured", ours, True),
    ]
    return tracks(*rows, title=f"A gather on {ways} ranks, and a matmul of each part", telling=PARTS)


class _Noted:
    """A rank's comm that records when a hop begins, and when it ends."""

    def __init__(self, comm, note):
        self._comm, self._note, self._hops = comm, note, 0

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def irecv(self, *about):
        begin, message = time.perf_counter_ns(), self._comm.irecv(*about)
        self._hops += 1
        message.when_over(lambda end, hop=self._hops: self._note("tp", f"hop {hop}", begin, end))
        return message


def _recorded(comm, overlapped, wait, times):
    """The pieces of the fastest try, in seconds from its beginning."""
    return min((_once(comm, overlapped, wait) for _ in range(times + 1)), key=lambda its: max(one[3] for one in its))


def _once(comm, overlapped, wait):
    import torch

    from hybridlab.modes.parts.circle import Circle

    found = []
    note = lambda *about: found.append(about)
    circle = Circle(_Noted(comm, note), "tp", [WORDS] * comm.size, 0)
    comm.barrier()
    start = time.perf_counter_ns()
    coming = circle.passing(torch.zeros(WORDS, device=comm.device))
    for number, _ in enumerate(coming if overlapped else list(coming)):
        begin = time.perf_counter_ns()
        time.sleep(wait)
        note("compute", f"part {number}", begin, time.perf_counter_ns())
    return [(track, name, 1e-9 * (begin - start), 1e-9 * (end - start)) for track, name, begin, end in found]
