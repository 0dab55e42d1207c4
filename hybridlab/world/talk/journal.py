"""The journal: the current operation of every rank, in memory shared by rank and kernel.

A rank writes each operation before it calls torch; the kernel reads it. The record stays readable when the rank is
killed, stopped, or stuck in C code. The memory is one file without a name, mapped by all processes. Each rank has one
slot in it: a head, and a ring of `RING` posts. A post is overwritten only after the kernel has read it, so nothing is
lost: a rank that is a full ring ahead waits for the reader.

Groups of ranks are written as bit masks. Times are nanoseconds of `time.perf_counter_ns`, one clock for all processes.
"""

import mmap
import os
import struct
import sys
import tempfile
import time
from typing import NamedTuple

RING = 2048  # maximum number of one rank's posts that wait for the reader
RUN, WRITTEN, WAITING, READ, BEAT, PREPARING = range(6)  # words of the head, each read and written atomically
WORD = 8  # bytes
MASK = 16  # bytes of a group: one bit for each of 128 ranks
POST = struct.Struct(f"=Q{MASK}sQQqqqH")  # number, group, turn, bytes, root, peer, tag, bytes of text
ENTRY = 328  # bytes of one post, including its text
HEAD_ROOM = 256
SLOT = HEAD_ROOM + RING * ENTRY
TEXT = ENTRY - POST.size
NONE = -(2**62)  # instead of a root, peer or tag that an operation does not have
FULL_SECONDS = 0.001  # between two checks of a rank that is a ring ahead of its reader


class Post(NamedTuple):
    """One operation as its rank announced it.

    number counts the rank's posts from 1. group: the ranks that meet, for a message the two ranks. turn counts from 1
    within the group, for messages within direction, peer and tag: posts with the same turn belong together. shape,
    dtype and how (the reduction) are text, and so are lengths (of the parts, see `lengths`) and columns (of the call in
    its line: "4-21"). source is "file:line", with the full path of the file.
    """

    rank: int
    number: int
    op: str
    group: tuple[int, ...]
    turn: int
    size: int
    shape: str
    dtype: str
    how: str
    root: int | None
    peer: int | None
    tag: int | None
    source: str
    lengths: str = ""
    columns: str = ""


class Head(NamedTuple):
    """The head of a slot: the current run, the number of posts, the post in which the rank waits (0: none), the last
    heartbeat in ns, and the number of things that the rank is preparing: its device, connections with others."""

    run: int
    written: int
    waiting: int
    beat: int
    preparing: int


def create(size: int):
    """Make the file for this number of ranks; it disappears when its last descriptor is closed.

    Its space is allocated now, so that no rank finds a full disk later. On Linux it is in memory and needs no disk.
    """
    nameless = open(os.memfd_create("journal"), "w+b") if sys.platform == "linux" else tempfile.TemporaryFile()
    nameless.write(bytes(size * SLOT))
    nameless.flush()
    return nameless


def mask_of(ranks) -> bytes:
    return sum(1 << rank for rank in ranks).to_bytes(MASK, "little")


def ranks_of(mask: bytes) -> tuple[int, ...]:
    """
    >>> ranks_of(mask_of((0, 2, 127)))
    (0, 2, 127)
    """
    mask = int.from_bytes(mask, "little")
    return tuple(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


class Pen:
    """A rank's own slot, for writing."""

    def __init__(self, file: int, rank: int):
        self._memory, self._words = _mapped(file)
        self._slot = rank * SLOT
        self._written = self._read = 0

    def begin_run(self, run: int):
        """Start an empty record under this number of the run."""
        self._written = self._read = 0
        self.beat()
        for field in (RUN, WRITTEN, WAITING, READ, PREPARING):
            self._set(field, 0)
        self._set(RUN, run)

    def post(self, group: bytes, turn: int, size: int, root, peer, tag, text: str, waits: bool) -> int:
        """Announce an operation, and return its number. `text` is op, shape, dtype, how, lengths, columns
        and source, one per line."""
        number = self._written + 1
        if number - self._read > RING:
            self._await_reader(number)
        place = self._slot + HEAD_ROOM + number % RING * ENTRY
        data = text.encode()
        if len(data) > TEXT:
            data = _shortened(data)
        none_or = (NONE if value is None else value for value in (root, peer, tag))
        POST.pack_into(self._memory, place, number, group, turn, size, *none_or, len(data))
        place += POST.size
        self._memory[place : place + len(data)] = data
        if waits:
            self._set(WAITING, number)
        self._set(WRITTEN, number)  # written last: a counted post is complete
        self._written = number
        return number

    def wait(self, number: int):
        """Announce that the rank continues only when this operation is over; 0 withdraws the announcement."""
        self._set(WAITING, number)

    def prepare(self, things: int):
        """Announce the number of things that the rank is preparing, such as its device and connections."""
        self._set(PREPARING, things)

    def beat(self):
        """Report that this process still runs Python."""
        self._set(BEAT, time.perf_counter_ns())

    def _set(self, field: int, value: int):
        # Not with struct, which writes zeros first: a reader saw them, and read everything again.
        self._words[self._slot // WORD + field] = value

    def _await_reader(self, number: int):
        while True:
            self._read = self._words[self._slot // WORD + READ]
            if number - self._read <= RING:
                return
            time.sleep(FULL_SECONDS)


class Journal:
    """All slots, for reading; each post is returned once."""

    def __init__(self, file: int):
        self._memory, self._words = _mapped(file)

    def close(self):
        """Free the memory; nothing can be read afterwards."""
        self._words.release()
        self._memory.close()

    def head(self, rank: int) -> Head:
        first = rank * SLOT // WORD
        numbers = (self._words[first + field] for field in (RUN, WRITTEN, WAITING, BEAT, PREPARING))
        return Head(*numbers)

    def news(self, rank: int, run: int) -> list[Post]:
        """The posts of a rank in this run that have not been read yet; none while the rank is in another run."""
        first = rank * SLOT // WORD
        if self._words[first + RUN] != run:
            return []
        written, read = self._words[first + WRITTEN], self._words[first + READ]
        posts = [self.post(rank, number) for number in range(read + 1, written + 1)]
        self._words[first + READ] = written
        return posts

    def post(self, rank: int, number: int) -> Post | None:
        """A rank's post, given its number; None if a later one has replaced it."""
        place = rank * SLOT + HEAD_ROOM + number % RING * ENTRY
        found, group, turn, size, *who, length = POST.unpack_from(self._memory, place)
        if found != number:
            return None
        place += POST.size
        text = bytes(self._memory[place : place + length]).decode(errors="replace")
        op, shape, dtype, how, lengths, columns, source = text.split("\n")
        root, peer, tag = (None if value == NONE else value for value in who)
        return Post(
            rank, number, op, ranks_of(group), turn, size, shape, dtype, how, root, peer, tag, source, lengths, columns
        )


def _mapped(file: int) -> tuple[mmap.mmap, memoryview]:
    """The memory of an open file, as bytes and as words."""
    memory = mmap.mmap(file, os.fstat(file).st_size)
    return memory, memoryview(memory).cast("Q")


def _shortened(data: bytes) -> bytes:
    """Text that fits into a post: fields of long text lose their middle, but no field is lost."""
    fields = data.split(b"\n")
    longest = max(fields, key=len)
    room = max(TEXT - len(data) + len(longest), 60)
    cut = longest[:10] + b"..." + longest[len(longest) - room + 13 :]
    return b"\n".join(cut if field is longest else field[:60] for field in fields)[:TEXT]
