"""Schedules: legal, of the closed form's length, holding what the closed form says; mistakes named."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.when.play import Stuck
from hybridlab.scheduling.validate import Invalid

RANKS, MICROBATCHES = (1, 2, 3, 4, 8), range(1, 17)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.long
def test_closed_forms(name):
    for p, m in itertools.product(RANKS, MICROBATCHES):
        t = hl.simulate(hl.schedule(name, ranks=p, microbatches=m), hl.Costs(F=1, B=2))
        assert t.length == 3 * (m + p - 1)
        assert t.bubble_fraction == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
        assert t.bubble_overhead == pytest.approx((p - 1) / m, abs=1e-12)
        assert t.bubble_span == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
        assert t.busy == [3 * m] * p
        assert t.peak_live == ([m] * p if name == "gpipe" else [min(p - r, m) for r in range(p)])


@pytest.mark.long
def test_naive_works_one_rank_at_a_time():
    for p, m in itertools.product(RANKS, MICROBATCHES):
        t = hl.simulate(hl.schedule("naive", ranks=p, microbatches=m), hl.Costs(F=1, B=2))
        assert (t.length, t.peak_live) == (3 * p * m, [1] * p)
        assert t.bubble_fraction == pytest.approx((p - 1) / p)
        assert t.bubble_overhead == pytest.approx(p - 1)


def test_nine_slots_become_five():
    """The lecture's drawing: 3 stages, 3 microbatches, one slot is F and B of one microbatch."""
    slots = {
        n: hl.simulate(hl.schedule(n, ranks=3, microbatches=3), hl.Costs(F=1, B=2)).length / 3
        for n in ("naive", "gpipe")
    }
    assert slots == {"naive": 9, "gpipe": 5}


@pytest.mark.long
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.sampled_from(["gpipe", "1f1b"]))
@settings(max_examples=60)
def test_equal_stages_have_the_closed_length_at_any_cost(p, m, f, b, name):
    t = hl.simulate(hl.schedule(name, ranks=p, microbatches=m), hl.Costs(F=f, B=b))
    assert t.length == (m + p - 1) * (f + b)


@given(st.integers(1, 5), st.integers(1, 8), st.sampled_from(["naive", "gpipe", "1f1b"]), st.integers(1, 3))
@settings(max_examples=40)
@pytest.mark.long
def test_lowering_changes_nothing_but_messages(p, m, name, dp):
    s = hl.schedule(name, ranks=p, microbatches=m, dp=dp)
    lowered = hl.validate(hl.lower(s))
    assert lowered.computing == s.computing
    messages = [a for program in lowered.program for a in program if a.kind.startswith("SEND")]
    assert len(messages) == 2 * m * (p - 1) * dp
    costs = hl.Costs(F=2, B=3)
    assert hl.simulate(lowered, costs).length == hl.simulate(s, costs).length
    assert hl.simulate(lowered, costs, rendezvous=True).length == hl.simulate(s, costs).length
    assert hl.lower(lowered).program == lowered.program


@pytest.mark.slow
@given(st.integers(2, 4), st.integers(1, 6), st.sampled_from(["gpipe", "1f1b"]))
@settings(max_examples=30)
def test_lowered_by_the_pair_rule_nobody_hangs_even_if_every_message_blocks(p, m, name):
    """Blocking sends and receives, matched in order: the earliest unfinished message is at the head of both lists."""
    lowered = hl.lower(hl.schedule(name, ranks=p, microbatches=m))
    waiting = [list(program) for program in lowered.program]
    while any(waiting):
        before = sum(map(len, waiting))
        for program in waiting:
            while program and "_" not in program[0].kind:
                program.pop(0)
        heads = {rank: program[0] for rank, program in enumerate(waiting) if program}
        for rank, action in heads.items():
            if action.kind.startswith("SEND"):
                step = 1 if action.kind == "SEND_F" else -1
                other = lowered.place[action.stage + step, 0]
                answer = action._replace(kind=action.kind.replace("SEND", "RECV"), stage=action.stage + step)
                if heads.get(other) == answer and waiting[other][0] == answer:
                    waiting[rank].pop(0)
                    waiting[other].pop(0)
        assert sum(map(len, waiting)) < before, f"stuck: {heads}"


