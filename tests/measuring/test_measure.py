"""The doctor and the recorder: what they say about a machine, and that a record holds what it must and no more."""

import getpass
import json
import os
import re
import socket
from functools import partial
from types import SimpleNamespace

import pytest

from hybridlab.cli import main as cli
from hybridlab.measuring import cpu_suite, doctor, gpu_suite, record
from hybridlab.measuring.row import row
from hybridlab.predict.bytes.collectives import Link, cost
from hybridlab.world.devices import gpus
from hybridlab.world.devices.placement import ASKED, placement

WELL = {
    "system": "Linux x86_64",
    "missing packages": "none",
    "cores": 8,
    "memory free, GiB": 12.0,
    "shared memory, GiB": 6.0,
    "open files allowed": 1024,
    "neighbours": doctor.CAN_BE_CLOSED,
    "other users": 0,
    "GPUs": "none",
    "GPU driver": "none",
}

# --- the doctor -------------------------------------------------------------------------------------------------


def test_a_machine_that_is_well_gets_no_advice():
    assert doctor.advice(WELL) == []


@pytest.mark.parametrize(
    "wrong, word",
    [
        ({"system": "Darwin arm64"}, "WSL2"),
        ({"missing packages": "torch"}, "make setup"),
        ({"cores": 1}, "take turns"),
        ({"memory free, GiB": 0.5}, "close other programs"),
        ({"shared memory, GiB": 0.062}, "--shm-size"),
        ({"open files allowed": 100}, "ulimit"),
        ({"GPUs not used": "the driver is 535.1"}, "says why, and what to do"),
        ({"other users": 1}, "HYBRIDLAB_NETWORK=own"),
        ({"other users": 1, "neighbours": doctor.OPEN}, "in a container"),
        ({"ranks fail": "rank 0 failed"}, "do not start"),
    ],
)
def test_each_problem_has_its_advice_and_no_other(wrong, word):
    (sentence,) = doctor.advice(WELL | wrong)
    assert word in sentence


def test_what_a_system_does_not_tell_is_no_problem():
    unknown = {"memory free, GiB": 0.0, "shared memory, GiB": 0.0, "open files allowed": 0}
    assert doctor.advice(WELL | unknown) == []


def test_a_driver_with_gpus_is_well():
    assert doctor.advice(WELL | {"GPU driver": "535.1", "GPUs": "A, 80 GiB"}) == []


def test_a_gpu_that_ranks_cannot_share_is_told_as_one_that_is_not_used(monkeypatch):
    alone = gpus.Gpus((gpus.Gpu(0, "NVIDIA A100", 80, "GPU-1"),), "580.65", alone=True)
    monkeypatch.setattr(gpus, "here", lambda: alone)
    monkeypatch.delenv(ASKED, raising=False)
    facts = doctor._seen(4)
    assert facts["GPUs not used"] == alone.for_ranks(4)[1] and facts["GPUs not used"] in facts["4 ranks"]


def test_people_with_processes_here_are_counted_once_without_this_one_and_the_systems(monkeypatch):
    users = 1007, os.getuid(), 1003, 0, 1003, doctor.NOBODY
    processes = [SimpleNamespace(stat=partial(SimpleNamespace, st_uid=user)) for user in users]
    monkeypatch.setattr(doctor, "Path", lambda folder: SimpleNamespace(glob=lambda names: iter(processes)))
    assert doctor.other_users() == 2


