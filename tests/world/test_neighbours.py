"""Neighbours: another user of the same machine, at every listener of a running pool."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time

import cloudpickle
import pytest
import torch

from hybridlab.measuring import doctor
from hybridlab.world.processes import handle, namespaces
from hybridlab.world.processes.launch import ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.ranks

ATTACK = """
import encodings.idna, os, random, socket, struct, sys, time
os.setgid(65534), os.setuid(65534)
chance, held, last = random.Random(3), [], b""
end, ports, read = time.monotonic() + float(sys.argv[1]), [int(one) for one in sys.argv[2:]], 0

def message(count):
    pair = struct.pack("<q", count // 5 % 16)  # which pair it is: a gloo listener reads no more of a connection
    tensor = bytes(400)
    header = struct.pack("<6Q", 48 + len(tensor), 1, 0, 0, len(tensor), 0)  # length, kind, slot, offset, length, offset
    kinds = chance.randbytes(chance.randint(1, 5000)), pair, b"", pair + header + tensor, last
    return kinds[count % 5]

count = 0
while time.monotonic() < end:
    for port in ports:
        try:
            s = socket.create_connection(("127.0.0.1", port), 0.2)
            last = message(count)
            s.sendall(last)
            s.setblocking(False)
            if count % 5 == 2: s.close()
            elif len(held) < 4000: held.append(s)
            count += 1
        except OSError:
            pass
for s in held:
    try: read += len(s.recv(100))
    except OSError: pass
print(count, read, flush=True)
"""


@pytest.fixture
def fresh(monkeypatch):
    """A parent of ranks of this test's own."""
    one = handle.Handle()
    monkeypatch.setattr("hybridlab.world.processes.gang.ZYGOTE", one)
    yield one
    one.close()


def sums(comm, seconds):
    """Sums for so long; whether each was right, and how many."""
    end, right, number = time.monotonic() + seconds, True, 0
    while comm.all_reduce(torch.tensor([float(time.monotonic() < end)]), op="min").item():
        number += 1
        right &= comm.all_reduce(torch.full((100,), float(comm.rank))).sum().item() == 100 * sum(range(comm.size))
    return right, number


def listening(comm):
    """The ports on which this rank listens."""
    mine = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the list itself
            mine.add(os.readlink(f"/proc/self/fd/{fd}"))
    lines = [line.split() for line in open("/proc/self/net/tcp").read().splitlines()[1:]]
    return [int(one[1].partition(":")[2], 16) for one in lines if one[3] == "0A" and f"socket:[{one[9]}]" in mine]


def attacked(seconds, ports):
    command = [sys.executable, "-c", ATTACK, str(seconds), *map(str, ports)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user of this machine, as root alone may")
def test_another_user_at_every_listener_changes_nothing_and_reads_nothing(fresh):
    """Of ranks that have met: in the very moment in which they meet, a network of their own alone keeps others out."""
    with ranks(4, timeout=30) as pool:
        ports = sum(pool.run(listening), [])
        child = attacked(8, ports)
        told = pool.run(sums, 6)
    count, read = map(int, child.communicate()[0].split())
    assert ports and count >= 1000 and read == 0
    assert all(right and number > 100 for right, number in told)


@pytest.mark.long
@pytest.mark.skipif(
    not namespaces.possible(), reason="here HYBRIDLAB_NETWORK=own ends in a sentence: no user namespaces"
)
def test_a_network_of_their_own_is_out_of_reach_and_leaves_the_sums_as_they_are(fresh, monkeypatch):
    monkeypatch.setenv(namespaces.ASKED, "own")
    mine = os.readlink("/proc/self/ns/net")

    def where(comm):
        return os.readlink("/proc/self/ns/net"), sums(comm, 0.2)[0], os.getuid()

    with ranks(2) as pool:
        (one, right, user), (other, *_) = pool.run(where)
    assert one == other != mine and right and user == os.getuid()


def test_an_unknown_wish_for_a_network_is_told(fresh, monkeypatch, capfd):
    monkeypatch.setenv(namespaces.ASKED, "none")
    with pytest.raises(RuntimeError), ranks(2) as pool:
        pool.run(print)
    assert "HYBRIDLAB_NETWORK=none is not known: say own or shared" in capfd.readouterr().err


def test_the_doctor_says_what_keeps_neighbours_out(monkeypatch):
    facts = {name: 0 for name in ("missing packages", "open files allowed")} | {"other users": 2}
    assert doctor.neighbours() in (doctor.CAN_BE_CLOSED, doctor.OPEN)
    monkeypatch.setenv(namespaces.ASKED, "own")
    assert doctor.neighbours() == doctor.OWN
    told = [
        sentence
        for wrong, sentence in doctor.ADVICE[-3:-1]
        for state in (doctor.OWN, doctor.CAN_BE_CLOSED)
        if wrong(facts | {"neighbours": state})
    ]
    assert len(told) == 1 and "HYBRIDLAB_NETWORK=own" in told[0]


def test_files_of_ranks_are_for_their_user_alone(fresh):
    def modes(comm):
        folder = pathlib.Path(os.environ[handle.MARK])
        return str(folder), folder.stat().st_mode & 0o777

    with ranks(2) as pool:
        (folder, mode), _ = pool.run(modes)
        assert mode == 0o700 and len(pathlib.Path(folder).name) >= len("hybridlab-") + 8
    assert not os.path.exists(folder)
