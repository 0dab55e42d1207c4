"""Named layouts: states and ways between them, what is illegal, and every legal layout equal to one device on ranks."""

import itertools
import sys
from math import prod

import cloudpickle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.core.what import programs
from hybridlab.core.what.operators import Graph, drawn, every_rules, refuse, shared
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.states import at_rest, conjugate, cut, dim_of, made, renamed, spoken, used
from hybridlab.modes.products import layout_proof, layouts
from hybridlab.modes.products.layout_proof import numbers
from hybridlab.predict.bytes.arrows import arrows, resting, sent, sent_by, way
from hybridlab.predict.time.operators import times, work
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk import typed

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SQUARE, FLAT = Mesh(x=2, y=2), Mesh(x=2, y=1, z=2)
MLP, BLOCK = programs.mlp(), programs.block()


# --- states, and ways between them --------------------------------------------------------------------------------

MESHES = (Mesh(x=2), SQUARE, FLAT, Mesh(x=2, y=3))
DIMS, LENGTHS = "BTF", (12, 4, 6)
KINDS = ["I", *map(cut, DIMS)]


def fits(state, mesh):
    ways = lambda one: prod(mesh[axis] for axis, other in zip(mesh.axes, state) if other == one)
    return all(length % ways(cut(dim)) == 0 for dim, length in zip(DIMS, LENGTHS))


def states(mesh, more):
    return st.tuples(*[st.sampled_from([*KINDS, more])] * len(mesh.axes)).filter(lambda one: fits(one, mesh))


cases = st.sampled_from(MESHES).flatmap(lambda mesh: st.tuples(st.just(mesh), states(mesh, "P"), states(mesh, "R")))


@pytest.mark.slow
@given(cases, st.booleans())
@settings(max_examples=150)
def test_the_moves_of_a_way_lead_from_one_state_to_the_other(case, learns):
    mesh, before, after = case
    here, axes = list(before), list(mesh.axes)
    for move in way(DIMS, LENGTHS, before, after, mesh, learns):
        assert sent_by(move, mesh, learns) >= 0
        assert move.arrow in typed.MOVES and conjugate(move.arrow) in typed.MOVES
        for place in map(axes.index, move.axes):
            assert here[place] == move.before
            for one in (move.before, move.after):  # the last cut of a dim alone is made or undone
                assert not dim_of(one) or one not in here[place + 1 :]
            here[place] = move.after
        assert fits(here, mesh)
    assert tuple(here) == after


@pytest.mark.slow
@given(cases)
@settings(max_examples=60)
def test_a_way_to_oneself_is_empty_and_a_way_on_the_way_costs_no_less(case):
    mesh, before, after = case
    price = lambda *ends: sum(sent_by(move, mesh) for move in way(DIMS, LENGTHS, *ends, mesh))
    assert way(DIMS, LENGTHS, before, before, mesh) == ()
    between = at_rest(after)
    assert price(before, after) <= price(before, between) + price(between, after)


@pytest.mark.slow
@given(st.sampled_from(MESHES), st.data())
@settings(max_examples=60)
def test_what_is_used_and_made_differ_where_a_cut_dim_is_missing(mesh, data):
    choice = data.draw(st.tuples(*[st.sampled_from(["", *"BTFD"])] * len(mesh.axes)))
    for dim, need, result, rest in zip(choice, used(DIMS, choice), made(DIMS, choice), at_rest(made(DIMS, choice))):
        if dim in DIMS and dim:
            assert need == result == rest == cut(dim)
        else:
            assert (need, result, rest) == (("R", "P", "I") if dim else ("I", "I", "I"))
    assert renamed(used(DIMS, choice), DIMS, DIMS) == used(DIMS, choice)


def test_the_collective_of_an_arrow_is_the_one_that_ranks_would_call():
    begun = {"all_reduce": "_sum", "all_gather": "_gather", "reduce_scatter": "_scatter", "": None}
    for arrow, move in typed.MOVES.items():
        if arrow not in ("V->V", "V->W", "S->V") and "->" in arrow:
            assert (move.begin and move.begin.__name__) == begun[spoken(arrow)], arrow


# --- what follows from rules --------------------------------------------------------------------------------------


