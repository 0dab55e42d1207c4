"""Notebook 43: its tables and pictures say what the searches find; what is measured is all that may be asked for."""

import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from hybridlab.core.what.programs import block, mlp, net
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs import search
from hybridlab.labs.search import pictures, tables, trial, walks
from hybridlab.labs.search.sizes import IMAGES, SMALL, VALLEY
from hybridlab.predict.search.chain import chain
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.mcmc import mcmc, relative
from hybridlab.predict.search.one_rule import one_rule
from hybridlab.predict.search.pieces import pieces
from hybridlab.show.live.replay import Replay
from hybridlab.show.plans import search_trace

SVG = "{http://www.w3.org/2000/svg}"
START = data_parallel(IMAGES)
WALK = mcmc(IMAGES, 60, seed=4, alpha=relative(START.seconds))


# --- the problems -------------------------------------------------------------------------------------------------


def test_the_best_is_one_weird_trick_and_no_table_of_rules():
    found = chain(IMAGES)
    assert tables.told(found.strategy) == "B, B, F, F, F, –"
    assert found.seconds < 0.95 * one_rule(IMAGES).seconds < START.seconds
    assert IMAGES.count == 3600


@pytest.mark.slow
def test_the_valley_has_a_ridge_of_two_changes():
    here, end = dict(data_parallel(VALLEY).strategy), chain(VALLEY).strategy
    low = VALLEY.seconds(here)
    for name, its in VALLEY.choices.items():  # no single change helps
        assert all(VALLEY.seconds(here | {name: one}) >= low * (1 - 1e-9) for one in its)
    for pair in itertools.combinations(["up", "gelu", "loss"], 2):
        assert VALLEY.seconds(here | {name: end[name] for name in pair}) > low
    assert VALLEY.seconds(here | {name: end[name] for name in ("up", "gelu", "down")}) < low


def test_a_slower_machine_takes_as_much_longer_for_every_strategy():
    slow = walks.slower(IMAGES, 1024)
    for found in (START, chain(IMAGES)):
        assert slow.seconds(found.strategy) == pytest.approx(1024 * found.seconds, rel=1e-12)


@pytest.mark.slow
def test_walks_are_told_line_by_line():
    rows = walks.rates({"this one": IMAGES, "slower": walks.slower(IMAGES, 1024)}, budget=20, seeds=3).rows
    assert [row[:2] for row in rows] == [("this one", "1 per ms"), ("this one", "20 per start"),
                                         ("slower", "1 per ms"), ("slower", "20 per start")]  # fmt: skip
    assert rows[1][2:] == rows[3][2:] and rows[0][2] != rows[2][2] == "0%"


@pytest.mark.long
def test_only_walks_that_nobody_calls_back_leave_the_valley():
    ways = {"called": (400, True, 3), "never": (400, False, 3)}
    rows = [("1 per ms", "0 of 3", "0 of 3"), ("20 per start", "0 of 3", "1 of 3")]
    assert list(walks.leaving(VALLEY, ways).rows) == rows


# --- tables and pictures ------------------------------------------------------------------------------------------


def test_tables_add_up():
    rows = tables.parts(IMAGES, START.strategy).rows
    together = rows[-1]
    assert together[-1].endswith(f"in all {tables.ms(START.seconds)}")
    work = sum(float(row[2].split()[0]) for row in rows[:-1])
    assert abs(work - float(together[2].split()[0])) < 0.003
    assert [row[1] for row in tables.rivals(IMAGES, "megatron", "chain").rows] == ["5.722 ms", "4.762 ms"]
    assert tables.choices(IMAGES).rows[3] == ("gelu", "BF->BF", "– B F", "3")
    assert search.parts is tables.parts


def inside(svg):
    """Whether all boxes lie on their sheet."""
    wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    for one in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        x, y, width, height = (float(one.get(name, 0)) for name in ("x", "y", "width", "height"))
        if min(x, y) < 0 or x + width > wide or y + height > tall:
            return False
    return True


def test_every_choice_by_hand_has_a_picture_on_its_sheet():
    one = pictures.by_hand(IMAGES)
    assert one.summary.startswith("Data parallelism: 16.059 ms")
    one.choose(hidden="F", gelu="F", classes="F", loss="–")
    assert one.summary.startswith("Cut along B, B, F, F, F, –: 4.762 ms")
    draw = lambda strategy: pictures.priced(IMAGES, strategy, START.seconds).svg
    for name, its in IMAGES.choices.items():
        for choice in its:
            assert inside(draw(START.strategy | {name: choice}))
    assert "▸" in pictures.priced(IMAGES, START.strategy, START.seconds / 2).svg


