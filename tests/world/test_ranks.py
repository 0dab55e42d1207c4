"""Real ranks: results in order, every failure explained, every message counted, and never a process left behind."""

import contextlib
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from subprocess import PIPE

import cloudpickle
import numpy as np
import pytest
import torch

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.explain.faults import Fault, failure
from hybridlab.world.processes.handle import END_SECONDS, Handle
from hybridlab.world.processes.launch import RankError, ranks
from hybridlab.world.processes.zygote import IDLE_SECONDS
from hybridlab.world.talk.groups import Group
from hybridlab.world.talk.ledger import Ledger

pytestmark = pytest.mark.ranks
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks need not import pytest to run what is written here
ROOT = str(pathlib.Path(__file__).parents[2])


@pytest.fixture(scope="module")
def four():
    """Four ranks that stay for the whole file; a test that ends them leaves the next one fresh ranks."""
    with ranks(4, timeout=20) as pool:
        yield pool


@pytest.fixture(scope="module")
def square():
    """Four ranks on a mesh of two axes."""
    with ranks(Mesh(dp=2, pp=2), timeout=20) as pool:
        yield pool


def alive(pid) -> bool:
    """Whether the process still runs; one that only waits to be collected does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def gone(pids) -> bool:
    """Whether all of these end soon: a parent of ranks that is importing torch first finishes that."""
    end = time.monotonic() + END_SECONDS
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


def pids_of(pool) -> list[int]:
    """The zygote's pid, then those of the ranks."""
    both = pool.run(lambda comm: (os.getppid(), os.getpid()))
    return [both[0][0], *(pid for _, pid in both)]


# ---- results


def test_results_come_in_rank_order_from_a_closure(four):
    factor = 10

    def scaled(comm, offset, *, sign=1):
        return sign * (factor * comm.rank + offset)

    assert four.run(scaled, 5) == [5, 15, 25, 35]
    assert four.run(scaled, 0, sign=-1) == [0, -10, -20, -30]


def test_a_pool_knows_its_size_and_mesh(four, square):
    assert (four.size, four.mesh) == (4, Mesh(world=4))
    assert square.run(lambda comm: (comm.rank, comm.size, comm.coordinates))[2] == (2, 4, {"dp": 1, "pp": 0})


def test_tensors_travel_both_ways(four):
    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    homes = four.run(lambda comm, x: {"x": x * comm.rank, "n": np.full(2, comm.rank)}, x)
    for rank, home in enumerate(homes):
        assert torch.equal(home["x"], x * rank) and home["x"].dtype == torch.bfloat16
        assert (home["n"] == [rank, rank]).all()


def test_a_megabyte_travels_both_ways(four):
    x = torch.arange(2**18, dtype=torch.int32)
    assert all(torch.equal(home, x + 1) for home in four.run(lambda comm: x + 1))


def test_functions_of_a_module_are_found_through_the_drivers_path(tmp_path, monkeypatch):
    (tmp_path / "student_code.py").write_text(
        "import os\ndef where(comm):\n    return os.getcwd(), os.environ['COURSE']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE", "hybrid")
    import student_code

    with ranks(2) as pool:
        assert pool.run(student_code.where) == [(str(tmp_path), "hybrid")] * 2


def test_a_hundred_small_calls_on_kept_ranks_are_quick(four):
    before = pids_of(four)
    begin = time.perf_counter()
    for number in range(100):
        assert four.run(lambda comm, number: number, number) == [number] * 4
    assert time.perf_counter() - begin < 10  # starting four ranks a hundred times would take a minute
    assert pids_of(four) == before


def test_events_are_live_and_in_order(four, tmp_path):
    """Rank 0 goes on only when the handler has seen its first event, so a late handler ends in the timeout."""
    seen, signal_file = [], tmp_path / "seen"

    def talk(comm):
        for step in range(3):
            comm.emit(step=step, loss=float("nan") if step == 2 else 0.5)
            while comm.rank == 0 and not signal_file.exists():
                time.sleep(0.001)

    def on_event(rank, event):
        seen.append((rank, event["step"], event["loss"]))
        if rank == 0:
            signal_file.touch()

    four.run(talk, on_event=on_event)
    assert len(seen) == 12
    for rank in range(4):
        assert [step for r, step, _ in seen if r == rank] == [0, 1, 2]
    assert all((loss != loss) == (step == 2) for _, step, loss in seen)


