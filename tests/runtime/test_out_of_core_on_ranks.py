"""Training beyond the device's memory, on real ranks: equal to one process, no byte over, as long as predicted."""

import re
from dataclasses import replace

import pytest
from few import first, one_in

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.on_host import OnHost
from hybridlab.modes.out_of_core import room_of
from hybridlab.runtime.arena import Arena
from hybridlab.runtime.copies import Leaving
from hybridlab.runtime.player import Player
from hybridlab.training.make_job import job_of
from hybridlab.training.out_of_core import copied, most_held, weighed
from hybridlab.world.devices.placement import ASKED

SHAPE = Shape(layers=4, width=16, heads=2, context=8)
TWO = {"schedule": "gpipe", "microbatches": 8, "shape": SHAPE}
COPIED = "kept on the host, there and back"


# ---- what is asked for


def test_room_is_bytes_or_a_share_of_what_is_kept_in_core():
    assert [room_of(one) for one in ("64MiB", "2e6", "1.5 KB", 0.5, 4096)] == [2**26, 2e6, 1500, 0.5, 4096]
    for wrong in ("much", "-3", 0, "4 miles"):
        with pytest.raises(ValueError, match="is not an amount of memory: give bytes, such as 64MiB or 2e6, or a"):
            room_of(wrong)


@pytest.mark.slow
def test_a_share_is_one_of_the_most_that_a_rank_keeps_in_core():
    plain = job_of(Mesh(pp=2), **TWO)
    half = job_of(Mesh(pp=2), device_memory=0.5, **TWO)
    assert half.room.capacity == int(most_held(plain.schedule, weighed(plain)) / 2)
    assert copied(half) > 0 and not copied(job_of(Mesh(pp=2), device_memory=1.0, **TWO))


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, ["gpipe", "1f1b", "interleaved", "zb_h1", "chimera"]))
def test_what_does_not_fit_is_refused_with_the_least_that_does(name):
    for means in ("swap", "recompute"):
        more = {"schedule": name, "microbatches": 4, "shape": SHAPE, "make_room": means}
        with pytest.raises(ValueError, match=f"do not fit into 100 bytes by {means[:4]}") as told:
            job_of(Mesh(pp=2), device_memory=100, **more)
        least = int(re.search(r"device_memory=(\d+)", str(told.value))[1])
        assert job_of(Mesh(pp=2), device_memory=least, **more).room.capacity == least
        with pytest.raises(ValueError, match="do not fit"):
            job_of(Mesh(pp=2), device_memory=least - 1, **more)


@pytest.mark.parametrize(
    "more, said",
    [
        ({"schedule": "pipedream"}, "keeps several versions of its weights"),
        ({"driven": True}, "driven=True has no fixed order, so swaps cannot be planned"),
        ({"sequence": True, "mesh": Mesh(pp=2, tp=2)}, "leave out sequence or device_memory"),
        ({"make_room": "magic"}, "there is no make_room 'magic'"),
    ],
)
def test_what_cannot_be_combined_is_refused(more, said):
    more = {"schedule": "1f1b", "device_memory": 0.5, "shape": SHAPE} | more
    with pytest.raises(ValueError, match=said):
        job_of(more.pop("mesh", Mesh(pp=2)), **more)


@pytest.mark.slow
def test_the_shape_of_the_room_follows_the_formula_of_what_blocks_keep():
    """`predict.bytes.saved` counts the batch's ids too, which are on the device anyway."""
    from hybridlab.predict.bytes.saved import layers

    job = job_of(Mesh(pp=2), "gpipe", 2, shape=SHAPE)
    embed, *blocks, head = layers(SHAPE, job.rows)
    ids = 8 * job.rows * SHAPE.context
    assert weighed(job).keeps == (embed - ids + sum(blocks[:2]), sum(blocks[2:]) + head - ids - inputs(job))


