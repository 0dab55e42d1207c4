"""Exercises of notebooks 11 and 12: bounds that hold; and the experiments."""

import itertools
from pathlib import Path
from typing import NamedTuple

import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.core.when.play import Stuck
from hybridlab.labs.exercises.pipelines import UNIT
from hybridlab.labs.gpipe import sweeps as gpipe
from hybridlab.labs.gpipe import tasks as gpipe_tasks
from hybridlab.labs.gpipe.tasks import CHART
from hybridlab.labs.interleaved.thin_stages import costs, loses_from, speed_up, thinned
from hybridlab.labs.naive import cuts as naive
from hybridlab.labs.one_f_one_b import orders
from hybridlab.labs.one_f_one_b.letters import from_letters
from hybridlab.labs.one_f_one_b.tasks import GAME, ROOM, _by_hand, _least_length
from hybridlab.predict.papers.published import published
from hybridlab.training.stages import cut

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("first_attempt")]  # slow: many cases

WITHIN_ROOM = ["FFF" + "BF" * 3 + "BBB", "FFF" + "BBFBFF" + "BBB", "FFFBBB" + "FFBFBB", "FB" * 6]  # wins 1f1b.play
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

# --- are the exercises worth asking? ----------------------------------------------------------------------------


@pytest.mark.long
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
@pytest.mark.long
def test_every_too_early_box_of_the_chart_is_accepted():
    early = [(f"{r}B{m}", f"{r + 1}B{m}") for r in range(3) for m in range(4)]
    assert all(labs.answer("gpipe.chart", pair).right for pair in early)
    others = [(a, b) for a, b in itertools.product(gpipe_tasks._slots(), repeat=2) if (a, b) not in early]
    assert not any(gpipe_tasks._too_early(pair)[0] for pair in others)


def test_the_best_size_is_neither_end_and_is_the_only_one():
    steps = {b: gpipe_tasks._step(b).length for b in range(1, 97) if 96 % b == 0}
    assert [b for b, length in steps.items() if length == min(steps.values())] == [8]


def test_a_game_is_an_answer_once_it_is_finished():
    game, target = hl.play(4, 6, limit=3), hl.simulate(hl.Schedule.from_csv(from_letters(WITHIN_ROOM)), UNIT)
    reply = labs.answer("1f1b.play", game)
    assert "not finished" in reply.sentence and not reply.hint, "a game that goes on is no try"
    for span in sorted(target.spans, key=lambda span: span.begin):
        game.choose(span.rank, span.action.kind)
    assert labs.answer("1f1b.play", game).right
    halves = hl.play(4, 8, split=True, limit=4)
    assert "not finished" in labs.answer("zero_bubble.puzzle", halves).sentence


def test_the_game_cannot_be_won_by_1f1b_and_can_by_whoever_takes_what_is_ready():
    """1f1b.play: its target is the bound; backwards first reach it, turns of one forward and one backward do not."""
    m, held = GAME["microbatches"], GAME["held"]
    assert GAME["units"] == _least_length(m) and max(hl.simulate(hl.schedule("1f1b", 4, m), UNIT).peak_live) > held
    length = lambda lines: hl.simulate(hl.Schedule.from_csv(from_letters(lines)), UNIT).length
    assert length(_deciding(4, m, [held] * 4, "BBBB")) == GAME["units"]
    assert length(["F" * w + "BF" * (m - w) + "B" * w for w in (3, 3, 2, 1)]) > GAME["units"]


def test_the_hint_of_the_design_leads_there():
    """1f1b.design: ranks that do what is ready, a backward before a forward, with room for three on rank 0 only."""
    lines = _deciding(4, 12, [ROOM, 12, 12, 12], "BBBB")
    assert labs.answer("1f1b.design", lines).right


@pytest.mark.long
@pytest.mark.long
@pytest.mark.parametrize("microbatches", [3, 6, 9, 12])
def test_nobody_can_be_quicker_with_three_activations_on_rank_0(microbatches):
    """Many ways to decide, on every rank; none beats the bound, and one reaches it."""
    limits = itertools.product([ROOM], [2, 3, 4, 12], [1, 2, 3, 4, 12], [1, 2, 3, 12])
    found = [_deciding(4, microbatches, room, firsts) for room in limits for firsts in ("BBBB", "BFBF", "FFFF")]
    timelines = [hl.simulate(hl.Schedule.from_csv(from_letters(lines)), UNIT) for lines in found]
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


def _length(name, ranks, microbatches, costs=UNIT):
    return f"{hl.simulate(hl.schedule(name, ranks=ranks, microbatches=microbatches), costs).length:g}"


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


