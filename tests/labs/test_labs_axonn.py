"""Notebook 36: pictures and tables say what the package computes; what is timed is what the layers really do."""

import math
from itertools import product

import pytest
from few import one_in

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import part
from hybridlab.labs.axonn import factorisations, on_ranks, pictures
from hybridlab.labs.axonn.factorisations import Grid
from hybridlab.labs.axonn.tasks import grids, hides, planned
from hybridlab.predict.bytes.matmul import moved
from hybridlab.predict.bytes.traffic import along
from hybridlab.predict.time.overlap import chain, length

pytestmark = pytest.mark.slow

# --- who holds what -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid, way", one_in(4, list(product(pictures.GRIDS, pictures.WAYS))))
def test_a_rank_holds_in_the_picture_what_the_layer_gives_it(grid, way):
    import torch

    mesh, (inner, outer) = Mesh(**dict(zip("xyz", map(int, grid.split("×"))))), pictures.WAYS[way]
    rows, inputs, outputs = map(torch.arange, pictures.SIZES)
    for rank in range(mesh.size):
        held = pictures._spans(mesh, mesh.coordinates(rank), inner, outer, pictures.SIZES)
        right = {"rows": part(rows, "B", {"B": "z"}, mesh, rank), "inputs": part(inputs, "I", {"I": inner}, mesh, rank)}
        right |= {"outputs": part(outputs, "O", {"O": outer}, mesh, rank)}
        right |= {"share": part(right["outputs"], "O", {"O": "z"}, mesh, rank)}
        assert held == {name: (int(one[0]), int(one[-1]) + 1) for name, one in right.items()}


@pytest.mark.parametrize("grid", one_in(2, pictures.GRIDS))
def test_what_one_layer_leaves_lies_as_the_next_one_takes_it(grid):
    mesh = Mesh(**dict(zip("xyz", map(int, grid.split("×")))))
    for rank in range(mesh.size):
        one, other = (
            pictures._spans(mesh, mesh.coordinates(rank), *way, (24, 16, 16)) for way in pictures.WAYS.values()
        )
        assert (one["rows"], one["outputs"]) == (other["rows"], other["inputs"])


# --- tables -------------------------------------------------------------------------------------------------------


def test_twenty_grids_and_the_names_of_those_that_have_one():
    names = {tuple(grid): grid.name for grid in factorisations.grids()}
    assert len(names) == 20
    known = {(1, 1, 1, 8): "data parallelism", (1, 1, 2, 4): "hybrid sharding", (8, 1, 1, 1): "the width alone"}
    known |= {(1, 1, 8, 1): "fully sharded", (1, 8, 1, 1): "Megatron's", (2, 4, 1, 1): "2-D", (2, 2, 2, 1): "3-D"}
    assert known.items() <= names.items()


@pytest.mark.parametrize("grid", [(1, 8, 1, 1), (2, 4, 1, 1), (2, 2, 2, 1), (4, 1, 2, 1), (1, 1, 2, 4)])
def test_words_are_those_of_the_closed_formulas(grid):
    shape, (x, y, z, copies) = factorisations.SMALL, grid
    its = factorisations.words(Grid(*grid))
    tokens = factorisations.SEQUENCES // (z * copies) * shape.context
    assert its.x == pytest.approx(2 * (x - 1) / x * along(shape, tokens, y))
    assert (its.tp > 0) == (y > 1) and (its.gathers > 0) == (z > 1) and (its.gradients > 0) == (z * copies > 1)


def test_z_changes_what_is_at_rest_and_not_what_is_sent():
    each = [factorisations.words(Grid(1, 1, z, 8 // z)) for z in (1, 2, 4, 8)]
    assert len({one.sent for one in each}) == 1
    assert [math.ceil(each[0].kept / z) for z in (1, 2, 4, 8)] == [one.kept for one in each]


def test_along_x_ranks_do_the_same_attention():
    rows = factorisations.twice().rows
    assert [row[0] for row in rows] == ["8×1", "4×2", "2×4", "1×8"]
    assert [int(row[2]) for row in rows] == [8, 4, 2, 1] == [int(row[3]) for row in rows]


def test_the_grid_of_the_exercise_is_the_best_of_all():
    every, best = grids(), planned().best.plan
    assert min(every, key=every.get) == (best.x, best.t, best.d) == (4, 4, 4)
    assert all(x * t * d == 64 for x, t, d in every) and len(every) > 10


@pytest.mark.parametrize("sum_x", [4, 5, 6])
def test_of_a_long_sum_what_dw_does_not_hide_is_left(sum_x):
    assert length(chain(hides(sum_x), overlapped=True)) == 18 + 1 + 2 + 2 * (sum_x - 3) + 1


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.mark.ranks
def test_a_table_of_words_says_whether_a_layer_is_equal_to_one_device(bench):
    pool = bench.pool(Mesh(x=2, y=1, z=2))
    for swapped, grid in ((False, (2, 1, 2)), (True, (1, 2, 2))):
        told, one = on_ranks.counted(pool, (8, 12, 16), swapped), moved("axonn", (8, 12, 16), grid)
        assert told.note == "Y, dX and dW are those of one device."
        assert [row[1:] for row in told.rows] == [(f"{one.sent} / {one.sent}", f"{one.back} / {one.back}")] * 4


@pytest.mark.ranks
def test_what_is_timed_is_what_the_layers_do(bench):
    timed = on_ranks.timed(bench.pool(Mesh(x=2, y=1, z=2)), 16, [12, 16, 8], times=2)
    for form, pieces in timed.measured.items():
        assert {(one.track, one.name) for one in pieces} == {(one.track, one.name) for one in timed.predicted[form]}
        assert all(0 < one.begin <= one.end for one in pieces)
    begin = {one.name: one.begin for one in timed.measured["overlapped"]}
    assert begin["AG 1"] < begin["Y 0"] and begin["dX 1"] < begin["AR dX 1"] < begin["dW 1"] < begin["RS 1"]
    begin = {one.name: one.begin for one in timed.measured["plain"]}
    assert begin["Y 0"] < begin["AG 1"] < begin["Y 1"] and begin["dW 1"] < begin["AR dX 1"]
    told = pictures.step(timed).summary.splitlines()
    assert [line.split(":")[0] for line in told[:-1]] == [
        f"{form}, {kind}" for form in ("plain", "overlapped") for kind in ("predicted", "measured")
    ]


@pytest.mark.ranks
def test_emulated_work_takes_the_time_that_it_is_told(bench):
    timed = on_ranks.timed(bench.pool(Mesh(x=1, y=1, z=2)), 4, [4, 6], waits=0.005, times=2)
    for pieces in (*timed.predicted.values(), *timed.measured.values()):
        took = [one.end - one.begin for one in pieces if one.track == "compute"]
        assert len(took) == 3 and all(one > 0.0049 for one in took)


def test_the_room_is_found_from_its_name():
    from hybridlab.labs import axonn

    assert axonn.counted is on_ranks.counted and hl.Mesh is Mesh
