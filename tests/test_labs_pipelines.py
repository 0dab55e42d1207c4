"""Exercises of notebooks 11 and 12: what `test_exercises` feeds them, bounds that hold; and the experiments."""

import itertools
import re
from pathlib import Path

import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.core.play import Stuck
from hybridlab.labs import gpipe, gpipe_tasks, naive
from hybridlab.labs import one_f_one_b as orders
from hybridlab.labs.gpipe_tasks import CHART
from hybridlab.labs.one_f_one_b_tasks import ROOM, _by_hand, _from_letters, _least_length
from hybridlab.labs.pipelines import UNIT
from hybridlab.train.stages import cut

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("first_attempt")]  # long: many cases

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"

GAME = "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3"
GAME_LETTERS = ["FFFBFBBB", "FFBFBFBB", "FBFBFBFB"]
GPIPE_LETTERS = ["FFFFBBBB"] * 3
DESIGN = ["FFF" + "BF" * 9 + "BBB", "FFF" + "BBFBFF" * 3 + "BBB", "FFFBBB" + "FFBFBB" * 3, "FB" * 12]
IN_TURNS = ["FFF" + "BF" * 9 + "BBB", "FFF" + "BF" * 9 + "BBB", "FF" + "BF" * 10 + "BB", "FB" * 12]


def one_f_one_b(rank, ranks, microbatches):
    w = min(ranks - 1 - rank, microbatches)
    return "F" * w + "FB" * (microbatches - w) + "B" * w


def warm_up_by_one_too_long(rank, ranks, microbatches):
    w = min(ranks - rank, microbatches)
    return "F" * w + "FB" * (microbatches - w) + "B" * w


def many_microbatches_only(rank, ranks, microbatches):
    w = ranks - 1 - rank
    return "F" * w + "FB" * (microbatches - w) + "B" * w


def backwards_first(rank, ranks, microbatches):
    return "B" * microbatches + "F" * microbatches