def test_output_is_live_tagged_and_by_line(four, tmp_path, monkeypatch):
    signal_file, printed = tmp_path / "seen", []

    class Screen:
        def write(self, text):
            printed.append(text)
            signal_file.touch()

        def flush(self):
            pass

    def talk(comm):
        print("one", "line\nand", end="")
        while not signal_file.exists():
            time.sleep(0.001)
        print(" another", file=sys.stdout)
        print("no end", end="")

    monkeypatch.setattr(sys, "stdout", Screen())
    four.run(talk)
    lines = "".join(printed).splitlines()
    for rank in range(4):
        mine = [line for line in lines if line.startswith(f"[rank {rank}]")]
        assert mine == [f"[rank {rank}] {text}" for text in ("one line", "and another", "no end")]


def test_errors_of_ranks_go_to_stderr(four, capsys):
    four.run(lambda comm: print("careful", file=sys.stderr) if comm.rank == 3 else None)
    assert capsys.readouterr().err == "[rank 3] careful\n"


# ---- failures


def test_an_exception_comes_home_with_its_place(four):
    def inner():
        raise ValueError("first line\nsecond line")

    def outer(comm):
        comm.barrier()
        if comm.rank == 2:
            inner()
        comm.barrier()

    with pytest.raises(RankError) as caught:
        four.run(outer)
    error, line = caught.value, inner.__code__.co_firstlineno + 1
    assert str(error).startswith(f"rank 2 failed: ValueError: first line (test_ranks.py:{line})")
    assert "\n" not in str(error)
    assert (error.rank, error.kind, error.message) == (2, "ValueError", "first line\nsecond line")
    assert error.where == f"test_ranks.py:{line}"
    assert "in outer" in error.traceback_text and "in inner" in error.traceback_text
    assert "raise ValueError" in error.traceback_text and "hybridlab" not in error.traceback_text.replace(ROOT, "")
    assert error.__notes__ == [error.traceback_text]


def test_the_same_failure_everywhere_is_told_once(four):
    with pytest.raises(RankError, match="^all 4 ranks failed: ZeroDivisionError"):
        four.run(lambda comm: 1 / 0)


@pytest.mark.parametrize(
    "end, kind, sentence",
    [
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "SIGKILL",
            "rank 1 was killed by SIGKILL before giving a result",
        ),
        (lambda: os.abort(), "SIGABRT", "rank 1 was killed by SIGABRT before giving a result"),
        (lambda: sys.exit(0), "SystemExit", r"rank 1 called sys.exit\(0\) before giving a result \(test_ranks.py"),
        (lambda: os._exit(0), "exit", "rank 1 ended with exit code 0 before giving a result"),
        (lambda: input(), "EOFError", "rank 1 failed: EOFError"),
    ],
    ids=["kill -9", "abort", "sys.exit(0)", "os._exit(0)", "input()"],
)
def test_a_rank_that_leaves_is_the_culprit_and_not_its_victims(four, end, kind, sentence):
    def leave(comm):
        comm.barrier()
        if comm.rank == 1:
            end()
        comm.all_reduce(torch.ones(1000))

    with pytest.raises(RankError, match=f"^{sentence}") as caught:
        four.run(leave)
    assert (caught.value.rank, caught.value.kind) == (1, kind)
    assert four.run(lambda comm: comm.rank) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "said",
    [
        "Connection closed by peer [127.0.0.1]:1234",
        "Wait timeout",
        "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: Connection refused",
    ],
)
def test_a_victim_is_not_blamed_though_it_speaks_first(said):
    line = ("/lab/step.py", 7, "step")
    victim = Fault(0, "RuntimeError", said, (line,), at=1.0, died=False)
    aborted = Fault(1, "SIGABRT", "", (), at=1.5, died=True)
    culprit = Fault(2, "KeyError", "'w'", (line,), at=2.0, died=False)
    assert failure([victim, aborted, culprit], 4, print, {}).rank == 2
    assert failure([victim, aborted], 4, print, {}).rank == 1
    assert failure([victim], 4, print, {}).where == "step.py:7"


def test_results_of_a_foreign_type_are_refused(four):
    def foreign(comm):
        return threading.Lock() if comm.rank == 1 else 0

    with pytest.raises(
        RankError, match="rank 1 failed: TypeError: a rank can return only .*, not _thread.lock"
    ) as caught:
        four.run(foreign)
    assert caught.value.where == f"test_ranks.py:{foreign.__code__.co_firstlineno}"


