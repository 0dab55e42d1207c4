"""The head in pieces with interleaved chunks of blocks: its idle time, its memory, and equality on ranks."""

import numpy as np
import pytest

import hybridlab as hl

SIZES = [(4, 2, 16), (4, 4, 16), (8, 2, 32), (2, 2, 4), (3, 3, 3)]


def length(p, v, m, blocks=32, head=2.6):
    F = [blocks / (p * v)] * (p * v) + [head / p] * p + [0.0]
    costs = hl.Costs(F=tuple(F), B=tuple(2 * one for one in F))
    return hl.simulate(hl.schedule("vocabulary_1f1b", p, m, chunks=v), costs).length / (3 * m * (blocks + head) / p) - 1


def in_flight(program, stages) -> int:
    return int(np.cumsum([{"F": 1, "B": -1}[one.kind] * (one.stage in stages) for one in program]).max())


@pytest.mark.parametrize("p, v, m", SIZES)
def test_as_many_chunks_are_in_flight_as_its_peak_says(p, v, m):
    schedule = hl.schedule("vocabulary_1f1b", p, m, chunks=v)
    hl.validate(schedule)
    for r, program in enumerate(schedule.program):
        assert in_flight(program, range(v * p)) == min(2 * (p - 1 - r) + (v - 1) * p + 2, v * m)
        assert in_flight(program, [v * p + r]) == min(2, m)


@pytest.mark.parametrize("p, m", [(4, 16), (8, 32)])
@pytest.mark.parametrize("head", [2.6, 10.4])
def test_idle_time_falls_with_chunks(p, m, head):
    """Below that of interleaved without a head, (p-1)/(v·m): the pieces of the ends are done together."""
    idle = {v: length(p, v, m, head=head) for v in (1, 2, 4)}
    assert idle[2] < (p - 1) / (2 * m) and idle[4] < (p - 1) / (4 * m) and idle[2] < 0.55 * idle[1]
    assert idle[4] == pytest.approx(idle[2] / 2, rel=0.01)


@pytest.mark.parametrize(
    "more, words",
    [
        ({"chunks": 2, "halves": True}, "halves=True puts one chunk on each rank"),
        ({"chunks": 2, "microbatches": 3}, "microbatches=3 is not a multiple of the 2 ranks"),
    ],
)
def test_what_cannot_be_is_refused(more, words):
    with pytest.raises(ValueError, match=words):
        hl.schedule("vocabulary_1f1b", **{"ranks": 2, "microbatches": 4} | more)


@pytest.mark.ranks
def test_ranks_with_chunks_do_as_one_device_does(bench):
    report = bench.asked(
        hl.Mesh(pp=2), schedule="vocabulary_1f1b", chunks=2, microbatches=4, model=hl.Shape(layers=4),
        dtype="float64", optimizer="sgd",
    )  # fmt: skip
    assert report.ok and report.largest_gap <= 1e-10, report
