"""The reaction of a process to a closed socket, even in the middle of other work.

A parent of ranks reads its sockets between two imports, and an import takes seconds, many on a machine with other work.
The system can send a signal when something happens on a socket. Python acts on it between two steps of an import.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket


@contextlib.contextmanager
def when_gone(sock: socket.socket, then):
    """While inside: call then() as soon as the other side of this socket has closed. Main thread only.

    >>> ours, theirs = socket.socketpair()
    >>> with when_gone(ours, lambda: print("gone")):
    ...     _ = theirs.send(b"no end yet")
    ...     theirs.close()
    ...     print("goes on")
    gone
    goes on
    """
    ends = select.poll()
    ends.register(sock, 0)  # of all that may happen, an end alone is told
    look = lambda *_: then() if ends.poll(0) else None
    signal.signal(signal.SIGIO, look)  # it stays: a signal that came at the last moment finds it
    fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(sock, fcntl.F_GETFL)
    fcntl.fcntl(sock, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        look()  # it may have closed before
        yield
    finally:
        fcntl.fcntl(sock, fcntl.F_SETFL, flags)