def test_arguments_that_cannot_be_sent_are_refused_before_the_ranks_hear_of_them(four):
    before = pids_of(four)
    with pytest.raises(TypeError, match="cannot be sent to the ranks"):
        four.run(lambda comm, lock: None, threading.Lock())
    assert pids_of(four) == before


def test_a_run_without_a_sign_ends_with_the_timeout_and_names_the_places():
    def hang(comm):
        comm.open((0, 1, 2))
        if comm.rank == 1:
            while True:
                pass
        if comm.rank != 3:
            comm.all_reduce(torch.ones(2), (0, 1, 2))

    first = hang.__code__.co_firstlineno
    with ranks(4, timeout=0.5) as pool:  # less than hang_s, which would say more
        pids_of(pool)
        begin = time.monotonic()
        with pytest.raises(RankError) as caught:
            pool.run(hang)
        assert 0.5 < time.monotonic() - begin < 3
        assert caught.value.kind == "timeout" and caught.value.rank == 0
        assert f"ranks 0, 2 waiting in all_reduce at test_ranks.py:{first + 6}; rank 1 in hang" in str(caught.value)
        assert "rank 3" not in str(caught.value)
        assert pool.run(lambda comm: comm.rank) == [0, 1, 2, 3]


def test_a_stopped_rank_is_told_and_killed():
    with ranks(2, timeout=0.5) as pool:
        pids = pids_of(pool)[1:]
        with pytest.raises(RankError, match="rank 1 without an answer"):
            pool.run(lambda comm: os.kill(os.getpid(), signal.SIGSTOP) if comm.rank == 1 else None)
        assert gone(pids)


def test_signs_of_life_put_off_the_timeout():
    def slow(comm):
        for step in range(5):
            time.sleep(0.1)
            if comm.rank == 0:
                comm.emit(step=step)
        return comm.rank

    with ranks(2, timeout=0.3) as pool:
        assert pool.run(slow) == [0, 1]


def test_a_failure_ends_all_ranks_and_the_next_run_starts_fresh_ones(four):
    zygote, *before = pids_of(four)
    with pytest.raises(RankError):
        four.run(lambda comm: 1 / (comm.rank - 2))
    assert gone(before)
    again, *after = pids_of(four)
    assert again == zygote and not set(before) & set(after)


def test_what_ranks_import_of_the_package_is_imported_once_in_their_parent():
    from hybridlab.measuring.startup import ANSWER, _sum

    def parent_has_it():
        with ranks(1) as pool:
            return pool.run(lambda comm: "hybridlab.measuring.startup" in sys.modules) == [True]

    with ranks(1) as pool:
        pool.run(ANSWER)  # travels whole: no rank imports its file
        time.sleep(0.5)
        assert not parent_has_it()
        pool.run(_sum)
    end = time.monotonic() + 10  # it may be importing something else
    while not parent_has_it() and time.monotonic() < end:
        time.sleep(2 * IDLE_SECONDS)
    assert parent_has_it()


@pytest.mark.long
def test_a_dead_zygote_takes_its_ranks_along_and_is_replaced():
    with ranks(2) as pool:
        zygote, *pids = pids_of(pool)
        with pytest.raises(RankError, match="the parent process of the ranks has ended") as caught:
            pool.run(lambda comm: os.kill(os.getppid(), signal.SIGKILL) if comm.rank == 0 else time.sleep(9))
        assert caught.value.kind == "zygote" and gone([zygote, *pids])
        assert pids_of(pool)[0] != zygote


@pytest.mark.long
def test_ranks_killed_between_two_runs_are_replaced(four):
    zygote, *before = pids_of(four)
    os.kill(before[2], signal.SIGKILL)
    while pathlib.Path(f"/proc/{before[2]}").exists():  # until the zygote has collected it
        time.sleep(0.001)
    assert not set(pids_of(four)[1:]) & set(before) and gone(before)


@pytest.mark.long
def test_as_many_ranks_as_are_allowed_meet_and_name_the_last_of_them():
    with ranks(128) as pool:
        assert pool.run(lambda comm: int(comm.all_reduce(torch.ones(1)).item())) == [128] * 128
        with pytest.raises(RankError, match="rank 127"):
            pool.run(lambda comm: comm.rank < 127 or 1 / 0)


