"""Strategies, executed: operator by operator on real ranks, equal to one device, with the messages that are derived."""

import math
import random
import sys
from types import SimpleNamespace

import cloudpickle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.core.what import programs
from hybridlab.core.what.operators import Graph, Operator, choices, drawn, refuse
from hybridlab.core.what.wiring import misfit
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.spans import Look, Sight
from hybridlab.modes.products import layout_proof, layouts
from hybridlab.predict.bytes.arrows import arrows, sent_for
from hybridlab.predict.bytes.halos import halo
from hybridlab.predict.bytes.spatial import textbook
from hybridlab.predict.time.operators import flops
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk import typed

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SQUARE = Mesh(x=2, y=2)
MESHES = (Mesh(x=2), Mesh(x=4), SQUARE, Mesh(x=2, y=2, z=2))
UNEVEN = Mesh(x=2, y=3)
PROGRAMS = {"mlp": programs.mlp(), "transformer": programs.transformer(), "net": programs.net()}


def looking(sight: Sight, length: int = 8, samples: int = 2) -> Graph:
    """A convolution whose picture becomes smaller, and the largest of what lies beside each other behind it."""
    made, near = sight.outputs(length), Sight(3, before=1, after=1)
    sizes = dict(B=samples, C=2, O=4, Y=length, X=length, P=made, Q=made, y=sight.kernel, x=sight.kernel)
    operators = (
        Operator("first", "BCYX,OCyx->BOPQ", ("x", "A"), "convolution", "yx", along(sight, "YP", "XQ")),
        Operator("near", "BOPQ->BOPQ", ("first",), "largest", looks=along(near, "PP", "QQ")),
        Operator("loss", "BOPQ,BOPQ->", ("near", "t")),
    )
    return Graph(operators, sizes, {"x": "BCYX", "A": "OCyx", "t": "BOPQ"}, frozenset("xA"))


def along(sight, *dims):
    return tuple(Look(of, made, sight) for of, made in dims)


def twice() -> Graph:
    """One weight in two convolutions, the second time with its dims exchanged; what came in is used three times."""
    same = Sight(3, before=1, after=1)
    operators = (
        Operator("first", "BCYX,OCyx->BOYX", ("x", "A"), "convolution", "yx", along(same, "YY", "XX")),
        Operator("relu", "BOYX->BOYX", ("first",), "relu"),
        Operator("second", "BOYX,COyx->BCYX", ("relu", "A"), "convolution", "yx", along(same, "YY", "XX")),
        Operator("sum", "BCYX,BCYX->BCYX", ("second", "x"), "add"),
        Operator("loss", "BCYX,BCYX->", ("sum", "x")),
    )
    return Graph(operators, dict(B=2, C=4, O=4, Y=4, X=4, y=3, x=3), {"x": "BCYX", "A": "OCyx"}, frozenset("xA"))


def tied() -> Graph:
    """Two layers with one weight: the second has it as the transpose of the first."""
    up, gelu, _, loss = programs.mlp().operators
    operators = (up, gelu, Operator("down", "BTF,FD->BTD", ("gelu", "A")), loss)
    return programs.mlp()._replace(operators=operators, given={"x": "BTD", "A": "FD", "t": "BTD"}, learns={"x", "A"})


def at_random(seed: int, count: int = 10) -> Graph:
    """Pictures through operators drawn by chance: values and weights of any age are used again."""
    draw, both = random.Random(seed), along(Sight(3, before=1, after=1), "YY", "XX")
    operators = [Operator("wide", "BCYX,OC->BOYX", ("x", "W"))]
    made = {"x": "C", "wide": "O"}  # by name, what its channels are called
    for number in map(str, range(count)):
        one = draw.choice(list(made))
        here, there = made[one], {"C": "O", "O": "C"}[made[one]]
        dims = f"B{here}YX"
        match draw.choice(("convolution", "convolution", "product", "add", "relu", "largest")):
            case "convolution":
                signature = f"{dims},{there}{here}yx->B{there}YX"
                operator = Operator(number, signature, (one, f"to {there}"), "convolution", "yx", both)
            case "product":
                operator = Operator(number, f"{dims},OC->B{there}YX", (one, "W"))
            case "add":
                other = draw.choice([name for name, its in made.items() if its == here])
                operator = Operator(number, f"{dims},{dims}->{dims}", (one, other), "add")
            case does:
                operator = Operator(number, f"{dims}->{dims}", (one,), does, looks=both if does == "largest" else ())
        operators.append(operator)
        made[number] = operator.result[1]
    used = {name for one in operators for name in one.takes}
    dims = {one.name: one.result for one in operators if one.name not in used}  # nothing is made in vain
    losses = [Operator(f"loss of {name}", f"{its},{its}->", (name, name)) for name, its in dims.items()]
    sums = [Operator("loss", ",".join("" for _ in losses) + "->", tuple(one.name for one in losses), "add")]
    given = {"x": "BCYX", "W": "OC", "to O": "OCyx", "to C": "COyx"}
    given = {name: its for name, its in given.items() if name in used}
    sizes = dict(B=4, C=4, O=8, Y=8, X=8, y=3, x=3)
    return Graph((*operators, *losses, *sums), sizes, given, frozenset(given))


