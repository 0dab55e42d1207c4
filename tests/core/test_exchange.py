"""Schedules as text and files: there and back unchanged, PyTorch's both ways, a student's own, and what is refused."""

import io
import itertools
import json
import pickle
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.when import inferred
from hybridlab.core.when.action import KINDS, WITHOUT_MICROBATCH, Action

ROOT = Path(__file__).parents[2]
FACTS = (
    "program",
    "place",
    "microbatches",
    "replica_of",
    "chunks",
    "window",
    "dp",
    "skips",
    "fused",
    "ranks",
    "stages",
)
SIZES = st.tuples(st.sampled_from(list(hl.schedules())), st.integers(1, 5), st.integers(1, 12), st.integers(1, 2))
LIKE_PYTORCHS = ["naive", "gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_h2", "zb_v", "zb_interleaved",
                 "v_half", "v_min", "dualpipe_v", "hanayo"]  # fmt: skip
BEYOND_PYTORCH = {"dualpipe": "replicas", "chimera": "replicas", "pipedream": "versions", "pipedream_2bw": "versions"}
HAND_TYPED = """
    0F0 0F1  0B0 0F2  0B1 0F3  0B2 0B3   # two forwards under way
    1F0 1B0  1F1 1B1  1F2 1B2  1F3 1B3
"""


def facts(schedule, *but):
    return {name: getattr(schedule, name) for name in FACTS if name not in but}


def made(name, ranks, microbatches, dp):
    """The schedule of these numbers, if there is one."""
    try:
        return hl.schedule(name, ranks=ranks, microbatches=microbatches, dp=dp)
    except ValueError:
        return None


def skipping():
    chain = hl.Schedule.from_csv("0F0,0B0\n1F0,1B0\n2F0,2B0")
    return hl.lower(chain.with_programs(list(chain.program), skips=((0, 2),)))


# --- there and back ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=120)
@given(SIZES, st.booleans())
def test_text_and_print_and_json_come_back_equal(size, lowered):
    schedule = made(*size)
    if schedule is None:
        return
    schedule = hl.lower(schedule) if lowered else schedule
    inside = any(schedule.place[one, 0] == schedule.place[other, 0] for one, other in schedule.skips)
    unsaid = () if lowered and not inside else ("skips", "breaks")  # what is printed says them by its messages alone
    assert facts(hl.Schedule.from_csv(str(schedule)), *unsaid) == facts(schedule, *unsaid)
    assert hl.Schedule.from_csv(schedule.to_csv(), schedule.name) == schedule
    again = hl.Schedule.from_dict(schedule.to_dict())
    assert facts(again) == facts(schedule) and again.name == schedule.name


@pytest.mark.slow
def test_every_name_is_tried_by_the_round_trips():
    """The property above skips impossible numbers; here every name must come through."""
    for name in hl.schedules():
        schedule = hl.schedule(name, ranks=4, microbatches=8)
        told, again = facts(schedule), facts(hl.Schedule.from_csv(str(schedule)))
        if schedule.breaks:  # a text has actions and no graph
            told, again = told["program"], again["program"]
        assert again == told, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seq1f1b", "terapipe", "vocabulary_1f1b", "subgraph"])
