"""A grid: a picture of very many boxes as an image, so that its size depends on the screen and not on the schedule.

A pixel mixes the colours of all boxes that it covers, in proportion to their areas; the paper shows through the rest.
With the colour of only one of
them, boxes thinner than a pixel would make a pattern that is not in the schedule.
"""

import base64
import struct
import zlib

import numpy as np

from hybridlab.show.timelines.drawn import Boxes

MANY = 2000  # more boxes than this are drawn as a grid


def grid(picture: Boxes, columns: int, rows: int) -> np.ndarray:
    """The boxes as pixels: [rows, columns, 4], red, green, blue and opacity from 0 to 255.

    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> from hybridlab.show.timelines.boxes import boxes
    >>> picture = boxes(simulate(schedule("gpipe", ranks=1, microbatches=2)))  # F F BB BB
    >>> [bytes(pixel).hex() for pixel in grid(picture, columns=6, rows=1)[0]]
    ['0072b2ff', '0072b2ff', 'e69f00ff', 'e69f00ff', 'e69f00ff', 'e69f00ff']
    >>> bytes(grid(picture, columns=1, rows=1)[0, 0]).hex()  # a third blue
    '99903bff'
    """
    edges = np.linspace(0, picture.width, columns + 1)
    middles = (np.arange(rows) + 0.5) * picture.height / rows
    fills = np.array([_rgb(look.fill) for look in picture.looks])
    order = np.argsort(picture.x0, kind="stable")
    bands = np.searchsorted(np.unique(np.concatenate([picture.y0, picture.y1])), middles, side="right")
    pixels = np.empty((rows, columns, 4))
    for band in np.unique(bands):  # rows of pixels between the same edges are equal
        y = middles[bands == band][0]
        here = order[(picture.y0[order] <= y) & (picture.y1[order] > y)]
        pixels[bands == band] = _mixed(picture, here, edges, fills)
    return np.rint(pixels).astype(np.uint8)


def png(pixels: np.ndarray) -> str:
    """An image as a PNG in a `data:` address, for SVG and plotly.

    >>> png(np.zeros((1, 1, 4), np.uint8))[:34]
    'data:image/png;base64,iVBORw0KGgoA'
    """
    rows, columns, _ = pixels.shape
    lines = np.zeros((rows, 1 + 4 * columns), np.uint8)
    lines[:, 1:] = pixels.reshape(rows, -1)
    lines[1:, 1:] -= pixels.reshape(rows, -1)[:-1]
    lines[1:, 0] = 2  # a line holds its difference from the one above: equal lines are zeros
    head = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    file = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


def _mixed(picture, here, edges, fills):
    """One row of pixels, each mixed from the colours of these boxes. They are in order of time and do not overlap."""
    shares = np.zeros((len(edges) - 1, len(fills)))
    for look in np.unique(picture.look[here]):
        mine = here[picture.look[here] == look]
        points = np.stack([picture.x0[mine], picture.x1[mine]], axis=1).ravel()
        covered = np.repeat(np.concatenate([[0.0], np.cumsum(picture.x1[mine] - picture.x0[mine])]), 2)[1:-1]
        shares[:, look] = np.diff(np.interp(edges, points, covered)) / np.diff(edges)
    covered = np.add.reduce(shares, axis=1, keepdims=True)
    colour = shares @ fills / np.where(covered > 0, covered, 1)
    return np.clip(np.concatenate([colour, 255 * covered], axis=1), 0, 255)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
