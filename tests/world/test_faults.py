"""The table of faults, run: every fault is told in one sentence with rank, operation and line, and leaves nothing."""

import builtins
import contextlib
import gc
import importlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from subprocess import PIPE

import cloudpickle
import numpy as np
import pytest
import torch
from faults import strikes
from faults.suffer import alive, complaint, suffer
from faults.table import FOUR, ROWS, Elsewhere, Needs, Run

import hybridlab
from hybridlab.core.where.mesh import Mesh
from hybridlab.world.explain.faults import LastSeen, failure, fault_of, killed_for_memory
from hybridlab.world.processes import gang, home
from hybridlab.world.processes.launch import RankError, ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ROOT = pathlib.Path(__file__).parents[2]
HANG_S = 1.0
CASES = [
    pytest.param(row.outcome, work, id=f"{row.number} {row.fault}{f' in {work}' if work else ''}", marks=marks)
    for row in ROWS
    if isinstance(row.outcome, Run)
    for place, work in enumerate(row.outcome.works or (None,))
    for marks in [[pytest.mark.ranks, *[pytest.mark.long] * (place > 0), *[pytest.mark.soak] * row.soak]]
]
with_ranks = pytest.mark.ranks


@pytest.fixture(scope="module")
def pools():
    """Ranks by mesh, which stay for the whole file; a fault replaces them."""
    with contextlib.ExitStack() as at_end:
        made = {}

        def pool(mesh=FOUR):
            if mesh not in made:
                made[mesh] = at_end.enter_context(ranks(mesh, hang_s=HANG_S, timeout=20))
            return made[mesh]

        yield pool


def gone(pids) -> bool:
    """Whether all of these end within two seconds."""
    end = time.monotonic() + 2
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


@pytest.mark.parametrize("outcome, work", CASES)
def test_a_fault_is_told_at_once_and_leaves_nothing(pools, outcome, work):
    pool = pools(outcome.mesh)
    suffered = suffer(pool, outcome, work)
    assert complaint(outcome, suffered) == ""
    assert suffered.seconds < (HANG_S + 1 if outcome.hangs else 3)  # medians are for `make soak`; machines differ
    assert pool.run(lambda comm: comm.rank) == [0, 1, 2, 3]


def test_the_table_is_whole_and_every_test_it_names_exists():
    assert [row.number for row in ROWS] == list(range(1, 111))
    for row in ROWS:
        if isinstance(row.outcome, Elsewhere):
            file, function = row.outcome.name.split("::")
            assert f"def {function}(" in (ROOT / "tests" / file).read_text(), row
        if isinstance(row.outcome, Needs):
            assert not row.soak, row


@with_ranks
@pytest.mark.parametrize("work", strikes.WORK)
def test_healthy_work_is_no_fault(pools, work):
    pools().run(strikes.during, work, print, hit=())


# ---- early misses of the prototype


@with_ranks
def test_a_rank_that_came_just_before_the_limit_is_not_blamed(pools):
    def late(comm):
        if comm.rank == 1:
            time.sleep(0.9 * HANG_S)
        if comm.rank == 2:
            time.sleep(60)
        comm.barrier()

    with pytest.raises(
        RankError, match=r"^no progress for 1 s: ranks 0, 1, 3 wait in barrier .*; rank 2 is at work in late"
    ):
        pools().run(late)


@with_ranks
def test_an_abort_does_not_hide_the_mismatch_that_caused_it(pools):
    def mismatch(comm):
        if comm.rank == 1:
            comm.irecv(torch.ones(8), 0)
            os.abort()
        if comm.rank == 0:
            comm.send(torch.ones(16), 1)
        comm.barrier()

    with pytest.raises(RankError, match="^rank 0's send of .* does not fit rank 1's irecv"):
        pools().run(mismatch)


@with_ranks
def test_who_waits_for_a_chain_of_ranks_is_told_of_its_end(pools):
    def chain(comm):
        if comm.rank == 3:
            time.sleep(60)
        comm.recv(torch.ones(8), comm.rank + 1)

    with pytest.raises(
        RankError, match="^no progress for 1 s: rank 0 waits in recv .*; rank 3 is at work in chain"
    ) as caught:
        pools().run(chain)
    assert caught.value.rank == 3 and "rank 1 is" not in str(caught.value)