def test_numbers_of_ranks_out_of_range_are_refused():
    with pytest.raises(ValueError, match="129 ranks are too many .* 128 or fewer"):
        ranks(129)
    for none in (0, -1):
        with pytest.raises(ValueError, match="1 or more"):
            ranks(none)


def test_a_second_run_meanwhile_is_refused(four):
    with pytest.raises(RuntimeError, match="already running"):
        four.run(lambda comm: comm.emit(), on_event=lambda *_: four.run(print))


# ---- nothing is left behind, whatever happens


HEAD = """
import os, sys, time
from hybridlab.world.processes.launch import ranks
pool = ranks(2)
pids = pool.run(lambda comm: [os.getppid(), os.getpid()])
print([pids[0][0], pids[0][1], pids[1][1]], flush=True)
"""


@pytest.fixture
def driver():
    """Starts another Python that runs lines without a guard; it first prints the pids of its zygote and two ranks."""
    with contextlib.ExitStack() as at_end:

        def start(body) -> subprocess.Popen:
            command = [sys.executable, "-c", HEAD + body]
            pipes = {"stdin": PIPE, "stdout": PIPE, "text": True}
            child = at_end.enter_context(subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes))
            at_end.callback(child.kill)  # before the context waits for it
            return child

        yield start


def finish(child) -> int:
    """Wait for the driver's end; its exit code."""
    return child.wait(timeout=5)


@pytest.mark.long
def test_a_script_without_with_and_without_torch_leaves_nothing(driver):
    child = driver("print('torch' in sys.modules)")
    pids = json.loads(child.stdout.readline())
    assert child.stdout.readline() == "False\n" and finish(child) == 0
    assert len(pids) == 3 and gone(pids)


@pytest.mark.long
def test_an_exception_in_the_driver_leaves_nothing(driver):
    child = driver("sys.excepthook = lambda *_: None\nraise KeyError")
    pids = json.loads(child.stdout.readline())
    assert finish(child) == 1 and gone(pids)


@pytest.mark.long
def test_an_interrupt_ends_the_ranks_and_the_next_run_works(driver):
    body = """
try:
    pool.run(lambda comm: comm.emit() or time.sleep(60), on_event=lambda *_: print("go", flush=True))
except KeyboardInterrupt:
    print("interrupted", pool.run(lambda comm: comm.rank), flush=True)
time.sleep(60)
"""
    child = driver(body)
    zygote, *pids = json.loads(child.stdout.readline())
    assert [child.stdout.readline(), child.stdout.readline()] == ["go\n", "go\n"]
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    assert child.stdout.readline() == "interrupted [0, 1]\n"
    assert gone(pids) and alive(zygote)
    child.kill()
    finish(child)
    assert gone([zygote])


@pytest.mark.long
@pytest.mark.parametrize("busy", ["time.sleep(60)", "pool.run(lambda comm: comm.rank or time.sleep(60))"])
def test_a_killed_driver_leaves_nothing(driver, busy):
    child = driver(busy)
    pids = json.loads(child.stdout.readline())
    assert all(map(alive, pids))
    child.kill()
    finish(child)
    assert gone(pids)


@pytest.mark.long
def test_a_forked_driver_has_its_own_ranks_and_does_not_keep_its_parents(driver):
    body = """
child = os.fork()
if child == 0:
    print(pool.run(lambda comm: os.getppid())[0], os.getpid(), flush=True)
    os.close(1)
    time.sleep(60)
sys.stdin.readline()
print(pool.run(lambda comm: os.getppid())[0], flush=True)
time.sleep(60)
"""
    child = driver(body)
    zygote, *pids = json.loads(child.stdout.readline())
    other_zygote, fork = map(int, child.stdout.readline().split())
    try:
        assert other_zygote != zygote and all(map(alive, pids))
        child.stdin.write("\n")
        child.stdin.flush()
        assert int(child.stdout.readline()) == zygote
        child.kill()
        finish(child)
        assert gone([zygote, *pids]) and alive(fork) and alive(other_zygote)
    finally:
        os.kill(fork, signal.SIGKILL)
    assert gone([other_zygote])


