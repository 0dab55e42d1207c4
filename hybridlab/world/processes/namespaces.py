"""Linux namespaces that a user can have without root: a network, mounts, a process table.

With HYBRIDLAB_NETWORK=own, ranks meet on a separate loopback, which no other user of the machine can reach; the ranks
then cannot reach any other network. Source: namespaces(7), user_namespaces(7).
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
    """Enter namespaces of these kinds with the rights of this process; False if they are not sufficient."""
    return sys.platform == "linux" and not ctypes.CDLL(None, use_errno=True).unshare(kinds)


def own(kinds: int, called: int | None = None) -> bool:
    """Enter namespaces of these kinds; False if the system does not allow it to users.

    called  the user ID inside, instead of the real one; programs started there have no rights over the namespaces
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
    """Enable the loopback of this network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, LO_UP)


def own_network():
    """Enter a separate network if HYBRIDLAB_NETWORK asks for it.

    raises  SystemExit with one sentence if the system does not allow it
    """
    asked = os.environ.get(ASKED, "shared")
    if asked not in ("own", "shared"):
        sys.exit(f"{ASKED}={asked} is not known: say own or shared")
    if asked == "own":
        if not own(NETWORK):
            sys.exit(f"{ASKED}=own: this system allows no user a separate network; leave it out, or ask its owner")
        open_loopback()


def possible() -> bool:
    """Whether this system allows this user a separate network; tested in a child process."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if own(NETWORK) else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
