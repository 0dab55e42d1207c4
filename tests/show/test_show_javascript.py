"""The JavaScript: well formed, small, no addresses and no colours of actions; its arithmetic held against Python's."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.show.live.explorer import Explorer
from hybridlab.show.live.module import HERE, VIEW, module
from hybridlab.show.live.quickly import simulated
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.picture import column, picture, to_json
from hybridlab.show.timelines.spans import ARRIVED, BUBBLE

pytestmark = pytest.mark.slow

FILES = sorted(HERE.glob("*.js"))
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed: JavaScript is not run outside a browser")


def timelines():
    fused = hl.Schedule.from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1")
    schedules = [hl.lower(hl.schedule("1f1b", ranks=3, microbatches=7)), hl.schedule("zb_h1", ranks=2, microbatches=4)]
    return [hl.simulate(one, hl.Costs(F=1, I=0.75, W=1.25, latency=0.3)) for one in [*schedules, fused]]


def ran(program: str, shown: dict):
    """What a program prints as JSON, with the picture's data at hand."""
    pieces = [(HERE / name).read_text("utf-8") for name in VIEW if name not in ("transport.js", "view.js")]
    start = f"const picture = {to_json(shown)}, data = opened(picture);"
    text = "\n".join([*pieces, start, f"console.log(JSON.stringify({program}))"])
    done = subprocess.run([NODE, "--input-type=module"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_says_what_it_holds_and_is_short(file):
    lines = file.read_text("utf-8").splitlines()
    assert lines[0].startswith("// ") and len(lines) <= 300
    assert max(map(len, lines)) <= 120
    assert not any(line.lstrip().startswith("import ") for line in lines)


PEN = "{ measureText: (text) => ({ width: text.length * 0.64 * parseFloat(pen.font) }) }"
LAID = """(() => {{
  const pen = {pen}, place = layout(picture, {width}, 0, picture.length, {em}, ROOM.little);
  const font = {{ box: {em} * 14 / 15, smallest: {em} * 13 / 15, family: "" }}, seen = visible(picture, data, place);
  const labels = labelled(pen, picture, data, place, font, seen), acts = [...data.kind].filter((k) => k >= 0).length;
  return {{ labels: labels.size, acts, left: place.left, right: place.right, names: place.names,
    columns: heldColumns(picture, place).map((one) => [one.left, one.end, one.x(picture.length)]) }};
}})()"""


def laid(*shown, width, em):
    return ran(LAID.format(pen=PEN, width=width, em=em), picture(*shown))


@needs_node
def test_every_box_of_a_slide_has_its_number():
    """At the size of a lecture's letters, a forward of the naive pipeline is 12 pixels wide."""
    naive = hl.simulate(hl.schedule("naive", ranks=4, microbatches=8), hl.Costs(F=1, I=1, W=1))
    one = laid(naive, width=1440, em=20.8)
    assert one["labels"] == one["acts"] == 64
    assert laid(naive, width=500, em=20.8)["labels"] < 64


@needs_node
def test_areas_of_several_timelines_are_side_by_side_and_leave_room_for_their_numbers():
    one = laid(*timelines(), width=1200, em=15)
    for (left, end, last), beyond in zip(one["columns"], [x for x, *_ in one["columns"][1:]] + [1200]):
        assert left < end < beyond - 1.9 * 15 and last == pytest.approx(end)
    alone = laid(timelines()[0], width=1200, em=15)
    assert alone["columns"][0][:2] == [alone["left"], alone["right"]]  # on the axis of the boxes


@needs_node
def test_on_a_phone_the_names_of_lanes_take_no_more_than_they_need():
    wide, phone = (laid(timelines()[0], width=px, em=15) for px in (1200, 345))
    assert phone["left"] < wide["left"] and phone["names"] > 15 * 0.62 * len("rank 0")
    assert (phone["right"] - phone["left"]) / 345 > 0.6


@needs_node
def test_the_machine_view_takes_as_many_boxes_as_the_explorer():
    """Arguments of a function are limited to some hundred thousand, boxes are not."""
    shown = picture(hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=3)))
    many = "Object.assign(data, { x0: new Float32Array(3e5), x1: new Float32Array(3e5).fill(1) })"
    ranks = "[{ boxes: Array.from({ length: 3e5 }, () => 0) }]"
    assert ran(f"({many}, tripsOf(picture, data, {ranks}, {{}}, [])).length", shown) == 0