@pytest.mark.slow
def test_attention_is_weighed_by_the_kernels_of_the_ranks_device(monkeypatch):
    """None of CUDA's fused ones takes float64: what is kept there are the scores too."""

    def kept(devices, dtype, shape=SHAPE):
        monkeypatch.setenv(ASKED, devices)
        return weighed(job_of(Mesh(pp=2), "gpipe", 2, shape=shape, dtype=dtype)).keeps

    assert kept("cuda:2", "float32") == kept("cpu", "float32")
    assert all(a > b for a, b in zip(kept("cuda:2", "float64"), kept("cpu", "float64")))
    without = replace(SHAPE, heads=0)
    assert kept("cuda:2", "float64", without) == kept("cpu", "float64", without)


def inputs(job):
    """What comes into a stage is a boundary, and not kept by it."""
    return 4 * job.rows * SHAPE.context * SHAPE.width


# ---- on ranks


EQUAL = {
    "gpipe at a quarter": (Mesh(pp=2), TWO | {"device_memory": 0.25}),
    "mixture": (Mesh(pp=2), TWO | {"device_memory": 0.4, "make_room": "mixture", "microbatches": 3}),
    "chunks, replicas, shares": (Mesh(dp=2, pp=2), {"schedule": "interleaved", "zero": 1, "device_memory": 0.5}),
    "halves, recomputed": (Mesh(pp=2), {"schedule": "zb_h1", "device_memory": 1.0, "make_room": "recompute"}),
    "two directions": (Mesh(pp=2), {"schedule": "chimera", "device_memory": 0.7}),
    "inside stages": (Mesh(pp=2, tp=2), {"schedule": "gpipe", "device_memory": 0.5, "accumulate": 2}),
    "skips": (Mesh(pp=2), {"model": "unet", "schedule": "gpipe", "device_memory": 0.5}),
    "weights gathered": (Mesh(dp=2), {"zero": 3, "device_memory": 0.5, "optimizer": "adamw", "rate": 0.01}),
}
FEW = ("gpipe at a quarter", "weights gathered")


@pytest.mark.ranks
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in FEW)) for n in EQUAL])
def test_a_job_within_a_room_is_one_device(bench, name):
    mesh, more = EQUAL[name]
    more = {"shape": SHAPE} | more if "model" not in more else more
    report = bench.asked(mesh, **more)
    in_core = bench.asked(mesh, **{k: v for k, v in more.items() if k not in ("device_memory", "make_room")})
    assert report.ok, report
    assert report.gaps == in_core.gaps and report.losses == in_core.losses  # not one bit is another
    left = lambda one: {what: bytes for what, bytes in one.bytes.items() if what != COPIED}
    assert left(report) == left(in_core) and report.axes == in_core.axes
    assert (report.bytes[COPIED][0] > 0) == (more.get("make_room") != "recompute")


@pytest.mark.ranks
def test_a_model_of_more_than_twice_the_memory_trains_and_never_holds_more(kept):
    mesh, more = Mesh(dp=2, pp=2), TWO | {"zero": 1, "steps": 2, "progress": False}
    plain = job_of(mesh, **TWO, zero=1)
    most = most_held(plain.schedule, weighed(plain))
    within, in_core = (hl.train(mesh, device_memory=one, **more) for one in (0.4, None))
    room, origin = within["timeline"].room, within["timeline"].origin
    assert within["losses"] == in_core["losses"] and most >= 2 * room.capacity
    assert 0.8 * room.capacity < max(origin["peak_held"]) <= room.capacity
    assert [max(size for _, size in rank) <= room.capacity for rank in origin["held"]] == [True] * 4


@pytest.mark.ranks
def test_gpipe_holds_two_where_it_held_eight(kept):
    plain = job_of(Mesh(pp=2), **TWO)
    in_core = hl.run(plain.schedule, work="model", model=SHAPE, steps=1)
    assert max(in_core.peak_live) == 8
    two = 2 * max(weighed(plain).keeps) + 10 * max(weighed(plain).boundary)
    real = hl.run(hl.schedule("gpipe", 2, 8), work="model", model=SHAPE, device_memory=two, steps=1)
    assert max(real.origin["peak_held"]) <= two < 3 * max(weighed(plain).keeps)


# ---- as long as predicted

