"""Notebook 35: tables and pictures say what is derived; runs are held against one device and what was derived."""

import re
from xml.etree import ElementTree

import pytest

from hybridlab.core.what.operators import every_rules, shared
from hybridlab.core.what.programs import block, mlp, net
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs import layouts
from hybridlab.labs.layouts import on_ranks, pictures, products, tables
from hybridlab.labs.layouts.tasks import repeated
from hybridlab.modes.products.layout_proof import Home
from hybridlab.predict.bytes.arrows import Send, arrows, sent

SQUARE = Mesh(i=2, j=2)
TWO = mlp(4, 4, 8, 16)


# --- pictures -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_legal_table_has_a_picture_on_its_sheet():
    for rules in every_rules(pictures.PROGRAM, SQUARE):
        still = pictures.layout_still(rules)
        wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', still.svg).groups())
        for one in ElementTree.fromstring(still.svg).iter("{http://www.w3.org/2000/svg}rect"):
            if one.get("x") is None:
                continue  # the sheet itself
            x, y, width, height = (float(one.get(name)) for name in ("x", "y", "width", "height"))
            assert min(x, y) >= 0 and x + width <= wide and y + height <= tall, rules


def test_a_slice_is_drawn_for_each_part_and_no_element_twice():
    graph, strategy = pictures.PROGRAM, shared(pictures.PROGRAM, {"T": "i", "F": "j"}, SQUARE)
    for arrow in arrows(graph, strategy, SQUARE)[:-1]:
        if len(arrow.dims) > 1:
            drawn = pictures._matrix(arrow, arrow.before, graph, SQUARE, "forward")
            area = sum((one.rows[1] - one.rows[0]) * (one.columns[1] - one.columns[0]) for one in drawn.slices)
            assert area == drawn.rows * drawn.columns
            assert {rank for one in drawn.slices for rank in one.ranks} == set(range(4))


def test_what_is_sent_is_green_and_told():
    still = pictures.layout_still({"B": "i", "F": "j"})
    assert "down: all-reduce j" in still.summary and "A: back all-reduce i" in still.summary
    assert still.svg.count(">enter i<") == 2 and still.svg.count(">sum j<") == 1
    assert "partial, j" in still.svg
    assert "nothing is sent" in pictures.layout_still({}).summary
    assert "sends" not in pictures.layout_still({"B": "i"}, numbers=False).summary


def test_an_illegal_choice_is_answered_by_a_sentence():
    one = pictures.layouts()
    one.choose(B="i", T="i")
    assert one.summary == "i would cut x (BTD) twice, by B and by T: leave out one of the two rules"
    one.choose(T="j")
    assert one.summary == pictures.layout_still({"B": "i", "T": "j"}).summary


@pytest.mark.slow
def test_the_curves_cross_where_the_text_says():
    """Data parallelism and Megatron send alike when there are as many tokens as hidden units."""
    mesh = Mesh(i=4, j=4)
    for batch, sign in ((128, -1), (256, 0), (512, 1)):
        graph = mlp(batch, 16, 1024, 4096)
        megatron, data = (
            sent(arrows(graph, shared(graph, one, mesh), mesh), mesh) for one in ({"F": "i+j"}, {"B": "i+j"})
        )
        gap = megatron - data
        assert abs(gap) < 3 if sign == 0 else gap * sign > 0
    assert "Megatron: {F: i+j} 0.983 to 252" in pictures.crossing().summary


# --- tables -------------------------------------------------------------------------------------------------------


def test_weights_that_are_held():
    for rules, numbers in (({}, 256), ({"F": "j"}, 128), ({"D": "i", "F": "j"}, 64), ({"B": "i+j"}, 256)):
        assert tables.held(TWO, shared(TWO, rules, SQUARE), SQUARE) == numbers


def test_legal_and_illegal_tables_are_told():
    told = layouts.refused(TWO, [{"B": "i"}, {"B": "k"}, {"D": "i", "F": "i"}], SQUARE).rows
    assert told[0][1] == "legal" and "the axes of" in told[1][1] and "A (FD) twice" in told[2][1]


def test_work_is_added_up():
    rows = layouts.work(TWO, {"F": "j"}, SQUARE).rows
    assert rows[0] == ("up", "2,048", "1,024", "2 ×") and rows[-1][0] == "together" and rows[-1][3] == "2.06 ×"
    assert repeated() == {"norm", "sum", "loss"}


@pytest.mark.slow
def test_the_exercises_sums_are_those_of_the_arrows():
    """What a student derives for a product is what the whole machinery derives for it."""
    from hybridlab.core.what.operators import Graph, Operator

    for signature, rules in products.CASES:
        right = products.sums(signature, rules)
        product = Operator("product", signature, ("a", "b"))
        sizes = dict.fromkeys(product.dims, 8)
        graph = Graph((product,), sizes, dict(zip("ab", product.operands)), frozenset("ab"))
        mesh = Mesh(**dict.fromkeys(sorted(set(rules.values())) or ["x"], 2))
        known = {dim: axis for dim, axis in rules.items() if dim in product.dims}
        if right is None:
            with pytest.raises(ValueError, match="twice"):
                shared(graph, known, mesh)
            continue
        found = {one.value: set() for one in arrows(graph, shared(graph, known, mesh), mesh)}
        for arrow in arrows(graph, shared(graph, known, mesh), mesh):
            for one in arrow.sends(mesh):
                found[one.value] |= set(one.axis.split("+"))
        assert [found[name] for name in ("a", "b", "product")] == [set(axes) for axes in right], signature


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.mark.ranks
def test_runs_are_equal_and_rows_are_those_derived(bench):
    pool = bench.pool(SQUARE)
    assert all(row[4] == "4 of 4" for row in layouts.counted(pool, TWO, {"B": "i", "F": "j"}).rows)
    ((strategies, drawn, verdict, many),) = layouts.some(pool, block(), 5).rows
    assert (drawn, verdict, many) == ("5", "equal, as derived", "5") and int(strategies.replace(",", "")) > 10**14


@pytest.mark.ranks
def test_torch_counts_the_work_that_is_foretold(bench):
    for rules in ({}, {"H": "i", "F": "i"}, {"T": "i", "F": "j"}, {"B": "i+j"}):
        for _, counted, predicted, *_ in layouts.repeated(bench.pool(SQUARE), block(), rules).rows:
            assert counted == predicted, rules


@pytest.mark.ranks
def test_halos_stand_in_the_tables(bench):
    graph = net()
    strips = {operator.name: ("P" if operator.name in ("half", "second") else "", "") for operator in graph.operators}
    strips |= {"first": ("Y", "")}
    told = {row[0]: row for row in layouts.arrows(graph, strips, SQUARE).rows}
    assert told["x"][3:5] == ("halo i of 128 words at most",) * 2
    assert told["half"][3] == "halo i of 64 words at most"
    rows = {row[:3]: row[3:] for row in layouts.counted(bench.pool(SQUARE), graph, strips).rows}
    assert rows["half", "forward", "message to a neighbour i"] == ("64", "4 of 4")
    assert rows["half", "backward", "message from a neighbour i"] == ("64", "4 of 4")


def test_a_wrong_run_would_be_told():
    right = [Send("A", "all_reduce", "i", 64, True)]
    assert on_ranks.judged([Home(0.1, right, right)]) == "off by 1.0e-01, as derived"
    assert on_ranks.judged([Home(0.0, [], right)]) == "equal, other messages"
    assert Home(0.0, [*right, *right], right).strange == right == Home(0.0, [], right).strange
