"""The edges of the ranks: deaths at awkward moments, forged frames, floods, strays, and what is left behind."""

import contextlib
import copy
import json
import os
import pathlib
import pickle
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import types
from subprocess import PIPE

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from faults.suffer import alive
from few import first

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.processes import frames, gang
from hybridlab.world.processes.home import FLOOD, Lines
from hybridlab.world.processes.launch import RankError, ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ROOT = str(pathlib.Path(__file__).parents[2])
with_ranks = pytest.mark.ranks


@pytest.fixture(scope="module")
def two():
    """Two ranks for the whole file; a fault replaces them."""
    with ranks(2, timeout=20, hang_s=2) as pool:
        yield pool


def gone(pids, seconds=5.0) -> bool:
    """Whether all of these end soon."""
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


# ---- who dies when


@pytest.mark.long
@with_ranks
def test_when_the_last_rank_dies_too_its_folder_may_go_meanwhile(two):
    def both_die(comm):
        comm.barrier()
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(10):
        with pytest.raises(RankError, match="killed by SIGKILL"):
            two.run(both_die)


@pytest.mark.slow
@with_ranks
def test_a_rank_that_a_signal_without_a_name_kills_is_named(two):
    with pytest.raises(RankError, match="^all 2 ranks were killed by signal 40|^rank . was killed by signal 40"):
        two.run(lambda comm: os.kill(os.getpid(), 40))


ODD = {
    "timeout=-1 is not possible: give seconds above 0": {"timeout": -1},
    "timeout=inf is not possible: give seconds": {"timeout": float("inf")},
    "timeout=nan is not possible: give seconds": {"timeout": float("nan")},
    "hang_s=0 is not possible: give seconds": {"hang_s": 0},
    "hang_s=nan is not possible: give seconds": {"hang_s": float("nan")},
    "ranks takes groups as .*, not 3, an int": {"groups": 3},
    "ranks takes on_event as .*, not 3, an int": {"on_event": 3},
}


@pytest.mark.parametrize("says", ODD)
def test_odd_settings_of_a_pool_are_refused_before_a_rank_starts(says):
    with pytest.raises(ValueError, match=says):
        ranks(2, **ODD[says])


@pytest.mark.slow
@with_ranks
def test_a_pool_is_not_copied_and_runs_functions_only(two):
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="belong to the process that started them: open another"):
            copied(two)
    with pytest.raises(TypeError, match="run takes a function, not None: give one"):
        two.run(None)


@pytest.mark.slow
def test_a_group_may_be_one_axis():
    with ranks(Mesh(dp=2), groups=["dp"]) as pool:
        assert pool.run(lambda comm: comm.rank) == [0, 1]


@pytest.mark.slow
def test_a_pool_that_another_thread_stops_says_so():
    with ranks(2) as pool, pytest.raises(RankError, match="were stopped while they ran a function: call stop"):
        pool.run(lambda comm: comm.rank)
        threading.Timer(0.5, pool.stop).start()
        pool.run(lambda comm: time.sleep(20))


@pytest.mark.slow
def test_who_ends_a_gang_waits_until_every_rank_has_hung_up():
    """A hang-up is told again and again: of one rank, it must not count for the others."""
    mine, theirs = zip(*(socket.socketpair() for _ in range(3)))
    begin = time.monotonic()
    for late, end in enumerate(theirs):
        threading.Timer(0.1 * late, end.close).start()
    gang.Gang._await_hang_ups(types.SimpleNamespace(_socks=mine))
    assert 0.2 <= time.monotonic() - begin < gang.END_SECONDS and all(end.fileno() < 0 for end in theirs)
    for end in mine:
        end.close()


@pytest.mark.long
@with_ranks
def test_what_is_foreseen_their_parent_imports_for_all_ranks_before_they_start(monkeypatch):
    from hybridlab.world.processes import handle, launch

    fresh = handle.Handle()
    for module in (gang, launch):
        monkeypatch.setattr(module, "ZYGOTE", fresh)
    try:
        launch.foresee("antigravity")  # of somebody else: it stays out
        launch.foresee("hybridlab.training.check")
        with ranks(2) as pool:
            names = "hybridlab.training.check", "torch._dynamo", "antigravity"
            told = pool.run(lambda comm: [name in sys.modules for name in names])
        assert told == [[True, True, False]] * 2
    finally:
        fresh.close()