def test_ranks_started_in_a_thread_outlive_it():
    pool, found = ranks(2), []
    starter = threading.Thread(target=lambda: found.append(pids_of(pool)))
    starter.start()
    starter.join()
    assert pids_of(pool) == found[0]
    pool.stop()
    assert gone(found[0][1:])


def test_what_a_rank_has_started_goes_with_it():
    def start(comm):
        return subprocess.Popen(["sleep", "60"]).pid

    with ranks(2) as pool:
        children = pool.run(start)
        assert all(map(alive, children))
    assert gone(children)


def test_what_a_rank_has_started_goes_also_when_the_rank_ends_itself():
    def start_and_leave(comm):
        comm.emit(pid=subprocess.Popen(["sleep", "60"]).pid)
        os._exit(1)

    children = []
    with ranks(2) as pool, pytest.raises(RankError):
        pool.run(start_and_leave, on_event=lambda rank, event: children.append(event["pid"]))
    assert children and gone(children)


def test_ranks_do_not_hear_an_interrupt(four):
    assert four.run(lambda comm: os.kill(os.getpid(), signal.SIGINT) or comm.rank) == [0, 1, 2, 3]


def test_the_folder_where_ranks_meet_is_private_and_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ranks(2) as pool:
        pool.run(lambda comm: None)
        (folder,) = tmp_path.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


def test_ranks_and_zygote_listen_on_loopback_only(four):
    sockets = set()
    for pid in pids_of(four):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                addresses.append(fields[1].partition(":")[0])
    assert addresses, "gloo listens somewhere, so an empty list means that this test looks in the wrong place"
    assert set(addresses) <= {"0100007F", "00000000000000000000000001000000"}
    assert set(four.run(lambda comm: os.environ["GLOO_SOCKET_IFNAME"])) <= {"lo", "lo0"}  # not by luck of /etc/hosts


def test_the_zygote_has_one_thread_and_ranks_compute_with_one(monkeypatch):
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "3")
    fresh = Handle()
    monkeypatch.setattr("hybridlab.world.processes.gang.ZYGOTE", fresh)
    try:
        with ranks(2) as pool:
            zygote = pids_of(pool)[0]
            assert "\nThreads:\t1\n" in pathlib.Path(f"/proc/{zygote}/status").read_text()
            assert pool.run(lambda comm: torch.get_num_threads()) == [1] * 2
    finally:
        fresh.close()


# ---- collectives, each against a plain computation in the driver


def part(rank) -> torch.Tensor:
    """What rank `rank` holds: no two ranks share a number."""
    return torch.arange(48, dtype=torch.float64).reshape(4, 12) + 100.0 * rank


def every_collective(comm, axis):
    """All collectives along one axis, on this rank's part."""
    x = part(comm.rank)
    return {
        **{op: comm.all_reduce(x.clone(), axis, op) for op in ("sum", "max", "min")},
        "product": comm.all_reduce(x / 100, axis, "product"),
        "gathered": [comm.all_gather(x, axis, dim) for dim in (0, 1, -1)],
        "scattered": [comm.reduce_scatter(x.repeat(3, 1), axis), comm.reduce_scatter(x, axis, dim=1)],
        "first": comm.broadcast(x.clone(), 0, axis),
        "second": comm.broadcast(x.clone(), 1, axis),
    }


def expected(group, rank):
    """The same, computed plainly from the parts of all ranks of the group."""
    parts = [part(member) for member in group]
    total, place = sum(parts), group.index(rank)
    stack = torch.stack(parts)
    return {
        "sum": total,
        "max": stack.amax(0),
        "min": stack.amin(0),
        "product": (stack / 100).prod(0),
        "gathered": [torch.cat(parts, dim) for dim in (0, 1, -1)],
        "scattered": [total.repeat(3, 1).chunk(len(group))[place], total.chunk(len(group), 1)[place]],
        "first": parts[0],
        "second": parts[1],
    }


def assert_equal(found, wanted):
    """Equal tensors under every name, up to the order of additions."""
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [2, 3])
def test_collectives_over_all_ranks(size):
    with ranks(size, timeout=20) as pool:
        for rank, found in enumerate(pool.run(every_collective, None)):
            assert_equal(found, expected(tuple(range(size)), rank))


@pytest.mark.parametrize("axis", [None, "dp", "pp", ("pp", "dp"), ("dp", "tp")])
def test_collectives_along_axes(square, axis):
    for rank, found in enumerate(square.run(every_collective, axis)):
        assert_equal(found, expected(square.mesh.group(rank, axis or ("dp", "pp")), rank))