BEFORE_AN_UPDATE = (
    "0F0,0SEND_F0,1RECV_F1@1,1F1@1,1B1@1,1SEND_B1@1,1REDUCE_GRAD@1,1OPT@1,0RECV_B0,0B0,0REDUCE_GRAD,0OPT\n"
    "1RECV_F0,0F1@1,0SEND_F1@1,1F0,1B0,1REDUCE_GRAD,1OPT,0RECV_B1@1,0B1@1,1SEND_B0,0REDUCE_GRAD@1,0OPT@1"
)


def test_a_rank_that_stays_at_its_message_keeps_others_from_their_update():
    one = hl.validate(hl.Schedule.from_csv(BEFORE_AN_UPDATE))
    assert hl.check_rendezvous(one, "in_order") is one
    with pytest.raises(Stuck, match="1SEND_B1@1"):
        hl.check_rendezvous(one)


def test_gpipe_backward_may_run_the_other_way_round():
    fifo, lifo = (hl.schedule("gpipe", ranks=3, microbatches=4, backward=order) for order in ("fifo", "lifo"))
    assert str(lifo).splitlines()[0].endswith("0B3 0B2 0B1 0B0") and str(fifo) != str(lifo)
    assert hl.simulate(fifo).length == hl.simulate(lifo).length


def test_data_parallel_copies_run_their_own_microbatches_and_meet_at_the_end():
    s = hl.schedule("1f1b", ranks=2, microbatches=3, dp=3)
    assert (s.ranks, s.stages, s.replicas, s.dp, s.microbatches) == (6, 2, 3, 3, 3)
    assert s.replica_of == (0, 0, 0, 1, 1, 1, 2, 2, 2)
    t = hl.simulate(s, hl.Costs(F=1, B=2, reduce=4))
    assert t.length == 3 * (3 + 2 - 1) + 4
    reduced = [span for span in t.spans if span.action.kind == "REDUCE_GRAD" and span.action.stage == 1]
    assert len({(span.begin, span.end) for span in reduced}) == 1


@pytest.mark.parametrize(
    "arguments, says",
    [
        (dict(name="1f2b"), "there is no schedule '1f2b': choose one of naive, gpipe, 1f1b"),
        (dict(ranks=0), "ranks=0 is not possible"),
        (dict(microbatches=-1), "microbatches=-1 is not possible"),
        (dict(microbatches=2.5), "schedule takes microbatches as int, not 2.5, a float"),
        (dict(chunks=2), "has no option 'chunks'"),
        (dict(name="gpipe", backward="up"), 'choose "fifo" or "lifo"'),
    ],
)
def test_bad_arguments_end_in_one_sentence(arguments, says):
    with pytest.raises(ValueError) as caught:
        hl.schedule(**{"name": "1f1b", "ranks": 2, "microbatches": 2} | arguments)
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, says",
    [
        ("0F0,0B0\n1F0", "add 1B0"),
        ("0F0,0B0\n1B0,1F0", "waits on itself"),
        ("0F0,0F0,0B0", "occurs twice"),
        ("0F0,0B0,0I0,0W0", "both make"),
        ("0F0,0W0", "no action makes"),
    ],
)
def test_broken_schedules_name_the_fault_and_mark_the_spot(text, says):
    with pytest.raises((Invalid, Stuck)) as caught:
        hl.validate(hl.Schedule.from_csv(text))
    assert says in str(caught.value) and "→" in str(caught.value)


