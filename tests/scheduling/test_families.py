"""Every schedule family: the closed forms of its docstring, over grids, and PyTorch's lists as second opinion."""

import itertools
from functools import partial

import pytest

import hybridlab as hl
from hybridlab.core.when.play import Stuck
from hybridlab.scheduling.validate import Invalid

pytestmark = pytest.mark.slow  # many cases

EQUAL = hl.Costs()  # F = I = W = 1, so B = 2
THIRDS = hl.Costs(F=2, I=2, W=1)


def timeline(name, p, m, costs=EQUAL, **options):
    return hl.simulate(hl.schedule(name, ranks=p, microbatches=m, **options), costs)


def idle(t):
    """Idle time of a rank from start to end, in units."""
    return t.length - max(t.busy)


def own_idle(t):
    """Idle time inside the longest rank's own span."""
    return round(t.bubble_span * max(t.busy) / (1 - t.bubble_span), 9)


REFEREE = {  # p = 4, m = 8, F = I = W = 1 per chunk: length, and the longest own span
    ("gpipe", ()): (33, 33),
    ("1f1b", ()): (33, 33),
    ("interleaved", (("chunks", 2),)): (57, 57),
    ("interleaved", (("chunks", 3),)): (81, 81),
    ("zb_interleaved", (("chunks", 2),)): (51, 51),
    ("zb_h1", ()): (27, 27),
    ("zb_h2", ()): (27, 24),
    ("zb_v", ()): (51, 48),
    ("dualpipe_v", ()): (54, 54),
    ("dualpipe", ()): (26, 26),
}


@pytest.mark.parametrize("name, options", REFEREE)
def test_lengths_of_the_referee_table(name, options):
    t = timeline(name, 4, 8, **dict(options))
    length, span = REFEREE[name, options]
    assert t.length == length and max(t.busy) + own_idle(t) <= span


@pytest.mark.parametrize("backward", ("fifo", "lifo"))
def test_gpipe_computes_again_and_holds_one(backward):
    for p, m in itertools.product((1, 2, 4), (1, 2, 8)):
        plain = timeline("gpipe", p, m, backward=backward)
        again = timeline("gpipe", p, m, backward=backward, recompute="always")
        spared = timeline("gpipe", p, m, backward=backward, recompute="except_last")
        assert again.length == plain.length + m  # a rank's first R hides in its wait for the first gradient
        assert again.peak_live == [1] * p and max(spared.peak_live) <= (1 if backward == "lifo" or m == 1 else 2)
        assert plain.length <= spared.length <= again.length
        assert sum(again.busy) == 4 * m * p


@pytest.mark.parametrize("p, v, rounds", list(itertools.product((2, 3, 4, 8), (1, 2, 3, 4), (1, 2, 3))))
def test_interleaved_divides_the_bubble_by_chunks(p, v, rounds):
    m = p * rounds
    t = timeline("interleaved", p, m, chunks=v)
    assert t.bubble_overhead == pytest.approx((p - 1) / (v * m))
    assert t.peak_live == [min((v - 1) * p + 2 * (p - 1 - r) + 1, v * m) for r in range(p)]


@pytest.mark.parametrize("p, v", list(itertools.product((4, 8), (2, 3, 4))))
def test_interleaved_with_fewer_microbatches_than_ranks(p, v):
    for m in range(1, p + 1):
        assert idle(timeline("interleaved", p, m, chunks=v)) == ((p - 1) + (p - m) * (v - 1)) * 3


@pytest.mark.parametrize("p, m, v", list(itertools.product((2, 4, 8), (1, 3, 4, 8, 11, 16), (1, 2, 3))))
def test_breadth_first_has_the_same_bubble_and_all_activations(p, m, v):
    t = timeline("looped_bfs", p, m, chunks=v)
    assert idle(t) == ((p - 1) + max(p - m, 0) * (v - 1)) * 3
    assert t.peak_live == [v * m] * p