CHAIN = Schedule.from_csv(",".join([f"{s}F0" for s in range(8)] + [f"{s}B0" for s in reversed(range(8))]), name="chain")


@pytest.mark.ranks
@pytest.mark.parametrize("swap", first(1, [0.03, 0.09]))
def test_emulated_copies_take_as_long_as_predicted(kept, swap):
    """Within a few hundredths where nobody else wants the cores (`bench/out_of_core.py`); here, within a fifth."""
    room, costs = hl.Room(capacity=4), hl.Costs(F=0.03, B=0.06, swap=swap)
    schedule = hl.swapped(CHAIN, range(5), room)
    real, ideal = hl.run(schedule, costs=costs, room=room, steps=3), hl.simulate(schedule, costs, room=room)
    assert ideal.length <= real.length < 1.2 * ideal.length
    assert real.room == room and {real.span(0, i).lane for i in range(26)} == {"compute", "out", "in"}


# ---- weights at rest on the hosts


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    [
        (Mesh(dp=2), {"optimizer": "adamw", "rate": 0.01, "clip": 0.05}),
        pytest.param(Mesh(dp=1), {}, marks=pytest.mark.long),
        pytest.param(Mesh(dp=2, pp=2), {"schedule": "interleaved", "dtype": "bfloat16"}, marks=pytest.mark.long),
        pytest.param(Mesh(dp=2), {"device_memory": 0.5, "accumulate": 2}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_weights_that_rest_on_the_hosts_train_as_on_one_device(bench, mesh, more):
    report = bench.asked(mesh, zero=3, owners=1, offload=True, shape=SHAPE, **more)
    assert report.ok, report
    assert "weights at rest on the hosts" in report.layout
    sums = [op for (purpose, _, op), _ in report.axes.items() if purpose == "hosts"]
    assert sums == ["all_reduce"] * (mesh["dp"] > 1)  # gradients travel; weights are at home everywhere


def test_one_owner_needs_a_place_to_rest():
    with pytest.raises(ValueError, match="zero=3 with owners=1 shards nothing: give owners=2 or more, or offload=True"):
        job_of(Mesh(dp=2), zero=3, owners=1)


# ---- mistakes


def copies_not_waited_for(patch):
    patch.setattr(Player, "_copies_before", lambda player, index: [])
    slow(patch)


def slow(patch):
    import time

    right = Leaving.carry
    patch.setattr(Leaving, "carry", lambda load: (time.sleep(0.05), right(load)))


def an_arena_without_end(patch):
    patch.setattr(Arena, "take", lambda arena, storage, doing="": None)


def weights_of_the_step_before(patch):
    right, kept = OnHost._gather, {}

    def gather(weights, pack):
        copy, was = right(weights, pack), kept.get(pack)
        kept[pack] = weights.pieces[pack].clone()
        copy.wait()
        weights.values[pack].copy_(kept[pack] if was is None else was)
        return copy

    patch.setattr(OnHost, "_gather", gather)


def gradients_of_one_host(patch):
    right = OnHost._started

    def started(weights, pack, names, flat):
        one = right(weights, pack, names, flat)
        mine = flat.clone()
        one.take = lambda piece: weights._take(names, mine)
        return one

    patch.setattr(OnHost, "_started", started)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mistake, mesh, more",
    [
        (copies_not_waited_for, Mesh(pp=2), TWO | {"device_memory": 0.3}),
        pytest.param(an_arena_without_end, Mesh(pp=2), TWO | {"device_memory": 0.3}, marks=pytest.mark.long),
        pytest.param(
            *(weights_of_the_step_before, Mesh(dp=2), {"zero": 3, "owners": 1, "offload": True, "shape": SHAPE}),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *(gradients_of_one_host, Mesh(dp=2), {"zero": 3, "owners": 1, "offload": True, "shape": SHAPE}),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_mistake_is_caught(bench, mistake, mesh, more):
    assert bench.right(mesh, **more)
    try:
        report = bench.asked(mesh, sabotage=mistake, **more)
    except hl.RankError:
        return
    assert not report.ok