@with_ranks
def test_time_outside_communication_is_no_hang(pools):
    def compile_slowly(comm):
        time.sleep(2 * HANG_S)
        comm.barrier()

    pools().run(compile_slowly)


@with_ranks
def test_a_handler_that_takes_long_makes_no_hang(pools):
    def talk(comm):
        if comm.rank == 0:
            time.sleep(0.2 * HANG_S)  # so that the kernel has seen the other ranks wait
            comm.emit()
            time.sleep(1.6 * HANG_S)
        comm.barrier()

    pools().run(talk, on_event=lambda *_: time.sleep(1.4 * HANG_S))


def test_a_crowd_of_ranks_has_more_time(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert [ranks(count).hang_s for count in (1, 8, 32)] == [10, 10, 40]
    assert ranks(32, hang_s=3).hang_s == 3


@with_ranks
def test_operations_are_a_sign_of_life():
    def long(comm):
        for _ in range(20):
            time.sleep(0.05)
            comm.barrier()
        return comm.rank

    with ranks(2, timeout=0.5) as pool:
        assert pool.run(long) == [0, 1]


# ---- rows 7, 42: memory, and tensors on their way


def test_a_rank_killed_for_memory_is_told_so():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    so_far = killed_for_memory()  # a machine may have done so before
    large, small = (fault_of(1, "exit", [-9, int(share * total)], so_far) for share in (0.5, 0.01))
    sentence = str(failure([large], 4, print, {1: LastSeen(", in barrier #1 at lab.py:3", "lab.py:3", "")}))
    assert re.match(
        r"rank 1 was killed by SIGKILL, probably out of memory \(it held [\d.]+ of [\d.]+ GB\), "
        r"before giving a result, in barrier #1 at lab.py:3;",
        sentence,
    )
    assert "memory" not in str(small)
    assert "memory" in str(fault_of(1, "exit", [-9, 0], memory_killings=-1))  # Linux counted one more


@with_ranks
def test_a_tensor_changed_on_the_way_is_told(pools, capsys):
    pools().run(strikes.changed_on_the_way)
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"\[rank 0\] the tensor of isend to rank 1 \(strikes.py:\d+\) was changed before wait.*\n", told
    )


@with_ranks
def test_a_part_of_a_tensor_is_told_only_when_it_was_changed_itself(pools, capsys):
    pools().run(strikes.its_neighbour_changed)
    assert capsys.readouterr().err == ""
    pools().run(strikes.a_part_changed)
    assert "[rank 0] the tensor of isend to rank 1" in capsys.readouterr().err


@with_ranks
def test_one_number_of_a_tensor_can_be_sent(pools):
    assert pools().run(strikes.a_number_of_a_tensor)[1] == 3


@with_ranks
def test_a_message_that_nobody_waited_for_is_told_once(pools, capsys):
    pools().run(strikes.never_waited)
    assert "[rank 0] no rank waited for isend to rank 1 (strikes.py:" in capsys.readouterr().err
    pools().run(strikes.the_last_runs_is_let_go)
    assert capsys.readouterr().err == ""


@with_ranks
def test_a_message_that_was_dropped_is_told_by_its_line(pools, capsys):
    with pytest.raises(
        RankError, match=r"^rank 1 waits in recv .*; rank 0 has finished without a wait\(\).* isend"
    ) as caught:
        pools().run(strikes.dropped)
    assert caught.value.kind == "left" and caught.value.where.startswith("strikes.py:")
    assert re.search(r"\[rank 0\] the handle of isend to rank 1 \(strikes.py:\d+\) is gone", capsys.readouterr().err)


@with_ranks
def test_messages_of_one_line_are_told_once_and_those_of_a_rank_that_failed_not_at_all(pools, capsys):
    with pytest.raises(RankError):
        pools().run(strikes.drops_many)
    told = capsys.readouterr().err
    assert max(told.count(f"[rank {rank}] the handle of isend") for rank in (0, 1)) == 1  # the other may be ended first
    with pytest.raises(RankError, match="ValueError: of its own"):
        pools().run(strikes.keeps_and_fails)
    assert "the handle of" not in capsys.readouterr().err


@with_ranks
def test_a_message_that_nobody_received_does_not_reach_the_next_run(pools):
    with pytest.raises(
        RankError, match="^rank 0 announced isend .* to rank 1, tag 0, .* and rank 1 never took part"
    ) as caught:
        pools().run(strikes.never_received)
    assert caught.value.kind == "unmatched"


