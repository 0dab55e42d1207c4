"""The explorer: what it shows follows its choices; a schedule can be typed; a run grows under its prediction."""

import dataclasses
import threading
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import traitlets

import hybridlab as hl
from hybridlab.core.when import exchange
from hybridlab.show.live import attempt as live
from hybridlab.show.live import explorer
from hybridlab.show.live.attempt import Growing, in_seconds
from hybridlab.show.live.explorer import SLIDERS, explore, simulated, takes
from hybridlab.show.live.typed_text import cells, parsed
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.picture import column, picture
from hybridlab.show.timelines.spans import BUBBLE
from hybridlab.show.timelines.twin import twin

SVG, TEXT = "image/svg+xml", "text/plain"


def predicted(name="1f1b", ranks=4, microbatches=8, **more):
    return hl.simulate(hl.schedule(name, ranks=ranks, microbatches=microbatches, **more), hl.Costs(F=1, B=2))


# --- choices ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_picture_follows_every_slider():
    widget = explore("interleaved", ranks=2, microbatches=4)
    choice = {"ranks": 4, "microbatches": 8, "chunks": 3, "F": 2.0, "I": 3.0, "W": 0.5, "latency": 0.25}
    for name, value in choice.items():
        setattr(widget, name, value)
        assert not widget.problem
    plan = hl.schedule("interleaved", ranks=4, microbatches=8, chunks=3)
    wanted = hl.simulate(hl.lower(plan), hl.Costs(F=2 / 3, I=1, W=0.5 / 3, latency=0.25))
    waits = "interleaved, predicted, arrived, not yet used: 57 messages, at most 4.333 units"
    assert widget.summary == f"{wanted.summary}\n{waits}" and widget.picture["length"] == wanted.length
    assert column(widget.picture, "x1").tolist() == column(picture(wanted), "x1").tolist()
    assert widget.ratio == pytest.approx(3.5 / 2)
    assert {name for name, *_ in SLIDERS} == {*choice, "ratio", "slices"}


def test_the_ratio_moves_both_halves_in_one_picture(monkeypatch):
    widget = explore(F=1, I=1, W=1)
    seen = []
    widget.observe(lambda change: seen.append(change.new["length"]), "picture")
    made = []
    monkeypatch.setattr(explorer, "simulated", lambda *given: made.append(given) or simulated(*given))
    widget.ratio = 1.0
    assert (widget.I, widget.W) == (0.5, 0.5) and seen == [22.0] and len(made) == 1


def test_message_time_shows_messages():
    widget = explore()
    assert "communication" not in [name for name, _ in widget.picture["legend"]]
    widget.latency = 0.5
    assert "communication" in [name for name, _ in widget.picture["legend"]]
    assert widget.picture["length"] > 33


def test_one_model_however_it_is_cut():
    """More chunks shorten the step, because each stage becomes thinner: idle over ideal is (p-1)/(m v)."""
    widget = explore("1f1b", "interleaved", ranks=4, microbatches=8)
    for chunks in (2, 4):
        widget.chunks = chunks
        thick, thin = widget.timelines
        assert sum(thin.busy) == pytest.approx(sum(thick.busy))
        assert thin.bubble_overhead == pytest.approx(3 / 8 / chunks) and thin.length < thick.length == 33


def test_only_some_schedules_take_chunks():
    assert takes("interleaved") == takes("looped_bfs") == ["chunks"]
    assert takes("seq1f1b") == ["chunks", "slices"] and takes("terapipe") == ["slices"]
    assert takes("1f1b") == takes("gpipe") == []
    widget = explore("1f1b", "interleaved")
    before = [column(widget.picture, "x1")[column(widget.picture, "lane") < 4].tolist(), widget.timelines[1].length]
    widget.chunks = 4
    assert column(widget.picture, "x1")[column(widget.picture, "lane") < 4].tolist() == before[0]
    assert widget.timelines[1].length != before[1]


def test_several_schedules_stand_on_one_axis_and_follow_together():
    widget = explore("gpipe", ["1f1b", "zb_h1"], ranks=3)
    assert [one["name"] for one in widget.picture["timelines"]] == ["gpipe", "1f1b", "zb_h1"]
    widget.microbatches = 5
    assert {len(one.schedule.replica_of) for one in widget.timelines} == {5}
    widget.schedules = ["naive"]
    assert widget.summary.startswith("naive, 3 ranks, 5 microbatches")


def test_timelines_and_schedules_can_be_given():
    mine = hl.Schedule.from_csv("0F0,0B0,0F1,0B1")
    widget = explore(predicted("gpipe"), mine, latency=0)
    assert widget.summary.split("\n")[0] == predicted("gpipe").summary
    assert {name for name, *_ in widget.sliders} == {"ratio", "F", "I", "W", "latency"}
    widget.F = 3.0
    assert widget.timelines[0].length == 33 and widget.timelines[1].length == 10