def test_the_sweep_stands_beside_the_formula_and_beside_what_was_published():
    card = gpipe.against_formula(gpipe.formula() | {(32, 8): 4.0})
    assert [one.verdict.partition(" ")[0] for one in card.rows] == ["within"] * 8 + ["outside"]
    table = gpipe.Published()
    assert table.rows[-1] == ("GPipe", "m = 32", "1.21", "1.84", "3.48") and table.rows[3][-1] == "6.56"
    assert len(repr(table).splitlines()) == len(table.rows) == table._repr_html_().count("<tr>") == 10


def test_the_bottom_of_a_valley_is_told_from_its_ends():
    cuts = {b: hl.schedule("gpipe", ranks=2, microbatches=8 // b) for b in (1, 2, 4)}
    real = {b: hl.simulate(schedule, hl.Costs(F=9)) for b, schedule in cuts.items()}
    assert gpipe.bottom(real) == "the shortest step is at an end"
    real[2] = hl.simulate(cuts[2], hl.Costs(F=1))
    assert gpipe.bottom(real) == "the shortest step is between the ends"


def test_two_runs_are_apart_by_their_largest_gap():
    class Run(NamedTuple):
        loss: list[float]

    assert naive.apart(Run([3, 2, 1]), Run([3, 2.5, 1.25])) == 0.5
    with pytest.raises(ValueError, match="shorter"):
        naive.apart(Run([3, 2]), Run([3]))


def test_blocks_and_shares_of_a_cut():
    assert naive.blocks(cut(hl.Shape(layers=7), 3)) == [3, 2, 2]
    assert naive.shares([1, 2, 3, 4], [range(0, 3), range(3, 4)]) == [0.6, 0.4]
    assert (naive.imbalance([30, 50, 40]), naive.imbalance([7, 7])) == (1.25, 1)


def test_a_receive_posted_ahead_is_worth_more_to_gpipe_than_to_1f1b():
    gains = {name: orders.ahead(name, 0).length - orders.ahead(name, 1).length for name in ("gpipe", "1f1b")}
    assert gains == {"gpipe": 7, "1f1b": 1}
    assert max(orders.buffers(orders.ahead("gpipe", 1))) == 10


@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
def test_one_pair_more_for_every_hop_hides_messages_and_no_less_does():
    """Notebook 12: with 7 5 3 1 in flight only the fill and the drain are longer, as in GPipe."""
    took = {held: orders.in_flight(held, latency=0.5).length for held in ((4, 3, 2, 1), (5, 4, 3, 1), (7, 5, 3, 1))}
    assert took[4, 3, 2, 1] == orders.with_messages("1f1b", 0.5).length
    assert took[7, 5, 3, 1] == orders.with_messages("gpipe", 0.5).length < took[5, 4, 3, 1] < took[4, 3, 2, 1]


@pytest.mark.parametrize("latency", [0.01, 0.05, 0.1])
def test_the_worked_inequality_of_thin_stages(latency):
    """Notebook 13: eight chunks wait for every boundary twice, 1F1B with eight microbatches for 16 messages."""
    many, one = (hl.simulate(thinned(v), costs(v, latency)).length for v in (8, 1))
    assert many == pytest.approx(25.125 + 2 * (8 * 4 - 1) * latency)
    assert one == pytest.approx(33 + 16 * latency)


def test_gain_turns_into_loss_just_before_the_inequality_says_so():
    assert loses_from(8) == 0.16 < 7.875 / 46
    assert [loses_from(v) for v in (2, 4)] == [1.38, 0.38]


@pytest.mark.parametrize("chunks", [2, 4, 8])
def test_the_inequality_is_exact_until_a_message_takes_longer_than_the_forward_of_a_chunk(chunks):
    added = lambda c: hl.simulate(thinned(chunks), costs(chunks, c)).length - (8 + 3 / chunks) * 3
    waited = 2 * (4 * chunks - 1)
    assert added(1 / chunks) == pytest.approx(waited / chunks)
    assert added(1.04 / chunks) > 1.04 * waited / chunks + 1e-6


def test_published_speed_ups_are_larger_when_predicted():
    for row in published("zero_bubble_tables"):
        assert speed_up(row) > row["samples_per_gpu_s_1F1B_I"] / row["samples_per_gpu_s_1F1B"] > 1


@pytest.mark.long
def test_what_a_forward_leaves_behind_grows_with_its_microbatch_and_counts_no_weights():
    shape = hl.Shape(layers=2, width=32, heads=2, context=16)
    (one, came_in), (two, _) = gpipe.left_behind(shape, 1), gpipe.left_behind(shape, 2)
    assert came_in == 4 * 16 * 32
    assert came_in * 5 < one and two == pytest.approx(2 * one, rel=0.01)


@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
def test_both_ways_do_the_same_work():
    static, driven = orders.both(0.5, microbatches=4, costs=orders.SHORT)
    assert driven.schedule.name == "message_driven"
    assert [sorted(program) for program in driven.schedule.computing] == [
        sorted(program) for program in static.schedule.computing
    ]