# ---- rows 47, 48, 50: the beginning and the end


@with_ranks
def test_an_import_that_fails_on_one_rank(pools, tmp_path, monkeypatch):
    (tmp_path / "course_code.py").write_text(
        f"import os\ntry:\n    os.mkdir({str(tmp_path / 'first')!r})\nexcept OSError:\n    pass\n"
        "else:\n    raise ImportError('no such part')\ndef step(comm):\n    comm.barrier()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with contextlib.suppress(ImportError):
        importlib.import_module("course_code")
    module = importlib.import_module("course_code")
    os.rmdir(tmp_path / "first")
    with ranks(4, hang_s=HANG_S) as pool, pytest.raises(RankError, match="failed: ImportError: no such part") as caught:
        pool.run(module.step)
    assert caught.value.where == "course_code.py:7"


@with_ranks
def test_a_rank_that_fails_before_the_meeting(monkeypatch):
    whole = gang._hello
    lost = lambda rank, *others: whole(rank, *others) | ({"cwd": "/no/such/folder"} if rank == 2 else {})
    with ranks(2) as warm:
        warm.run(print)
    monkeypatch.setattr(gang, "_hello", lost)
    begin = time.monotonic()
    with pytest.raises(RankError, match="^rank 2 failed: FileNotFoundError") as caught, ranks(4) as pool:
        pool.run(print)
    assert time.monotonic() - begin < 3 and caught.value.rank == 2


HEAD = "import os, sys, time\nfrom hybridlab.world.processes.launch import RankError, ranks\n"


@pytest.fixture
def driver(tmp_path):
    """Starts another Python, in a session of its own, that runs these lines; it ends with the test."""
    with contextlib.ExitStack() as at_end:

        def start(body, environ=(), **how) -> subprocess.Popen:
            how = {"cwd": ROOT, "start_new_session": True, "stdin": PIPE, "stdout": PIPE, "text": True} | how
            environ = {**os.environ, "PYTHONPATH": str(ROOT), **dict(environ)}
            child = at_end.enter_context(subprocess.Popen([sys.executable, "-c", HEAD + body], env=environ, **how))
            at_end.callback(child.kill)
            return child

        yield start


@pytest.mark.long
@with_ranks
def test_two_interrupts(driver):
    body = """
pool = ranks(2)
print(pool.run(lambda comm: os.getpid()), flush=True)
try:
    pool.run(lambda comm: comm.emit() or time.sleep(60), on_event=lambda *_: print("go", flush=True))
except KeyboardInterrupt:
    pass
while True:
    try:
        print(pool.run(lambda comm: comm.rank), flush=True)
        break
    except KeyboardInterrupt:
        pass
"""
    child = driver(body, stderr=subprocess.DEVNULL)
    pids = json.loads(child.stdout.readline())
    child.stdout.readline()
    begin = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    time.sleep(0.005)
    os.kill(child.pid, signal.SIGINT)
    rest = child.stdout.read()
    assert rest.endswith("[0, 1]\n") and gone(pids) and time.monotonic() - begin < 5


# ---- rows 51, 53, 55: the kernel goes


@pytest.fixture
def kernel():
    """Starts Jupyter kernels; each one's client runs code and returns what it printed."""
    from jupyter_client.manager import start_new_kernel

    started = []

    def start(**how):
        manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT), **how)
        started.append((manager, client))

        def run(code) -> str:
            printed = []
            client.execute_interactive(code, timeout=60, output_hook=lambda m: printed.append(m["content"]))
            return "".join(
                content.get("text", "") + "\n".join(content.get("traceback", [])) for content in printed if content
            )

        return manager, client, run

    yield start
    for manager, client in started:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)


POOL = (
    "import os, hybridlab as hl\npool = hl.ranks(2, hang_s=1)\nprint([p for p in pool.run(lambda comm: os.getpid())])"
)


@pytest.mark.soak
@with_ranks
def test_a_restarted_kernel_leaves_nothing(kernel):
    manager, client, run = kernel()
    for now in (True, False):
        pids = json.loads(run(POOL))
        assert all(map(alive, pids))
        manager.restart_kernel(now=now)
        client.wait_for_ready(timeout=60)
        assert gone(pids)


SERVER = f"""
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
show = lambda message: print(message["content"].get("text", ""), end="", flush=True)
client.execute_interactive({POOL!r}, timeout=60, output_hook=show)
time.sleep(600)
"""