# --- what is needed, and what is sent -----------------------------------------------------------------------------

ROWS = Look("Y", "Y", Sight(3, before=1, after=1))
sights = st.builds(Sight, st.integers(1, 5), st.integers(1, 2), st.integers(0, 3), st.integers(0, 3), st.integers(1, 2))


def test_a_convolution_needs_its_strip_and_looks_on():
    first = programs.net().operators[0]
    picture, weight = first.needs(("Y", "C"))
    assert picture == ("BCYX", ("V:Y", "V:C"), (ROWS,)) and weight == ("OCyx", ("R", "V:C"), ())
    half = programs.net().operators[2]
    assert half.dims == "BOPQ" and half.needs(("P",))[0].state == ("V:Y",)
    assert [choice for (choice,) in choices(half, programs.net().sizes, Mesh(x=2))] == ["", *"BOPQ"]


@pytest.mark.slow
@given(st.sampled_from(MESHES), sights, sights, st.data())
@settings(max_examples=150)
def test_what_a_rank_receives_is_what_it_sees_and_does_not_have(mesh, rows, columns, data):
    """Pixel by pixel: corners come by way of a neighbour, and are counted where they arrive."""
    choice = data.draw(st.tuples(*[st.sampled_from(["", *"BYX"])] * len(mesh.axes)))
    lengths = (8, 3, 16, 8)
    looks = tuple(look for look in (Look("Y", "P", rows), Look("X", "Q", columns)) if look.of in choice)
    state = tuple(f"V:{dim}" if dim else "R" for dim in choice)
    found = halo("BCYX", lengths, state, looks, mesh)
    for rank in range(mesh.size):
        across, boxes = 3 * 8 // math.prod(mesh[axis] for axis, dim in zip(mesh.axes, choice) if dim == "B"), []
        for dim, length, sight in (("Y", 16, rows), ("X", 8, columns)):
            ways = math.prod(mesh[axis] for axis, one in zip(mesh.axes, choice) if one == dim)
            place = mesh.place(rank, "+".join(axis for axis, one in zip(mesh.axes, choice) if one == dim))
            mine = set(range(place * length // ways, (place + 1) * length // ways))
            longer, more = divmod(sight.outputs(length), ways)
            begin = (place * longer + min(place, more)) * sight.stride - sight.before
            made = longer + (place < more)
            spanned = set(range(begin, begin + (made - 1) * sight.stride + sight.reach)) if made else set()
            boxes.append((mine, spanned & set(range(length)) if dim in choice else mine))
        (mine, want), (mine_x, want_x) = boxes
        right = len(want - mine) * len(mine_x) + len(want) * len(want_x - mine_x)
        received = sum(elements for window in found for _, to, elements in window.messages if to == rank)
        assert received == across * right


def test_strips_of_a_usual_convolution_send_the_textbooks_halo():
    graph, mesh = programs.net(batch=2, channels=4, rows=16, columns=8), Mesh(x=4)
    strategy = drawn(graph, mesh, 1)[0] | {"first": ("Y",)}
    arrow = next(one for one in arrows(graph, strategy, mesh) if one.users == ("first",) and one.value == "x")
    forward = [one for rank in range(4) for one in arrow.sends(mesh, rank) if one.op == "isend" and not one.backward]
    assert sum(one.elements for one in forward) == textbook(4, 3, 2, 4, 8)
    assert sent_for(arrow, mesh) == 4 * 64  # two borders, there and back
    received = {(one.peer, rank, one.elements) for rank in range(4) for one in arrow.sends(mesh, rank)
                if one.op == "irecv" and not one.backward}  # fmt: skip
    assert received == {(0, 1, 64), (1, 0, 64), (1, 2, 64), (2, 1, 64), (2, 3, 64), (3, 2, 64)}


def test_users_that_see_alike_share_a_halo_and_others_do_not():
    graph = twice()
    strategy = {operator.name: ("Y", "X") for operator in graph.operators}
    by_user = {one.users: one for one in arrows(graph, strategy, SQUARE) if one.value == "x"}
    assert len(by_user["first",].halo) == 2 and by_user["sum", "loss"].halo == ()
    assert len([one for one in arrows(graph, strategy, SQUARE) if one.value == "A"]) == 2  # OCyx, and COyx


def test_a_product_for_every_pixel_looks_at_nothing_else_and_a_stride_within_a_strip_fetches_nothing():
    point = looking(Sight(1))
    assert not any(one.halo for one in arrows(point, dict(first=("P",), near=("",), loss=("",)), Mesh(x=2)))
    half = programs.net()
    strategy = drawn(half, Mesh(x=2), 1)[0] | {"half": ("P",)}
    assert not any(one.halo for one in arrows(half, strategy, Mesh(x=2)) if one.users == ("half",))


def test_flops_of_a_convolution_are_those_of_its_outputs():
    first, _, half, *_ = looking(Sight(3, 2, 1, 1)).operators[:1] + programs.net().operators[:3]
    assert flops(first, looking(Sight(3, 2, 1, 1)).sizes) == 2 * 2 * 2 * 4 * 4 * 4 * 9
    assert flops(programs.net().operators[2], programs.net().sizes) == 4 * 4 * 4 * 4 * 4


# --- what is illegal ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, told",
    [
        ({"half": ("Y",)}, "half is sharded by its result: let x shard P instead of Y"),
        ({"first": ("y",)}, "first needs all of y on every rank: do not shard y along x"),
        ({"half": ("K",)}, "half has no dimension K to shard along x: choose from B, O, P, Q"),
        ({"second": ("P",)}, "second cannot shard P=4 over 8 ranks: give a multiple of 8"),
    ],
)
def test_illegal_strategies_of_a_net_are_refused_by_name(change, told):
    graph, mesh = programs.net(), Mesh(x=8)
    whole = {operator.name: ("",) for operator in graph.operators}
    refuse(graph, whole, mesh)
    with pytest.raises(ValueError) as refused:
        refuse(graph, whole | change, mesh)
    assert str(refused.value) == told


def test_what_is_seen_must_be_divisible_too():
    graph = looking(Sight(4), length=7)  # 4 rows of 7
    whole = dict.fromkeys(("first", "near", "loss"), ("",))
    with pytest.raises(ValueError, match="first cannot shard Y=7 over 2 ranks: give a multiple of 2"):
        refuse(graph, whole | {"first": ("P",)}, Mesh(x=2))


UP = Operator("up", "BD,FD->BF", ("x", "A"))
PLAIN = Graph((UP,), dict(B=4, D=4, F=8, E=6), dict(x="BD", A="FD"), frozenset("A"))


@pytest.mark.parametrize(
    "graph, told",
    [
        (PLAIN._replace(sizes=dict(B=4, D=4)), "F has no length: give it one in sizes"),
        (PLAIN._replace(learns={"W"}), "W is not given, so it cannot learn: give it its dims, or leave"),
        (PLAIN._replace(learns={*"ZYXWVUTSRQ"}), "Q is not given"),  # the first by name, whatever a set's order
        (PLAIN._replace(held={*"ZYXWVUTSRQ"}), "Q is neither given"),
        (PLAIN._replace(held={"W"}), "W is neither given nor the result, so it cannot be held: leave it out"),
        (PLAIN._replace(given={"x": "BD"}), "up takes A, and nothing makes A before it"),
        (PLAIN._replace(operators=(UP._replace(takes=("x",)),)), "up takes 1 values, and BD,FD->BF has 2 operands"),
        (PLAIN._replace(operators=(UP, UP)), "there are two values up: give one of them another name"),
        (
            PLAIN._replace(given={"x": "BFD", "A": "FD"}),
            "up calls x BD, and its dims are BFD: give one letter for each dim",
        ),
        (PLAIN._replace(given={"x": "BE", "A": "FD"}), "up calls E of x D, but E = 6 and D = 4"),
        (looking(Sight(4), 7)._replace(sizes=looking(Sight(4), 7).sizes | {"P": 5}),
         "first makes 4 places of Y = 7: let P, which is 5, be 4, or give it other padding"),
        (PLAIN._replace(operators=(UP._replace(looks=(ROWS,)),), sizes=PLAIN.sizes | {"Y": 3}),
         "up looks along Y and makes Y: its first operand must have Y, and its result Y"),
    ],
)  # fmt: skip
def test_a_graph_that_does_not_fit_together_is_refused_before_anything_runs(graph, told):
    assert misfit(PLAIN) == "" and misfit(graph).startswith(told)
    with pytest.raises(ValueError):
        arrows(graph, {"up": ("",), "first": ("",)}, Mesh(x=2))


def test_all_programs_fit_together():
    for graph in (*PROGRAMS.values(), twice(), tied(), programs.block(), programs.classifier()):
        assert misfit(graph) == ""


def test_values_of_another_shape_and_operators_that_nobody_knows_are_refused():
    alone, numbers = SimpleNamespace(mesh=Mesh(x=2), rank=0), layout_proof.numbers(PLAIN)
    with pytest.raises(ValueError, match="A is missing: give x, A"):
        layouts.parts(alone, PLAIN, {"up": ("B",)}, {"x": numbers["x"]})
    with pytest.raises(ValueError, match=r"x has shape \(2, 4\), but BD is \(4, 4\): give the full tensor"):
        layouts.parts(alone, PLAIN, {"up": ("B",)}, numbers | {"x": numbers["x"][:2]})
    with pytest.raises(ValueError, match="up has does='magic', which is not known: choose one of einsum, add, gelu"):
        layouts.alone(PLAIN._replace(operators=(UP._replace(does="magic"),)), numbers)


def test_the_parts_of_a_rank_are_its_own():
    alone, numbers = SimpleNamespace(mesh=Mesh(x=2), rank=1), layout_proof.numbers(PLAIN)
    before = {name: whole.clone() for name, whole in numbers.items()}
    with torch.no_grad():
        for part in layouts.parts(alone, PLAIN, {"up": ("B",)}, numbers).values():
            part.zero_()
    assert all(torch.equal(whole, numbers[name]) for name, whole in before.items())


@pytest.mark.slow
def test_what_is_drawn_is_legal_the_same_for_a_seed_and_not_always_the_same():
    for graph in PROGRAMS.values():
        for mesh in MESHES:
            some = drawn(graph, mesh, 5, seed=3)
            assert some == drawn(graph, mesh, 5, seed=3) != drawn(graph, mesh, 5, seed=4)
            for strategy in some:
                refuse(graph, strategy, mesh)


# --- on real ranks ------------------------------------------------------------------------------------------------


def all_equal(pool, graph, strategies, steps=1, run=layouts.run):
    for strategy, homes in zip(strategies, layout_proof.tried(pool, graph, strategies, steps, run)):
        assert max(home.gap for home in homes) < 1e-10, strategy
        assert not any(home.strange for home in homes), strategy


@pytest.mark.ranks
def test_strategies_of_three_programs_train_as_one_device_does_and_send_what_is_derived():
    with ranks(SQUARE) as pool:
        for graph in PROGRAMS.values():
            all_equal(pool, graph, drawn(graph, SQUARE, 3, seed=1), steps=3)
        halos = {operator.name: ("Y", "X") for operator in twice().operators}
        all_equal(pool, twice(), [halos, *drawn(twice(), SQUARE, 2)])


def early(comm, graph, strategy, values):
    return layouts.prepared(comm, graph, strategy, early=True)(values)


def spans_of_sums(comm, run):
    """When the sum of each weight's gradient began and ended, as this rank sees it."""
    graph = PROGRAMS["mlp"]
    strategy = dict.fromkeys(("up", "gelu", "down", "loss"), ("B",))
    run(comm, graph, strategy, layouts.parts(comm, graph, strategy, layout_proof.numbers(graph))).backward()
    rows = comm.ledger.rows()
    return {row["purpose"]: (row["begin_ns"], row["end_ns"]) for row in rows if row["op"] == "all_reduce"}


@pytest.mark.ranks
def test_what_sets_out_early_is_equal_and_its_sums_go_on_beside_the_backward():
    with ranks(SQUARE) as pool:
        for graph in (*PROGRAMS.values(), twice(), tied()):
            all_equal(pool, graph, drawn(graph, SQUARE, 2, seed=5), steps=2, run=early)
    with ranks(Mesh(x=2)) as pool:
        for run, beside in ((layouts.run, False), (early, True)):
            for found in pool.run(spans_of_sums, run):
                assert (found["W"][1] > found["A"][0]) == beside  # W's is over before A's begins, or is not


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_dozen_strategies_and_more_on_every_mesh(name, mesh):
    """3 programs, 4 meshes, 20 each: 240."""
    with ranks(mesh) as pool:
        all_equal(pool, PROGRAMS[name], drawn(PROGRAMS[name], mesh, 20, seed=mesh.size), steps=2)
        all_equal(pool, PROGRAMS[name], drawn(PROGRAMS[name], mesh, 10, seed=-mesh.size), run=early)


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_weights_used_twice_other_kernels_and_strips_shorter_than_a_halo(mesh):
    seen = [Sight(5, 1, 2, 2), Sight(3, 2, 1, 1), Sight(3, 1, 2, 2, 2), Sight(2, 2), Sight(4, 1, 1, 2), Sight(1, 2)]
    with ranks(mesh) as pool:
        for graph in (tied(), twice(), *(looking(one, length=16) for one in seen)):
            all_equal(pool, graph, drawn(graph, mesh, 10))


@pytest.mark.ranks
@pytest.mark.parametrize("seeds", [pytest.param(5, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mesh", MESHES[1:], ids=str)
def test_programs_drawn_by_chance_under_strategies_drawn_by_chance(mesh, seeds):
    with ranks(mesh) as pool:
        for seed in range(seeds):
            all_equal(pool, at_random(seed), drawn(at_random(seed), mesh, 5, seed))


@pytest.mark.ranks
@pytest.mark.long
def test_three_ranks_along_an_axis():
    sixes = {
        "mlp": programs.mlp(6, 6, 12, 12),
        "transformer": programs.transformer(6, 6, 12, 12, 6, 6),
        "net": programs.net(6, 6, 6, 12, 12, classes=6),
    }
    with ranks(UNEVEN) as pool:
        for graph in sixes.values():
            all_equal(pool, graph, drawn(graph, UNEVEN, 20), steps=2)


# --- mutants ------------------------------------------------------------------------------------------------------


def changed(place, name, other):
    """A run in which a function does something else."""

    def run(comm, graph, strategy, values):
        right = getattr(place, name)
        setattr(place, name, lambda *about, **more: other(right, *about, **more))
        try:
            return layouts.run(comm, graph, strategy, values)
        finally:
            setattr(place, name, right)

    return run


def a_row_of_zeros(right, comm, x, dim, window):
    x, place = right(comm, x, dim, window).clone(), comm.mesh.place(comm.rank, "+".join(window.axes))
    if window.want[place][0] < window.have[place][0]:
        x.narrow(dim, 0, 1).zero_()
    return x


def of_one_rank(right, comm, x, axis, dim, have, want):
    """A window whose gradient does not go home."""
    its = right(comm, x, axis, dim, have=have, want=want)
    mine = x.detach()
    return its.detach() + windows_own(its, x - mine, dim, have, want, comm.group(axis).ranks.index(comm.rank))


def windows_own(its, x, dim, have, want, place):
    begin = max(have[place][0], want[place][0])
    length = min(have[place][1], want[place][1]) - begin
    room = its.new_zeros(its.shape)
    room.narrow(dim, begin - want[place][0], length).copy_(x.narrow(dim, begin - have[place][0], length))
    return room


def other_axis(right, comm, x, move):
    """The outer cut of a dim undone before the inner one."""
    swapped = {"x": "y", "y": "x"}
    return right(comm, x, move._replace(axis=swapped[move.axis]) if move.arrow == "V->I" else move)


MUTANTS = {
    "a row of the halo is missing": changed(layouts, "seen", a_row_of_zeros),
    "a halo's gradient stays": changed(typed, "window", of_one_rank),
    "a partial sum is taken for the sum": changed(typed, "all_reduce", lambda right, comm, x, axis, to: x),
    "a gather's gradient is taken for whole": changed(
        typed, "all_gather", lambda right, comm, x, axis, dim, to: right(comm, x, axis, dim, to="I")
    ),
    "the outer cut is undone first": changed(layouts, "moved", other_axis),
}
CUT = {operator.name: ("Y", "X") for operator in twice().operators}
STRIPS = {operator.name: ("Y", "Y") for operator in twice().operators}


CAUGHT = [  # mutant, strategy of `twice`, whether the ledger tells it too
    ("a row of the halo is missing", CUT, False),
    ("a row of the halo is missing", STRIPS, False),
    ("a halo's gradient stays", CUT, True),
    ("a partial sum is taken for the sum", CUT | {"second": ("O", "O")}, True),
    ("a gather's gradient is taken for whole", CUT | {"second": ("O", "C")}, True),
    ("the outer cut is undone first", STRIPS | {"relu": ("Y", "")}, True),
]


@pytest.mark.ranks
def test_mutants_are_caught():
    with ranks(SQUARE) as pool:
        for mutant, strategy, told in CAUGHT:
            (homes,) = layout_proof.tried(pool, twice(), [strategy], run=MUTANTS[mutant])
            assert max(home.gap for home in homes) > 1e-3, mutant
            assert any(home.strange for home in homes) == told, mutant
