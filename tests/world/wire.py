"""A wire between two hosts, with a delay and a rate: a program that carries packets between two TUN devices.

Kernels without netem cannot delay packets. Each direction sends one packet after another at its rate, and each packet
arrives after the delay, in order. Source: Documentation/networking/tuntap.rst of Linux.

    python wire.py DEVICE DEVICE SECONDS BYTES_PER_SECOND
"""

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
LARGEST = 1 << 16  # bytes of a packet
UP = "the wire is up"


def opened(name: str) -> int:
    """A TUN device with this name, as a file that gives and takes packets."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return file


class Direction:
    """Packets on their way from one file to another."""

    def __init__(self, source: int, target: int, delay: float, rate: float):
        self.source, self.target, self.delay, self.rate = source, target, delay, rate
        self.free, self.under_way = 0.0, deque()

    def take(self):
        with contextlib.suppress(BlockingIOError):
            while packet := os.read(self.source, LARGEST):
                self.free = max(self.free, time.monotonic()) + len(packet) / self.rate
                self.under_way.append((self.free + self.delay, packet))

    def deliver(self):
        while self.under_way and self.under_way[0][0] <= time.monotonic():
            with contextlib.suppress(OSError):  # a device that is down loses packets, as a cut cable does
                os.write(self.target, self.under_way[0][1])
            self.under_way.popleft()


def carry(one: int, other: int, delay: float, rate: float):
    """Carry packets both ways for ever."""
    ways = [Direction(*ends, delay, rate) for ends in ((one, other), (other, one))]
    while True:
        due = min((way.under_way[0][0] for way in ways if way.under_way), default=None)
        ready, _, _ = select.select([one, other], [], [], due and max(0.0, due - time.monotonic()))
        for way in ways:
            if way.source in ready:
                way.take()
            way.deliver()


if __name__ == "__main__":
    devices = [opened(name) for name in sys.argv[1:3]]
    print(UP, flush=True)
    carry(*devices, *map(float, sys.argv[3:]))