@pytest.mark.soak
@with_ranks
def test_a_kernel_without_its_server_leaves_nothing(driver):
    """A kernel looks now and then whether its server lives, and ends itself."""
    server = driver(SERVER)
    pids = json.loads(server.stdout.readline())
    assert all(map(alive, pids))
    server.kill()
    server.wait()
    end = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(alive, pids))


@pytest.mark.long
@with_ranks
@pytest.mark.notebooks
def test_in_a_notebook_a_fault_names_its_cell(kernel):
    _, _, run = kernel()
    run(POOL)
    told = run("def step(comm):\n    if comm.rank == 1:\n        1 / 0\n    comm.barrier()\npool.run(step)")
    assert "rank 1 failed: ZeroDivisionError: division by zero (cell [2]:3)" in told
    assert "ipykernel" not in told.partition("On rank 1:")[2]
    told = run("def other(comm):\n    if comm.rank == 0:\n        comm.barrier()\npool.run(other)")
    assert re.search(r"rank 1 has finished, and rank 0 waits in barrier #1 at cell \[3\]:3 without it", told)


@pytest.mark.soak
@with_ranks
def test_a_kernel_that_dies_while_ranks_start(driver, tmp_path):
    chance = random.Random(5)
    body = f"""
os.environ["TMPDIR"] = {str(tmp_path)!r}
print("go", flush=True)
pool = ranks(4)
while True:
    pool.run(lambda comm: comm.rank)
    pool.stop()
"""
    for _ in range(int(os.environ.get("FAULTS_REPEAT", "5"))):
        child = driver(body)
        child.stdout.readline()
        time.sleep(chance.uniform(0, 2.5))
        child.kill()
        child.wait()
        end = time.monotonic() + 4  # a zygote that imports torch notices at once
        while (left := of_session(child.pid) or with_folder(tmp_path)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left
        for folder in tmp_path.iterdir():
            shutil.rmtree(folder)


def of_session(pid) -> list[int]:
    """The living processes of a session."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _session(entry) == pid and alive(entry)]


def _session(pid) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    return -1


def with_folder(folder) -> list[int]:
    """The living processes that have this folder for temporary files."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.fsencode(f"TMPDIR={folder}") in pathlib.Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
    return [pid for pid in found if alive(pid)]


# ---- rows 59 to 65: sizes


@with_ranks
@pytest.mark.parametrize("size", [32, pytest.param(64, marks=pytest.mark.soak)])
def test_many_ranks_finish(size):
    def work(comm):
        x = torch.ones(2**18)
        for _ in range(3):
            comm.all_reduce(x.fill_(1))
        comm.recv(x, comm.rank - 1) if comm.rank else None
        comm.send(x, comm.rank + 1) if comm.rank < comm.size - 1 else None
        return x[0].item()

    with ranks(size) as pool:
        assert pool.run(work) == [size] * size


@with_ranks
def test_more_stages_than_layers_are_refused():
    with pytest.raises(ValueError, match="layers|stages"):
        hybridlab.check(mesh=Mesh(pp=32), schedule="gpipe")


@pytest.mark.soak
@with_ranks
@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_smallest_tensors(size):
    def work(comm):
        one, none = torch.ones(1, 1), torch.ones(0, 3)
        return comm.all_reduce(one).item(), comm.all_reduce(none).shape[0], tuple(comm.all_gather(none).shape)

    with ranks(size) as pool:
        assert pool.run(work) == [(size, 0, (0, 3))] * size


# ---- rows 75, 76, 88: the surroundings


@with_ranks
def test_without_a_place_to_write(driver, tmp_path):
    full = {"TMPDIR": "/no/such/place", "HOME": "/no/such/home"}
    child = driver("print(ranks(2).run(lambda comm: comm.rank))", full, cwd=tmp_path)
    assert child.stdout.read() == "[0, 1]\n"  # Python finds another folder


@pytest.mark.long
@with_ranks
def test_locale_c_and_another_alphabet(driver, tmp_path):
    place = tmp_path / "한국어 é"
    place.mkdir()
    surroundings = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TMPDIR": str(place)}
    child = driver("print(ranks(2).run(lambda comm: ascii(os.getcwd())))", surroundings, cwd=place)
    assert child.stdout.read() == f"{[ascii(str(place))] * 2}\n"


@pytest.mark.soak
@with_ranks
def test_without_a_network(driver):
    """In a network namespace of its own, with nothing but loopback."""
    program = "from hybridlab import ranks; print(ranks(2).run(lambda comm: comm.barrier() or comm.rank))"
    shell = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, program]
    done = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert not re.search("unshare|ip:", done.stderr), f"this test needs root, unshare and ip: {done.stderr}"
    assert done.stdout == "[0, 1]\n"