def test_no_file_names_an_address_or_a_colour_of_an_action():
    text = "\n".join(file.read_text("utf-8") for file in FILES)
    assert not re.search(r"https?://|import\(|fetch\(|XMLHttpRequest|WebSocket", text)
    for kind in STYLE["kinds"].values():
        assert kind["fill"].lower() not in text.lower()


def test_the_drawing_half_names_no_kind_of_action_and_no_kernel():
    text = module()
    assert not re.search(r"\bmodel\b|jupyter|\"[FBIW]\"|'[FBIW]'|SEND|RECV", text.replace("JupyterLab", ""))


@needs_node
def test_the_joined_module_is_well_formed(tmp_path):
    (tmp_path / "explorer.mjs").write_text(str(Explorer._esm), encoding="utf-8")
    done = subprocess.run([NODE, "--check", tmp_path / "explorer.mjs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_node
def test_columns_are_read_as_python_wrote_them():
    shown = picture(*timelines())
    read = ran("Object.fromEntries(Object.keys(picture.columns).map((k) => [k, Array.from(data[k])]))", shown)
    for name, values in read.items():
        assert values == column(shown, name).tolist(), name


@needs_node
@pytest.mark.parametrize("window", [(0, 1), (0.2, 0.55), (0.4, 0.41)])
@pytest.mark.parametrize("columns", [7, 400])
@pytest.mark.long
def test_shares_sum_to_the_area_of_the_boxes(window, columns):
    shown = picture(*timelines())
    begin, end = (share * shown["length"] for share in window)
    call = f"(() => {{ const s = shares(picture, data, {begin}, {end}, {columns});"
    made = ran(call + " return { share: Array.from(s.share), top: Array.from(s.top, (y) => y < 1e9 ? y : 0), "
               "bottom: Array.from(s.bottom, (y) => y > -1e9 ? y : 0), rows: s.rows }; })()", shown)  # fmt: skip
    looks = len(shown["looks"])
    share = np.array(made["share"]).reshape(made["rows"], columns, looks)
    assert share.min() >= 0 and share.sum(axis=2).max() <= 1 + 1e-5
    height = np.array(made["bottom"]) - np.array(made["top"])
    area = (share.sum(axis=1) * height[:, None]).sum(axis=0) * (end - begin) / columns
    get = lambda name: column(shown, name).astype(float)
    inside = np.clip(np.minimum(get("x1"), end) - np.maximum(get("x0"), begin), 0, None) * (get("y1") - get("y0"))
    wanted = np.bincount(column(shown, "look"), inside, minlength=looks)
    assert np.allclose(area, wanted, rtol=1e-3, atol=1e-4 * inside.sum())


@needs_node
@pytest.mark.long
def test_a_column_of_pixels_is_stacked_as_its_shares_say():
    call = "(() => { const pixels = new Uint32Array(3 * 10), share = [0, 0, 0, 0.52, 0.22, 0.2];"
    call += " stack(pixels, 9, 2, 3, 10, share, 1, [7, 8, 9]); return Array.from(pixels); })()"
    pixels = np.array(ran(call, picture(*timelines()))).reshape(10, 3)
    assert not pixels[:, :2].any()
    assert pixels[::-1, 2].tolist() == [7] * 5 + [8] * 2 + [9] * 2 + [0]
    assert ran('packed("#0072B2")', picture(*timelines())) == 0xFFB27200


@pytest.mark.long
@needs_node
def test_takers_are_needs_the_other_way_round_and_messages_are_passed_through():
    shown = picture(*timelines())
    starts, needed = column(shown, "need_starts"), column(shown, "needs")
    count = len(column(shown, "x0"))
    takers = ran("[takersOf(data)].map(({ starts, values }) => [Array.from(starts), Array.from(values)])[0]", shown)
    given = {(int(needed[k]), i) for i in range(count) for k in range(starts[i], starts[i + 1])}
    assert {(i, v) for i in range(count) for v in takers[1][takers[0][i] : takers[0][i + 1]]} == given
    links = ran("Array.from({ length: data.count }, (_, i) => [before(data, i), after(data, i)])", shown)
    message = np.array([look["kind"] == "message" for look in shown["looks"]])[column(shown, "look")]
    for i, (causes, effects) in enumerate(links):
        mine = {k for k, taker in given if taker == i}
        assert set(causes) >= mine
        for k in {k for k in mine if message[k]}:
            assert any(not message[other] for other in causes), (i, k)
        assert all(0 <= k < count for k in effects)


@needs_node
def test_counting_to_the_end_gives_the_three_bubbles_and_nothing_is_counted_at_the_start():
    shown = picture(*timelines())
    call = "picture.timelines.map((_, t) => [0, picture.length].map((at) => counted(picture, data, t, at)))"
    counts = ran(call, shown)
    for one, (nothing, everything) in zip(timelines(), counts):
        assert nothing == [0, 0, 0]
        assert everything == pytest.approx([one.bubble_fraction, one.bubble_overhead, one.bubble_span], abs=1e-5)


@needs_node
def test_a_box_is_described_with_what_it_waited_for():
    shown = picture(hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2), hl.Costs(F=1, B=2)))
    told = ran("Array.from({ length: data.count }, (_, i) => describe(picture, data, i))", shown)
    assert told[0] == "rank 0: 0F0, forward, 0 to 1 units (1); waited for nothing"
    assert told[2] == (
        "rank 0: 0B0, whole backward, 4 to 6 units (2); waited for 1B0 of rank 1, which ended at 4; "
        "the line leads through the 3 actions that decide when it begins"
    )
    assert "waited for 0F0 of its own rank, which ended at 1" in told[1]
    idle = [text for text, kind in zip(told, column(shown, "kind")) if kind == BUBBLE]
    assert idle and all(": idle, " in text and "waited" not in text for text in idle)


