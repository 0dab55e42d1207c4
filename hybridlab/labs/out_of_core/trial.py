"""A student's engine on a real rank: saved activations are copied to the host and back, with memory for two blocks.

A copy ends only when the engine waits for it, as late as on the slowest real link. So an engine that does not wait
computes with missing numbers, and an engine that frees memory too early holds more than its arena has counted.
"""

from itertools import chain

from hybridlab.labs.exercises.words import so_many

INNER = 4  # in units of the width: numbers between the two layers of a block
FIT = 2  # blocks that fit into memory


class Bytes:
    """The arena that a student is given: it counts the bytes taken and given back, up to a capacity.

    >>> arena = Bytes(100)
    >>> arena.take(60), arena.give(20), arena.held
    (None, None, 40)
    >>> arena.take(61)
    Traceback (most recent call last):
    MemoryError: 61 bytes more do not fit: 40 of 100 are held
    """

    def __init__(self, capacity: int):
        self.capacity, self.held, self.peak = capacity, 0, 0

    def take(self, size: int):
        if self.held + size > self.capacity:
            raise MemoryError(f"{size:,} bytes more do not fit: {self.held:,} of {self.capacity:,} are held")
        self.held += size
        self.peak = max(self.peak, self.held)

    def give(self, size: int):
        if size > self.held:
            said = f"{size:,} bytes are returned, but only {self.held:,} are held"
            raise ValueError(f"{said}: call take() before give()")
        self.held -= size


class Copy:
    """A copy under way; `wait` returns the new tensor `x`, which has no numbers before that."""

    def __init__(self, source, link, noted: dict):
        self.source, self.link, self.noted = source, link, noted
        self.x = source.new_full(source.shape, float("nan"))

    def wait(self):
        if self.source is not None:
            self.x.copy_(self.source)
            self.source = None
            self.noted["waited"] = self.link.done
        return self.x


class Link:
    """The link that a student is given: `out` begins a copy to the host, `back` one to the device.

    done   blocks that have been computed, forward or backward;  there  tensors that may be on the device
    notes  for each copy: its direction, and the number of `done` when it began and when it was waited for
    """

    def __init__(self):
        self.done, self.there, self.notes = 0, [], []

    def out(self, x):
        return self._begun(x, "to the host")

    def back(self, x):
        copy = self._begun(x, "back")
        self.seen(copy.x)
        return copy

    def _begun(self, x, way):
        self.notes.append({"way": way, "begun": self.done, "waited": None})
        return Copy(x, self, self.notes[-1])

    def seen(self, x):
        """Record a tensor: it is on the device as long as its storage is referenced."""
        from torch.multiprocessing.reductions import StorageWeakRef

        self.there.append((StorageWeakRef(x.untyped_storage()), x.nbytes))

    @property
    def bytes(self) -> int:
        """The bytes that are really on the device."""
        self.there = [(one, size) for one, size in self.there if not one.expired()]
        return sum(size for _, size in self.there)


def try_engine(comm, answer, case) -> str:
    """The first mistake of a student's engine, in a sentence that continues "Rank 0"; empty if there is none."""
    import torch

    torch.manual_seed(comm.rank)
    blocks, x, g = _made(torch, case)
    arena, link = Bytes(FIT * case.kept), Link()
    try:
        told = _run(answer(arena, link), arena, link, blocks, x, g)
    except MemoryError as error:
        return f"exceeds the memory after {_pieces(link.done, len(blocks))}: {error}."
    mine = _taken(blocks)
    told = _of_what_came(mine) or told or _of_gradients(mine, _gradients(blocks, x, g))
    return told or _of_the_end(arena) or _of_copies(link)


def _made(torch, case):
    """Some blocks, their input, and the gradient of their output."""
    size, wide = case.width, INNER * case.width
    made = lambda: torch.nn.Sequential(torch.nn.Linear(size, wide), torch.nn.GELU(), torch.nn.Linear(wide, size))
    blocks = [made().double() for _ in range(case.blocks)]
    x, g = (torch.randn(case.rows, size, dtype=torch.float64) for _ in range(2))
    return blocks, x, g


def _gradients(blocks, x, g):
    """Every gradient of a step without copies."""
    for block in blocks:
        x = block(x)
    x.backward(g)
    return _taken(blocks)


def _taken(blocks) -> list:
    """The gradients of all weights; they are removed from the weights."""
    found = [weight.grad for weight in _weights(blocks)]
    for weight in _weights(blocks):
        weight.grad = None
    return found


def _weights(blocks):
    return list(chain.from_iterable(block.parameters() for block in blocks))


def _run(engine, arena, link, blocks, x, g) -> str:
    """Run a step with the student's engine, and return the first mistake in the bytes that it holds."""
    from torch.autograd.graph import saved_tensors_hooks

    last, told = len(blocks) - 1, []
    fixed = {one.untyped_storage()._cdata for one in [x, *_weights(blocks)]}

    def pack(block, saved):
        if saved.untyped_storage()._cdata in fixed:
            return None, saved
        link.seen(saved)
        return block, engine.pack(block, saved.detach())

    def unpack(kept):
        block, ticket = kept
        return ticket if block is None else engine.unpack(block, ticket)

    def look(call, block):
        getattr(engine, call)(block)
        if link.bytes > arena.held:
            told.append(f"{call}({block}): {link.bytes:,} bytes are on the device, but the arena has {arena.held:,}")

    def reached(block):
        """Called when the gradient of this block's output has arrived."""
        if block < last:
            link.done += 1
            look("after_backward", block + 1)
        look("before_backward", block)

    for block, layers in enumerate(blocks):
        with saved_tensors_hooks(lambda saved, block=block: pack(block, saved), unpack):
            x = layers(x)
        x.register_hook(lambda _, block=block: reached(block))
        link.done += 1
        if block < last:
            look("after_forward", block)
    x.backward(g)
    link.done += 1
    look("after_backward", 0)
    if not told:
        return ""
    return f"holds more than its arena has counted, after {told[0]}. Call take() before a copy and give() after it."


def _of_what_came(mine) -> str:
    if any(one.isnan().any() for one in mine):
        return "computed with a tensor whose copy had not ended: wait for the copy before its tensor is used."
    return ""


def _of_gradients(mine, right) -> str:
    if all(bool((one == other).all()) for one, other in zip(mine, right)):
        return ""
    return (
        "has different gradients from those of a step in core: does unpack return the tensor for which pack gave this "
        "ticket?"
    )


def _of_the_end(arena) -> str:
    if not arena.held:
        return ""
    return f"has right gradients, but still holds {arena.held:,} bytes after the step: when is a block not needed?"


def _of_copies(link) -> str:
    """The first mistake in the order of copies: each must overlap with the computation of a block."""
    for note in link.notes:
        if note["waited"] is None:
            return f"never waits for a copy {note['way']}, so it may not have ended."
        if note["waited"] == note["begun"]:
            return (
                f"has right gradients and respects the limit, but waits for a copy {note['way']} as soon as it has "
                "begun: which block can be computed during the copy?"
            )
    return ""


def _pieces(done: int, blocks: int) -> str:
    """
    >>> _pieces(1, 6), _pieces(8, 6)
    ('1 forward', '6 forwards and 2 backwards')
    """
    forwards, backwards = so_many(min(done, blocks), "forward"), so_many(done - blocks, "backward")
    return forwards if done <= blocks else f"{forwards} and {backwards}"