def test_further_tuples_of_axes_are_opened_on_request():
    mesh = Mesh(dp=2, pp=2, tp=2)
    with ranks(mesh, timeout=20, groups=[("dp", "tp")]) as pool:
        for rank, found in enumerate(pool.run(every_collective, ("tp", "dp"))):
            assert_equal(found, expected(mesh.group(rank, ("dp", "tp")), rank))
        with pytest.raises(RankError, match=r"ValueError: no group is open along \('pp', 'tp'\): open it at the start"):
            pool.run(lambda comm: comm.barrier(("pp", "tp")))


def test_alone_on_an_axis_every_call_returns_at_once_and_is_not_counted():
    def alone(comm, axis):
        x = part(3)
        comm.barrier(axis)
        found = [
            comm.all_reduce(x, axis),
            comm.broadcast(x, 0, axis),
            comm.all_gather(x, axis),
            comm.reduce_scatter(x, axis),
        ]
        return found, found[2] is not x, len(comm.ledger), comm.ledger.total(axis=axis)

    with ranks(1) as pool:
        (answer,) = pool.run(alone, None)
    with ranks(Mesh(dp=2, tp=1), timeout=20) as pool:
        answers = pool.run(alone, "tp") + pool.run(alone, "cp")
    for found, fresh, length, total in [answer, *answers]:
        assert all(torch.equal(x, part(3)) for x in found)
        assert fresh and length == 0 and total == (0, 0)


def test_tensors_in_several_pieces_work_in_place(four):
    def pieces(comm):
        whole = torch.zeros(6, 2) + comm.rank
        comm.all_reduce(whole[:, 0])
        comm.broadcast(whole.T[1:], source=3)
        return whole, comm.all_gather(part(comm.rank).T, dim=1)

    for whole, gathered in four.run(pieces):
        assert torch.equal(whole, torch.tensor([6.0, 3.0]).expand(6, 2))
        assert torch.equal(gathered, torch.cat([part(rank).T for rank in range(4)], 1))


def test_parameters_can_be_reduced_and_no_graph_is_kept(four):
    def reduced(comm):
        w = torch.nn.Parameter(torch.ones(2))
        comm.all_reduce(w)
        y = w * 2
        return w, comm.all_gather(y).requires_grad, comm.reduce_scatter(torch.cat([y, y])).requires_grad

    for w, *graphs in four.run(reduced):
        assert torch.equal(w, torch.full((2,), 4.0)) and graphs == [False, False]


# ---- messages


def test_a_ring_of_messages(four):
    def ring(comm):
        after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        x, whole = part(comm.rank), torch.zeros(12, 4, dtype=torch.float64)
        messages = [comm.irecv(whole.T, before, tag=7), comm.isend(x, after, tag=7)]
        arrived, sent = [message.wait() for message in messages]
        return arrived, whole, sent, messages[0].wait() is arrived

    for rank, (arrived, whole, sent, again) in enumerate(four.run(ring)):
        assert torch.equal(arrived, part((rank - 1) % 4)) and torch.equal(whole.T, arrived)
        assert torch.equal(sent, part(rank)) and again


def test_tags_tell_messages_apart(square):
    def two_tags(comm):
        a, b = torch.zeros(2), torch.zeros(2)
        if comm.rank == 0:
            sent = [comm.isend(torch.full((2,), float(tag)), to=3, tag=tag) for tag in (5, 6)]
            [message.wait() for message in sent]
        elif comm.rank == 3:
            comm.recv(b, 0, tag=6)
            comm.recv(a, 0, tag=5)
        return a, b

    a, b = square.run(two_tags)[3]
    assert a.tolist() == [5, 5] and b.tolist() == [6, 6]


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (lambda comm: comm.send(torch.ones(1), to=comm.rank), "send: rank . cannot exchange messages with itself"),
        (lambda comm: comm.irecv(torch.ones(1), source=4), "irecv: there is no rank 4; choose from 0 to 3"),
        (lambda comm: comm.isend(torch.ones(1), to=-1), "isend: there is no rank -1"),
        (lambda comm: comm.broadcast(torch.ones(1), 2, "dp"), "broadcast from source=2 .* a rank of the group, 0 to 1"),
        (lambda comm: comm.all_reduce(torch.ones(1), "dpp"), r"Mesh\(dp=2, pp=2\) has no axis 'dpp'"),
        (lambda comm: comm.all_reduce(torch.ones(1), op="avg"), "op='avg' is not known to all_reduce: choose one of"),
        (
            lambda comm: comm.reduce_scatter(torch.ones(4, 6), dim=1),
            "cannot split dim 1 of length 6 into 4 equal parts",
        ),
        (lambda comm: comm.all_gather(torch.tensor(1.0)), "all_gather along dim 0 is not possible for shape"),
    ],
    ids=["own rank", "beyond", "negative", "source", "axis", "op", "not divisible", "no dim"],
)
def test_impossible_operations_are_refused_before_anything_is_sent(square, wrong, sentence):
    def attempt(comm):
        try:
            wrong(comm)
        except ValueError as error:
            return str(error), len(comm.ledger)

    for message, length in square.run(attempt):
        assert re.search(sentence, message) and "\n" not in message and length == 0