def test_a_measurement_lies_under_its_prediction():
    ideal = hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=3), hl.Costs(F=0.02, B=0.04, unit="s"))
    real = dataclasses.replace(ideal, origin={"kind": "measured"})
    widget = explore(ideal, real)
    assert [one["measured"] for one in widget.picture["timelines"]] == [False, True]
    assert [lane["rank"] for lane in widget.picture["lanes"]] == [0, 0, 1, 1]
    assert widget.picture["unit"] == "ms" and not widget.running["can"]


@pytest.mark.parametrize(
    "shown, wrong",
    [
        ([], {"ranks": 0}), ([], {"microbatches": -3}), (["2f2b"], {}), ([], {"ranks": 99}), ([], {"F": -1}),
        ([], {"ranks": 2.5}), ([3], {}), ([], {"controls": "many"}), ([], {"ranks": 64, "microbatches": 4000}),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_one_sentence(shown, wrong):
    with pytest.raises((ValueError, traitlets.TraitError)) as caught:
        explore(*shown, **wrong)
    assert "\n" not in str(caught.value) and 10 < len(str(caught.value)) < 400


def test_a_choice_without_a_timeline_leaves_the_last_picture_and_says_why():
    widget = explore()
    before = widget.picture
    widget.ranks = 0
    assert "ranks=0" in widget.problem and "\n" not in widget.problem
    assert widget.picture == before
    widget.ranks = 2
    assert widget.problem == "" and widget.summary == predicted(ranks=2).summary


def test_a_saved_explorer_shows_without_a_kernel(tmp_path):
    widget = explore("gpipe", "1f1b")
    data, _ = widget._repr_mimebundle_()
    root = ElementTree.fromstring(data[SVG])
    assert root.findtext("{http://www.w3.org/2000/svg}desc") == data[TEXT] == widget.summary
    assert "application/vnd.jupyter.widget-view+json" in data
    widget.save_svg(tmp_path / "here.svg")
    assert (tmp_path / "here.svg").read_text(encoding="utf-8") == twin(widget.picture) == data[SVG]


def test_the_page_is_given_the_style_and_what_it_asks_for():
    widget = explore()
    assert widget.style_data == STYLE
    sent = []
    widget.send = sent.append
    widget._asked(widget, {"ask": "svg"}, [])
    assert sent == [{"svg": widget.twin}]


def test_few_controls_are_open_and_nothing_moves_unless_asked():
    """What the page gets; which controls stand where is tested in a browser."""
    assert [explore().controls, explore().play] == ["few", False]
    first = explore("gpipe", ranks=4, microbatches=4, controls="two", play=True).get_state()
    assert [first[name] for name in ("controls", "play", "ranks", "microbatches")] == ["two", True, 4, 4]
    assert first["picture"]["timelines"][0]["measures"][0]["value"] == "42.9%"  # 3 of 7, the large number
    with pytest.raises(ValueError, match="controls='many' is not known: choose 'two' or 'few' or 'all'"):
        explore(controls="many")


# --- typed ------------------------------------------------------------------------------------------------------

MESSY = """
0F0,0F1,,0B0 0B1   # the first
rank 1: 1F0 1B0
"rank 2:" 2F0;2B0,\t(0F7;7B3)OVERLAP_F_B 3F0#3

# nothing here
 ,,4F0
"""


def test_cells_are_where_the_reader_of_schedules_sees_them():
    typed = cells(MESSY)
    for number, line in exchange._lines(MESSY):
        name = exchange._NAME.match(line)
        read = [tuple(cell) for cell in exchange._cells(number, line[name.end() :] if name else line)]
        assert [(cell.line, cell.cell, cell.text) for cell in typed if cell.line == number] == read
    assert all(MESSY[cell.begin : cell.end] == cell.text for cell in typed) and len(typed) == 11


@pytest.mark.parametrize(
    "text, marked, said",
    [
        ("0F0 0F1 0B0 0B1\n1F0 1Q0", "1Q0", "line 2, cell 2"),
        ("0F0,0B0\n1F0,,0B0", "0B0", "line 2, cell 3"),
        ("0F0 0B0 0F0", "0F0", "0F0 occurs twice on rank 0"),
        ("0F0 (0F1;0B0)OVERLAP_F_B 0B1 0B1", "0B1", "0B1 occurs twice on rank 0"),
        ("0F0 0B0 0F1 0B1\n\n1F0 1B0 1F1", "1F1", "add 1B1"),
        ("# two ranks\n0F0 0F1 0B1 0B0\n1F0 1B0 1B1 1F1", "0B1", "waits on itself"),
        ("0F0 0B0\n1F0 1B0 1F2 1B2", "", "microbatch 1 is missing"),
        ("rank 0: 0F0 0B0\nrank 3: 1F0 1B0", "1F0 1B0", "labelled rank 3"),
    ],
)
def test_the_cell_at_fault_is_marked(text, marked, said):
    schedule, fault = parsed(text)
    assert (schedule is None) == ("waits on itself" not in said) and said in fault["text"] and "\n" not in fault["text"]
    assert text[fault["begin"] : fault["end"]] == marked
    if "twice" in said:
        assert fault["begin"] == text.rindex(marked)


def test_a_schedule_with_a_deadlock_is_shown_up_to_it_and_is_not_run():
    order = "0F0 0F1 0B0 0B1\n1F1 1B1 1F0 1B0\n2F0 2F1 2B0 2B1"
    widget = explore(hl.Schedule.from_csv(order), F=2, run=lambda *_, **__: pytest.fail("it was run"))
    waits = [[0, "0B0", 1], [1, "1B1", 2], [2, "2F0", 1]]
    assert widget.picture["timelines"][0]["stuck"] == waits
    assert widget.picture["length"] == 6 * 1.125  # and a while in which all wait
    told = ", ".join(f"rank {rank} cannot do {action} and waits for rank {whom}" for rank, action, whom in waits)
    assert f": a deadlock after 6 units: {told}; activations" in widget.summary and "idle" not in widget.summary
    widget.latency = 1.0
    assert widget.picture["length"] == 7 * 1.125 and widget.picture["timelines"][0]["stuck"] == waits
    widget.run()
    assert not widget.running["on"]
    widget = explore("gpipe", ranks=2)
    widget.typed = "0F0 0B0\n1B0 1F0"
    assert widget.fault["end"] and widget.timelines[0].origin["stuck"] == [[0, "0B0", 1], [1, "1B0", 1]]
    assert widget.picture["timelines"][1]["stuck"] == []
    widget.typed = "0B0 0F0\n1B0 1F0"
    assert "waits on itself" in widget.problem  # nobody does anything: there is nothing to draw


def test_nothing_typed_is_no_fault_and_a_file_name_is_no_file():
    assert parsed("") == parsed(" \n# only words\n") == (None, {})
    assert "is not an action" in parsed("mine.csv")[1]["text"]


def test_a_typed_schedule_stands_over_the_chosen_one():
    widget = explore("1f1b", ranks=2, microbatches=2)
    widget.typed = "0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1"
    assert [one["name"] for one in widget.picture["timelines"]] == ["mine", "1f1b"] and widget.fault == {}
    before = widget.picture
    widget.typed += " 1Q1"
    assert widget.fault["text"].startswith("line 2, cell 5") and not widget.problem
    assert widget.picture["summary"] == before["summary"]
    widget.typed = ""
    assert [one["name"] for one in widget.picture["timelines"]] == ["1f1b"] and widget.fault == {}


# --- the run ----------------------------------------------------------------------------------------------------


def stand_in(pause=0.0, fail=None):
    """What `hl.run` does, without processes: it tells of every action as the prediction has it, and waits a little."""
    calls = []

    def run(schedule, *, work, costs, latency, steps, on_event, live):
        calls.append((schedule, costs))
        real = hl.simulate(hl.lower(schedule), costs)
        spans = sorted((span for span in real.spans if span.lane == "compute"), key=lambda span: span.end)
        for step in range(steps + 1):
            for number, span in enumerate(spans):
                if fail and number == 3:
                    raise fail
                times = {"begin": 5_000 + round(span.begin * 1e9), "end": 5_000 + round(span.end * 1e9)}
                on_event(span.rank, {"step": step, "index": span.index} | times)
                time.sleep(pause)
            on_event(0, {"step": step})
        return dataclasses.replace(real, origin={"kind": "measured", "latency": latency, "post": 0.0})

    run.calls = calls
    return run


def until(what, seconds=10):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.long
def test_a_run_grows_under_its_prediction_and_stays(monkeypatch):
    monkeypatch.setattr(live, "PAUSE", 0)
    run = stand_in(pause=0.002)
    widget = explore("gpipe", "1f1b", ranks=2, microbatches=2, run=run)
    seen, told = [], []
    widget.observe(lambda change: seen.append(change.new), "picture")
    widget.observe(lambda change: told.append(change.new["text"]), "running")
    widget.run()
    assert widget.running["on"]
    until(lambda: not widget.running["on"])
    assert run.calls[0][0].name == "gpipe" and run.calls[0][1].unit == "s"
    growing = [measured_boxes(one) for one in seen if one["live"]]
    assert growing == [1, 2, 3, 4, 5, 6, 7, 8] * 2  # the step to warm up, and the measured one
    assert [one["measured"] for one in seen[-1]["timelines"]] == [False, True, False] and not seen[-1]["live"]
    assert any("to warm up: 3 of 8 actions" in text for text in told) and "2 real processes" in told[-1]
    assert widget.timelines[0].gap(widget.timelines[-1])["bubble_fraction"] == pytest.approx(0, abs=1e-9)
    widget.F = 2.0  # another choice: what was measured does not belong to it
    assert not any(one["measured"] for one in widget.picture["timelines"]) and widget.running["text"] == ""


@pytest.mark.slow
def test_pictures_of_a_run_are_few_where_events_are_many():
    widget, seen = explore(ranks=2, microbatches=6, run=stand_in()), []
    widget.observe(lambda change: seen.append(change.new["live"]), "picture")
    widget.run()
    until(lambda: not widget.running["on"])
    assert 1 <= seen.count(True) < 12 and not seen[-1]  # of 48 events


def measured_boxes(shown):
    """Compute actions of a measured timeline that have a length."""
    lanes = [lane["measured"] for lane in shown["lanes"]]
    mine = np.array(lanes)[column(shown, "lane")] & (column(shown, "kind") >= 0)
    return int((column(shown, "x1") > column(shown, "x0"))[mine].sum())


@pytest.mark.long
def test_a_run_can_be_stopped_and_started_again():
    widget = explore(ranks=2, microbatches=4, run=stand_in(pause=0.02))
    widget.run()
    threads = threading.active_count()
    widget.run()  # one at a time
    assert threading.active_count() == threads
    widget.stop()
    until(lambda: not widget.running["on"])
    assert widget.problem == "" and widget.summary == predicted(ranks=2, microbatches=4).summary
    widget.run()
    until(lambda: not widget.running["on"])
    assert widget.picture["timelines"][1]["measured"]


def test_an_error_of_the_run_is_told_in_place():
    widget = explore(ranks=2, microbatches=4, run=stand_in(fail=RuntimeError("rank 1 has ended: no memory")))
    widget.run()
    until(lambda: not widget.running["on"])
    assert widget.problem == "rank 1 has ended: no memory"
    assert not any(one["measured"] for one in widget.picture["timelines"])
    widget.ranks = 3
    assert widget.problem == ""


@pytest.mark.long
def test_another_choice_leaves_the_run():
    widget = explore(ranks=2, microbatches=4, run=stand_in(pause=0.01))
    widget.run()
    widget.microbatches = 2
    assert not widget.running["on"]
    time.sleep(0.2)
    assert widget.summary == predicted(ranks=2, microbatches=2).summary
    widget.run()
    widget.ranks = 0
    time.sleep(0.2)
    assert "ranks=0" in widget.problem  # the run that was left says nothing any more


def test_without_a_run_there_is_no_button():
    assert not explore().running["can"]
    widget = explore()
    widget.run()
    assert not widget.running["on"]


def test_a_growing_timeline_knows_nothing_behind_a_ranks_last_action():
    plan = hl.schedule("gpipe", ranks=2, microbatches=2)
    growing = Growing(plan)
    assert growing.done == 0 and growing.progress == "starting 2 ranks"
    lowered = hl.lower(plan)
    index = [str(action) for action in lowered.program[0]].index("0F1")
    assert growing.add(0, {"step": 0, "index": 0, "begin": 1_000, "end": 2_000})
    assert not growing.add(0, {"step": 0})
    assert growing.add(0, {"step": 0, "index": index, "begin": 2_500, "end": 3_500})
    now = growing.timeline()
    assert now.length == pytest.approx(2.5e-6) and growing.done == 2
    shown = picture(now)
    idle = column(shown, "kind") == BUBBLE
    assert (column(shown, "x1") - column(shown, "x0"))[idle] == pytest.approx([0.0005], rel=1e-4)  # ms
    starts, counts = column(shown, "held_starts"), column(shown, "held_counts")
    assert counts[starts[0] : starts[1]].tolist() == [1, 2] and counts[starts[1] :].tolist() == [0]
    assert growing.add(1, {"step": 1, "index": 1, "begin": 9_000, "end": 9_900}) and growing.done == 1
    assert not growing.add(0, {"step": 0, "index": 0, "begin": 1_000, "end": 2_000})


def test_a_run_lasts_some_seconds_and_no_action_is_too_short():
    costs = in_seconds(hl.Costs(F=0.5, I=2, W=2, latency=1), length=1000)
    assert costs.F == 0.02 and costs.latency == 0.04 and costs.unit == "s"
    assert in_seconds(hl.Costs(F=0.5, I=2, W=2), length=1000, chunks=2).F == 0.04
    assert in_seconds(hl.Costs(F=1, B=None, I=0, W=0), length=10).F == pytest.approx(0.15)