IMPORTING = """
    import os, signal, socket, sys, time
    from hybridlab.world.processes import launch, rank, zygote

    class Slow(zygote.Zygote):  # a parent whose imports take eight seconds, as on a machine with other work
        def warm_up(self):
            print("importing", flush=True)
            self.bring_in("hybridlab.world.devices.surroundings")
            end = time.monotonic() + 8
            with self.busy():
                while time.monotonic() < end:
                    pass
            self.warm = True

    Slow(socket.socket(fileno=int(sys.argv[1])), rank.live).serve()
"""
"""As `zygote.main`, but slow."""


@pytest.mark.long
@with_ranks
def test_a_rank_killed_while_its_parent_imports_is_the_one_that_is_blamed(tmp_path, monkeypatch):
    """What the parent is busy with keeps it from nothing: it tells of the death at once."""
    from hybridlab.world.processes import handle

    monkeypatch.setattr(handle, "COMMAND", ("-c", textwrap.dedent(IMPORTING)))
    fresh = handle.Handle()
    monkeypatch.setattr("hybridlab.world.processes.gang.ZYGOTE", fresh)

    def die(comm):
        time.sleep(1)  # until the parent is busy
        if comm.rank == 1:
            comm.emit(at=time.monotonic())
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    moments = []
    try:
        with ranks(3) as pool, pytest.raises(RankError, match="^rank 1 was killed by SIGKILL"):
            pool.run(die, on_event=lambda rank, event: moments.append(event["at"]))
        assert time.monotonic() - moments[0] < 4
    finally:
        fresh.close()


STRUCK = """
    import os, signal, socket, sys
    from hybridlab.world.processes import rank, zygote

    class Struck(zygote.Zygote):
        def introduce(self, pool):
            os.kill(os.getpid(), signal.SIGKILL)

    Struck(socket.socket(fileno=int(sys.argv[1])), rank.live).serve()
"""
"""As `zygote.main`, but killed when the folder is made, the ranks are there, and nobody has been told."""


