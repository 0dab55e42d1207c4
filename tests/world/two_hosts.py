"""Two hosts on one machine: network namespaces with a name each, joined by a pair of virtual devices.

A link between them has a rate, and a delay if asked for, can be cut, and every process of a host can be found and
ended. Source: network_namespaces(7), veth(4), tc-tbf(8).
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from wire import UP

from hybridlab.world.processes import torchrun

ROOT = Path(__file__).parents[2]
PORT = 29500  # of the rendezvous: the namespace is new, so every port of it is free
RATE = "200mbit"
MTU = 16_000  # bytes: fewer packets for the wire to carry
OWN_NAMES = """
import os, socket, subprocess, sys
socket.sethostname(sys.argv[1])
for file, at in ((sys.argv[2], "/etc/hosts"), (os.devnull, "/etc/resolv.conf")):
    subprocess.run(["mount", "--bind", file, at], check=True)  # seen by this program only
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Host:
    """A network namespace: `name` of the host and of its namespace, `address` and `device` of its end of the link.

    folder  that hosts share: with the names of both, and what programs print
    """

    def __init__(self, name: str, address: str, device: str, folder: Path):
        self.name, self.address, self.device, self.folder = name, address, device, folder

    def start(self, *command: str, env: dict) -> subprocess.Popen:
        """A program on this host."""
        named = ["unshare", "--uts", "--mount", sys.executable, "-c", OWN_NAMES, self.name, self.folder / "hosts"]
        with open(self.folder / f"{self.name}.out", "w") as out, open(self.folder / f"{self.name}.err", "w") as err:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *named, *command], env=env, stdout=out, stderr=err
            )

    def told(self, what: str = "err") -> str:
        """What its last program has printed so far: "out" or "err"."""
        return (self.folder / f"{self.name}.{what}").read_text()

    def processes(self) -> list[int]:
        return list(map(int, _said("netns", "pids", self.name).split()))

    def die(self):
        """End all programs of this host at once."""
        while alive := list(filter(_alive, self.processes())):
            for process in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    def cut(self):
        """Cut the link at this end."""
        _said("-n", self.name, "link", "set", self.device, "down")

    def mend(self):
        """Undo `cut`."""
        _said("-n", self.name, "link", "set", self.device, "up")


@contextlib.contextmanager
def two_hosts(folder: Path, slow: tuple[float, float] | None = None):
    """Two linked hosts that share a folder; nothing of them is left behind but files there.

    slow  (seconds, bytes per second) of a link with a delay

    raises  OSError in one sentence where this system does not let this user have them
    """
    names, devices = ([f"{kind}{end}{os.getpid()}" for end in "ab"] for kind in ("hl-host-", "hl-"))
    hosts = [Host(name, f"10.213.0.{1 + n}", devices[n], folder) for n, name in enumerate(names)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in hosts))
    try:
        for name in names:
            _said("netns", "add", name)
        with _wired(hosts, *slow) if slow else _cabled(hosts):
            yield hosts
    finally:
        for host in hosts:
            with contextlib.suppress(OSError):
                host.die()
                _said("netns", "delete", host.name)  # its devices, and their other ends, go with it


@contextlib.contextmanager
def _cabled(hosts: list[Host]):
    """Both hosts with a pair of Ethernet devices between them, with the usual rate."""
    names, devices = [host.name for host in hosts], [host.device for host in hosts]
    _said("-n", names[0], "link", "add", devices[0], "type", "veth", "peer", "name", devices[1], "netns", names[1])
    for host in hosts:
        _up(host)
        limit = ["root", "tbf", "rate", RATE, "burst", "64kb", "latency", "50ms"]
        _done(["tc", "-n", host.name, "qdisc", "add", "dev", host.device, *limit])
    yield


@contextlib.contextmanager
def _wired(hosts: list[Host], delay: float, rate: float):
    """Both hosts with a slow wire between them."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise OSError("/dev/net/tun cannot be opened")
    program = [sys.executable, "-u", str(Path(__file__).parent / "wire.py"), *(host.device for host in hosts)]
    with subprocess.Popen([*program, str(delay), str(rate)], stdout=subprocess.PIPE, text=True) as wire:
        try:
            if next(iter(wire.stdout or ()), "").strip() != UP:
                raise OSError(f"{program[2]} has not made its devices")
            for host in hosts:
                _said("link", "set", host.device, "netns", host.name)
                _up(host, "mtu", str(MTU))
            yield
        finally:
            wire.kill()


def _up(host: Host, *more: str):
    """Give a host's device its address, and switch it on."""
    _said("-n", host.name, "address", "add", f"{host.address}/24", "dev", host.device)
    _said("-n", host.name, "link", "set", "lo", "up")
    _said("-n", host.name, "link", "set", host.device, *more, "up")


class Nodes:
    """A program under torchrun on both hosts, a node each, in a `with`: rank 0 is on the first host."""

    def __init__(self, hosts: list[Host], *program: str, each: int = 1):
        self.hosts = hosts
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0].name}:{PORT}", "--rdzv-id=two"]
        nodes = ["-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={each}", *meeting]
        environment = {key: value for key, value in os.environ.items() if key not in torchrun.VARIABLES}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
        interface = lambda host: {"GLOO_SOCKET_IFNAME": host.device}
        self.agents = [
            host.start(sys.executable, "-u", *nodes, *program, env=environment | interface(host)) for host in hosts
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.die()
        for agent in self.agents:
            agent.wait()

    def wait_for(self, host: Host, word: str, what: str = "err", seconds: float = 120):
        """Wait until a host has printed this word."""
        begin = time.monotonic()
        while word not in host.told(what):
            late = time.monotonic() - begin > seconds
            assert not late, f"{host.name} has not printed {word!r}: {host.told('out')}\n{host.told()}"
            time.sleep(0.05)

    def codes(self, seconds: float = 180) -> list[int]:
        """The exit codes of both nodes, when they have ended."""
        return [agent.wait(seconds) for agent in self.agents]


def _alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _said(*words: str) -> str:
    return _done(["ip", *words])


def _done(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
