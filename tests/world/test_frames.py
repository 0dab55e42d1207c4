"""The wire: what goes in comes out, in whatever pieces it arrives, and what could carry code is refused."""

import datetime
import math
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hybridlab.world.processes import frames

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


def nested(inner):
    """Lists, tuples and dicts of `inner`."""
    keys = PLAIN | st.tuples(PLAIN, PLAIN)
    return st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner, max_size=4)


VALUES = st.recursive(PLAIN, nested, max_leaves=20)
DTYPES = """bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex32 complex64
    complex128 float8_e4m3fn float8_e5m2 float8_e8m0fnu""".split()


def round_trip(value):
    """The value after a whole journey through a pair of sockets."""
    near, far = socket.socketpair()
    with near, far:
        frames.send(near, "result", *frames.encode(value))
        kind, tree, buffers, _ = frames.Inbox(far).poll()
    assert kind == "result"
    return frames.decode(tree, buffers)


def same(a, b):
    """Equal in value and in type, at every depth."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return a == b


@given(VALUES)
@pytest.mark.long
def test_plain_values_come_home_with_their_types(value):
    assert same(round_trip(value), value)


def test_nan_and_infinities_come_home():
    nan, up, down = round_trip([math.nan, math.inf, -math.inf])
    assert math.isnan(nan) and up == math.inf and down == -math.inf


def test_subclasses_of_containers_come_home_plain():
    assert same(round_trip(torch.zeros(2, 3).shape), (2, 3))


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_of_tensor_comes_home_bit_by_bit(name):
    dtype = getattr(torch, name)
    bits = torch.arange(48, dtype=torch.uint8) % 2 if name == "bool" else torch.arange(48, dtype=torch.uint8) * 5
    x = bits.view(dtype).reshape(3, -1)
    home = round_trip({"x": x})["x"]
    assert home.dtype == dtype and home.shape == x.shape
    assert torch.equal(home.reshape(-1).view(torch.uint8), bits)


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(3.0).expand(5, 3),
        torch.tensor([1 + 2j]).conj(),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(2, requires_grad=True) * 2,
    ],
    ids=["scalar", "empty", "transposed", "expanded", "conjugated", "parameter", "in a graph"],
)
def test_awkward_tensors_come_home(x):
    home = round_trip(x)
    assert torch.equal(home, x) and home.shape == x.shape and not home.requires_grad
    home.add_(1)  # it owns its memory


@pytest.mark.parametrize(
    "x",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.array(["ab", ""]),
        np.array(["2026-01-01"], "M8[D]"),
        np.zeros((0, 3), "<i2"),
        np.array([1, 2], ">i4"),
        np.array(2.5),
    ],
    ids=["transposed", "text", "dates", "empty", "big-endian", "0-d"],
)
def test_arrays_come_home(x):
    home = round_trip(x)
    assert type(home) is np.ndarray and home.dtype == x.dtype and home.shape == x.shape and (home == x).all()


@pytest.mark.parametrize("x", [np.float64(2.5), np.int8(-3), np.bool_(True), np.str_("a"), np.complex64(1j)])
def test_numpy_scalars_keep_their_type(x):
    assert type(round_trip(x)) is type(x) and round_trip(x) == x


class Payload:
    def __reduce__(self):
        return print, ("code from a rank has run",)


@pytest.mark.parametrize(
    "value, name",
    [
        (Payload(), "Payload"),
        (np.array([Payload()]), "object"),
        (np.zeros(1, [("a", "i4")]), "int|void|i4"),
        (datetime.date(2026, 1, 1), "datetime.date"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (print, "builtin"),
        (torch.eye(2).to_sparse(), "Tensor"),
    ],
)
def test_anything_else_is_refused_by_name(value, name):
    with pytest.raises(TypeError, match=f"a rank can return only .*, not .*({name})"):
        frames.encode({"deep": [value]})


def test_a_frame_arrives_in_any_pieces():
    x = torch.arange(5, dtype=torch.int16)
    near, far = socket.socketpair()
    recorder, wire = socket.socketpair()
    with near, far, recorder, wire:
        frames.send(near, "event", *frames.encode(["text", x]))
        frames.send(near, "event", *frames.encode([]))
        sent = far.recv(4096)
        wire.setblocking(False)
        inbox, arrived = frames.Inbox(wire), []
        for byte in sent:
            recorder.send(bytes([byte]))
            if frame := inbox.poll():
                arrived.append(frames.decode(frame.tree, frame.buffers))
        assert inbox.poll() is None
    (text, home), empty = arrived
    assert text == "text" and torch.equal(home, x) and empty == []


@pytest.mark.parametrize("cut", [0, 2, 9])
def test_a_closed_socket_is_told_also_inside_a_frame(cut):
    near, far = socket.socketpair()
    with far:
        with near:
            near.send(b"\0\0\0\x20[1234567"[:cut])
        with pytest.raises(EOFError):
            frames.Inbox(far).poll()


@pytest.mark.slow
def test_plain_values_need_no_torch():
    code = "import sys; from hybridlab.world.processes.frames import *; decode(*encode([1, (2.0, 'a')]))"
    code += "; print('torch' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == "False\n"


ODD_FRAMES = [
    ("fault", [1]),
    ("fault", None),
    ("fault", ["E", "m", [1], 0.0]),
    ("fault", ["E", "m", [], "now"]),
    ("output", ["stdout"]),
    ("exit", [0, 0]),
]


@pytest.mark.parametrize("kind, tree", ODD_FRAMES, ids=range(len(ODD_FRAMES)))
def test_a_message_that_no_rank_sends_is_told_and_ends_no_caller(kind, tree):
    from hybridlab.world.processes.gang import _sound

    with pytest.raises(frames.Garbled, match=f"kind {kind} that arrived has a wrong content"):
        _sound(frames.Frame(kind, tree, []))
    assert _sound(None) is None and _sound(frames.Frame("fault", ["E", "m", [["f", 1, "g"]], 1.5], []))