@pytest.mark.long
@with_ranks
def test_a_parent_killed_before_it_says_who_the_ranks_are_leaves_no_folder(tmp_path, monkeypatch):
    from hybridlab.world.processes import handle

    monkeypatch.setattr(handle, "COMMAND", ("-c", textwrap.dedent(STRUCK)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fresh = handle.Handle()
    monkeypatch.setattr("hybridlab.world.processes.gang.ZYGOTE", fresh)
    try:
        with pytest.raises(RankError, match="the parent process of the ranks has ended"), ranks(2) as pool:
            pool.run(lambda comm: comm.rank)
    finally:
        fresh.close()
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("hybridlab-")]


@with_ranks
def test_a_rank_that_is_stopped_before_it_has_met_the_others_is_named(monkeypatch):
    """The others wait in what opens the first group, where nothing is announced yet."""
    right = gang.Gang._read_line

    def read(gang):
        yield from right(gang)
        for pid in list(gang.pids.values())[2:3]:
            os.kill(pid, signal.SIGSTOP)  # whom its parent has just introduced

    monkeypatch.setattr(gang.Gang, "_read_line", read)
    begin = time.monotonic()
    with (
        ranks(4, hang_s=1.0) as pool,
        pytest.raises(RankError, match="^the ranks do not meet: rank 2 is stopped") as how,
    ):
        pool.run(lambda comm: comm.barrier())
    assert how.value.rank == 2 and how.value.kind == "hang" and time.monotonic() - begin < 8


@with_ranks
@pytest.mark.parametrize("count", [1, 2])
def test_a_rank_that_is_stopped_while_nobody_waits_for_it_is_named(count):
    """The reference of a check is one rank; and ranks need not talk."""

    def stop(comm):
        if comm.rank == comm.size - 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    begin = time.monotonic()
    said = rf"^rank {count - 1} is stopped .* hang_s; "
    with ranks(count, hang_s=1.0) as pool, pytest.raises(RankError, match=said) as how:
        pool.run(stop)
    assert how.value.rank == count - 1 and how.value.kind == "hang" and 1 < time.monotonic() - begin < 5


@with_ranks
def test_a_rank_that_goes_on_in_time_is_left_alone():
    """Stopped twice, each time for less than hang_s: what counts begins again."""

    def rest(comm):
        for _ in range(2):
            waker = subprocess.Popen(["sh", "-c", f"sleep 0.7; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            waker.wait()
            time.sleep(0.2)
        return comm.rank

    with ranks(1, hang_s=1.0) as pool:
        assert pool.run(rest) == [0]


@pytest.mark.long
@with_ranks
def test_a_parent_of_ranks_leaves_while_it_imports_when_its_kernel_has_ended(monkeypatch, capfd):
    """What the parent is busy with keeps it from nothing: it ends its ranks and goes, eight seconds before it is ready.

    Of a kernel that has ended, the other side of a socket is what a parent sees; here it is closed."""
    from hybridlab.world.processes import handle

    monkeypatch.setattr(handle, "COMMAND", ("-c", textwrap.dedent(IMPORTING)))
    fresh = handle.Handle()
    monkeypatch.setattr("hybridlab.world.processes.gang.ZYGOTE", fresh)
    with ranks(4) as pool:
        pids = pool.run(lambda comm: (time.sleep(1), os.getpid())[1])  # until the parent is busy
        begin = time.monotonic()
        fresh.close()
        took = time.monotonic() - begin
    assert took < 3 and not any(map(alive, pids)) and not capfd.readouterr().err


@pytest.mark.long
@with_ranks
def test_a_parent_that_may_not_write_where_torch_compiles_to_lives_on(monkeypatch):
    """Importing what optimizers need makes that folder; the parent of ranks does so when nothing is asked of it."""
    from hybridlab.world.processes import handle

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/nowhere")
    fresh = handle.Handle()
    monkeypatch.setattr("hybridlab.world.processes.gang.ZYGOTE", fresh)
    try:
        with ranks(2) as pool:
            assert pool.run(lambda comm: time.sleep(4)) == [None, None]
    finally:
        fresh.close()


@with_ranks
def test_a_number_that_another_process_has_meanwhile_is_not_killed(two, monkeypatch):
    """A rank died between two runs; its pid may be anybody's by now."""
    pid = two.run(lambda comm: os.getpid())[1]
    os.kill(pid, signal.SIGKILL)
    while pathlib.Path(f"/proc/{pid}").exists():  # until its parent has collected it
        time.sleep(0.001)
    hit = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda pid, sign: hit.append(pid))
    two.stop()
    assert pid not in hit


# ---- what a rank says


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8),
        lambda: torch.ones(2, dtype=torch.complex64).to("meta"),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_whose_bytes_are_not_all_they_are_are_refused(make):
    x = make()
    with pytest.raises(TypeError, match="a rank can return only"):
        frames.encode([x])


FORGED = [
    ({"array": ["O", [2], 0]}, 16),
    ({"scalar": ["|O", [], 0]}, 8),
    ({"array": [[["a", "O"]], [1], 0]}, 8),
    ({"array": ["<f8", [1000], 0]}, 8),
    ({"array": ["<f8", [-1], 0]}, 8),
    ({"tensor": ["quint8", [8], 0]}, 8),
    ({"tensor": ["load", [8], 0]}, 8),
    ({"tensor": ["float32", [2**40], 0]}, 8),
    ({"tensor": ["float32", [2], 7]}, 8),
    ({"tensor": ["float32", "2", 0]}, 8),
    ({"object": [1, 2, 3]}, 8),
    ({"tuple": [], "dict": []}, 8),
    ({"dict": [[{"dict": []}, 1]]}, 8),
    ({"array": 7}, 8),
]


@pytest.mark.parametrize("tree, size", FORGED)
def test_a_forged_value_is_refused_before_its_memory_is_looked_at(tree, size):
    with pytest.raises(frames.Garbled):
        frames.decode(tree, [bytearray(size)])


HEADS = [b"[1,2", b"[]", b'["result", null, [-5], 1]', b'["result", null, [1e3], 1]', b'{"a": 1}', b"\xff\xfe"]
HEADS += [b'["result", null, [99999999999999], 1]', b"[7, null, [], 1]", b'["result", null, "12", 1]', b"[" * 9999]
HEADS += [b'["result", null, [], "1"]', b'["result", null, []]']


@pytest.mark.parametrize("head", HEADS)
def test_a_garbled_head_is_no_frame(head):
    near, far = socket.socketpair()
    with near, far:
        near.sendall(len(head).to_bytes(4, "big") + head)
        with pytest.raises(frames.Garbled):
            frames.Inbox(far).poll()


@with_ranks
def test_a_rank_that_garbles_the_wire_is_named(two):
    def forge(comm, raw):
        if comm.rank == 1:
            home = next(x for x in gc_objects() if type(x).__name__ == "Home")
            home._sock.sendall(raw)
            time.sleep(30)
        comm.barrier()

    def gc_objects():
        import gc

        return gc.get_objects()

    head = json.dumps(["result", {"array": ["O", [1], 0]}, [8], 0]).encode()
    for raw in (b"\xff\xff\xff\xff", len(head).to_bytes(4, "big") + head + b"\x41" * 8, b"\0\0\0\2{}"):
        with pytest.raises(RankError, match="^rank 1 ") as caught:
            two.run(forge, raw)
        assert caught.value.rank == 1


@with_ranks
def test_a_forked_child_that_returns_says_nothing_for_its_rank(two):
    def forked(comm):
        if os.fork() == 0:
            time.sleep(0.2)
            return "a child's"
        return "its own"

    def libc(comm):
        import ctypes

        if ctypes.CDLL(None).fork() == 0:  # Python does not hear of it
            time.sleep(0.1)
            return "a child's"
        return "its own"

    for function in (forked, libc):
        assert two.run(function) == ["its own"] * 2
        assert two.run(lambda comm: time.sleep(0.5) or comm.rank) == [0, 1]
        assert two.run(lambda comm: comm.rank) == [0, 1]


# ---- floods


class Nobody:
    forked = False

    def __init__(self):
        self.said = []

    def send(self, kind, tree):
        self.said.append(tree[1])


@pytest.mark.slow
def test_a_progress_bar_of_a_million_steps_takes_as_long_as_its_letters():
    home = Nobody()
    out, begin = Lines("stderr", home), time.process_time()
    for step in range(300_000):
        out.write(f"\r{step} of 300000")
    assert time.process_time() - begin < 3
    out.finish()
    assert home.said[-1] == "299999 of 300000" or "cut" in home.said[-1]


def test_a_line_written_in_a_million_pieces_is_quick_and_whole():
    home = Nobody()
    out, begin = Lines("stdout", home), time.process_time()
    for _ in range(3000):
        out.write("x")
    out.write("\n\rover\rwritten\r\n")
    assert time.process_time() - begin < 1
    assert home.said == ["x" * 3000, "written"]


@with_ranks
def test_what_c_code_prints_is_told_by_rank_and_cut_like_the_rest(two, capfd):
    def speak(comm):
        if comm.rank == 1:
            os.write(1, b"[Gloo] Rank 1 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n")
            os.write(1, b"said by C\n")
            subprocess.run(["echo", "said by a child"])

    two.run(speak)
    assert capfd.readouterr().out == "[rank 1] said by C\n[rank 1] said by a child\n"


@pytest.mark.long
@with_ranks
def test_floods_past_python_are_cut(two, capfd):
    def flood(comm):
        for _ in range(200):
            os.write(1, b"y\n" * 50_000)
            os.write(2, b"z\n" * 50_000)
        return os.fstat(2).st_size

    sizes = two.run(flood)
    assert len(capfd.readouterr().out) < 30 * FLOOD and max(sizes) < 20_000_000
    with pytest.raises(RankError) as caught:
        two.run(lambda comm: [os.write(2, b"w" * 3_000_000), time.sleep(0.5), os.abort()])
    assert len(caught.value.traceback_text) < 100_000


@pytest.mark.long
@with_ranks
def test_a_long_exception_is_shortened(two):
    with pytest.raises(RankError, match=r"^(all 2 ranks|rank \d) failed: ValueError: xxxx") as caught:
        two.run(lambda comm: exec('raise ValueError("x" * 200_000_000)'))
    assert len(str(caught.value)) < 2000 and len(caught.value.message) < 20_000


# ---- strays


STARTERS = {
    "a session of its own": "subprocess.Popen(['sleep', '611'], start_new_session=True)",
    "a double fork": "os.fork() or (os.setsid(), os.fork() or os.execvp('sleep', ['sleep', '611']), os._exit(0))",
    "a shell's": "os.system('setsid sleep 611 & setsid setsid sleep 611 &')",
}


def sleepers() -> list[int]:
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{entry}/cmdline").read_bytes() == b"sleep\x00611\x00":
                found.append(int(entry))
    return [pid for pid in found if alive(pid)]


@pytest.mark.long
@with_ranks
@pytest.mark.parametrize("how", STARTERS)
@pytest.mark.parametrize("end", ["stop", "a death", pytest.param("the parent's death", marks=pytest.mark.long)])
def test_whatever_a_rank_has_started_goes_with_it(how, end):
    def start(comm, code):
        exec(code, {"os": os, "subprocess": subprocess})
        time.sleep(0.2)
        return os.getppid()

    with ranks(2) as pool:
        zygote = pool.run(start, STARTERS[how])[0]
        if not (pids := sleepers()):
            pytest.fail("nothing was started")
        if end == "a death":
            with pytest.raises(RankError):
                pool.run(lambda comm: comm.rank == 1 and os.kill(os.getpid(), signal.SIGKILL))
        if end == "the parent's death":
            os.kill(zygote, signal.SIGKILL)
    try:
        assert gone(pids)
    finally:
        for pid in sleepers():
            os.kill(pid, signal.SIGKILL)


# ---- surroundings


HEAD = "import os, sys, time\nfrom hybridlab.world.processes.launch import RankError, ranks\n"


@pytest.fixture
def driver():
    """Starts another Python, in a session of its own, that runs these lines; it ends with the test."""
    with contextlib.ExitStack() as at_end:

        def start(body, *flags, environ=(), before="", **how) -> subprocess.Popen:
            how = {"cwd": ROOT, "start_new_session": True, "stdout": PIPE, "stderr": PIPE} | how
            environ = {**os.environ, "PYTHONPATH": ROOT, **dict(environ)}
            command = [sys.executable, *flags, "-c", HEAD + body]
            if before:
                command = ["sh", "-c", f'{before}; exec "$@"', "sh", *command]
            child = at_end.enter_context(subprocess.Popen(command, env=environ, **how))
            at_end.callback(child.kill)
            return child

        yield start


@with_ranks
@pytest.mark.long
def test_a_driver_killed_while_it_starts_leaves_no_folder(driver, tmp_path):
    chance = random.Random(7)
    body = "while True:\n    with ranks(8) as pool: pool.run(lambda comm: comm.rank)\n"
    for _ in range(12):
        child = driver(body, environ={"TMPDIR": str(tmp_path)})
        time.sleep(chance.uniform(0.05, 3))
        child.kill()
        child.wait()
        end = time.monotonic() + 10
        while os.listdir(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        assert os.listdir(tmp_path) == []


SUM = """
def work(comm):
    import torch
    return comm.all_reduce(torch.ones(3)).sum().item()
print(ranks(2).run(work))
"""
FOREIGN = {"LOCAL_RANK": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"}
SURROUNDINGS = {
    "-O": {"flags": ["-O"]},
    "-OO": {"flags": ["-OO"]},
    "of another launcher": {"environ": FOREIGN},
    "of Slurm": {"environ": {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "RANK": "x", "WORLD_SIZE": ""}},
    "PYTHONOPTIMIZE": {"environ": {"PYTHONOPTIMIZE": "2"}},
    "few files": {"before": "ulimit -n 64"},
    "a relative TMPDIR": {"environ": {"TMPDIR": "build/../tests"}},
    "a TMPDIR that is no text": {"environ": {"TMPDIR": b"/tmp/hybridlab-\xff\xfe"}},
    "no core, small stack": {"before": "ulimit -c 0; ulimit -s 1024"},
}


@pytest.mark.long
@with_ranks
@pytest.mark.parametrize(
    "which", [pytest.param(one, marks=() if one == "-OO" else pytest.mark.long) for one in SURROUNDINGS]
)
def test_ranks_run_in_any_surroundings(driver, which):
    given = dict(SURROUNDINGS[which])
    if place := given.get("environ", {}).get("TMPDIR") if which.endswith("no text") else None:
        os.makedirs(place, exist_ok=True)
    child = driver(SUM, *given.pop("flags", ()), **given)
    out, err = child.communicate(timeout=60)
    assert (out, child.returncode) == (b"[6.0, 6.0]\n", 0), err
    if place:
        assert os.listdir(place) == []
        os.rmdir(place)


@with_ranks
@pytest.mark.long
def test_one_of_many_processes_without_torchrun_is_refused(driver):
    child = driver(SUM, environ=FOREIGN | {"RANK": "7", "WORLD_SIZE": "9"})
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1 and b"each of 9 processes would train alone: start them with torchrun, or unset" in err


@with_ranks
@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts folders that are full or read-only, as root alone may")
def test_ranks_run_without_shared_memory_and_with_a_full_temporary_folder(driver, tmp_path):
    mounts = f"mount -t tmpfs -o ro,size=4k none /dev/shm; mount -t tmpfs -o size=64k none {tmp_path}"
    body = f"import ctypes; ctypes.CDLL(None).unshare(0x20000); os.system('mount --make-rprivate /; {mounts}')\n"
    child = driver(body + SUM, environ={"TMPDIR": str(tmp_path)})
    out, err = child.communicate(timeout=60)
    assert (out, child.returncode) == (b"[6.0, 6.0]\n", 0), err


# ---- a student's own torch.distributed


def raw_all_reduce(comm):
    for step in range(5):
        if step == 3 and comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(3))


def raw_ddp(comm):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for step in range(5):
        if step == 3 and comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(2, 4)).sum().backward()


def raw_batch(comm):
    for step in range(5):
        if step == 3 and comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        other = 1 - comm.rank
        both = [dist.P2POp(dist.isend, torch.ones(3), other), dist.P2POp(dist.irecv, torch.ones(3), other)]
        for message in dist.batch_isend_irecv(both):
            message.wait()


@with_ranks
@pytest.mark.parametrize("work", first(1, [raw_all_reduce, raw_ddp, raw_batch]))
def test_who_died_in_plain_torch_is_named_with_its_place(two, work):
    with pytest.raises(RankError, match="^rank 1 was killed by SIGKILL before giving a result") as caught:
        two.run(work)
    assert caught.value.rank == 1


def raw_alone(comm):
    if comm.rank == 1:
        time.sleep(60)
    dist.all_reduce(torch.ones(3))


@pytest.mark.long
@with_ranks
def test_who_waits_for_whom_in_plain_torch_is_told_with_the_line(two):
    line = raw_alone.__code__.co_firstlineno + 3
    says = (
        rf"^no progress for 2 s: rank 0 waits in all_reduce .* at test_edges.py:{line}; rank 1 is at work in raw_alone"
    )
    with pytest.raises(RankError, match=says):
        two.run(raw_alone)


# ---- the command line is interrupted


@with_ranks
@pytest.mark.long
@pytest.mark.parametrize("line", ["check --pp 2 --steps 500", "train --pp 2 --steps 5000", "run --F 0.5 --steps 50"])
def test_an_interrupt_ends_a_command_in_one_line(line):
    command = [sys.executable, "-m", "hybridlab", *line.split()]
    child = subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, start_new_session=True, text=True)
    time.sleep(6)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=10)
    assert (child.returncode, said) == (130, f"hybridlab {line.split()[0]}: interrupted\n")


@with_ranks
@pytest.mark.long
def test_sigterm_saves_what_was_trained(tmp_path):
    command = f"-m hybridlab train --pp 2 --steps 100000 --checkpoint {tmp_path} --json"
    child = subprocess.Popen([sys.executable, *command.split()], cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True)
    child.stdout.readline()
    child.terminate()
    out, said = child.communicate(timeout=20)
    assert child.returncode == 130 and json.loads(out.splitlines()[-1])["end"] > 0, said
    assert list(tmp_path.iterdir())


@with_ranks
@pytest.mark.long
def test_a_check_leaves_its_temporary_folder_as_it_was(tmp_path):
    command = [sys.executable, *"-m hybridlab check --pp 2 --optimizer adamw".split()]
    subprocess.run(command, cwd=ROOT, stdout=PIPE, check=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert os.listdir(tmp_path) == []