# ---- rows 78 to 82: output and time


@pytest.mark.long
@with_ranks
def test_a_flood_is_cut(pools, capsys):
    def flood(comm):
        if comm.rank == 0:
            for number in range(100_000):
                print("line", number, "of a flood")
            print("the end")

    begin = time.monotonic()
    pools().run(flood)
    shown = capsys.readouterr().out
    assert len(shown) < 2.5 * home.FLOOD * max(1, time.monotonic() - begin)
    assert "[rank 0] line 0 of a flood\n" in shown and re.search(r"\[rank 0\] \[cut: \d+ characters came faster", shown)


@pytest.mark.soak
@with_ranks
def test_a_gigabyte_is_cut(pools, capsys):
    pools().run(lambda comm: [print("x" * 10_000_000) for _ in range(100)] and None if comm.rank == 0 else None)
    shown = capsys.readouterr().out
    assert len(shown) < 1e5
    assert sum(map(int, re.findall(r"cut: (\d+) characters", shown))) >= 1e9


@with_ranks
def test_little_is_not_cut(pools, capsys):
    pools().run(lambda comm: print("y" * 1000))
    assert capsys.readouterr().out.count("y") == 4000


@with_ranks
def test_output_is_text(pools, capsys):
    text = "<b>é 한국어</b> \x1b[31mred\x1b[0m \t end"
    pools().run(lambda comm: print(text) if comm.rank == 1 else None)
    assert capsys.readouterr().out == f"[rank 1] {text}\n"


def test_no_time_of_day_decides():
    for file in (ROOT / "hybridlab" / "world").rglob("*.py"):
        assert not re.search(r"time\.time\(|datetime\.now|utcnow", file.read_text()), file.name


@pytest.mark.long
@with_ranks
def test_a_sleeping_machine_is_no_hang(driver):
    """The kernel, its zygote and its ranks all stop for longer than the limit, as when a laptop is closed."""
    body = f"""
pool = ranks(2, hang_s={HANG_S})
zygote, *pids = pool.run(lambda comm: (os.getppid(), os.getpid()))[0]
print([zygote, *pool.run(lambda comm: os.getpid())], flush=True)
def work(comm):
    if comm.rank == 0:
        for step in range(40):
            time.sleep(0.01)
            comm.emit() if step == 20 else None
    comm.barrier()
    return comm.rank
print(pool.run(work, on_event=lambda *_: print("go", flush=True)), flush=True)
"""
    child = driver(body)
    pids = json.loads(child.stdout.readline())
    child.stdout.readline()
    for pid in (every := [child.pid, *pids]):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2 * HANG_S)
    for pid in every:
        os.kill(pid, signal.SIGCONT)
    assert child.stdout.read() == "[0, 1]\n"


# ---- rows 83 to 85: functions


@with_ranks
def test_a_function_defined_again_is_the_new_one(pools):
    for answer in (1, 2):
        names = {}
        exec(f"def helper():\n    return {answer}\ndef step(comm):\n    return helper()", names)
        assert pools().run(names["step"]) == [answer] * 4


@with_ranks
def test_a_closure_that_cannot_travel_names_its_variable(pools):
    lock = threading.Lock()

    def step(comm):
        with lock:
            return comm.rank

    with pytest.raises(
        TypeError, match=r"^step cannot be sent .*: its variable lock is a _thread.lock \(.*make it inside"
    ):
        pools().run(step)
    with pytest.raises(TypeError, match="argument 1 is a _thread.lock"):
        pools().run(lambda comm, lock: None, lock)


@with_ranks
def test_a_huge_closure_is_told_with_its_size(pools, capsys):
    weights = np.zeros(15_000_000)

    def step(comm):
        return weights.nbytes

    assert pools().run(step) == [120_000_000] * 4
    assert (
        "step travels with 120 MB to each of 4 ranks, of which its variable weights has 120 MB"
        in capsys.readouterr().err
    )
    pools().run(lambda comm: None)
    assert capsys.readouterr().err == ""


# ---- pools