# ---- the ledger


def test_the_ledger_counts_every_operation_and_byte(square):
    def step(comm):
        x = torch.zeros(4, 8)  # 128 bytes
        comm.all_reduce(x, "dp")
        comm.all_reduce(x.double())
        comm.all_gather(x, "pp")
        comm.reduce_scatter(x, "dp")
        comm.broadcast(x, 0, ("dp", "pp"))
        comm.barrier("pp")
        peer = comm.rank ^ 1  # the other rank along pp
        arrived = torch.zeros(3)
        messages = [comm.irecv(arrived, peer, tag=2), comm.isend(torch.ones(3), peer, tag=2)]
        messages[0].wait()
        open_rows = [row["op"] for row in comm.ledger.rows() if row["end_ns"] == 0]
        messages[1].wait()
        totals = [
            comm.ledger.total(*ask)
            for ask in [(), ("all_reduce",), (None, "dp"), ("all_reduce", ("pp", "dp")), ("isend", "pp")]
        ]
        return comm.ledger.rows(), totals, open_rows

    first = step.__code__.co_firstlineno
    for rank, (rows, totals, open_rows) in enumerate(square.run(step)):
        assert [(row["op"], row["axis"], row["group"], row["bytes"]) for row in rows] == [
            ("all_reduce", "dp", 2, 128),
            ("all_reduce", "dp+pp", 4, 256),
            ("all_gather", "pp", 2, 256),
            ("reduce_scatter", "dp", 2, 128),
            ("broadcast", "dp+pp", 4, 128),
            ("barrier", "pp", 2, 0),
            ("irecv", "pp", 2, 12),
            ("isend", "pp", 2, 12),
        ]
        assert [(row["peer"], row["tag"]) for row in rows] == [(None, None)] * 6 + [(rank ^ 1, 2)] * 2
        assert [row["source"] for row in rows] == [f"test_ranks.py:{first + n}" for n in (2, 3, 4, 5, 6, 7, 10, 10)]
        assert totals == [(8, 920), (2, 384), (2, 256), (1, 256), (1, 12)]
        assert open_rows == ["isend"]
        assert all(0 < row["begin_ns"] < row["end_ns"] for row in rows)
        assert [row["begin_ns"] for row in rows] == sorted(row["begin_ns"] for row in rows)


def test_every_run_starts_with_an_empty_ledger(four):
    counts = [four.run(lambda comm: comm.barrier() or comm.ledger.total()) for _ in range(2)]
    assert counts == [[(1, 0)] * 4] * 2


def test_an_operation_that_never_ends_stays_open_in_the_ledger():
    ledger = Ledger(Mesh(dp=2))
    row = ledger.begin("all_reduce", Group("dp", (0, 1), None), 8)
    assert ledger.rows()[row]["end_ns"] == 0 and ledger.total("all_reduce", "dp") == (1, 8)
    ledger.end(row)
    assert ledger.end_ns[row] >= ledger.begin_ns[row]


def test_writing_the_ledger_takes_microseconds():
    ledger, group, batches = Ledger(Mesh(dp=2)), Group("dp", (0, 1), None), []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(500):
            ledger.end(ledger.begin("all_reduce", group, 8))
        batches.append((time.perf_counter() - begin) / 500)
    assert min(batches) < 10e-6
