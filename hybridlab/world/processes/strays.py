"""Strays: processes whose parent has ended, which Linux reparents to this process."""

import contextlib
import os
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # for prctl: orphaned descendants become children of this process


def strays(own: set[int]) -> list[int]:
    """The children of this process, without its own: their parents have ended."""
    with contextlib.suppress(OSError):  # a system that does not list them has none
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return [pid for pid in map(int, listed.split()) if pid not in own]
    return []
