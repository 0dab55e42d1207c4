"""Frames: the messages between the kernel and a rank, a JSON head followed by raw bytes.

On the wire a frame is the length of its head (4 bytes), the head `[kind, tree, sizes, run]` in JSON, then the bytes of
one buffer for each size. A tree contains plain values as JSON and refers to tensors by the index of their buffer.
Nothing received is ever unpickled: a rank can send wrong numbers, but no code, and no address that is followed.
Anything else raises `Garbled`.
"""

import json
import math
import sys
from typing import NamedTuple

import numpy as np

MOST_RANKS = 128  # their sockets are sent in one packet, and Linux passes at most 253 descriptors in it
PLAIN = (type(None), bool, int, float, str)
NUMPY_KINDS = "biufcSUmM"  # kinds of arrays: numbers, text and dates; objects and records would need pickle
TORCH_DTYPES = frozenset(  # tensors that consist of their bytes only; a quantized tensor also has a scale
    """bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex32 complex64
    complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu""".split()
)
LONGEST_HEAD = 2**30  # bytes; a list of a hundred million numbers


class Frame(NamedTuple):
    """One message: its kind, its tree of plain values, the buffers that the tree refers to.

    run  the call that it answers, counted from 1; 0 if it answers none
    """

    kind: str
    tree: object
    buffers: list
    run: int = 0


class Garbled(ValueError):
    """The received bytes are not a valid frame or value."""


def encode(value) -> tuple[object, list]:
    """A value as a JSON tree and the list of its raw buffers.

    Plain values, lists, tuples, dicts, numpy arrays and scalars, and torch tensors can be encoded. Subclasses of list,
    tuple and dict are decoded as the plain kind; tensors are decoded on the CPU and without gradient.

    raises  TypeError naming the type, for anything else

    >>> encode({"loss": 2.5, (0, 1): [True, None]})
    ({'dict': [['loss', 2.5], [{'tuple': [0, 1]}, [True, None]]]}, [])
    """
    buffers = []
    return _encode(value, buffers), buffers


def decode(tree, buffers):
    """The value from which `encode` made a tree; tensors and arrays own the memory of their buffers.

    raises  Garbled for a tree that `encode` cannot produce

    >>> decode(*encode((1, float("inf"), {"a": []})))
    (1, inf, {'a': []})
    """
    try:
        return _decode(tree, buffers)
    except Garbled:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise Garbled(f"{type(error).__name__}: {error}") from None