def sends(graph, rules, mesh):
    return {
        (one.value, one.op, one.axis, one.backward)
        for arrow in arrows(graph, shared(graph, rules, mesh), mesh)
        for one in arrow.sends(mesh)
    }


def test_data_parallelism_is_the_sum_of_gradients():
    found = sends(MLP, {"B": "dp"}, Mesh(dp=2))
    assert found == {
        ("A", "all_reduce", "dp", True),
        ("W", "all_reduce", "dp", True),
        ("loss", "all_reduce", "dp", False),
    }


def test_megatron_is_a_sum_there_and_a_sum_back():
    found = sends(MLP, {"F": "tp"}, Mesh(tp=2))
    assert found == {("x", "all_reduce", "tp", True), ("down", "all_reduce", "tp", False)}
    both = sends(BLOCK, {"F": "tp", "H": "tp"}, Mesh(tp=2))
    assert {one[:2] for one in both} == {(name, "all_reduce") for name in ("norm", "out", "sum", "down")}


def test_both_at_once_send_what_each_sends_along_its_axis():
    mesh = Mesh(dp=2, tp=2)
    alone = sends(MLP, {"B": "dp"}, mesh) | sends(MLP, {"F": "tp"}, mesh)
    assert sends(MLP, {"B": "dp", "F": "tp"}, mesh) == alone


def test_two_users_who_need_a_value_alike_share_its_arrow():
    by_value = {}
    for arrow in arrows(BLOCK, shared(BLOCK, {"H": "x"}, Mesh(x=2)), Mesh(x=2)):
        by_value.setdefault(arrow.value, []).append(arrow)
    assert [arrow.users for arrow in by_value["norm"]] == [("queries",), ("keys", "values")]  # BTD once, BSD once
    assert len(by_value["x"]) == 1 and by_value["x"][0].users == ("norm", "sum")


def test_a_sum_over_two_axes_is_one():
    sends = {(one.value, one.axis) for arrow in arrows(MLP, shared(MLP, {"B": "x+y"}, SQUARE), SQUARE) for one in
             arrow.sends(SQUARE)}  # fmt: skip
    assert sends == {("A", "x+y"), ("W", "x+y"), ("loss", "x+y")}
    apart = sum(sent_by(move, SQUARE) for move in way("DF", (8, 8), ("I", "I"), ("R", "R"), SQUARE))
    assert apart == 2 * 3 / 4 * 64


def test_what_learns_nothing_comes_back_from_nowhere():
    quiet = MLP._replace(learns=frozenset("A"))
    back = {one.value for arrow in arrows(quiet, shared(quiet, {"F": "x"}, Mesh(x=2)), Mesh(x=2)) for one in
            arrow.sends(Mesh(x=2)) if one.backward}  # fmt: skip
    assert back == set()
    assert not any(one[0] == "t" and one[3] for one in sends(MLP, {"D": "x"}, SQUARE))


def test_what_is_held_whole_is_cut_and_gathered():
    held = Graph(MLP.operators[:3], MLP.sizes, {k: MLP.given[k] for k in "xAW"}, MLP.learns, frozenset({"x", "down"}))
    strategy = shared(held, {"B": "x"}, Mesh(x=2))
    assert resting(held, strategy, Mesh(x=2))["x"] == ("I",)
    first, *_, last = arrows(held, strategy, Mesh(x=2))
    assert [move.arrow for move in (*first.moves, *last.moves)] == ["I->V", "V->I"]


def test_bytes_are_those_of_the_papers():
    """Data parallelism sums all weights, Megatron's pair one activation each way; by rings."""
    tokens, width, hidden = 16, 8, 8
    ring = lambda elements, p=2: 2 * (p - 1) / p * elements
    count = lambda rules: sent(arrows(MLP, shared(MLP, rules, Mesh(x=2)), Mesh(x=2)), Mesh(x=2))
    assert count({"B": "x"}) == count({"T": "x"}) == ring(2 * width * hidden) + ring(1)
    assert count({"F": "x"}) == ring(tokens * width) * 2
    assert count({}) == 0


# --- work done twice ----------------------------------------------------------------------------------------------