@pytest.mark.ranks
def test_the_doctor_measures_and_its_command_prints_json(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["missing packages"] == "none" and facts["torch"]
    assert [facts[f"{n} ranks"] for n in (2, 4, 8)] == [placement(n).sentence for n in (2, 4, 8)]
    for measured in ("first 4 ranks ready, s", "next 4 ranks ready, s", "alpha, µs", "beta, s per GB"):
        assert facts[measured] > 0, measured
    assert "ranks fail" not in facts and facts["alpha and beta on"] == "cpu"


@pytest.mark.slow
def test_ranks_that_do_not_start_are_a_fact_and_no_crash(monkeypatch):
    def refuse(count):
        raise RuntimeError("no sockets left")

    monkeypatch.setattr(doctor, "_measured", refuse)
    facts = doctor.doctor()
    assert facts["ranks fail"] == "no sockets left"
    assert "do not start" in facts["what to do"]


# --- what a collective costs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_an_all_reduce_costs_a_reduce_scatter_and_an_all_gather(ranks):
    whole, parts = cost("all_reduce", ranks, 960), [cost(op, ranks, 960) for op in ("reduce_scatter", "all_gather")]
    assert whole == tuple(map(sum, zip(*parts)))


def test_a_broadcast_doubles_those_who_know_in_every_round():
    assert [cost("broadcast", ranks, 1).messages for ranks in (1, 2, 3, 4, 5, 8, 9)] == [0, 1, 2, 2, 3, 3, 4]


def test_an_operation_without_a_formula_is_told():
    with pytest.raises(ValueError, match="'gather' has no formula: choose all_reduce"):
        cost("gather", 2, 1)


@pytest.mark.parametrize("op, ranks", [("send", 2), ("all_reduce", 4), ("all_gather", 3), ("broadcast", 8)])
def test_a_fit_finds_the_link_that_made_the_times(op, ranks):
    link, sizes = Link(alpha=7e-5, beta=4e-10), [1 << k for k in range(10, 24, 3)]
    found = Link.fit(op, ranks, sizes, [link.seconds(op, ranks, size) for size in sizes])
    assert found == pytest.approx(link, rel=1e-6)


def test_a_fit_is_never_negative():
    falling = Link.fit("send", 2, [1e3, 1e6], [2e-3, 1e-3])
    assert falling.beta == 0 and falling.alpha > 0
    growing = Link.fit("send", 2, [1e3, 1e6], [1e-9, 1e-3])
    assert growing.alpha == 0 and growing.beta > 0


# --- the record -------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    more = {"device": "cpu", "ranks": 4}
    rows = [row("a call", "s", [0.3, 0.1], **more), {"name": "more", "needs": "2 GPUs; this machine has 1"}]
    monkeypatch.setattr(cpu_suite, "rows", lambda: iter(rows))
    return rows


def test_a_record_is_a_file_with_its_rows_and_where_they_come_from(quick, tmp_path, capsys):
    assert cli.main(["measure", "--out", str(tmp_path), "--json"]) == 0
    (file,) = tmp_path.iterdir()
    record = json.loads(file.read_text())
    assert record["rows"] == quick and record["whole"]
    assert record["suite"] == "cpu" and record["command"] == "python -m hybridlab measure --suite cpu"
    assert {"when", "system", "cores", "python", "torch", "device", "memory", "gpus"} <= record["machine"].keys()
    assert file.name == f"cpu-{record['machine']['when'][:10]}.json"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["a call (cpu, ranks 4): 0.2 s, the median of 2", "more: needs 2 GPUs; this machine has 1"]
    assert json.loads(lines[-1])["file"] == str(file)


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(monkeypatch, tmp_path, capsys):
    def rows():
        yield pytest.fail("it measured")

    monkeypatch.setattr(cpu_suite, "rows", rows)
    (tmp_path / "file").write_text("")
    assert cli.main(["measure", "--out", str(tmp_path / "file")]) == 2
    assert "it is not a folder; give a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "suite, sentence",
    [
        ("tpu", "choose cpu, gpu, machine or course"),
        ("gpu", "needs a GPU that torch can use"),
        ("course", "start it in the folder"),
    ],
)
def test_a_suite_that_cannot_run_is_told_in_one_sentence(suite, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpus, "here", gpus.Gpus)
    monkeypatch.chdir(tmp_path)  # where no notebooks are
    assert cli.main(["measure", "--suite", suite, "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def kept_records():
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "results")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if re.match("(cpu|gpu|course)-", name)]


@pytest.mark.parametrize("file", kept_records(), ids=os.path.basename)
def test_a_kept_record_names_no_person_machine_or_path(file):
    text = open(file, encoding="utf-8").read()
    assert json.loads(text)["rows"]
    assert not re.search(r"(?<![\w.…])/(home|root|work|tmp|usr|Users|var|opt)/", text)
    for name in {socket.gethostname(), getpass.getuser()} - {"root", "localhost"}:
        assert name not in text


# --- the questions of the GPU suite -----------------------------------------------------------------------------


def question(answer, ranks=2, **more):
    return gpu_suite.Question(answer, "", answer, ranks, **more)


def asked(answer, ranks=2, **more):
    """A question answered on the CPU, where gloo's answers are known."""
    return gpu_suite.ask(question(answer, ranks, **more), placement(ranks, gpus=0))


def test_every_question_has_an_answer_and_every_answer_is_asked_for():
    source = open(gpu_suite.__file__.replace("gpu_suite", "gpu_answers")).read()
    answers = set(re.findall(r"^def ([a-z]\w*)\(rank: Rank\)", source, flags=re.MULTILINE))
    assert {question.answer for question in gpu_suite.QUESTIONS} == answers