RIGHT = {
    "gpipe.bubbles": [(3 / 11, 3 / 8), [0.273, 0.375], ("0.2727", "0.375")],
    "gpipe.microbatches": [(27, 63), [27.0, 63.0]],
    "gpipe.chart": [("2B0", "3B0"), ["0B0", "1B0"], (" 1B3 ", "2B3")],
    "gpipe.size": [(8, 3 / 8), [8, 0.375]],
    "gpipe.design": [8, 8.0],
    "gpipe.again": [8, "8"],
    "1f1b.game": [GAME, GAME_LETTERS, hl.schedule("1f1b", ranks=3, microbatches=4)],
    "1f1b.held": [[4, 4, 4, 3, 2, 1], (4, 4, 4, 3, 2, 1)],
    "1f1b.order": [one_f_one_b],
    "1f1b.deadlock": [("2SEND_F1", "3SEND_B0"), ["3SEND_B0", "2SEND_F1"]],
    "1f1b.design": [DESIGN, _from_letters(DESIGN), hl.Schedule.from_csv(_from_letters(DESIGN))],
}
WRONG = {  # (answer, a piece of the sentence that it must get)
    "gpipe.bubbles": [
        ((3 / 8, 3 / 11), "the other way round"),
        ((3 / 8, 3 / 8), "idle / ideal is right"),
        ((3 / 11, 3 / 11), "idle / total is right"),
        ((27.3, 37.5), "between 0 and 1"),
        ((0.5, 0.5), "Neither is right"),
        (3 / 11, "two numbers"),
    ],
    "gpipe.microbatches": [
        ((30, 70), "idle / ideal is a tenth"),
        ((16, 32), "p = 4, m = 16: idle / total is 15.8%, too much"),
        ((27, 64), "p = 8, m = 64: idle / total is 9.9%, little enough, but"),
        ((63, 27), "p = 4, m = 63"),
        ((26.5, 63), "not possible"),
        ((0, 63), "not possible"),
        ((10**8, 63), "not possible"),
        (27, "two whole numbers"),
    ],
    "gpipe.chart": [
        (("3B0", "2B0"), "The other way round: 2B0 takes what 3B0 makes"),
        (("1F0", "0F0"), "slot 1 after 0"),
        (("3B0", "3F3"), "takes nothing from 3F3"),
        (("9F9", "0F0"), "no box of this chart"),
        ("2B0", "two boxes"),
    ],
    "gpipe.size": [
        ((32, 3 / 32), "larger pieces"),
        ((16, 3 / 16), "before b was doubled"),
        ((8, 3 / 11), "The other number is idle / total"),
        ((8, 0.5), "m is right"),
        ((7, 3 / 7), "with the new b"),
        (8, "two numbers"),
    ],
    "gpipe.design": [
        (1, "m = 96: idle / total 3.0%, a step takes 891 units; 450 are possible"),
        (96, "m = 1: idle / total 75.0%"),
        (12, "450 are possible"),
        (7, "7 does not divide 96"),
        (0, "0 does not divide"),
        (-8, "-8 does not divide"),
        (2.5, "one whole number"),
        ("8", "one whole number"),
    ],
    "gpipe.again": [
        (32, "all four ranks"),
        (11, "in eight of them"),
        (7, "Too small"),
        (41, "Too large"),
    ],
    "1f1b.game": [
        (GPIPE_LETTERS, "rank 0 holds 4 activations at once; 3 will do"),
        (["FB" * 4] * 3, "It takes 36 units, idle / total 66.7%; 18 are possible"),
        (GAME.replace("2F0,2B0", "2B0,2F0"), "waits on itself"),
        (GAME.replace(",2B3", ""), "add 2B3"),
        (["FB"] * 3, "Make it 3, 3, 4"),
        ("0X0,0B0", "is no action"),
        (["FX"], "list of strings of F and B"),
        ("0F0," * 10_000, "far too long"),
        (_from_letters(GAME_LETTERS).replace("0B0", "0I0,0W0"), "F and B"),
    ],
    "1f1b.held": [
        ([6, 5, 4, 3, 2, 1], "only 4 microbatches"),
        ([4] * 6, "That is GPipe"),
        ([1, 2, 3, 4, 4, 4], "The other way round"),
        ([4, 4, 3, 3, 2, 1], "Look at rank 2"),
        ([4, 3, 2, 1], "6 numbers"),
    ],
    "1f1b.order": [
        (lambda rank, ranks, m: "F" * m + "B" * m, "rank 0 holds 8 activations at once; 4 will do"),
        (warm_up_by_one_too_long, "activations at once"),
        (many_microbatches_only, "With 4 ranks and 2 microbatches"),
        (backwards_first, "waits on itself"),
        (lambda rank: "FB", "raised TypeError"),
        (lambda rank, ranks, m: ["F"] * m, "return a string"),
        (one_f_one_b(0, 4, 8), "your function itself"),
    ],
    "1f1b.deadlock": [
        (("0SEND_F3", "1SEND_F2"), "a rank that waits for another"),
        (("2SEND_F1", "0SEND_F0"), "Nobody stands at '0SEND_F0'"),
        (("2RECV_B0", "3RECV_F1"), "Name the sends"),
        ("2SEND_F1", "two messages"),
    ],
    "1f1b.design": [
        ([one_f_one_b(rank, 4, 12) for rank in range(4)], "rank 0 holds 4 activations and has room for 3"),
        (IN_TURNS, "rank 0 holds 3. It takes 72 units; 54 are possible"),
        (["FB" * 12] * 4, "144 units; 54 are possible"),
        (["FB" * 8] * 4, "Make it 4, 4, 12"),
        ([*DESIGN[:3], "BF" * 12], "waits on itself"),
    ],
}
NONSENSE = [
    [object()] * 6,
    print,
    (10**400, 1),
    (float("nan"),) * 2,
    (float("inf"),) * 2,
    (float("inf"),) * 6,
    (-1, -1),
]


# --- are the exercises worth asking? ----------------------------------------------------------------------------


def test_the_chart_is_drawn_with_one_share_and_has_another():
    """As in print: 27 % in the picture, 43 % in the title; the order is that of GPipe, so only the times are wrong."""
    cells = [cell for line in CHART.split("\n") for cell in line.split(",")]
    t = hl.simulate(hl.validate(hl.Schedule.from_csv(CHART)), hl.Costs(F=1, B=1))
    assert f"{cells.count('') / len(cells):.0%}" == "27%" and f"{t.bubble_fraction:.0%}" == "43%"
    assert t.schedule.computing == hl.schedule("gpipe", ranks=4, microbatches=4).computing
    assert (len(CHART.split("\n")[0].split(",")), t.length) == (11, 14)


def test_the_chart_of_the_notebook_is_the_one_that_is_checked():
    assert CHART.split("\n")[0] in (NOTEBOOKS / "11_gpipe.ipynb").read_text()


@pytest.mark.long
def test_every_too_early_box_of_the_chart_is_accepted():
    early = [(f"{r}B{m}", f"{r + 1}B{m}") for r in range(3) for m in range(4)]
    assert all(labs.answer("gpipe.chart", pair).right for pair in early)
    others = [(a, b) for a, b in itertools.product(gpipe_tasks._slots(), repeat=2) if (a, b) not in early]
    assert not any(gpipe_tasks._too_early(pair)[0] for pair in others)