@with_ranks
def test_fresh_ranks_are_new_in_every_run():
    with ranks(2, start="fresh") as pool:
        first, second = (pool.run(lambda comm: os.getpid()) for _ in range(2))
        assert not set(first) & set(second) and gone(first)
    with pytest.raises(ValueError, match="start='hot' is not known: give 'kept' or 'fresh'"):
        ranks(2, start="hot")


@pytest.mark.long
@with_ranks
def test_a_package_that_has_changed_gets_a_new_parent(monkeypatch):
    from hybridlab.world.processes import handle

    parent, edition = lambda comm: os.getppid(), handle.edition()
    monkeypatch.setattr(handle, "edition", lambda: edition + 1)  # a parent without ranks that other tests keep
    with ranks(1) as old, ranks(1) as same:
        before = old.run(parent)
        assert same.run(parent) == before
        monkeypatch.setattr(handle, "edition", lambda: edition + 2)
        with ranks(1) as new:
            assert new.run(parent) != before and old.run(parent) == before
    assert gone(before)


@with_ranks
def test_an_interrupt_announces_what_is_lost(capsys):
    def interrupt(rank, event):
        raise KeyboardInterrupt

    with ranks(2) as pool:
        pids = pool.run(lambda comm: os.getpid())
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            pool.run(lambda comm: comm.emit() or time.sleep(60), on_event=interrupt)
        assert gone(pids) and time.monotonic() - begin < 2
        assert capsys.readouterr().err == "the former ranks have ended: what earlier runs left in them is gone\n"
        assert pool.run(lambda comm: comm.rank) == [0, 1]


@with_ranks
def test_ranks_that_were_replaced_between_runs_are_announced(capsys):
    with ranks(2) as pool:
        pids = pool.run(lambda comm: os.getpid())
        os.kill(pids[0], signal.SIGKILL)
        while pathlib.Path(f"/proc/{pids[0]}").exists():
            time.sleep(0.01)
        pool.run(lambda comm: comm.rank)
    assert capsys.readouterr().err == "the former ranks have ended: what earlier runs left in them is gone\n"


@pytest.mark.soak
@with_ranks
def test_many_runs_of_which_some_fail_leave_nothing():
    chance = random.Random(1)
    faults = [row.outcome for row in ROWS if isinstance(row.outcome, Run) and not row.outcome.hangs]
    faults = [outcome for outcome in faults if outcome.mesh == FOUR]
    with ranks(4, hang_s=HANG_S) as pool:
        pool.run(print)
        before = open_things()
        for number in range(50):
            if number % 10 == 9:
                outcome = chance.choice(faults)
                assert complaint(outcome, suffer(pool, outcome, (outcome.works or (None,))[0])) == ""
            else:
                pool.run(strikes.during, chance.choice(list(strikes.WORK)), builtins.print, hit=())
        pool.run(print)  # the last one failed
        assert open_things() == before


def open_things() -> tuple:
    """Descriptors and threads of this process, its children, and files of ours."""
    gc.collect()  # what earlier tests left lying
    children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "pid="], capture_output=True, text=True).stdout
    ours = [name for name in os.listdir("/dev/shm") if "hybridlab" in name]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(children.split()), ours


JUDGED = [  # exit code, what was said, who was struck, by what, his number; and what is wrong
    (1, "rank 2 was killed by SIGKILL before giving a result", "rank", "SIGKILL", [2], ""),
    (1, "rank 2 was killed by SIGKILL before giving a result", "rank", "SIGKILL", [1], "rank 1 is not named"),
    (1, "the parent process of the ranks has ended, and the ranks with it", "parent", "SIGKILL", [-1], ""),
    (1, "rank 0 failed", "parent", "SIGKILL", [-1], "the parent process of the ranks is not named"),
    (1, "Traceback (most recent call last)", "rank", "SIGTERM", [0], "a traceback"),
    (3, "", "driver", "SIGTERM", [-1], "ended with 3"),
    (1, "", "rank", "SIGABRT", [], "nobody was struck"),
    (0, "", "rank", "SIGSEGV", [0], ""),
]


@pytest.mark.parametrize("code, said, who, what, victims, wrong", JUDGED)
def test_what_a_struck_command_says_is_judged(code, said, who, what, victims, wrong):
    from faults.moments import judged

    found = judged(code, "", said, who, what, victims)
    assert found.startswith(wrong) and bool(found) == bool(wrong)