@needs_node
@pytest.mark.parametrize("latency", [0.0, 0.5])
def test_the_chain_of_the_last_box_is_the_critical_path_and_each_box_of_a_chain_ends_before_the_next(latency):
    lists = hl.lower(hl.schedule("1f1b", ranks=3, microbatches=4))
    shown = picture(hl.simulate(lists, hl.Costs(F=1, B=2, latency=latency)))
    chain, path = ran("[chainOf(data, data.path[data.path.length - 1]), pathsOf(data)[0]]", shown)
    assert chain == path and len(chain) > 8
    begin, end = column(shown, "x0"), column(shown, "x1")
    for box in range(0, len(begin), 5):
        one = ran(f"belongings(data, {box}).chain", shown)
        assert all(end[a] <= begin[b] + 1e-6 for a, b in zip(one, one[1:])) and one[-1:] in ([box], [])


@needs_node
def test_a_message_that_waits_is_described_and_counts_neither_as_work_nor_as_idle():
    timeline = hl.simulate(hl.lower(hl.schedule("1f1b", ranks=2, microbatches=3)), hl.Costs(F=1, B=2, latency=0.5))
    shown = picture(timeline)
    told = ran("Array.from({ length: data.count }, (_, i) => describe(picture, data, i))", shown)
    lines = [text for text, kind in zip(told, column(shown, "kind")) if kind == ARRIVED]
    assert lines == ["rank 1: message of microbatch 1 for stage 1: arrived, not yet used, 2.5 to 4.5 units (2)"]
    counts = ran("counted(picture, data, 0, picture.length)", shown)
    assert counts == pytest.approx([timeline.bubble_fraction, timeline.bubble_overhead, timeline.bubble_span], abs=1e-5)


@needs_node
def test_outputs_that_nobody_uses_wait_in_the_machine_view():
    order = hl.Schedule.from_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2B0,2F0,2F1,2B1")
    shown = picture(simulated(order, hl.Costs()))
    trips = ran(f"ranksOf(picture, data, 0, {json.dumps(STYLE['kinds'])}).trips", shown)
    unused = [(one["from"], one["to"], one["leave"]) for one in trips if one["use"] is None]
    assert unused == [(0, 1, 2), (1, 2, 2)]  # F1 at rank 1 and F0 at rank 2
    assert max(one["there"] for one in trips) <= shown["length"]
    assert len(trips) == 3 and all(one["outputs"] == [] for one in picture(*timelines())["timelines"])
