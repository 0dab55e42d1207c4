"""Frames: what travels between the kernel and a rank, a JSON head followed by raw bytes.

On the wire a frame is the length of its head (4 bytes), the head `[kind, tree, sizes]` in JSON, then one run of bytes
for each size. A tree holds plain values as JSON and points at tensors by their place among the runs. Nothing that comes
home is ever unpickled: a rank can send wrong numbers, but no code.
"""

import json
import sys
from typing import NamedTuple

import numpy as np

MOST_RANKS = 64  # their sockets travel in one packet, and Linux passes at most 253 descriptors in it
PLAIN = (type(None), bool, int, float, str)
NUMPY_KINDS = "biufcSUmM"  # numbers, text and dates; objects and records would need pickle


class Frame(NamedTuple):
    """One message: its kind, its tree of plain values, and the bytes that the tree points at."""

    kind: str
    tree: object
    buffers: list


def encode(value) -> tuple[object, list]:
    """A value as a JSON tree and the list of its raw buffers.

    Plain values, lists, tuples, dicts, numpy arrays and scalars, and torch tensors can be encoded. Subclasses of list,
    tuple and dict come out as the plain kind; tensors come out on the CPU and without gradient.

    raises  TypeError naming the type, for anything else

    >>> encode({"loss": 2.5, (0, 1): [True, None]})
    ({'dict': [['loss', 2.5], [{'tuple': [0, 1]}, [True, None]]]}, [])
    """
    buffers = []
    return _encode(value, buffers), buffers


def decode(tree, buffers):
    """The value that `encode` was given; tensors and arrays own the memory of their buffers.

    >>> decode(*encode((1, float("inf"), {"a": []})))
    (1, inf, {'a': []})
    """
    if isinstance(tree, list):
        return [decode(item, buffers) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tuple":
        return tuple(decode(item, buffers) for item in content)
    if kind == "dict":
        return {decode(key, buffers): decode(item, buffers) for key, item in content}
    dtype, shape, place = content
    if kind == "tensor":
        return _tensor(dtype, shape, buffers[place])
    array = np.ndarray(shape, np.dtype(dtype), buffers[place])
    return array if kind == "array" else array[()]


def send(sock, kind: str, tree=None, buffers=()) -> None:
    """Write one frame; buffers are bytes-like, one byte an item."""
    head = json.dumps([kind, tree, [len(buffer) for buffer in buffers]]).encode()
    sock.sendall(len(head).to_bytes(4, "big") + head)
    for buffer in buffers:
        sock.sendall(buffer)


class Inbox:
    """Frames as they arrive on one socket, blocking or not; a half-read frame waits here for its rest."""

    def __init__(self, sock):
        self._sock = sock
        self._steps = _steps()
        self._gap = memoryview(b"")

    def poll(self) -> Frame | None:
        """The next frame, or None when a non-blocking socket holds only a part of it.

        raises  EOFError when the other side has gone
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
                    raise EOFError("the other side has gone")
                self._gap = self._gap[count:]
            step = next(self._steps)
            if isinstance(step, Frame):
                return step
            self._gap = memoryview(step)


def _steps():
    """For ever: the buffers to fill for the next frame, one by one, then that frame."""
    while True:
        length = bytearray(4)
        yield length
        head = bytearray(int.from_bytes(length, "big"))
        yield head
        kind, tree, sizes = json.loads(head)
        buffers = [bytearray(size) for size in sizes]
        yield from buffers
        yield Frame(kind, tree, buffers)


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
    torch = sys.modules.get("torch")  # whoever holds a tensor has loaded torch; nobody else should have to
    if torch and type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        dtype = str(value.dtype).removeprefix("torch.")
        return {"tensor": [dtype, list(value.shape), _place(buffers, _tensor_bytes(torch, value))]}
    raise TypeError(
        "a rank can send home numbers, text, lists, tuples, dicts, numpy arrays and dense torch tensors, "
        f"not {_name(value)}: return its parts instead"
    )


def _name(value) -> str:
    dtype = f" of dtype {value.dtype}" if isinstance(value, (np.ndarray, np.generic)) else ""
    return f"{type(value).__module__}.{type(value).__qualname__}{dtype}"


def _place(buffers, data) -> int:
    buffers.append(data)
    return len(buffers) - 1


def _tensor_bytes(torch, x):
    x = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return memoryview(x.reshape(-1).view(torch.uint8).numpy()) if x.numel() else b""


def _tensor(dtype, shape, buffer):
    import torch  # here, because the kernel may never receive a tensor

    dtype = getattr(torch, dtype)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape) if buffer else torch.empty(shape, dtype=dtype)