def test_questions_for_more_gpus_say_so_and_the_rest_is_asked(monkeypatch):
    monkeypatch.setattr(gpu_suite, "ask", lambda question, placed: {"on": len(set(placed.devices))})
    rows = {row["name"]: row for row in gpu_suite.rows(gpus=2)}
    assert rows["a GPU each, 4 ranks"]["needs"] == "4 GPUs; this machine has 2"
    assert rows["a GPU each, 2 ranks"]["on"] == 2
    assert rows["ours, 2 ranks"]["on"] == 1, "what is asked about one GPU is asked on one"
    assert (rows["ours, 4 ranks"]["backend"], rows["ours, 4 ranks"]["ranks per GPU"]) == ("gloo", 4)
    assert (rows["a GPU each, 2 ranks"]["backend"], rows["a GPU each, 2 ranks"]["ranks per GPU"]) == ("nccl", 1)


def test_a_rank_can_say_that_it_gave_up_before_it_is_stopped():
    assert gpu_suite.TIMEOUT < gpu_suite.PATIENCE
    assert all(gpu_suite.PATIENCE + gpu_suite.TIMEOUT < question.cap for question in gpu_suite.QUESTIONS)


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3])
def test_our_own_way_answers_right(ranks):
    row = asked("ours", ranks)
    assert row["ended"] == "well" and "errors" not in row
    right = {answer["what"]: answer["right"] for answer in row["answers"] if "right" in answer}
    assert len(right) == 6 and all(right.values())
    times = [answer for answer in row["answers"] if "repetitions" in answer]
    assert {answer["bytes"] for answer in times} == {1 << 12, 1 << 20, 1 << 24}


@pytest.mark.long
@pytest.mark.ranks
def test_the_collectives_answer_right_and_a_refusal_is_an_answer():
    row = asked("collectives")
    told = {answer["what"]: answer for answer in row["answers"]}
    assert told["all_reduce sum"]["right"] and told["reduce_scatter max"]["right"]
    assert all("right" in answer or "refuses" in answer or "unit" in answer for answer in row["answers"])


@pytest.mark.long
@pytest.mark.ranks
def test_a_killed_rank_is_noticed_and_named():
    row = asked("lost_peer")
    (answer,) = [answer for answer in row["answers"] if answer["what"] == "a killed rank"]
    assert answer["noticed"] and answer["value"] < 5
    assert row["ended"] == "rank 1 by SIGKILL"


@pytest.mark.ranks
def test_a_question_that_hangs_is_stopped_at_its_cap_with_what_it_told():
    row = asked("alone", cap=0.3)
    assert row["ended"].startswith("was stopped after") and row["seconds"] < 2


@pytest.mark.long
@pytest.mark.ranks
def test_an_answer_that_fails_costs_one_row_and_tells_why():
    row = asked("peer_memory")
    assert row["ended"] == "rank 0 with exit code 1; rank 1 with exit code 1"
    assert "rank 0" in row["errors"]


def test_what_nccl_says_is_counted(tmp_path):
    (tmp_path / "nccl-0").write_text(
        "h:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
        "h:1 [0] init.cc:9 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n"
    )
    said = gpu_suite._nccl_said(tmp_path)
    assert said["NCCL went by"] == {"NET/Socket/0": 1}
    assert said["NCCL warned"] == ["Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"]


def test_errors_keep_no_path_of_the_machine():
    assert gpu_suite.anonymous('File "/home/me/lib/a.so", now') == 'File "…/a.so", now'
    assert gpu_suite.anonymous("3/4 of cpu:gloo,cuda:nccl") == "3/4 of cpu:gloo,cuda:nccl"


def test_a_rank_that_is_not_disguised_sees_nothing_of_the_disguise(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr(gpu_suite.subprocess, "Popen", lambda command, env, **more: seen.update(env))
    placed = placement(2, gpus=1, backend="nccl")
    gpu_suite._start(question("first", backend="nccl"), placed, 1, tmp_path)
    assert seen["NCCL_HOSTID"] == "hybridlab-rank-1" and seen["NCCL_NET"] == "Socket"
    assert seen["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "2", "torch's watchdog would end the rank before it can tell"
    seen.clear()
    plain = question("first", backend="nccl", host_each=False, extra=(("NCCL_MAX_CTAS", "4"),))
    gpu_suite._start(plain, placed, 1, tmp_path)
    assert not {"NCCL_HOSTID", "NCCL_NET"} & seen.keys() and seen["NCCL_MAX_CTAS"] == "4"


def test_a_second_record_of_a_day_leaves_the_first_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "_rows", lambda *_: iter([row("a call", "s", [1.0], device="cpu")]))
    _, first = record.measure("cpu", tmp_path)
    before = first.read_bytes()

    def broken_off(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record.measure("cpu", tmp_path, broken_off)
    _, third = record.measure("cpu", tmp_path)
    assert first.read_bytes() == before and third.stem == f"{first.stem}-3"
