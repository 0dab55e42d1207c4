"""Notebook 41: the map shows what the planner says, its explorer follows every choice, and exercises have one truth."""

import re

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.core.what.catalog import machine, model
from hybridlab.labs.choosing import tasks as choosing_tasks
from hybridlab.labs.choosing import trades as choosing
from hybridlab.labs.choosing.plan_explorer import GPUS, MOST_BOXES, explorer, played_plan
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.predict.judged.scores import published_of
from hybridlab.predict.papers import sc21
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.planner import plan
from hybridlab.show.plans.plan_map import BEST, MUTED, PX, cells, plan_map

FIGURE_13 = plan("gpt-161b", "a100", 64, 128, **choosing.SLIDES)
FREE = plan("gpt-39.1b", "a100", 512, 1536)


# --- the map ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("planned", [FIGURE_13, FREE, plan("gpt-161b", "a100", 64, 16, **choosing.SLIDES)])
def test_a_cell_is_the_best_plan_with_its_sizes(planned):
    best = planned.best.step.total
    for one in cells(planned):
        mine = planned.only(p=one.p, t=one.t)
        assert one.p * one.t * one.d == planned.devices
        match one.state:
            case "fits":
                assert np.isclose(one.share, best / mine.best.step.total)
                assert planned.space.one(one.place) == mine.best.plan
            case "too large":
                assert not mine.fits.any() and np.isclose(one.bytes, mine.bytes.min())
                assert one.most == planned.choice(planned.space.one(one.place)).memory.most
            case "illegal":
                assert not len(mine.space.p)


def test_all_factorisations_that_the_model_can_have_are_there():
    shape = FIGURE_13.shape
    every = [(p, t) for p in range(1, 65) for t in range(1, 65) if 64 % (p * t) == 0]
    assert [one[:2] for one in cells(FIGURE_13)] == [
        (p, t) for p, t in every if shape.layers % p == 0 and shape.heads % t == 0
    ]


def test_the_map_shows_each_cell_and_marks_one_best():
    still = plan_map(FIGURE_13, "161B")
    found = re.findall(r'data-p="(\d+)" data-t="(\d+)"', still.svg)
    assert [(int(p), int(t)) for p, t in found] == [one[:2] for one in cells(FIGURE_13)]
    legend = 1
    assert still.svg.count(f'stroke="{BEST}"') == legend + sum(one.equal for one in cells(FIGURE_13)) == legend + 2
    assert "larger than a node of 8" in still.svg and ">2602 GB<" in still.svg and ">optimizer<" in still.svg
    assert "27 factorisations of 64 devices, 6 of them with a plan that fits, 21 too large" in still.summary
    below = " ".join(re.findall(rf'font-size="{PX["caption"]}"[^>]*fill="{MUTED}">([^<]*)<', still.svg))
    assert below.startswith("Best: p=8 t=8") and "factorisations" not in below and "Published" not in below


