"""A separate root: a tree of folders with only the files that a submission's Python needs, read-only.

A process in it sees the system's programs and libraries, this Python, this package without its solutions, a few
devices, and its own processes, but nothing else of the machine. It can write into /room, which is also its /tmp, and
into /dev/shm; they are removed with it. Linux only. Source: pivot_root(2), mount_setattr(2), proc(5); bubblewrap has
the same idea.
"""

import ctypes
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
DEVICES = ("null", "zero", "full", "random", "urandom")
SECRET = ("kcore", "keys", "key-users", "sysrq-trigger", "timer_list")  # files of /proc that not only root may read
SITES = ("site-packages", "dist-packages")
READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS = 0x1, 0x2, 0x4, 0x8  # MS_…, and MOUNT_ATTR_… alike
BIND, RECURSIVE, PRIVATE, DETACH = 0x1000, 0x4000, 0x40000, 0x2
MOUNT_SETATTR, HERE, AT_RECURSIVE = 442, -100, 0x8000
ROOM, SIZE = "/room", "512m"  # the folder for all files that it writes, and its bytes
libc = ctypes.CDLL(None, use_errno=True)


def enter(empty: str, owner: int):
    """Build the tree in an `empty` folder and make it this process's root; the process must be in separate namespaces
    for mounts and processes, see `world.processes.namespaces`.

    owner  the user that may write into its /room
    """
    mount("none", "/", None, RECURSIVE | PRIVATE)
    mount("none", empty, "tmpfs", NO_SETUID | NO_DEVICES, "size=1m,mode=755")
    for place in (ROOM, "/dev/shm"):
        os.makedirs(empty + place, exist_ok=True)
        mount("none", empty + place, "tmpfs", NO_SETUID | NO_DEVICES, f"size={SIZE},mode=700,uid={owner},gid={owner}")
    for path in SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), empty + path)
        elif os.path.isdir(path):
            show(path, empty)
    for path in [*(f"/etc/{name}" for name in ETC), *needed(), *(f"/dev/{name}" for name in DEVICES)]:
        if os.path.exists(path):
            show(path, empty, NO_SETUID if path.startswith("/dev/") else NO_SETUID | NO_DEVICES)
    if not os.path.exists(f"{empty}/tmp"):  # else this Python or this package lies there
        os.symlink(ROOM, f"{empty}/tmp")
    _etc(Path(empty), owner)
    for file in solutions():
        mount("/dev/null", f"{empty}{file}", None, BIND)
    os.mkdir(f"{empty}/proc")
    mount("none", f"{empty}/proc", "proc", READ_ONLY | NO_SETUID | NO_DEVICES | NO_PROGRAMS)
    for name in SECRET:
        if os.path.exists(f"{empty}/proc/{name}"):
            mount("/dev/null", f"{empty}/proc/{name}", None, BIND)
    _change_to(empty)


def needed() -> list[str]:
    """The folders of this Python and of this package; none of them is inside another one or inside a folder of the
    system.
    """
    sites = [path for path in sys.path if Path(path).name in SITES and os.path.isdir(path)]
    found: list[str] = []
    for path in sorted({*map(os.path.realpath, (sys.prefix, sys.base_prefix, *sites)), str(PACKAGE), sys.prefix}):
        if not any(Path(path).is_relative_to(other) for other in (*found, *SYSTEM)):
            found.append(path)
    return found


def solutions() -> list[Path]:
    """Every file of this package, and of a copy of it that this Python has, that has solutions of exercises."""
    packages = {PACKAGE, *(Path(path) / PACKAGE.name for path in sys.path if Path(path).name in SITES)}
    every = [file for one in packages for kind in ("*solutions.py", "__pycache__/*solutions.*")
             for file in one.glob(f"labs/*/{kind}")]  # fmt: skip
    return [file for file in every if "exercises" not in file.parts]


def show(path: str, empty: str, flags: int = NO_SETUID | NO_DEVICES):
    """Show a folder or a file of the machine, under its own name, to be read."""
    target = empty + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
    mount(path, target, None, BIND | RECURSIVE)
    _only(target, flags if path.startswith("/dev/") else flags | READ_ONLY, AT_RECURSIVE)


def _etc(root: Path, owner: int):
    """The names that programs ask for: one user, this host."""
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "passwd").write_text(f"student:x:{owner}:{owner}::{ROOM}:/bin/sh\n")
    (root / "etc" / "group").write_text(f"student:x:{owner}:\n")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", root / "dev" / name)
    os.symlink("/proc/self/fd", root / "dev" / "fd")


def _change_to(empty: str):
    """Make a folder the root, and unmount the old one."""
    os.chdir(empty)
    _must(libc.pivot_root(b".", b"."), "pivot_root")
    _must(libc.umount2(b".", DETACH), "the old root")
    os.chdir("/")
    _only("/", READ_ONLY | NO_SETUID | NO_DEVICES, 0)


def _only(target: str, flags: int, recursive: int):
    wanted = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    _must(libc.syscall(MOUNT_SETATTR, HERE, os.fsencode(target), recursive, ctypes.byref(wanted), 32), target)


def mount(source: str, target: str, kind: str | None, flags: int, data: str = ""):
    """mount(2).

    raises  OSError
    """
    code = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    _must(libc.mount(*code, flags, data.encode() or None), target)


def _must(result: int, what: str):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