def test_a_trace_shows_every_try_and_where_the_search_stands():
    replay = pictures.replay(IMAGES, WALK, {"one table of rules": one_rule(IMAGES)}, "A walk")
    assert isinstance(replay, Replay) and inside(replay.twin)
    root = ElementTree.fromstring(replay.svg)
    tries = [one for one in root.iter(f"{SVG}g") if one.find(f"{SVG}circle") is not None]
    assert [int(one.get("data-at")) for one in tries] == list(range(61))
    hollow = [one.find(f"{SVG}circle").get("fill") == "none" for one in tries]
    assert hollow == [not one.kept for one in WALK.trace]
    heights = [float(one.find(f"{SVG}circle").get("cy")) for one in tries]
    assert max(heights) - min(heights) > 0.7 * search_trace.TALL, "the tries fill the frame"
    assert len(replay.told) == 61 and replay.told[0] == "Start: 16.1 ms."
    assert sum("a new best" in told for told in replay.told) == len(set(WALK.best)) - 1
    assert replay.summary.startswith("mcmc: 16.1 ms at the start, ") and "one table of rules 5.16 ms" in replay.summary
    assert replay._repr_mimebundle_()[0]["text/plain"] == replay.summary


def test_where_the_trace_stands_is_priced_as_the_search_said():
    """The strategy that is shown at every try takes what the line of the chart says."""
    spans = search_trace._spans(WALK, START.strategy)
    for place, now in enumerate(WALK.now):
        here = {name: next(choice for begin, end, choice in its if begin <= place and (end is None or place < end))
                for name, its in spans.items()}  # fmt: skip
        assert IMAGES.seconds(here) == pytest.approx(now, rel=1e-12)


# --- what a student writes ----------------------------------------------------------------------------------------


def test_the_judge_of_chains_knows_the_least_sum():
    for own, between in trial.CHAINS[:6]:
        every = itertools.product(*(range(len(one)) for one in own))
        assert trial.least(own, between) == min(trial.total(own, between, places) for places in every)


def test_walks_to_be_written_go_up_stay_and_go_down():
    for case in trial.WALKS[1:]:
        prices, start, *_ = case
        stands = [start, *trial.walked(*case)]
        steps = {math.copysign(1, prices[b] - prices[a]) if a != b else 0 for a, b in zip(stands, stands[1:])}
        assert steps >= {-1, 0}
    assert any(prices[b] > prices[a] for prices, start, proposals, alpha in trial.WALKS
               for a, b in zip([start, *trial.walked(prices, start, proposals, alpha)],
                               trial.walked(prices, start, proposals, alpha)))  # fmt: skip


# --- measured -----------------------------------------------------------------------------------------------------


def test_all_that_an_arrow_may_call_is_measured():
    from hybridlab.measuring.strategies import collectives

    spoken = "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
    assert set(collectives(mlp(), Mesh(x=2, y=1))) == {(op, "x") for op in spoken}
    assert ("send", "x+y") in set(collectives(net(), Mesh(x=2, y=2)))


@pytest.mark.ranks
def test_pieces_links_and_steps_are_measured_on_real_ranks():
    import hybridlab as hl
    from hybridlab.measuring.strategies import timed
    from hybridlab.predict.search.problem import Problem

    graph = net(4, 2, 4, 8, 8)
    with hl.ranks(Mesh(i=2)) as pool:
        strategy = {operator.name: ("Y",) if "Y" in operator.dims else ("",) for operator in graph.operators}
        found = timed(pool, graph, [strategy], rounds=2, clock="core")
        with pytest.raises(ValueError, match="clock='sun' is not known: choose wall or core"):
            timed(pool, graph, clock="sun")
    assert set(found.profile.seconds) == set(pieces(graph, Mesh(i=2)))
    assert all(one.forward > 0 and (one.backward > 0) == any(piece.learns)
               for piece, one in found.profile.seconds.items())  # fmt: skip
    assert (
        Problem(graph, Mesh(i=2), found.profile).seconds(strategy) > 0 < min(found.steps[0]) and len(found.steps) == 1
    )


@pytest.mark.ranks
@pytest.mark.long
def test_what_is_found_runs_and_is_equal_to_one_device():
    import hybridlab as hl

    graph = SMALL._replace(sizes=SMALL.sizes | {"B": 8, "P": 4, "C": 8, "E": 4, "F": 16, "G": 8})
    with hl.ranks(Mesh(i=2)) as pool:
        problem = search.here(pool, graph, rounds=1)
        chosen = {"best": chain(problem).strategy, "walk": mcmc(problem, 50).strategy}
        rows = search.proved(pool, graph, chosen | {"data": data_parallel(problem).strategy}).rows
        assert [row[1:] for row in rows] == [("equal", "as derived")] * 3
        took = search.measured(pool, problem, chosen, rounds=2)
    assert took["best"][0] == problem.seconds(chosen["best"]) and len(took["best"][1]) == 2


def test_the_bench_compares_pairs_that_differ():
    import importlib.util
    import sys
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2] / "bench"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("bench_strategies", folder / "strategies.py")
        bench = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bench)
    finally:
        sys.path.remove(str(folder))
    assert bench.agreement([1, 1.1, 2], [1, 0.9, 5]) == (2, 2)
    assert bench.agreement([1, 2], [2, 1]) == (0, 1)
    chosen = bench.some(block(), Mesh(i=2), 20, 0)
    assert len(chosen) == len({tuple(one.items()) for one in chosen}) and len(chosen) > 15
