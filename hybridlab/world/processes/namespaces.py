"""Linux namespaces that a user can have without root: a network, mounts, a process table.

With HYBRIDLAB_NETWORK=own ranks meet on a loopback of their own, which no other user of the machine reaches; nor do
they then reach anything else. Source: namespaces(7), user_namespaces(7).
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

USER, MOUNTS, PROCESSES, NETWORK, TALK = 0x10000000, 0x20000, 0x20000000, 0x40000000, 0x08000000  # CLONE_NEW…
HOST, GROUPS = 0x04000000, 0x02000000  # the host's name; groups of processes, cgroups
ASKED = "HYBRIDLAB_NETWORK"
SIOCSIFFLAGS, LO_UP = 0x8914, struct.pack("16sh", b"lo", 1)


def split(kinds: int) -> bool:
    """Step into namespaces of these kinds with the rights that this process has; False where these do not suffice."""
    return sys.platform == "linux" and not ctypes.CDLL(None, use_errno=True).unshare(kinds)


def own(kinds: int, called: int | None = None) -> bool:
    """Step into namespaces of these kinds; False where the system does not let users do so.

    the user's number inside, instead of its own; programs that begin there have no rights over it
    """
    if sys.platform != "linux":
        return False
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if user == 0 and called is None and not libc.unshare(kinds):  # root keeps its rights over files
        return True
    if libc.unshare(USER | kinds):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user if called is None else called} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group if called is None else called} {group} 1")
    return True


def open_loopback():
    """Let what is in this network talk to itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, LO_UP)


def own_network():
    """What HYBRIDLAB_NETWORK asks for.

    raises  SystemExit in one sentence where the system does not let users have it
    """
    asked = os.environ.get(ASKED, "shared")
    if asked not in ("own", "shared"):
        sys.exit(f"{ASKED}={asked} is not known: say own or shared")
    if asked == "own":
        if not own(NETWORK):
            sys.exit(f"{ASKED}=own: this system lets no user have a network of its own; leave it out, or ask its owner")
        open_loopback()


def possible() -> bool:
    """Whether this system lets this user have a network of its own; tried in a child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if own(NETWORK) else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