def test_a_file_from_the_command_is_the_same_step(name, tmp_path, capsys):
    """It lost its slices and branches: a chain of as many stages took longer, or waited on itself."""
    file = tmp_path / "schedule.csv"
    assert main(["schedule", name, "--pp", "4", "--microbatches", "3", "--csv", str(file)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert main(["simulate", str(file)]) == 0
    assert capsys.readouterr().out.split(": length")[1] in told[-1] + "\n"
    made = hl.schedule(name, ranks=4, microbatches=3)
    assert hl.Schedule.load(file) == made.renamed("typed order")


def test_lost_ranks_and_exchanges_come_back_from_a_file():
    rerouted = hl.rerouted(hl.schedule("seq1f1b", ranks=2, microbatches=2, slices=2), 2, [1])
    assert rerouted.microbatches == 4
    for made in (rerouted, hl.orders.dual_batch(3), skipping()):
        assert hl.Schedule.from_csv(made.to_csv(), made.name) == made


@pytest.mark.parametrize(
    "line, words",
    [
        ("slices=x", "line 1: slices='x' cannot be read: give a whole number"),
        ("slices=", "line 1: slices='' cannot be read"),
        ("skips=0", "line 1: skips='0' cannot be read: give stages such as 0>2 1>3"),
        ("tied=0>", "line 1: tied='0>' cannot be read: give stages such as 0\\+2"),
        ("slices=3", "line 1: slices does not fit the actions: correct it, or leave it out"),
        ("skips=0>7", "line 1: skips does not fit the actions"),
        ("breaks=1>0", "line 1: breaks does not fit the actions"),
    ],
)
def test_a_stated_fact_that_cannot_be_is_refused(line, words):
    with pytest.raises(ValueError, match=words):
        hl.Schedule.from_csv(line + "\n0F0,0B0\n1F0,1B0")


@pytest.mark.parametrize("name", ["chimera", "1f1b", "zb_v"])
def test_data_parallel_copies_are_told_from_replicas(name):
    read = hl.Schedule.from_csv(hl.schedule(name, ranks=4, microbatches=8, dp=3).to_csv())
    assert (read.dp, read.microbatches, len(read.replica_of)) == (3, 8, 24)


def test_replicas_with_unequal_work_are_no_data_parallel_copies():
    read = hl.Schedule.from_csv("0F0 0B0\n0F1@1 0B1@1 0F2@1 0B2@1")
    assert (read.dp, read.microbatches, read.replica_of) == (1, 3, (0, 1, 1))


def test_skips_are_read_where_their_messages_are_written():
    read = hl.Schedule.from_csv(str(skipping()))
    assert read.skips == ((0, 2),) and facts(read) == facts(skipping())
    hl.validate(read)


def test_files_keep_everything(tmp_path):
    chain = hl.Schedule.from_csv("0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD\n2F0,2B0")
    full = chain.with_programs(list(chain.program), skips=((0, 2),), tied=((0, 1),), name="mine, not yours")
    full.save(tmp_path / "s.json")
    again = hl.Schedule.load(tmp_path / "s.json")
    assert (again.skips, again.tied, again.name) == (full.skips, full.tied, full.name) and facts(again) == facts(full)
    assert full.to_csv(tmp_path / "s.csv") == (tmp_path / "s.csv").read_text() == full.to_csv()
    for path in (tmp_path / "s.csv", str(tmp_path / "s.csv")):
        read = hl.Schedule.from_csv(path)
        assert facts(read) == facts(full) and read.tied == full.tied
    assert hl.Schedule.load(tmp_path / "s.csv").program == full.program


def test_a_spreadsheets_file_may_begin_with_a_mark(tmp_path):
    (tmp_path / "excel.csv").write_bytes(b"\xef\xbb\xbf0F0;0B0\r\n")
    assert str(hl.Schedule.load(tmp_path / "excel.csv")) == "rank 0: 0F0 0B0"


def test_idle_ranks_stay():
    idle = hl.Schedule.of("idle", [[], [Action("F", 0, 0), Action("B", 0, 0)], [], []], {(0, 0): 1}, 1)
    for text in (idle.to_csv(), str(idle), "\n,\n0F0 0B0\n\n,"):
        assert facts(hl.Schedule.from_csv(text)) == facts(idle)
    assert idle.to_pytorch() == "\n0F0,0B0\n\n\n"  # an empty cell would be no action among the messages of others


@pytest.mark.slow
def test_a_large_schedule_is_read_in_seconds():
    text = hl.schedule("1f1b", ranks=64, microbatches=64).to_csv()
    begin = time.process_time()
    assert len(hl.Schedule.from_csv(text).rows) == 8192
    assert time.process_time() - begin < 1


# --- a student's own ---------------------------------------------------------------------------------------------


def test_a_hand_typed_1f1b_is_1f1b():
    typed, ready = hl.Schedule.from_csv(HAND_TYPED), hl.schedule("1f1b", ranks=2, microbatches=4)
    assert facts(typed) == facts(ready)
    assert hl.simulate(hl.validate(typed)).length == hl.simulate(ready).length


@pytest.mark.parametrize("name", ["1f1b", "zb_v", "chimera", "subgraph", "dualpipe", "pipedream"])
def test_schedules_that_say_the_same_are_equal_and_others_are_not(name, tmp_path):
    made = lambda **more: hl.schedule(name, **{"ranks": 4, "microbatches": 8} | more)
    one = made()
    one.save(tmp_path / "one.json")
    again = [made(), hl.Schedule.load(tmp_path / "one.json"), pickle.loads(pickle.dumps(one)), replace(one)]
    assert all(other == one and hash(other) == hash(one) for other in again) and len({one, *again}) == 1
    assert hl.lower(one) == hl.lower(made())
    others = [made(microbatches=12), made(ranks=2), one.renamed("mine"), hl.lower(one), replace(one, window=3), "1f1b"]
    assert all(other != one for other in others)


@pytest.mark.ranks
def test_a_hand_typed_schedule_runs():
    typed = hl.Schedule.from_csv("0F0 0F1 0B1 0B0  # last in, first out\n1F0 1F1 1B1 1B0")
    real = hl.run(typed, costs=hl.Costs(F=0.002, B=0.004), steps=1)
    assert real.schedule.computing == typed.program and real.length > 0.018


@pytest.mark.parametrize(
    "text",
    [
        "0F0,0B0\n1F0,1B0",
        "0F0,0B0\r\n1F0,1B0\r\n",
        "\n\n0F0 , 0B0\n1F0 ,1B0\n\n\n",
        "0F0\t\t0B0\n\t1F0\t1B0\n",
        "0F0;;0B0\n;1F0;1B0",
        '"0F0","0B0"\n"1F0","1B0"',
        "rank 0: 0F0 0B0\nrank 1: 1F0 1B0",
        "Rank 0:0F0 0B0\n\n\nRANK1: 1F0 1B0",
        "rank 0\t0F0\t0B0\nrank 1\t1F0\t1B0",
        "# mine\n0F0 0B0 # first\n   # between\n1F0 1B0 #last",
        "        Rank 0 Rank 1\nStep 0: 0F0           \nStep 1:        1F0\nStep 2:        1B0    <-- ERROR HERE\n"
        "Step 3: 0B0",
        "        Rank 0 Rank 1\nStep 0: 0F0\nStep 1: 0B0    1F0\nStep 2:        1B0",
    ],
)
def test_spellings_of_one_schedule(text):
    read = hl.Schedule.from_csv(text)
    assert str(read) == "rank 0: 0F0 0B0\nrank 1: 1F0 1B0"


def test_a_hash_before_a_digit_is_a_version_and_not_a_comment():
    text = "0F0#0 0B0#0 0REDUCE_GRAD#0 0OPT#0 0F1#1 0B1#1 0REDUCE_GRAD#1 0OPT#1 # 2 windows"
    read = hl.validate(hl.Schedule.from_csv(text))
    assert read.window == 1 and read.rows[:, 4].tolist() == [0] * 4 + [1] * 4


def test_a_blank_line_between_ranks_is_an_idle_rank():
    assert hl.Schedule.from_csv("0F0 0B0\n\n1F0 1B0").place == {(0, 0): 0, (1, 0): 2}
    assert hl.Schedule.from_csv("rank 0: 0F0 0B0\n\nrank 1: 1F0 1B0").place == {(0, 0): 0, (1, 0): 1}


# --- PyTorch -----------------------------------------------------------------------------------------------------

GENERATORS = {"GPipe": None, "1F1B": None, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2,
              "ZBVZeroBubble": 2, "DualPipeV": 2}  # fmt: skip


@pytest.fixture(scope="module")
def torchs():
    """PyTorch's schedules, its visualizer, and a runtime that has p ranks of v stages, without any process."""
    theirs = pytest.importorskip("torch.distributed.pipelining.schedules")
    viewer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    if not hasattr(theirs, "_PipelineScheduleRuntime"):
        pytest.skip("this torch has no pipeline runtime under its private name")

    def runtime(schedule):
        stage = mock.create_autospec(viewer.PipelineStage, instance=True)
        stage.group_rank, stage.group_size, stage.submod, stage.num_stages = 0, schedule.ranks, None, schedule.stages
        return theirs._PipelineScheduleRuntime([stage] * schedule.chunks, schedule.microbatches)

    return mock.Mock(schedules=theirs, viewer=viewer, runtime=runtime)


@pytest.mark.long
@pytest.mark.parametrize("name", LIKE_PYTORCHS)
@pytest.mark.parametrize("lowered", [False, True])
def test_pytorch_loads_ours(name, lowered, torchs, tmp_path):
    for p, m in ((2, 4), (4, 8)):
        schedule = hl.schedule(name, ranks=p, microbatches=m)
        schedule = hl.lower(schedule) if lowered else schedule
        path = tmp_path / f"{name}{p}.csv"
        assert schedule.to_pytorch(path) == path.read_text()
        assert lowered or path.read_text() == schedule.to_csv()
        runtime = torchs.runtime(schedule)
        runtime._load_csv(str(path), format="compute_comms" if lowered else "compute_only")
        loaded = runtime.pipeline_order_with_comms if lowered else runtime.pipeline_order
        cells = [list(map(str, loaded[rank])) for rank in range(p)]
        assert [[c for c in own if "GRAD" not in c] for own in cells] == [list(map(str, p)) for p in schedule.program]
        sums = [c for own in cells for c in own if "GRAD" in c]
        assert sorted(sums) == sorted(f"{stage}REDUCE_GRAD" for stage in range(schedule.stages) if lowered)
        assert runtime.stage_index_to_group_rank == {stage: rank for (stage, _), rank in schedule.place.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", BEYOND_PYTORCH)
def test_what_pytorch_cannot_express_is_said_before_pytorch_misreads_it(name, torchs, tmp_path):
    schedule = hl.schedule(name, ranks=4, microbatches=8)
    with pytest.raises(ValueError, match=f"cannot express .* \\(rank 0, cell .*{BEYOND_PYTORCH[name]}") as caught:
        schedule.to_pytorch(tmp_path / "never.csv")
    assert "\n" not in str(caught.value) and not (tmp_path / "never.csv").exists()
    cells = [str(action) for program in schedule.program for action in program]
    assert cells != [_as_pytorch_reads(torchs, cell) for cell in cells]  # the refusal is needed


def _as_pytorch_reads(torchs, cell):
    try:
        return str(torchs.schedules._Action.from_str(cell))
    except RuntimeError:
        return None


@pytest.mark.parametrize(
    "schedule, says",
    [
        (skipping(), r"0SEND_F0>2 \(rank 0, cell 3\): PyTorch has no messages that skip"),
        (hl.Schedule.from_csv("0C0 0R0 0B0"), r"0C0 \(rank 0, cell 1\): PyTorch has no action of kind C"),
        (hl.Schedule.from_csv("0F0 0B0 0REDUCE_GRAD 0OPT"), r"0OPT \(rank 0, cell 4\)"),
        (hl.Schedule.from_csv("0F0 0B0 0REDUCE_GRAD\n1F0 1B0"), r"0REDUCE_GRAD \(.*, cell 3\).*\(lower it first\)"),
        (hl.Schedule.from_csv("0F0 0B0\n1F0 (1B0;0F0@1)OVERLAP_F_B"), r"\(1B0;0F0@1\).* replicas"),
    ],
)
def test_other_things_that_pytorch_has_not(schedule, says):
    with pytest.raises(ValueError, match=says):
        schedule.to_pytorch()


def test_sums_are_fine_among_messages_and_on_one_rank():
    """A stage that has one keeps it, another gets one behind its last backward."""
    text = "0F0 0B0 0REDUCE_GRAD"
    assert hl.Schedule.from_csv(text).to_pytorch() == text.replace(" ", ",") + "\n"
    two = hl.lower(hl.Schedule.from_csv(text + "\n1F0 1B0")).to_pytorch()
    assert two == "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1REDUCE_GRAD,1SEND_B0\n"


def test_edges_that_no_action_shows_are_refused_too():
    chain = hl.Schedule.from_csv("0F0,0B0\n1F0,1B0\n2F0,2B0")
    for more, says in (({"skips": ((0, 2),)}, "skip from stage to stage 0, 2"), ({"tied": ((0, 2),)}, "tie of stages")):
        with pytest.raises(ValueError, match=says):
            chain.with_programs(list(chain.program), **more).to_pytorch()


@pytest.mark.long
@pytest.mark.parametrize("name, comms", [(name, comms) for name in GENERATORS for comms in (False, True)
                                         if GENERATORS[name] or not comms])  # one stage each: no messages  # fmt: skip
def test_we_read_pytorchs(name, comms, torchs, tmp_path):
    """As a file, with its idle cells, and as the table it prints."""
    chunks = {} if GENERATORS[name] is None else {"num_stages_per_rank": GENERATORS[name]}
    for p, m in ((2, 4), (4, 8)):
        ops = torchs.viewer.get_schedule_ops(name, p, m, with_comms=comms, **chunks)
        order = dict(enumerate(ops if comms else [[None] * rank + [*program] for rank, program in enumerate(ops)]))
        holder = mock.Mock(pipeline_order_with_comms=order)
        torchs.schedules._PipelineScheduleRuntime._dump_csv(holder, tmp_path / "t.csv", "compute_comms")
        table = torchs.schedules._format_pipeline_order(order, error_step_number=3)
        for source in (tmp_path / "t.csv", (tmp_path / "t.csv").read_text(), table):
            read = hl.Schedule.from_csv(source)
            assert [list(map(str, one)) for one in read.program] == [[str(a) for a in one if a] for one in ops]
            assert (read.ranks, read.stages, read.chunks) == (p, p * read.chunks, GENERATORS[name] or 1)
        if name != "1F1B":  # PyTorch's printed order of it begins with 1F1 on the last rank, see test_schedules
            assert hl.simulate(hl.validate(read)).schedule.microbatches == m


# --- refusals ----------------------------------------------------------------------------------------------------

REFUSED = {
    "": "no forward or backward action",
    " \n\t\n # nothing\n": "no forward or backward action",
    "0OPT": "no forward or backward action",
    "0F0 0B0\n1F0 1FF1": "line 2, cell 2: '1FF1' is not an action: write stage, kind, microbatch, such as 2F0 or 0B3",
    "0F0,,,0Q0": "line 1, cell 4: '0Q0' is not an action",
    "0F0 0b0": "'0b0' is not an action",
    "0F0 " + "x" * 900: "line 1, cell 2: '" + "x" * 40 + "…' is not an action",
    "0F٣": "is not an action",
    "0F": "'0F' is not an action, because F needs a microbatch: write, for example, 0F0",
    "0F0 0OPT1": "cell 2: '0OPT1' is not an action, because OPT takes no microbatch: write 0OPT",
    "0F0>2": "write > only with SEND_F, RECV_F, SEND_B, RECV_B",
    "0F0 #3": "line 1, cell 2: '#3' is not an action",
    "0BW0": "older PyTorch's spelling: write 0B0, or 0I0 for the input half",
    "0F0 0B0 0W0": "0B0 and 0W0 are both present, as in files of older PyTorch: write 0I0 instead of 0B0",
    "   ".join(f"Rank {rank}" for rank in range(129)): "this table has 129 ranks, and the limit is 128: give fewer",
    "0F0" + " " * 2_100_000: "line 1 is beyond the limits",
    (" " * 2_000_000 + "\n") * 5: "this text is too long for a schedule: give at most 8 MB",
    "0F0 0B0\n0F1 0B1": "line 2, cell 1: 0F1 is on rank 1, but stage 0 belongs to rank 0: move it there",
    "0F0@1 0B0@1\n1F0 0B0@1": r"0B0@1 is on rank 1, but stage 0 \(replica 1\) belongs to rank 0",
    "0F0 0B0 0F2 0B2 0F4 0B4": "microbatch 1 is missing, but 0F4 is present",
    "99999999999F0": "'99999999999F0' has a number that is too large: give at most 99999",
    "0F100000": "too large",
    "0SEND_F0>7 0F0 0B0": "stage 7 has no actions",
    "0F0 0B0 0REDUCE_GRAD#4": "REDUCE_GRAD#4 asks for 5 equal windows, but 1 microbatches cannot be divided",
    "(0F0;0B0;0F1)OVERLAP_F_B": "is not a valid pair: fuse two of F, B, I, W",
    "(0F0)OVERLAP_F_B": "is not a valid pair",
    "(0F0;0SEND_F0)OVERLAP_F_B": "is not a valid pair",
    "(0F0;0B0": r"'\(0F0' is not an action",
    "\n".join(f"{rank}F0 {rank}B0" for rank in range(129)): "line 129 would be rank 128: give at most 128 ranks",
    "0F0\n" + "\n" * 140 + "1F0": "give at most 128 ranks",
    "rank 0: 0F0\nrank 2: 1F0": "line 2 is labelled rank 2: label it rank 1",
    "rank 0: 0F0\nrank 0: 1F0": "line 2 is labelled rank 0: label it rank 1",
    "rank 0: 0F0\n1F0": "line 2 differs from the others: write 'rank 1:' on every line, or on none",
    "0F0 0B0\0": "character 7 is a NUL byte, so this is not text",
    '{"format": 3}': "this text is JSON: read it from a file with Schedule.load",
    " ".join(f"{n}F{n}" for n in range(3000)): "3000 stages, 3000 microbatches and 0 weight versions are too many",
    "\n" * 200_000 + "0F0": "line 100001 is beyond the limits: give at most 100000 lines of 2097152 characters",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:30]))
def test_bad_text_ends_in_one_sentence(text):
    with pytest.raises(ValueError, match=REFUSED[text]) as caught:
        hl.Schedule.from_csv(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_a_whole_backward_beside_both_halves_is_left_to_validate():
    with pytest.raises(ValueError, match="both make"):
        hl.validate(hl.Schedule.from_csv("0F0 0B0 0I0 0W0"))


@pytest.mark.slow
def test_the_largest_schedule_that_is_read(monkeypatch):
    ranks = "\n".join(f"{rank}F0 {rank}B0" for rank in range(128))
    assert hl.Schedule.from_csv(ranks).ranks == 128
    assert hl.Schedule.from_csv(" ".join(f"0F{m} 0B{m}" for m in range(5000))).microbatches == 5000
    monkeypatch.setattr(inferred, "ACTIONS", 255)
    with pytest.raises(ValueError, match="line 128, cell 2: there are more than 255 actions: give fewer"):
        hl.Schedule.from_csv(ranks)


def garbage():
    noise = random.Random(0).randbytes(10_000_000)
    yield noise.decode("latin-1")
    yield noise[:8_000_000].decode("latin-1")
    yield noise.hex()[:8_000_000]
    yield "".join(map(chr, range(33, 127))) * 80_000
    yield "(" * 2_000_000
    yield " ".join(noise.hex(" ", 4).split()[:800_000])


@pytest.mark.slow
@pytest.mark.parametrize("text", list(garbage()), ids=itertools.count())
def test_ten_megabytes_of_garbage_are_answered_at_once_and_not_repeated(text):
    begin = time.process_time()
    with pytest.raises(ValueError) as caught:
        hl.Schedule.from_csv(text)
    assert time.process_time() - begin < 0.5
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content, says",
    [
        (random.Random(1).randbytes(10_000_000), "this file is too long for a schedule: give at most 8 MB"),
        (random.Random(1).randbytes(1_000_000), "byte . of this file is not text"),
        ("0F0 0B0".encode("utf-16"), "byte 0 of this file is not text: save the schedule as UTF-8 text"),
        (b"0F0\0", "NUL"),
        (b"", "no forward"),
        (None, "cannot read the schedule file .*: No such file"),
    ],
)
def test_files_that_are_no_schedules(content, says, tmp_path):
    path = tmp_path / "mine.csv"
    if content is not None:
        path.write_bytes(content)
    for read in (hl.Schedule.load, hl.Schedule.from_csv, lambda path: hl.Schedule.from_csv(str(path))):
        with pytest.raises(ValueError, match=says) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="it is a folder"):
        hl.Schedule.load(tmp_path)