def test_an_axis_that_an_operator_does_not_use_repeats_its_work():
    by_name = {one.operator: one.times for one in work(BLOCK, shared(BLOCK, {"F": "x", "H": "y"}, SQUARE), SQUARE)}
    assert by_name["up"] == by_name["queries"] == 2 and by_name["norm"] == by_name["loss"] == 4
    assert times(work(BLOCK, shared(BLOCK, {"B": "x+y"}, SQUARE), SQUARE)) == 1
    assert times(work(BLOCK, shared(BLOCK, {}, SQUARE), SQUARE)) == 4


# --- what is illegal ----------------------------------------------------------------------------------------------

ILLEGAL = [
    ({"D": "x", "F": "x"}, "x would cut A (FD) twice, by D and by F: leave out one of the two rules"),
    ({"B": "x", "T": "x"}, "x would cut x (BTD) twice, by B and by T"),
    ({"B": "x+y", "F": "y"}, "y would cut up (BTF) twice, by B and by F"),
    ({"G": "x"}, "no tensor has a dim G: the dims of this program are B, T, D, F"),
    ({"B": "q"}, "B cannot be cut along q: the axes of Mesh(x=2, y=2) are x, y"),
    ({"B": "y+x"}, "B is sharded along y+x: name each axis once, in the order of Mesh(x=2, y=2)"),
    ({"B": "x+x"}, "name each axis once"),
]


@pytest.mark.parametrize("rules, told", ILLEGAL)
def test_illegal_rules_are_refused_by_name(rules, told):
    with pytest.raises(ValueError) as refused:
        shared(MLP, rules, SQUARE)
    assert told in str(refused.value)


def test_a_length_that_cannot_be_divided_and_a_dim_that_is_needed_whole_are_refused():
    with pytest.raises(ValueError, match="up cannot shard F=6 over 4 ranks: give a multiple of 4"):
        shared(programs.mlp(hidden=6), {"F": "x+y"}, SQUARE)
    with pytest.raises(ValueError, match="norm needs all of D on every rank: do not shard D along x"):
        shared(BLOCK, {"D": "x"}, SQUARE)
    with pytest.raises(ValueError, match="attention needs all of S"):
        shared(BLOCK, {"S": "y"}, SQUARE)


STRATEGY = {"up": ("F", ""), "gelu": ("F", ""), "down": ("F", ""), "loss": ("", "")}


@pytest.mark.parametrize(
    "change, told",
    [
        ({"up": ("H", "")}, "up has no dimension H to shard along x: choose from B, T, D, F"),
        ({"up": ("F",)}, "up has 1 choices, but Mesh(x=2, y=2) has 2 axes"),
        ({"gelu": ("D", "")}, "gelu has no dimension D"),
    ],
)
def test_illegal_strategies_are_refused_by_name(change, told):
    refuse(MLP, STRATEGY, SQUARE)
    with pytest.raises(ValueError) as refused:
        arrows(MLP, STRATEGY | change, SQUARE)
    assert told in str(refused.value)


def test_a_strategy_says_something_about_every_operator():
    with pytest.raises(ValueError, match="the strategy lacks loss: give it one dimension, or '', for each axis"):
        refuse(MLP, {name: one for name, one in STRATEGY.items() if name != "loss"}, SQUARE)


@pytest.mark.parametrize("graph, mesh, count", [(MLP, SQUARE, 25), (MLP, FLAT, 125), (BLOCK, SQUARE, 36)])
def test_every_table_of_rules_is_found(graph, mesh, count):
    """Against all tables, legal or not, where these are few."""
    found = every_rules(graph, mesh)
    assert len(found) == count == len({tuple(sorted(rules.items())) for rules in found}) and found[0] == {}
    if graph is MLP and mesh is SQUARE:
        tables = itertools.product(["", "x", "y", "x+y"], repeat=4)
        tried = [{dim: axes for dim, axes in zip("BTDF", table) if axes} for table in tables]
        assert sorted(map(str, found)) == sorted(str(rules) for rules in tried if is_legal(rules))


def is_legal(rules):
    try:
        return bool(shared(MLP, rules, SQUARE))
    except ValueError:
        return False


# --- on real ranks ------------------------------------------------------------------------------------------------


def all_equal(pool, graph, strategies):
    for strategy, homes in zip(strategies, layout_proof.tried(pool, graph, strategies)):
        assert max(home.gap for home in homes) < 1e-12, strategy
        assert not any(home.strange for home in homes), strategy