def test_a_stuck_schedule_says_who_waits_for_what():
    with pytest.raises(Stuck) as caught:
        hl.validate(hl.Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1"))
    told = str(caught.value)
    assert "rank 0: 0B0 waits for the gradient of stage 1 for microbatch 0, which 1B0 on rank 1 makes" in told
    assert "rank 1: 1F1 waits for the activation of stage 0 for microbatch 1, which 0F1 on rank 0 makes" in told


@pytest.mark.slow
def test_random_damage_is_always_found():
    """Drop, repeat, misplace, or swap across a dependency: never accepted."""
    rng = random.Random(0)
    for name, p, m in itertools.product(["naive", "gpipe", "1f1b"], (2, 3, 4), (1, 2, 5)):
        good = hl.schedule(name, ranks=p, microbatches=m)
        for _ in range(8):
            programs = [list(program) for program in good.program]
            rank = rng.randrange(p)
            place = rng.randrange(len(programs[rank]))
            action = programs[rank][place]
            match rng.choice(["drop", "repeat", "move", "swap"]):
                case "drop":
                    programs[rank].pop(place)
                case "repeat":
                    programs[rank].insert(rng.randrange(len(programs[rank]) + 1), action)
                case "move":
                    programs[(rank + 1) % p].insert(0, programs[rank].pop(place))
                case "swap":
                    own = action._replace(kind="B" if action.kind == "F" else "F")
                    other = programs[rank].index(own)
                    programs[rank][place], programs[rank][other] = own, action
            with pytest.raises((Invalid, Stuck)):
                hl.validate(good.with_programs(programs))


def test_text_form_round_trips():
    for s in (
        hl.schedule("1f1b", ranks=3, microbatches=4),
        hl.lower(hl.schedule("gpipe", ranks=2, microbatches=2, dp=2)),
    ):
        again = hl.Schedule.from_csv(s.to_csv())
        assert again.program == s.program and again.place == s.place and again.replica_of == s.replica_of
        assert hl.Schedule.from_dict(s.to_dict()).program == s.program


@pytest.mark.parametrize(
    "text, says",
    [("0F0,0Q0", "line 1, cell 2: '0Q0' is not an action"), ("0F0\n0B0", "line 2, cell 1"), ("", "no forward")],
)
def test_text_with_a_mistake_names_the_cell(text, says):
    with pytest.raises(ValueError, match=says):
        hl.Schedule.from_csv(text)


@pytest.mark.long
def test_pytorch_agrees_on_gpipe():
    """PyTorch's generator as second opinion (not for 1F1B: its printed order starts at F1 on the last rank)."""
    viewer = pytest.importorskip(
        "torch.distributed.pipelining._schedule_visualizer", reason="a private module of torch"
    )
    for p, m in itertools.product((2, 4), (2, 4, 8)):
        theirs = viewer.get_schedule_ops("GPipe", p, m)
        cells = [[str(a) for a in rank if a is not None and "REDUCE" not in str(a)] for rank in theirs]
        assert cells == [[str(a) for a in program] for program in hl.schedule("gpipe", p, m).program]


@pytest.mark.long
def test_a_quarter_of_a_million_actions_are_columns():
    s = hl.schedule("1f1b", ranks=64, microbatches=2048)
    assert isinstance(s.rows, np.ndarray) and s.rows.shape == (262144, 6)
    assert "program" not in s.__dict__  # nothing was made into objects on the way


@pytest.mark.parametrize("name", ["interleaved", "zb_interleaved", "looped_bfs"])
def test_a_rank_owns_two_chunks_unless_told_otherwise(name):
    assert hl.schedule(name, ranks=2, microbatches=4).chunks == 2
    assert hl.schedule(name, ranks=2, microbatches=4, chunks=3).chunks == 3


def test_a_wave_is_two_chunks():
    assert hl.schedule("hanayo", ranks=2, microbatches=4).chunks == 2
    assert hl.schedule("hanayo", ranks=2, microbatches=4, waves=3).chunks == 6


def test_every_schedule_tells_its_facts():
    for name, facts in hl.schedules().items():
        assert {"Placement", "Order", "Needs", "Bubble", "Peak", "Source"} <= set(facts), name


def test_a_fact_of_two_lines_is_told_whole():
    facts = hl.schedules()["gpipe"]
    assert facts["Source"].endswith('recompute the microbatch whose backward comes first: recompute="except_last", '
                                    'which is the last one with backward="lifo"')  # fmt: skip
    assert facts["Needs"] == "nothing" and "raises" not in facts
    words = {word for name in hl.schedules() for text in hl.schedules()[name].values() for word in text.split()}
    assert not words & {"Placement:", "Order:", "Needs:", "Bubble:", "Peak:", "Source:", "raises", ">>>"}


def test_a_schedule_without_actions_is_told_what_to_add():
    with pytest.raises(ValueError, match="add 0B0"):
        hl.validate(hl.Schedule.of("empty", [[], []], {(0, 0): 0, (1, 0): 1}, 1))