@pytest.mark.parametrize("source", [7, None, b"0F0 0B0", ["0F0"]])
def test_what_is_neither_text_nor_path(source):
    with pytest.raises(ValueError, match=f"read from a {type(source).__name__}: give a string"):
        hl.Schedule.from_csv(source)


SAVED = hl.schedule("pipedream", ranks=2, microbatches=4).to_dict()


@pytest.mark.parametrize(
    "change, says",
    [
        ({"format": "csv"}, "this JSON is not a saved hybridlab schedule: save one"),
        ({"format": "hybridlab.timeline"}, r"take it from Timeline.load\(path\).schedule"),
        ({"version": 2}, "has format version 2, but this hybridlab reads 1: update hybridlab"),
        ({"version": 0}, "has format version 0, but this hybridlab reads 1: save it again"),
        ({"program": None}, "no lists of actions"),
        ({"program": [["0F0", 7]]}, "no lists of actions"),
        ({"program": [[], ["0F0", "0FB"]]}, r"program\[1\]\[1\]: '0FB' is not an action"),
        ({"program": []}, "no forward or backward action"),
        ({"name": 7}, "damaged at 'name'"),
        ({"chunks": 0}, "damaged at 'chunks'"),
        ({"chunks": True}, "damaged at 'chunks'"),
        ({"window": 0}, "damaged at 'window'"),
        ({"window": 10**30}, "damaged at 'window'"),
        ({"dp": 3}, "damaged at 'dp'"),
        ({"dp": 0}, "damaged at 'dp'"),
        ({"skips": [[0, 2]]}, "damaged at 'skips'"),
        ({"skips": [[0, 1, 1]]}, "damaged at 'skips'"),
        ({"tied": [["0"]]}, "damaged at 'tied'"),
        ({"tied": 1}, "damaged at 'tied'"),
    ],
)
def test_damaged_json_ends_in_one_sentence(change, says):
    assert hl.Schedule.from_dict(SAVED).window == 1
    with pytest.raises(ValueError, match=says) as caught:
        hl.Schedule.from_dict(SAVED | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"a"', "{" * 9, '{"a":' + "[" * 200_000, '{"a": ' + "9" * 9999 + "}"])
def test_broken_json(text, tmp_path):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValueError, match="damaged JSON|no saved hybridlab schedule"):
        hl.Schedule.load(tmp_path / "s.json")


@pytest.mark.slow
@settings(max_examples=150)
@given(st.text(alphabet="0123FBIW@#>;(), \t\n:rank", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        read = hl.Schedule.from_csv(text)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert hl.Schedule.from_csv(str(read)).program == read.program


def test_every_kind_has_a_spelling_that_reads_back():
    for kind in KINDS:
        action = Action(kind, 3, -1 if kind in WITHOUT_MICROBATCH else 5, 2, 4)
        assert Action.parse(str(action)) == action


IN_AND_OUT = """
import sys, hybridlab as hl
schedule = hl.schedule("1f1b", ranks=2, microbatches=2)
for name, one in (("csv", schedule), ("json", schedule), ("timeline", hl.simulate(schedule))):
    path = f"{sys.argv[1]}/it.{name}"
    (one.to_csv if name == "csv" else one.save)(path)
    assert str(type(one).load(path)) == str(one)
"""


@pytest.mark.slow
def test_files_are_the_same_in_every_locale(tmp_path):
    """Asked to, Python complains where a text's encoding would be the locale's."""
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    subprocess.run([sys.executable, *strict, "-c", IN_AND_OUT, tmp_path], check=True, cwd=ROOT)


# --- the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text(HAND_TYPED)
    return path


def last_object(capsys):
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


@pytest.mark.slow
def test_a_schedule_of_ones_own_is_simulated_and_drawn(own, tmp_path, capsys):
    kinds = {"csv": "0F0,0F1,", "save": '{"format": "hybridlab.timeline"', "chrome": '{"traceEvents"', "svg": "<svg",
             "html": "<!DOCTYPE html>"}  # fmt: skip
    flags = [part for kind in kinds for part in (f"--{kind}", str(tmp_path / f"out.{kind}"))]
    assert main(["simulate", "--from", str(own), *flags, "--json"]) == 0
    assert last_object(capsys)["length"] == 15.0
    for kind, beginning in kinds.items():
        assert (tmp_path / f"out.{kind}").read_text().startswith(beginning), kind
    ready = hl.schedule("1f1b", ranks=2, microbatches=4)
    assert hl.Schedule.load(tmp_path / "out.csv").program == ready.program
    assert hl.Timeline.load(tmp_path / "out.save").length == 15.0
    spans = [e for e in json.loads((tmp_path / "out.chrome").read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == len(ready.rows)
    page = (tmp_path / "out.html").read_text()
    assert 'src="http' not in page and "length 15 units" in page


def test_standard_input_and_json_are_read(own, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(own.read_bytes())))
    assert main(["schedule", "--from", "-", "--lower", "--csv", str(tmp_path / "l.csv"), "--json"]) == 0
    assert last_object(capsys)["program"][1][:2] == ["1RECV_F0", "1F0"]
    assert hl.Schedule.from_csv(tmp_path / "l.csv").lowered
    hl.schedule("chimera", ranks=2, microbatches=2).save(tmp_path / "s.json")
    assert main(["simulate", "--from", str(tmp_path / "s.json"), "--json"]) == 0
    assert last_object(capsys)["busy"] == [6.0, 6.0]


def test_a_named_schedule_is_exported_too(tmp_path):
    line = "schedule --schedule zb_v --ranks 2 --microbatches 4 --pytorch"
    assert main([*line.split(), str(tmp_path / "z.csv")]) == 0
    assert hl.Schedule.load(tmp_path / "z.csv").program == hl.schedule("zb_v", ranks=2, microbatches=4).program


BAD = {
    "simulate --from {own} --ranks 4": "already contains the schedule: leave out --ranks",
    "simulate {own} --from {own}": "both name a schedule: give only one of them",
    "simulate {own} --pp 2": "already contains the schedule: leave out --pp",
    "simulate --B 2 --I 3": "a backward of B=2.0 is shorter than its half I=3.0: give a longer B, or both I and W",
    "schedule --from {own} --schedule gpipe": "leave out --schedule",
    "schedule --from {own} --microbatches 8": "leave out --microbatches",
    "simulate --from {own} --dp 1": "leave out --dp",
    "simulate --from {tmp}/none.txt": "cannot read the schedule file",
    "simulate --from {tmp}": "it is a folder",
    "schedule --from {typo}": "line 2, cell 1: '1FF0' is not an action",
    "schedule --csv {tmp}/none/s.csv": "No such file or directory",
    "simulate --html {tmp}/none/s.html": "cannot write {tmp}/none/s.html: No such file or directory",
    "simulate --save {tmp}": "{tmp}: it is a folder",
    "simulate --chrome {tmp}": "{tmp}: it is a folder",
    "simulate --svg {tmp}": "{tmp}: it is a folder",
    "schedule --schedule chimera --pytorch {tmp}/c.csv": "PyTorch has no model replicas",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_flags_and_files_end_in_one_sentence_and_exit_code_2(line, own, tmp_path, capsys):
    (tmp_path / "typo.txt").write_text("0F0 0B0\n1FF0 1B0")
    names = {"own": own, "tmp": tmp_path, "typo": tmp_path / "typo.txt"}
    assert main(line.format(**names).split()) == 2
    said = capsys.readouterr().err.strip()
    assert BAD[line].format(**names) in said and said.count("\n") == 0


def test_an_invalid_schedule_of_ones_own_shows_the_spot(tmp_path, capsys):
    (tmp_path / "s.txt").write_text("0F0 0B0\n1F0")
    assert main(["simulate", "--from", str(tmp_path / "s.txt")]) == 2
    said = capsys.readouterr().err
    assert "add 1B0" in said and "→1F0←" in said and "Traceback" not in said