@pytest.mark.parametrize("p", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("costs", [EQUAL, THIRDS, hl.Costs(F=5, I=6, W=3), hl.Costs(F=3, I=3, W=3)])
def test_zb_h1_has_a_third_of_the_bubble(p, costs):
    took = partial(costs.of, stage=0)
    for m in (p, p + 3, 3 * p):
        t = timeline("zb_h1", p, m, costs)
        assert idle(t) == (p - 1) * (took("F") + took("I") - took("W"))
        assert t.peak_live == [p] * p


@pytest.mark.parametrize("p", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("costs", [EQUAL, THIRDS, hl.Costs(F=5, I=6, W=3)])
def test_zb_h2_has_none_at_equal_costs(p, costs):
    took = partial(costs.of, stage=0)
    for m in (2 * p - 1, 2 * p + 3):
        t = timeline("zb_h2", p, m, costs)
        assert own_idle(t) == (p - 1) * (took("F") + took("I") - 2 * took("W"))
        assert t.peak_live == [2 * p - 1] * p


@pytest.mark.parametrize("p, v, rounds", list(itertools.product((2, 4, 8), (1, 2, 3), (1, 2, 3))))
def test_interleaved_zero_bubble(p, v, rounds):
    for costs in (EQUAL, THIRDS):
        took = partial(costs.of, stage=0)
        t = timeline("zb_interleaved", p, p * rounds, costs, chunks=v)
        assert idle(t) == (p - 1) * max(took("F"), took("F") + took("I") - took("W"))
    assert max(t.peak_live) == v * p


@pytest.mark.parametrize("p", (1, 2, 3, 4, 8))
def test_zb_v_has_none_with_the_memory_of_1f1b(p):
    for m in (2 * p - 1, 2 * p, 3 * p):
        t = timeline("zb_v", p, m)
        assert own_idle(t) == 0 and idle(t) == p - 1
        assert t.peak_live == [2 * p if m >= 2 * p else 2 * m] * p or max(t.peak_live) <= 2 * p


def test_zb_v_loses_its_charm_at_other_costs():
    assert own_idle(timeline("zb_v", 4, 12, hl.Costs(F=2, I=3, W=1))) == 12


@pytest.mark.parametrize("p", (2, 4, 8, 16))
def test_dualpipe(p):
    t = timeline("dualpipe", p, 2 * p)
    assert idle(t) == (p / 2 - 1) * (3 + 2 - 3) and t.peak_live == [p + 1] * p  # (p/2-1)(F&B+B-3W)
    fused = timeline("dualpipe", p, 2 * p, hl.Costs(fused=2.5))
    assert fused.length < t.length or p == 2 and fused.length <= t.length


@pytest.mark.parametrize("p", (1, 2, 3, 4))
def test_dualpipe_v(p):
    t = timeline("dualpipe_v", p, 3 * p)
    assert idle(t) == (p - 1) * 2 and max(t.peak_live) <= 2 * p + 1


@pytest.mark.parametrize("p, units", list(itertools.product((2, 4, 8), (1, 2, 3))))
def test_chimera(p, units):
    m = p * units
    t = timeline("chimera", p, m, hl.Costs(F=1, B=1))
    assert t.length == 2 * m + p - 2
    assert t.bubble_fraction == pytest.approx((p - 2) / (2 * m + p - 2))
    assert p / 2 + 1 <= max(t.peak_live) <= p or p == 2


@pytest.mark.parametrize("p", (2, 4, 8))
def test_hanayo(p):
    t = timeline("hanayo", p, p, hl.Costs(F=1, B=2))
    assert t.bubble_fraction == pytest.approx((2 * p - 2) / (3 * p + 2 * p - 2))
    for waves in (2, 4):
        t = timeline("hanayo", p, p, hl.Costs(F=1, B=2), waves=waves)
        assert (p - 1) / (2 * waves * p + p - 1) <= t.bubble_fraction <= (2 * p - 2) / (3 * p * waves + 2 * p - 2) * 1.1


@pytest.mark.parametrize("name, idles, peaks", [("v_half", (8, 20), (6, 10)), ("v_min", (11, 27), (4, 8))])
def test_controllable_memory(name, idles, peaks):
    for p, expected, peak in zip((4, 8), idles, peaks):
        t = timeline(name, p, 4 * p)
        assert (idle(t), max(t.peak_live)) == (expected, peak)


@pytest.mark.parametrize("p", (2, 3, 4, 5, 6, 7, 8, 12, 13, 32))
def test_v_half_has_half_the_bubble_of_1f1b_and_half_its_memory(p):
    t = timeline("v_half", p, 4 * p)
    assert idle(t) == 3 * p - 4 <= idle(timeline("1f1b", p, 4 * p, hl.Costs(F=2, B=4))) / 2
    assert t.peak_live == [p + 1 if p % 2 else p + 2] * p


@pytest.mark.parametrize("p, m", list(itertools.product((1, 2, 4, 8), (1, 2, 5, 16))))
def test_pipedream_never_flushes(p, m):
    t = timeline("pipedream", p, m)
    assert t.bubble_fraction == pytest.approx((p - 1) / (m + p - 1))
    assert t.peak_live == [min(p - r, m) for r in range(p)]
    if m >= 2 * p:  # with fewer, the pipeline drains before all versions are there
        assert t.peak("weights") == [p - r for r in range(p)]
        assert timeline("pipedream", p, m, vertical_sync=True).peak("weights") == [p] * p


@pytest.mark.parametrize("p, windows, window", list(itertools.product((1, 2, 4), (2, 3, 4), (4, 6))))
def test_two_versions_are_enough_for_2bw(p, windows, window):
    t = timeline("pipedream_2bw", p, windows * window, window=window)
    assert t.peak("weights") == [2] * p
    assert t.bubble_fraction == pytest.approx((p - 1) / (windows * window + p - 1))


def test_a_wrong_version_is_refused():
    s = hl.schedule("pipedream", ranks=2, microbatches=4)
    for rank, program in enumerate(s.program):
        for i, action in enumerate(program):
            if action.kind in "FB" and action.version > 0:
                damaged = [list(one) for one in s.program]
                damaged[rank][i] = action._replace(version=action.version - 1)
                with pytest.raises((Invalid, Stuck)):
                    hl.validate(s.with_programs(damaged))


SYNCHRONOUS = [name for name in hl.schedules() if not name.startswith("pipedream")]


@pytest.mark.long
@pytest.mark.long
@pytest.mark.parametrize("name", hl.schedules())
def test_every_schedule_is_valid_wherever_it_is_legal(name):
    tried = 0
    for p, m in itertools.product((1, 2, 3, 4, 5, 8), range(1, 18)):
        try:
            s = hl.schedule(name, ranks=p, microbatches=m)
        except ValueError as error:
            assert "\n" not in str(error), error  # refused in one sentence, never found broken
            continue
        tried += 1
        assert s.microbatches == m == len(s.replica_of)
        t = hl.simulate(s, EQUAL)
        assert sum(t.busy) == 3 * m * s.stages and t.length >= max(t.busy)
    assert tried >= 6


@pytest.mark.parametrize("name", hl.schedules())
def test_every_schedule_can_be_lowered_and_played(name):
    for p, m in ((2, 4), (4, 8), (4, 12)):
        s = hl.schedule(name, ranks=p, microbatches=m)
        lowered = hl.validate(hl.lower(s))
        assert lowered.computing == s.computing
        assert hl.simulate(lowered, EQUAL).length == hl.simulate(s, EQUAL).length
        assert hl.Schedule.from_dict(lowered.to_dict()).program == lowered.program


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_copies_of_every_synchronous_schedule(name):
    one = hl.schedule(name, ranks=4, microbatches=8)
    two = hl.schedule(name, ranks=4, microbatches=8, dp=2)
    t = hl.simulate(two, EQUAL)
    assert t.length == hl.simulate(one, EQUAL).length and two.ranks == 8 and len(two.replica_of) == 16


TORCH = {
    "gpipe": ("GPipe", (None,)),
    "interleaved": ("Interleaved1F1B", (2, 3, 4)),
    "looped_bfs": ("LoopedBFS", (2, 3)),
    "zb_interleaved": ("InterleavedZeroBubble", (2, 3)),
    "zb_v": ("ZBVZeroBubble", (2,)),
    "dualpipe_v": ("DualPipeV", (2,)),
}


@pytest.mark.long
@pytest.mark.long
@pytest.mark.parametrize("name", TORCH)
def test_pytorch_writes_the_same_lists(name):
    """Not for 1F1B: PyTorch 2.13's printed order of it starts with F1 on the last rank."""
    viewer = pytest.importorskip(
        "torch.distributed.pipelining._schedule_visualizer", reason="a private module of torch"
    )
    theirs, chunk_choices = TORCH[name]
    compared = 0
    for p, m, v in itertools.product((2, 4, 8), (2, 4, 8, 10, 16, 20), chunk_choices):
        options = {"chunks": v} if name in ("interleaved", "looped_bfs", "zb_interleaved") else {}
        if m % max(1, m // p) or (name == "dualpipe_v" and m < 2 * p):
            continue  # PyTorch refuses these
        listed = viewer.get_schedule_ops(theirs, p, m, **({} if v is None else {"num_stages_per_rank": v}))
        skip = ("REDUCE_GRAD", "UNSHARD", "RESHARD")
        cells = [[str(a) for a in rank if a is not None and not str(a).endswith(skip)] for rank in listed]
        assert cells == [[str(a) for a in program] for program in hl.schedule(name, p, m, **options).program], (p, m, v)
        compared += 1
    assert compared >= 4


def test_our_programs_play_to_the_end_in_pytorchs_simulator():
    torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    if not hasattr(torch_schedules, "_simulate_comms_compute"):
        pytest.skip("this torch has no simulator under its private name")
    for name in ("naive", "gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_h2", "zb_v", "zb_interleaved"):
        s = hl.lower(hl.schedule(name, ranks=4, microbatches=8))
        order = {r: [torch_schedules._Action.from_str(str(a)) for a in program] for r, program in enumerate(s.program)}
        played = torch_schedules._simulate_comms_compute(order, lambda stage, place=s.place: place[stage, 0], s.stages)
        assert sum(a is not None for rank in played.values() for a in rank) == len(s.rows)


@pytest.mark.parametrize(
    "name, arguments, says",
    [
        ("dualpipe", dict(ranks=3, microbatches=8), "ranks=3 is odd, and dualpipe pairs the ranks: give 4"),
        ("dualpipe", dict(ranks=4, microbatches=6), "8 or more"),
        ("dualpipe_v", dict(ranks=4, microbatches=7), "cannot use 7 microbatches: give 8 or more"),
        ("chimera", dict(ranks=4, microbatches=5), "microbatches=5 is odd, and chimera divides it between two"),
        ("interleaved", dict(ranks=4, microbatches=8, chunks=0), "chunks=0 is not possible"),
        ("looped_bfs", dict(ranks=4, microbatches=8, chunks=-1), "chunks=-1 is not possible"),
        ("interleaved", dict(ranks=4, microbatches=10, group=7), "choose from [5, 6, 10]"),
        ("hanayo", dict(ranks=4, microbatches=8, waves=0), "waves=0 is not possible"),
        ("pipedream_2bw", dict(ranks=4, microbatches=10), "choose window from [5, 10]"),
        ("pipedream_2bw", dict(ranks=4, microbatches=3), "give a multiple of 4 microbatches"),
    ],
)
def test_impossible_numbers_say_what_is_possible(name, arguments, says):
    with pytest.raises(ValueError) as caught:
        hl.schedule(name, **arguments)
    assert says in str(caught.value) and "\n" not in str(caught.value)
