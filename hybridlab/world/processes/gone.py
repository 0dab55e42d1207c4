"""React to a closed socket, even in the middle of other work.

The zygote, the parent of ranks, reads its sockets between two imports. An import takes seconds, or many seconds on a
busy machine. The system can send a signal when something happens on a socket. Python handles it between two steps of an
import.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket


@contextlib.contextmanager
def when_gone(sock: socket.socket, then):
    """A context that calls then() as soon as the other side of this socket has closed. Main thread only.

    >>> ours, theirs = socket.socketpair()
    >>> with when_gone(ours, lambda: print("gone")):
    ...     _ = theirs.send(b"no end yet")
    ...     theirs.close()
    ...     print("goes on")
    gone
    goes on
    """
    ends = select.poll()
    ends.register(sock, 0)  # only the end of the connection is reported
    look = lambda *_: then() if ends.poll(0) else None
    signal.signal(signal.SIGIO, look)  # the handler stays, to catch a signal that came at the last moment
    fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(sock, fcntl.F_GETFL)
    fcntl.fcntl(sock, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        look()  # the socket may have closed before
        yield
    finally:
        fcntl.fcntl(sock, fcntl.F_SETFL, flags)
