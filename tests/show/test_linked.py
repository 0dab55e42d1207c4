"""Pictures linked with words: terms light the areas of their formula, and grips are where a reader cuts."""

import base64
import gzip
import json
import re
from itertools import product

import pytest

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.hybrid.traffic import transfers
from hybridlab.predict.bytes import of_cuts
from hybridlab.predict.bytes.of_cuts import Cut, fewest
from hybridlab.show.layouts.slabs import BOTTOM, HEIGHT, WIDTH, Slabs
from hybridlab.show.live.bubble_formula import SIZES, Sizes, bubble_formula
from hybridlab.show.live.cut_model import cut_model

RECT = re.compile(r'<rect class="hl-area" data-term="(\w+) total" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"')
GRIP = re.compile(r'<g data-grip="(\d)" data-stops="([^"]+)"')
EVERY = [Cut(*one) for one in product(of_cuts.STAGES, of_cuts.PARTS, of_cuts.COPIES, of_cuts.BATCHES)]


def panels(shown) -> dict:
    """{values of all choices: the panel}."""
    choices = [one["values"] for one in shown.data["choices"]]
    lines = gzip.decompress(base64.b64decode(shown.data["panels"])).decode().split("\n")
    every = list(product(*choices))
    assert len(every) == len(lines)
    return dict(zip(every, map(json.loads, lines)))


@pytest.mark.parametrize("name", SIZES)
def test_the_lit_areas_are_the_terms_of_the_formula_on_every_rank(name):
    for values, panel in panels(bubble_formula(name)).items():
        sizes, wide = Sizes(*values), {}
        for term, _, y, width in RECT.findall(panel["svg"]):
            wide.setdefault(term, {}).setdefault(y, 0)
            wide[term][y] += float(width)
        slot = sum(wide["work"].values()) / (sizes.p * sizes.v * sizes.m)
        assert len(wide["idle"]) == len(wide["work"]) == sizes.p  # an area on each rank
        assert all(width == pytest.approx((sizes.p - 1) * slot, rel=0.01) for width in wide["idle"].values()), values
        assert all(width == pytest.approx(sizes.v * sizes.m * slot, rel=0.01) for width in wide["work"].values())


@pytest.mark.parametrize("name", SIZES)
def test_the_number_after_the_formula_is_measured_in_the_schedule(name):
    for values, panel in panels(bubble_formula(name)).items():
        sizes = Sizes(*values)
        shares = [float(one) for one in re.findall(r"<mn>([\d.]+)</mn><mtext> %", panel["words"])]
        idle = 100 * (sizes.p - 1)
        assert shares == pytest.approx([idle / sizes.slots, idle / (sizes.v * sizes.m)], abs=0.051)
        assert re.findall(r'data-lights="(\w+)"', panel["words"]).count("idle") == 6
        assert set(re.findall(r'data-lights="(\w+)"', panel["words"])) == {"idle", "work", "total"}
        assert set(panel["told"]) == {"", "idle", "work", "total"}


def test_each_grip_has_a_place_for_each_value():
    for shown in (bubble_formula("gpipe"), cut_model()):
        for panel in panels(shown).values():
            for number, stops in GRIP.findall(panel["svg"]):
                assert len(set(stops.split())) == len(shown.data["choices"][int(number)]["values"])


@pytest.mark.parametrize("wrong", [{"name": "naive"}, {"ranks": 7}, {"microbatches": 0}])
def test_what_is_not_drawn_is_refused(wrong):
    with pytest.raises(ValueError, match="is invalid: .* Choose one of"):
        bubble_formula(**wrong)


@pytest.mark.parametrize("wrong", [{"stages": 4}, {"parts": 3}, {"copies": 8}, {"batch": 16}])
def test_a_cut_that_is_not_drawn_is_refused(wrong):
    with pytest.raises(ValueError, match="is invalid: .* Choose one of"):
        cut_model(**wrong)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 2, 2), (3, 4, 1)])
def test_a_cut_sends_the_bytes_of_a_real_job(sizes):
    from hybridlab.training.make_job import job_of

    cut = Cut(*sizes, 8)
    mesh = Mesh(pp=cut.p, dp=cut.d, tp=cut.t)
    job = job_of(mesh, shape=of_cuts.SHAPE, batch=8, microbatches=cut.microbatches, dtype="bfloat16")
    rank = mesh.group(0, "pp")[1]  # in the middle: without embedding and head
    its = [one for one in transfers(job) if rank in (one.ranks[:1] if one.op == "isend" else one.ranks)]
    sent = {axis: sum(one.sent for one in its if axis in one.axis.split("+")) for axis in mesh.axes}
    assert sent["pp"] == cut.between_stages.sent
    assert sent["tp"] == pytest.approx(cut.inside_layers.sent, rel=1e-3)  # besides a few numbers for the norm
    single = 4 / of_cuts.WIDTH  # the job adds gradients in single precision
    assert sent["dp"] == pytest.approx(single * cut.between_copies.sent, rel=1e-3)


def test_the_fewest_bytes_are_those_of_no_other_cut():
    for devices in {one.devices for one in EVERY}:
        for batch in of_cuts.BATCHES:
            same = [one for one in EVERY if (one.devices, one.batch) == (devices, batch)]
            assert fewest(devices, batch).sent == min(one.sent for one in same)


def test_a_cut_without_a_knife_sends_nothing_and_holds_everything():
    whole = Cut(1, 1, 1, 32)
    assert whole.sent == 0 and whole.weights == 2 * 6 * sum(of_cuts.SHAPE.block)
    parts = Cut(1, 4, 1, 32)
    block = of_cuts.SHAPE.block
    assert parts.weights == 2 * 6 * ((block.attention + block.mlp) / 4 + block.whole)


def test_slabs_are_in_the_picture_and_none_lies_on_another():
    for cut in EVERY:
        slabs = Slabs(cut)
        boxes = [box for device in slabs.devices.values() for box in device]
        assert len(slabs.devices) == cut.devices and len(boxes) == 6 * cut.t * cut.d
        assert all(0 < one.x and one.x + one.wide < WIDTH and one.y + one.tall <= BOTTOM + 1e-6 for one in boxes)
        for a, b in product(boxes, boxes):
            apart = a.x + a.wide <= b.x or b.x + b.wide <= a.x or a.y + a.tall <= b.y or b.y + b.tall <= a.y
            assert a == b or apart
        stops = slabs.between_layers + slabs.through_width + slabs.through_batch
        assert all(16 <= x <= WIDTH - 16 and 11 <= y <= HEIGHT - 11 for x, y in stops)


@pytest.mark.parametrize(("term", "one", "other"), [("p", (1, 2, 2), (2, 2, 2)), ("t", (2, 1, 2), (2, 2, 2)),
                                                     ("d", (2, 2, 1), (2, 2, 2))])  # fmt: skip
def test_a_knife_draws_messages_only_where_it_cuts(term, one, other):
    drawn = ["".join(Slabs(Cut(*sizes, 32)).drawn()).count(f'data-term="{term}"') for sizes in (one, other)]
    assert drawn[0] == 0 < drawn[1]


def test_the_blue_device_is_one_that_sends_the_most():
    for p in of_cuts.STAGES[1:]:
        sends = [0] * p
        for (sender, _), (count, _) in hl.traffic(hl.schedule("1f1b", ranks=p, microbatches=8)).items():
            sends[sender] += count
        assert sends[Slabs(Cut(p, 1, 1, 8)).own] == max(sends) == Cut(p, 1, 1, 8).between_stages.times
