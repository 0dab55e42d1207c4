"""Every notebook from a clean kernel, in a copied folder, with the network off; writes figures.

    python tests/offline.py [--only 11_gpipe] [--out results/notebooks.json]

Off means: where the system lets a user have a network of their own (unshare), the kernels and everything they start
live in one that has nothing but loopback. Elsewhere each Python process refuses, by an audit hook, to look up or to
connect to anything but this machine; what is no Python (gloo) is then not held, and the figures say so.
"""

import argparse
import fcntl
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
WAYS = {"namespace": "a network namespace with loopback alone", "hook": "an audit hook in each Python process"}
INSIDE = "HYBRIDLAB_OFFLINE"  # which of these ways this process and its children live in
FAR = ("192.0.2.1", 9)  # an address that is kept for examples: nobody has it
GUARD = """
import ipaddress, sys

def _near(host):
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    try:
        one = ipaddress.ip_address(name)
    except ValueError:
        return False
    return one.is_loopback or one.is_unspecified

def _guard(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        where = arguments[1]
        if isinstance(where, tuple) and not _near(where[0]):
            raise OSError(f"the network is off: {where}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and not _near(arguments[0]):
        raise OSError(f"the network is off: {arguments[0]}")

sys.addaudithook(_guard)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="STEM", help="one notebook, such as 11_gpipe")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "notebooks.json")
    parser.add_argument("--way", choices=WAYS, help="how the network is cut off; default: the best that works here")
    chosen = parser.parse_args()
    if INSIDE not in os.environ:
        sys.exit(_again(chosen.way or ("namespace" if _separable() else "hook")))
    way = os.environ[INSIDE]
    if way == "namespace":
        _loopback_up()
    _must_be_off()
    print(f"The network is off: {WAYS[way]}.", flush=True)
    paths = sorted((ROOT / "notebooks").glob(f"{chosen.only or '*'}.ipynb"))
    if not paths:
        sys.exit(f"There is no notebook {chosen.only!r}: name one without its ending, such as 11_gpipe.")
    told = all_of(paths)
    chosen.out.write_text(json.dumps(_record(told, way), indent=1, ensure_ascii=False) + "\n")
    failed = [name for name, one in told.items() if one["error"]]
    print(f"{len(told)} notebooks, {len(failed)} with an error, {sum(one['seconds'] for one in told.values()):.0f} s")
    sys.exit(1 if failed else 0)


def all_of(paths) -> dict[str, dict]:
    """{notebook: seconds, and what went wrong or ""}; each in a kernel of its own, all in one copied folder."""
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = shutil.copytree(paths[0].parent, pathlib.Path(folder) / "notebooks")
        for path in paths:
            told[path.stem] = ran(folder / path.name)
            error = told[path.stem]["error"]
            print(f"{path.stem:16} {told[path.stem]['seconds']:6.1f} s  {error or 'no error'}", flush=True)
    return told


def ran(path: pathlib.Path) -> dict:
    """One notebook from top to bottom in a fresh kernel."""
    import nbformat
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    from hybridlab.measuring.course_suite import execute

    begin, error = time.monotonic(), ""
    try:
        execute(nbformat.read(path, as_version=4), path.parent)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as wrong:
        error = str(wrong)
    return {"seconds": round(time.monotonic() - begin, 1), "error": error}


def _record(told, way):
    from hybridlab.training.run import provenance

    machine = provenance() | {"load": round(os.getloadavg()[2], 1)}
    return {"command": "python tests/offline.py", "network": WAYS[way], "machine": machine, "notebooks": told}


def _separable() -> bool:
    """Whether a user may have a network of their own here."""
    if not shutil.which(NAMESPACE[0]):
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


def _again(way) -> int:
    """This script once more, with the network off; its exit status."""
    with tempfile.TemporaryDirectory() as guard:
        more = {INSIDE: way, "HYBRIDLAB_PROGRESS": "off"}
        if way == "hook":
            (pathlib.Path(guard) / "sitecustomize.py").write_text(GUARD)
            more["PYTHONPATH"] = os.pathsep.join(filter(None, [guard, os.environ.get("PYTHONPATH")]))
        before = NAMESPACE if way == "namespace" else ()
        return subprocess.run([*before, sys.executable, *sys.argv], env=os.environ | more).returncode


def _loopback_up():
    """A new namespace has a loopback that is down: `ip link set lo up`, where there may be no `ip`."""
    get, put, up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_one:
        name, flags = struct.unpack("16sH14x", fcntl.ioctl(any_one, get, struct.pack("16sH14x", b"lo", 0)))
        fcntl.ioctl(any_one, put, struct.pack("16sH14x", name, flags | up))


def _must_be_off():
    """Raises RuntimeError where something beyond this machine can be reached, or this machine itself cannot."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(FAR)  # sends nothing; asks for a way there
        except OSError:
            pass
        else:
            raise RuntimeError(f"the network is not off: there is a way to {FAR[0]}")
    with socket.create_server(("127.0.0.1", 0)) as here, socket.create_connection(here.getsockname(), timeout=5):
        pass


if __name__ == "__main__":
    main()