def _decode(tree, buffers):
    if isinstance(tree, list):
        return [_decode(item, buffers) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tuple":
        return tuple(_decode(item, buffers) for item in content)
    if kind == "dict":
        return {_decode(key, buffers): _decode(item, buffers) for key, item in content}
    dtype, shape, place = content
    if kind == "tensor":
        return _tensor(dtype, shape, buffers[place])
    dtype = np.dtype(dtype)
    if dtype.kind not in NUMPY_KINDS or kind not in ("array", "scalar"):
        raise Garbled(f"{kind} of dtype {dtype}")
    array = np.ndarray(_fitting(shape, dtype.itemsize, buffers[place]), dtype, buffers[place])
    return array if kind == "array" else array[()]


def _fitting(shape, width: int, buffer) -> tuple[int, ...]:
    """A shape that uses exactly all bytes of the buffer."""
    if any(type(length) is not int or length < 0 for length in shape) or math.prod(shape) * width != len(buffer):
        raise Garbled(f"{len(buffer)} bytes do not fit the shape {shape}")
    return tuple(shape)


def send(sock, kind: str, tree=None, buffers=(), run: int = 0) -> None:
    """Write one frame; buffers are bytes-like, one byte an item."""
    head = json.dumps([kind, tree, [len(buffer) for buffer in buffers], run]).encode()
    sock.sendall(len(head).to_bytes(4, "big") + head)
    for buffer in buffers:
        sock.sendall(buffer)


class Inbox:
    """Frames as they arrive on one socket, blocking or not; an incomplete frame stays here until the rest arrives."""

    def __init__(self, sock):
        self._sock = sock
        self._steps = _steps()
        self._gap = memoryview(b"")

    def poll(self) -> Frame | None:
        """The next frame, or None when a non-blocking socket holds only a part of it.

        raises  EOFError if the other process has ended
        """
        while True:
            while self._gap:
                try:
                    count = self._sock.recv_into(self._gap)
                except BlockingIOError:
                    return None
                except ConnectionResetError:
                    count = 0
                if count == 0:
                    raise EOFError("the other process has ended")
                self._gap = self._gap[count:]
            step = next(self._steps)
            if isinstance(step, Frame):
                return step
            self._gap = memoryview(step)


def _read(head: bytearray) -> tuple[str, object, list[int], int]:
    """The content of a head."""
    try:
        kind, tree, sizes, run = json.loads(head)
        if isinstance(kind, str) and isinstance(sizes, list) and all(type(n) is int and n >= 0 for n in [*sizes, run]):
            return kind, tree, sizes, run
    except (ValueError, TypeError, RecursionError):
        pass
    raise Garbled("the message that arrived has no header")


def _room(size: int) -> bytearray:
    try:
        return bytearray(size)
    except (MemoryError, OverflowError):
        raise Garbled(f"{size:.1e} bytes do not fit into memory") from None


def _steps():
    """Yield, without end, the buffers to fill for the next frame, one by one, and then this frame."""
    while True:
        length = bytearray(4)
        yield length
        if int.from_bytes(length, "big") > LONGEST_HEAD:
            raise Garbled("the message that arrived has no header")
        head = bytearray(int.from_bytes(length, "big"))
        yield head
        kind, tree, sizes, run = _read(head)
        buffers = [_room(size) for size in sizes]
        yield from buffers
        yield Frame(kind, tree, buffers, run)


def _encode(value, buffers):
    if type(value) in PLAIN:
        return value
    if isinstance(value, list):
        return [_encode(item, buffers) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, buffers) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_encode(key, buffers), _encode(item, buffers)] for key, item in value.items()]}
    if (type(value) is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind in NUMPY_KINDS:
        kind = "array" if type(value) is np.ndarray else "scalar"
        return {kind: [value.dtype.str, list(value.shape), _place(buffers, value.tobytes())]}
    torch = sys.modules.get("torch")  # a process with a tensor has loaded torch; no other process should have to
    if torch and type(value) in (torch.Tensor, torch.nn.Parameter) and _plain(torch, value):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"tensor": [dtype, list(value.shape), _place(buffers, _tensor_bytes(torch, value))]}
    raise TypeError(
        "a rank can return only numbers, strings, lists, tuples, dicts, numpy arrays and dense torch tensors, "
        f"not {_name(value)}: return its parts instead"
    )


def _plain(torch, x) -> bool:
    """Whether a tensor consists of its bytes only."""
    return x.layout is torch.strided and not x.is_meta and str(x.dtype).removeprefix("torch.") in TORCH_DTYPES


def _name(value) -> str:
    dtype = f" of dtype {value.dtype}" if hasattr(value, "dtype") else ""
    return f"{type(value).__module__}.{type(value).__qualname__}{dtype}"


def _place(buffers, data) -> int:
    buffers.append(data)
    return len(buffers) - 1


def _tensor_bytes(torch, x):
    x = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return memoryview(x.reshape(-1).view(torch.uint8).numpy()) if x.numel() else b""


def _tensor(dtype, shape, buffer):
    import torch  # imported here, because the kernel may never receive a tensor

    if dtype not in TORCH_DTYPES:
        raise Garbled(f"tensor of dtype {dtype}")
    dtype = getattr(torch, dtype)
    shape = _fitting(shape, dtype.itemsize, buffer)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape) if buffer else torch.empty(shape, dtype=dtype)