def test_the_best_size_is_neither_end_and_is_the_only_one():
    steps = {b: gpipe_tasks._step(b).length for b in range(1, 97) if 96 % b == 0}
    assert [b for b, length in steps.items() if length == min(steps.values())] == [8]


@pytest.mark.long
@pytest.mark.parametrize("microbatches", [3, 6, 9, 12])
def test_nobody_can_be_quicker_with_three_activations_on_rank_0(microbatches):
    """Many ways to decide, on every rank; none beats the bound, and one reaches it."""
    limits = itertools.product([ROOM], [2, 3, 4, 12], [1, 2, 3, 4, 12], [1, 2, 3, 12])
    found = [_deciding(4, microbatches, room, firsts) for room in limits for firsts in ("BBBB", "BFBF", "FFFF")]
    timelines = [hl.simulate(hl.Schedule.from_csv(_from_letters(lines)), UNIT) for lines in found]
    assert all(t.peak_live[0] <= ROOM for t in timelines)
    assert min(t.length for t in timelines) == _least_length(microbatches)


def _deciding(ranks, microbatches, room, firsts):
    """Letters of ranks that decide when they are free: what they prefer, while there is room."""
    done, free, lines, now = {}, [0] * ranks, [""] * ranks, 0
    while sum(map(len, lines)) < 2 * ranks * microbatches:
        for r in range(ranks):
            f, b = lines[r].count("F"), lines[r].count("B")
            ready = {
                "F": f < microbatches and f - b < room[r] and (r == 0 or done.get(("F", r - 1, f), now + 1) <= now),
                "B": done.get(("F", r, b), now + 1) <= now
                and (r == ranks - 1 or done.get(("B", r + 1, b), now + 1) <= now),
            }
            other = "B" if firsts[r] == "F" else "F"
            kind = firsts[r] if ready[firsts[r]] else other if ready[other] else ""
            if kind and free[r] <= now:
                free[r] = done[kind, r, f if kind == "F" else b] = now + UNIT.of(kind, r)
                lines[r] += kind
        now += 1
    return lines


def test_the_deadlock_ends_in_a_circle_of_two_and_only_1f1b_has_one():
    with pytest.raises(Stuck) as caught:
        hl.check_rendezvous(_by_hand(hl.schedule("1f1b", ranks=4, microbatches=8)))
    (_, second), (_, third) = caught.value.waiting[2], caught.value.waiting[3]
    assert "on rank 3" in second and "on rank 2" in third
    for name in ("naive", "gpipe"):
        assert hl.check_rendezvous(_by_hand(hl.schedule(name, ranks=4, microbatches=8))).lowered


# --- numbers in the prose of both notebooks ---------------------------------------------------------------------


def _length(name, ranks, microbatches, costs=UNIT):
    return f"{hl.simulate(hl.schedule(name, ranks=ranks, microbatches=microbatches), costs).length:g}"


def _held(name):
    return " ".join(map(str, hl.simulate(hl.schedule(name, ranks=4, microbatches=8)).peak_live))


def _cut(microbatches):
    """One batch in so many pieces."""
    return _length("gpipe", 4, microbatches, hl.Costs(F=8 / microbatches, B=16 / microbatches))


HELD = _held("gpipe")
PROSE = [
    ("11_gpipe", "60 units in place of 33", lambda: f"{_cut(2)} units in place of {_cut(8)}"),
    ("11_gpipe", "by 60/33", lambda: f"by {_cut(2)}/{_cut(8)}"),
    ("11_gpipe", "at time 7.", lambda: f"at time {_first_backward('gpipe', 4, hl.Costs(F=1, B=1)):g}."),
    ("12_1f1b", "33 units both", lambda: " ".join({_length(name, 4, 8) for name in ("gpipe", "1f1b")}) + " units both"),
    ("12_1f1b", "4 3 2 1 activations in place of 8 8 8 8", lambda: f"{_held('1f1b')} activations in place of {HELD}"),
    ("12_1f1b", "at time 4,", lambda: f"at time {_first_backward('1f1b', 4, UNIT):g},"),
]


def _first_backward(name, microbatches, costs):
    t = hl.simulate(hl.schedule(name, ranks=4, microbatches=microbatches), costs)
    return min(span.begin for span in t.spans if span.action.kind == "B")


