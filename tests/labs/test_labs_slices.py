"""The exercises, the runs and the picture of labs.slices."""

import re

import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.slices import costs, idle, lengths, of_n, triangle
from hybridlab.labs.slices.case import ROWS, Rows
from hybridlab.labs.slices.tasks import CUTS, SLIPS, _ends, _near
from hybridlab.predict.plans.slicing import SLICING


def test_the_question_of_the_notebook_has_the_answers_that_its_text_gives():
    """At 32k tokens equal slices are worse than none; of equal cost, the closed form holds."""
    assert idle(1) == 3 / 8 < idle(lengths(4, "equal")) == pytest.approx(0.384, abs=5e-4)
    assert idle(lengths(4)) == pytest.approx(3 / 8 / 4, abs=1e-4)
    assert idle(lengths(4, "equal", 8192)) < 3 / 8 < 0.6 < idle(lengths(4, "equal", 131_072))


@pytest.mark.parametrize("ranks, rows, n", [(2, 1, 2), (3, 5, 4), (4, 8, 8), (6, 2, 3)])
def test_slices_of_equal_cost_have_the_closed_form(ranks, rows, n):
    assert idle(n, ranks=ranks, rows=rows) == pytest.approx((ranks - 1) / (n * rows))
    assert sum(costs(lengths(n)).F[:n]) == pytest.approx(1)


def test_the_best_number_of_the_real_runs_is_neither_the_least_nor_the_most():
    """By a margin that waking processes do not change."""
    took = {n: of_n(n).length for n in (1, 2, 4, 8)}
    first, second, *_ = sorted(took.values())
    assert min(took, key=took.get) == 4 and max(took, key=took.get) == 1 and second > 1.05 * first


def test_wrong_cuts_are_not_the_right_one_and_not_each_other():
    """Else a right answer would get the reply to a wrong one."""
    for case in CUTS:
        cuts = [_ends(*case), *(cut(*case) for cut, _ in SLIPS)]
        for number, one in enumerate(cuts):
            whole = [round(high) - round(low) for low, high in zip(one, one[1:])]
            assert [_near(whole, other) for other in cuts] == [number == k for k in range(len(cuts))], case


def test_the_cut_of_the_exercise_is_the_cut_of_the_package():
    alpha, beta, tokens, slices = CUTS[0]
    shape = hl.Shape(layers=1, width=4096, heads=32, context=tokens)
    assert hl.plans.slicing.per_token(shape) == (alpha, beta)
    assert _near(list(lengths(slices)), _ends(alpha, beta, tokens, slices))


@pytest.mark.parametrize("given", [0, True, 2.5, [1, 2]])
def test_an_order_is_text(given):
    assert TASKS["slices.order"].check(given)[1].startswith("Answer with text")


def test_an_order_may_be_typed_in_other_words_than_the_packages():
    """Any order that is as short and as small is right; terapipe is as short, and holds more."""
    csv = lambda name: hl.schedule(name, ranks=2, microbatches=2, slices=2).to_csv()
    assert TASKS["slices.order"].check(csv("seq1f1b"))[0]
    right, told = TASKS["slices.order"].check(csv("terapipe"))
    assert not right and "hold up to 4 and 4 slices; 3 and 2 are enough" in told


def test_a_cache_is_tried_on_uneven_slices_several_rows_and_both_orders():
    assert {rows.name for rows in ROWS} == {"seq1f1b", "terapipe"}
    assert len({rows.stages for rows in ROWS}) > 1 and all(rows.count > 1 for rows in ROWS)
    assert max(len(rows.lengths) for rows in ROWS) > 2 and any(len(set(rows.lengths)) > 1 for rows in ROWS)
    for rows in ROWS:
        for rank in range(rows.stages):
            done = list(rows.actions(rank))
            back = [i for kind, row, i in done if kind == "B" and row == 0]
            assert back == sorted(back, reverse=True) and len(done) == 2 * rows.count * len(rows.lengths)


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_the_known_mistakes_are_mistakes_and_differ(rows):
    """Whole rows and slices whose every gradient goes back are one result; dropped gradients are others."""
    from hybridlab.labs.slices import rank
    from hybridlab.labs.trials.against import SMALL, gap

    off = lambda a, b: max(gap(x, y) for one, other in zip(a, b) for x, y in zip(one, other))
    whole = rank.one_device(rows)
    every = {rule: rank.one_device(rows, rule) for rule in rank.RULES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rank.RULES, "all", lambda j, i: True)
        assert off(rank.one_device(rows, "all"), whole) < SMALL
    assert off(every["none"], whole) > 1e-3
    assert (off(every["next"], whole) > 1e-3) == (len(rows.lengths) > 2)


def test_a_row_in_one_slice_needs_no_cache():
    assert list(Rows("seq1f1b", 1, (3,), 2).actions(0)) == [("F", 0, 0), ("B", 0, 0), ("F", 1, 0), ("B", 1, 0)]


def test_the_picture_shows_the_lengths_and_shares_of_both_cuts():
    shown = triangle(tokens=32_768, slices=4)
    assert shown.summary.count("25.0%") == 4 and "17.5% 22.5% 27.5% 32.5%" in shown.summary
    areas = [_area(points) for points in re.findall(r'<polygon points="([^"]+)"', shown.svg)]
    equal, cost = areas[:4], areas[4:]
    assert cost == pytest.approx([sum(cost) / 4] * 4, rel=1e-2)
    assert [one / sum(equal) for one in equal] == pytest.approx([0.175, 0.225, 0.275, 0.325], rel=1e-2)
    assert all(f"{length:,}" in shown.svg for how in SLICING for length in lengths(4, how))


def _area(points: str) -> float:
    """Of a polygon, by its corners."""
    xy = [tuple(map(float, one.split(","))) for one in points.split()]
    return abs(sum(a * d - b * c for (a, b), (c, d) in zip(xy, xy[1:] + xy[:1]))) / 2


def test_what_is_measured_on_gpus_is_what_the_abstracts_print():
    told = labs.on_gpus("slices", records=[]).summary
    assert "48 nodes 5.00 × measured" in told and "1.14 × measured" in told and "0.50 × measured" in told
    assert "predicted" not in told


@pytest.mark.ranks
def test_without_the_caches_gradient_the_loss_is_right_and_the_check_fails():
    from hybridlab.labs.slices import drop_the_caches_gradient

    asked = dict(mesh=hl.Mesh(pp=2), schedule="seq1f1b", slices=(5, 3), microbatches=2, steps=1)
    asked |= dict(shape=hl.Shape(layers=2, width=8, heads=2, context=8))
    right, wrong = hl.check(**asked), hl.check(sabotage=drop_the_caches_gradient, **asked)
    assert right.ok and not wrong.ok and wrong.losses == right.losses