@pytest.mark.ranks
def test_every_layout_of_two_layers_is_equal_and_sends_what_is_derived():
    with ranks(SQUARE) as pool:
        rules = [shared(MLP, one, SQUARE) for one in every_rules(MLP, SQUARE)]
        all_equal(pool, MLP, rules + drawn(MLP, SQUARE, 15))
        all_equal(pool, BLOCK, drawn(BLOCK, SQUARE, 6))


@pytest.mark.ranks
@pytest.mark.parametrize("count", [pytest.param(50, marks=pytest.mark.long), pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.parametrize("graph", (MLP, BLOCK), ids=("two layers", "block"))
@pytest.mark.parametrize("mesh", (SQUARE, FLAT), ids=str)
def test_every_table_of_rules_and_strategies_by_the_hundred_are_equal(graph, mesh, count):
    with ranks(mesh) as pool:
        all_equal(pool, graph, [shared(graph, one, mesh) for one in every_rules(graph, mesh)])
        all_equal(pool, graph, drawn(graph, mesh, count))


def on_three(comm):
    """Uneven meshes, values held whole, a graph whose result is cut."""
    graph = Graph(
        MLP.operators[:3], dict(B=6, T=4, D=12, F=6), {k: MLP.given[k] for k in "xAW"}, MLP.learns, frozenset("x")
    )
    wholes, gaps = numbers(graph), []
    right = layouts.alone(graph, wholes)
    right.backward(torch.ones_like(right))
    for rules in every_rules(graph, comm.mesh):
        strategy = shared(graph, rules, comm.mesh)
        mine = layouts.parts(comm, graph, strategy, wholes)
        y = layouts.run(comm, graph, strategy, mine)
        y.backward(torch.ones_like(y))
        last = arrows(graph, strategy, comm.mesh)[-1]
        gaps.append(float((y - layouts.part(comm, right, "BTD", last.after)).abs().max()))
        for name, state in resting(graph, strategy, comm.mesh).items():
            its = layouts.part(comm, wholes[name].grad, graph.given[name], state)
            gaps.append(float((its - mine[name].grad).abs().max()))
    return len(gaps), max(gaps)


@pytest.mark.ranks
@pytest.mark.long
def test_on_three_axes_sums_over_two_of_them_meet_in_groups_of_their_own():
    cube = Mesh(x=2, y=2, z=2)
    with ranks(cube) as pool:
        some = [{"B": "x+z"}, {"B": "x+z", "F": "y"}, {"T": "y+z", "D": "x"}, {"B": "x", "F": "y+z"}]
        all_equal(pool, MLP, [shared(MLP, rules, cube) for rules in some] + drawn(MLP, cube, 10))


@pytest.mark.ranks
def test_other_meshes_and_results_that_stay_cut():
    with ranks(Mesh(x=2, y=3)) as pool:
        for count, gap in pool.run(on_three):
            assert count > 40 and gap < 1e-11


# --- mutants ------------------------------------------------------------------------------------------------------


def without(arrow):
    """Run without one kind of move; what follows has a different type from the one that it assumes."""

    def how(comm, graph, strategy, values):
        right = layouts.moved
        layouts.moved = lambda comm, x, move: x if move.arrow == arrow else right(comm, x, move)
        try:
            return layouts.run(comm, graph, strategy, values)
        finally:
            layouts.moved = right

    return how


def summed_as_work(comm, graph, strategy, values):
    """all_reduce to R in place of I: its gradient is summed again."""
    right = typed.all_reduce
    typed.all_reduce = lambda comm, x, axis, to: right(comm, x, axis, to="R")
    try:
        return layouts.run(comm, graph, strategy, values)
    finally:
        typed.all_reduce = right


MUTANTS = {
    "forgotten enter": without("I->R"),
    "partial as whole": without("P->I"),
    "summed twice": summed_as_work,
}


@pytest.mark.ranks
def test_mutants_are_caught():
    with ranks(SQUARE) as pool:
        strategy = shared(MLP, {"B": "x", "F": "y"}, SQUARE)
        for mutant, run in MUTANTS.items():
            (homes,) = layout_proof.tried(pool, MLP, [strategy], run=run)
            assert max(home.gap for home in homes) > 1e-3, mutant
            assert any(home.strange for home in homes), mutant