@pytest.mark.parametrize("notebook, text, computed", PROSE, ids=[f"{n}: {text}" for n, text, _ in PROSE])
def test_a_number_in_the_text_is_what_the_package_computes(notebook, text, computed):
    words = re.sub(r"\\n|\s|\"|,(?=\s*\")", " ", (NOTEBOOKS / f"{notebook}.ipynb").read_text())
    assert re.search(re.escape(text), re.sub(r"\s+", " ", words))
    assert computed() == text


# --- what the notebooks' experiments return -----------------------------------------------------------------------


def test_the_formula_of_the_sweep_is_what_the_simulator_says():
    for (m, n), speed in gpipe.formula().items():
        length = float(_length("gpipe", n, m, hl.Costs(F=8 / n, B=16 / n)))
        one = float(_length("gpipe", 2, 1, hl.Costs(F=4, B=8)))
        assert speed == pytest.approx(m * one / length)


def test_the_published_rows_are_those_of_the_sweep_and_named():
    torchgpipe, paper = gpipe.printed(), gpipe.printed("speedup_gpipe_paper")
    assert torchgpipe.keys() == paper.keys() == {cell for cell in gpipe.CELLS if cell[1] > 1}
    assert torchgpipe[gpipe.REFERENCE] == paper[gpipe.REFERENCE] == gpipe.formula()[gpipe.REFERENCE] == 1
    assert (torchgpipe[32, 8], paper[32, 8]) == (4.953, 3.48)
    shown = repr(gpipe.picture(gpipe.formula(), torchgpipe))
    assert "6.6 emulated, 5.0 published" in shown


def test_blocks_and_shares_of_a_cut():
    assert naive.blocks(cut(hl.Shape(layers=7), 3)) == [3, 2, 2]
    assert naive.shares([1, 2, 3, 4], [range(0, 3), range(3, 4)]) == [0.6, 0.4]
    assert (naive.imbalance([30, 50, 40]), naive.imbalance([7, 7])) == (1.25, 1)


def test_a_receive_posted_ahead_is_worth_more_to_gpipe_than_to_1f1b():
    gains = {name: orders.ahead(name, 0).length - orders.ahead(name, 1).length for name in ("gpipe", "1f1b")}
    assert gains == {"gpipe": 7, "1f1b": 1}
    assert max(orders.buffers(orders.ahead("gpipe", 1))) == 10


@pytest.mark.ranks
def test_skips_go_straight_and_are_counted():
    """Sixteen sequences in four microbatches: 65 536 bytes for each tensor of each microbatch."""
    shape = hl.Shape(layers=8, width=64, heads=4, context=64, skips=True)
    four = hl.schedule("gpipe", ranks=4, microbatches=4)
    links = naive.by_link(hl.run(four, work="model", model=shape, batch=16, steps=1))
    assert links[0, 3] == links[3, 0] == (8, 8 * 65536)
    assert sum(size for _, size in links.values()) == 48 * 65536
    assert naive.handed_on(links) == 80 * 65536


@pytest.mark.ranks
def test_what_ranks_hold_is_counted_as_predicted():
    held = orders.memory((4, 8))
    assert held == {"gpipe": {4: [4] * 4, 8: [8] * 4}, "1f1b": {4: [4, 3, 2, 1], 8: [4, 3, 2, 1]}}
    assert "gpipe 4 to 8; 1f1b 4 to 4" in repr(orders.growth(held))


@pytest.mark.ranks
@pytest.mark.parametrize("recompute, length, live", [("never", 33, 8), ("except_last", 40, 1), ("always", 41, 1)])
def test_forwards_done_again(recompute, length, live):
    schedule = gpipe.again(recompute)
    assert hl.simulate(schedule, UNIT).length == length
    assert hl.run(schedule, costs=orders.SHORT, steps=1).origin["peak_live"] == [live] * 4


@pytest.mark.ranks
def test_what_a_forward_leaves_behind_grows_with_its_microbatch_and_counts_no_weights():
    shape = hl.Shape(layers=2, width=32, heads=2, context=16)
    (one, came_in), (two, _) = gpipe.left_behind(shape, 1), gpipe.left_behind(shape, 2)
    assert came_in == 4 * 16 * 32
    assert came_in * 5 < one and two == pytest.approx(2 * one, rel=0.01)


@pytest.mark.ranks
def test_both_ways_do_the_same_work():
    static, driven = orders.both(0.5, microbatches=4, costs=orders.SHORT)
    assert driven.schedule.name == "message_driven"
    assert [sorted(program) for program in driven.schedule.computing] == [
        sorted(program) for program in static.schedule.computing
    ]
