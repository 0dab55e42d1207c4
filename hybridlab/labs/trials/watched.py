"""A rank's comm that records the operations that a student's program starts, and its waits."""

from collections import Counter


class Watched:
    """The `comm` itself, which also records in `seen` (event, the number of words, or the axis).

    An event is "send", "receive" or "all_reduce" at its start, and "waited send" and so on when it is waited for.
    Messages are kept: a message arrives even if the program loses its handle, so that other ranks do not wait forever.
    """

    def __init__(self, comm, seen: list):
        self._comm, self._seen, self._kept = comm, seen, []
        self.targets: set[int] = set()  # the ranks to which it sends

    def __getattr__(self, name):
        return getattr(self._comm, name)

    @property
    def left(self) -> int:
        """The sends that have been started and not waited for."""
        return _open(self._seen)["send"]

    def isend(self, x, to, tag=0):
        self.targets.add(to)
        with self._said():
            return self._begun("send", self._comm.isend(x, to, tag), x.numel())

    def irecv(self, x, source, tag=0):
        with self._said():
            return self._begun("receive", self._comm.irecv(x, source, tag), x.numel())

    def send(self, x, to, tag=0):
        self.targets.add(to)
        self._seen.append(("send", _numbers(x)))
        with self._said():
            self._comm.send(x, to, tag)
        self._seen.append(("waited send", x.numel()))

    def recv(self, x, source, tag=0):
        self._seen.append(("receive", _numbers(x)))
        with self._said():
            came = self._comm.recv(x, source, tag)
        self._seen.append(("waited receive", x.numel()))
        return came

    def iall_reduce(self, x, axis=None, *about):
        with self._said():
            return self._begun("all_reduce", self._comm.iall_reduce(x, axis, *about), axis)

    def all_reduce(self, x, axis=None, *about):
        return self.iall_reduce(x, axis, *about).wait()

    def _said(self):
        """A context in which an operation is recorded at the program's line, and not at the line here."""
        from hybridlab.world.talk.ledger import caller  # here, because it loads torch

        return self._comm.ledger.said_at(caller(__file__))

    def _begun(self, what: str, message, detail) -> "_Begun":
        self._kept.append(_Begun(what, message, detail, self._seen))
        return self._kept[-1]


def _numbers(x) -> int:
    """The elements of a tensor; 0 for anything else, which the operation itself refuses."""
    return getattr(x, "numel", int)()


class _Begun:
    """A message that records when it is first waited for."""

    def __init__(self, what: str, message, detail, seen: list):
        self._message, self._seen, self._row = message, seen, (f"waited {what}", detail)
        seen.append((what, detail))

    def wait(self):
        if self._row:
            self._seen.append(self._row)
        self._row = None
        return self._message.wait()


def unwaited(seen: list) -> str:
    """The first kind of operation that was started more often than it was waited for; empty if there is none.

    >>> unwaited([("receive", 4), ("send", 4), ("waited receive", 4)])
    'send'
    """
    return next((what for what, number in _open(seen).items() if number > 0), "")


def _open(seen: list) -> dict[str, int]:
    """{kind of operation: the number that were started and not waited for}."""
    count = Counter(what for what, *_ in seen)
    return {what: count[what] - count[f"waited {what}"] for what in ("send", "receive", "all_reduce")}