def test_three_lines_of_a_cell_are_inside_it_and_apart():
    svg = plan_map(FIGURE_13, "161B").svg
    three = [one for one in re.findall(r'<g class="hl-cell".*?</g>', svg, re.DOTALL) if "<circle" in one]
    assert len(three) == 3
    for one in three:
        top, tall = map(float, re.search(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', one).groups())
        lines = [float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"', one)]
        assert len(lines) == 3 and lines[0] - PX["caption"] * 0.75 > top + 3 and lines[2] + 3 < top + tall - 2.5
        assert all(b - a > PX["smallest"] + 2 for a, b in zip(lines, lines[1:]))


@pytest.mark.slow
@pytest.mark.parametrize("planned", [FIGURE_13, FREE])
def test_what_predictions_cannot_tell_from_the_best_looks_like_it(planned):
    every, best = cells(planned), planned.best.step.total
    for one in every:
        near = one.place is not None and planned.seconds[one.place] <= best * (1 + planned.error.median)
        assert one.equal == (one.state == "fits" and bool(near))
    tied = {(one.plan.p, one.plan.t) for one in planned.ties}
    assert tied <= {(one.p, one.t) for one in every if one.equal}
    fills = re.findall(rf'fill="(#\w+)" stroke="{BEST}"', plan_map(planned).svg)
    assert len(set(fills[1:])) == 1, "the first is the legend's"


def test_published_runs_are_rings_of_their_measured_share():
    still, best = plan_map(FIGURE_13), FIGURE_13.best.step.total
    runs = published_of(FIGURE_13)
    assert {(run.plan.p, run.plan.t) for run in runs} == {(2, 32), (8, 8), (32, 2)}
    assert still.svg.count("<circle") == 1 + len(runs)
    for run in runs:
        group = re.search(f'data-p="{run.plan.p}" data-t="{run.plan.t}">(.*?)</g>', still.svg, re.S)[1]
        assert "<circle" in group and f">{best / run.seconds:.0%}</text>" in group
        assert f"{run.seconds:.1f} s (read off figure 13)" in group
    nobody = plan_map(plan("gpt-161b", "a100", 64, 64, **choosing.SLIDES))
    assert "<circle" not in nobody.svg and "published" not in nobody.svg.lower()


def test_without_a_wall_no_wall_is_drawn():
    assert "larger than a node" not in plan_map(plan("gpt-1.7b", "a100", 8, 64)).svg


@pytest.mark.parametrize("planned", [FIGURE_13, FREE, plan("gpt-1t", "a100", 3072, 3072)])
def test_nothing_is_drawn_outside_the_sheet(planned):
    svg = plan_map(planned, "a title").svg
    wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    for x, y, w, h in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg):
        assert float(x) + float(w) <= wide and float(y) + float(h) <= tall


# --- the explorer -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_explorer_follows_every_choice_and_says_why_not():
    one = explorer()
    assert one.cell == [8, 8] and "p=8, t=8 is the best" in one.told and one.timeline.startswith("<svg")
    one.cell = [4, 16]
    assert "its tensor groups leave the node of 8" in one.told and "p=4 t=16" in one.timeline
    one.cell = [1, 1]
    assert "does not fit" in one.told and one.timeline == ""
    before = one.map
    one.gpus = 8
    assert one.problem.startswith("needs ≥ 33 GPUs") and one.map == before and one.summary == one.problem
    one.gpus = 128
    assert one.problem == "" and one.map != before and "128 × a100" in one.summary
    one.zero, one.recompute, one.sequence = "any", "any", "any"
    assert one.planned.best.plan.zero == 3 and "ZeRO" not in one.title
    one.machine, one.model, one.batch = "h200", "llama3-8b", 256
    assert one.planned.machine.name == "h200" and "llama3-8b on 128 × h200, batch 256" in one.summary


@pytest.mark.long
def test_every_number_of_devices_on_the_slider_is_answered():
    one = explorer(model="gpt-1.7b", batch=512, zero="any", recompute="any", sequence="any")
    for gpus in GPUS:
        one.gpus = gpus
        assert one.problem == "" or "divides this model" in one.problem


@pytest.mark.long
def test_without_a_kernel_the_map_stands_in():
    one = explorer()
    data, _ = one._repr_mimebundle_()
    assert data["image/svg+xml"] == one.map == one.twin and data["text/plain"] == one.summary


LONG_PLANS = [pytest.param("gpt-1t", 3072, 2, marks=pytest.mark.long), ("gpt-18.4b", 64, 1)]


@pytest.mark.parametrize("name, gpus, v", LONG_PLANS)
def test_a_long_plan_is_drawn_with_fewer_microbatches_and_says_so(name, gpus, v):
    planned = plan(name, "a100", gpus, 3072, b=1, v=v, **choosing.SLIDES)
    best = planned.only(p=planned.space.p.max() if v > 1 else 8).best.plan
    timeline, note = played_plan(planned, best)
    drawn, boxes = len(timeline.schedule.replica_of), 2 * best.p * best.v
    assert f"Below, {drawn} of {best.microbatches(3072)} microbatches" in note and drawn % best.p == 0
    assert drawn == best.p or drawn * boxes <= MOST_BOXES


def test_a_short_plan_is_drawn_whole():
    assert played_plan(FIGURE_13, Plan(p=8, t=8, b=4, recompute=2))[1] == ""


# --- what the notebook says -------------------------------------------------------------------------------------


def test_the_traded_shares_are_least_at_8_for_both_batches():
    for batch in (32, 128):
        assert choosing.trade(batch).summary.endswith("both together are least at t = 8")


@pytest.mark.slow
def test_the_rows_are_the_tables():
    rows = choosing.rows_planned(**choosing.SLIDES)
    assert [planned.devices for _, planned in rows] == [row.plan.devices for row in sc21.table()]
    assert all(planned.best.plan.t <= 8 for _, planned in rows)
    assert all(planned.best.plan.d <= choosing.most_copies(planned) for _, planned in rows)


def test_with_everything_allowed_39b_has_no_pipeline():
    assert FREE.best.plan.p == 1 and FREE.best.plan.zero == 3
    assert plan("gpt-39.1b", "a100", 512, 1536, **choosing.SLIDES).best.plan.p > 1


def test_the_points_are_plans_for_two_ranks_and_one_batch():
    for one in choosing.POINTS.values():
        assert one.devices == 2 and choosing.BATCH % (one.b * one.d) == 0


def test_predicted_and_measured_stand_side_by_side():
    figure = choosing.side_by_side({"a": 0.02, "b": 0.01}, {"a": [0.03, 0.05, 0.04], "b": [0.02, 0.02, 0.03]})
    assert figure.summary == "ms predicted and measured: b: 10 and 20; a: 20 and 40"
    assert [len(trace.x) for trace in figure.data] == [6, 2, 2]
    predicted = figure.data[-1]
    assert list(predicted.customdata) == [10, 20] and np.allclose(predicted.y, np.log10([10, 20]))


def test_a_long_sentence_stands_in_lines_that_are_seen_whole():
    sentence = plan("gpt3-175b", "a100", 1024, 1536, **choosing.SLIDES).why(d=1024)
    lines = choosing.in_lines(sentence, indent=2).splitlines()
    assert len(lines) > 1 and max(map(len, lines)) < 103 and all(line.startswith("  ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == sentence


def test_reasons_are_those_of_the_planner_and_show_themselves():
    one = choosing.reasons(FIGURE_13, dict(t=16), dict(d=2))
    assert one.told == (FIGURE_13.why(t=16), FIGURE_13.why(d=2))
    assert repr(one).count("- ") >= 2 and one._repr_html_().count("<li>") == 2
    met, batch, memory = choosing.refusals(
        dict(model="gpt-5.9b", machine="a100", batch=64, gpus=64, t=1, p=1),
        dict(model="gpt-5.9b", machine="a100", batch=64, gpus=128, t=1, p=1, zero=3),
        dict(model="gpt3-175b", machine="a100", gpus=8, batch=96),
    ).told
    assert met.startswith("best: p=1 t=1 d=64") and "d a batch of 64" in batch and "needs ≥ 35 GPUs" in memory


@pytest.mark.parametrize("name", ["gpt-7.5b", "gpt-39.1b", "gpt-145.6b", "gpt-161b"])
def test_the_inequality_of_tensor_parallelism_is_that_of_the_model(name):
    """At the largest t that is worth it, without latencies, tp all-reduces take a tenth of the GEMMs' time."""
    from dataclasses import replace

    from hybridlab.predict.plans.performance import FITTED, step

    shape, kind = model(name).shape, replace(machine("a100"), latency=(0, 0))
    t = 2
    one = step(shape, Plan(t=t, recompute=2), 64, kind)
    without_scores = one.multiply / (1 + shape.context / (6 * shape.width))
    share = float(one.tensor / without_scores)
    assert np.isclose(choosing.ways_worth(shape.width, FITTED.multiply * kind.peak, kind.inside, share), t)


@pytest.mark.slow
def test_planned_and_printed_stand_beside_each_other():
    heads, rows = choosing.chosen_and_printed()
    assert {len(row) for row in rows} == {len(heads)} and len(rows) == 10 and rows[-1][2] == rows[-1][4] == "64 · 8 · 6"
    assert [row[4] for row in rows] == [f"{one.plan.p} · {one.plan.t} · {one.plan.d}" for one in sc21.table()]


def test_without_zero_3_39b_has_stages_again():
    """Notebook 41: "no pipeline" rests on ZeRO 3's gathers being hidden."""
    assert FREE.only(zero=2).best.plan.p > 1 == FREE.best.plan.p


# --- exercises --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_plans_of_the_scenario_are_right_and_most_are_not():
    planned = hl.plan(choosing_tasks.SCENARIO["model"], "a100", 32, 256)
    right = (planned.bytes <= choosing_tasks.MOST) & (planned.seconds <= choosing_tasks.LONGEST)
    assert 20 < right.sum() < 0.05 * len(right)
    verdicts = [TASKS["choosing.scenario"].check(planned.space.one(i)._asdict()) for i in np.flatnonzero(right)[::9]]
    assert all(good for good, _ in verdicts)
    wrong = [TASKS["choosing.scenario"].check(planned.space.one(i)) for i in np.flatnonzero(~right)[::400]]
    assert not any(good for good, _ in wrong)


def test_the_wall_of_the_exercise_is_the_models_result():
    planned = [choosing_tasks.fastest_ways(node) for node in (4, 8)]
    assert planned == [4, 8] and TASKS["choosing.node"].check(4)[0]


def test_the_microbatch_is_the_best_of_the_table():
    for seed in range(20):
        one = TASKS["choosing.microbatch"].of(seed)
        p, each = one.numbers["stages"], one.numbers["sequences"]
        seconds = {b: (each / b + p - 1) * forward for b, forward in choosing_tasks.FORWARD.items()}
        assert one.check.right == min(seconds, key=seconds.get) and one.check.right not in (1, 16)


def test_the_notebooks_pair_of_plans_is_divided_as_it_says():
    """With memory aside: tp all-reduces grow with the batch, the sum of gradients does not."""
    from hybridlab.predict.plans.performance import step

    gpt, a100 = model("gpt-5.9b").shape, machine("a100")
    few, many = (step(gpt, Plan(t=8, recompute=2), batch, a100) for batch in (64, 256))
    assert np.isclose(4 * few.tensor, many.tensor)
    few, many = (step(gpt, Plan(d=8, recompute=2), batch, a100) for batch in (64, 256))
    assert np.isclose(few.data, many.data)
