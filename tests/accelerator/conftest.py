"""Ranks on the emulated accelerator: this process stays as it is, and the parent of the ranks is another one."""

from contextlib import contextmanager
from functools import partial

import equality
import pytest

import hybridlab as hl
from accelerator import environment
from hybridlab.world.processes import gang, handle, launch

collect_ignore = ["on_path"]  # it would come to lie on this process's path, where torch looks for devices
PATIENCE = 30  # seconds: eight ranks on two slow cores may say nothing for ten


@contextmanager
def started(devices: int):
    """While this lasts, ranks compute on so many emulated devices."""
    if environment.missing():
        pytest.skip(environment.missing())
    parent = handle.Handle()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.emulated(devices).items():
            patch.setenv(name, value)
        for place in (gang, launch):
            patch.setattr(place, "ZYGOTE", parent)
        try:
            yield
        finally:
            parent.close()


@pytest.fixture(scope="module")
def eight():
    """A device for each rank: they talk as by NCCL."""
    with started(8):
        yield


@pytest.fixture(scope="module")
def proofs(eight):
    """Checks on ranks that stay for the tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equality, "ranks", partial(hl.ranks, timeout=PATIENCE))
        with equality.Bench() as bench:
            yield bench


@pytest.fixture
def shared():
    """One device for all ranks of a test: they communicate via gloo."""
    with started(1):
        yield


@pytest.fixture(scope="module")
def one(eight):
    """One rank, for what needs a device and nobody to talk to."""
    with hl.ranks(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def two(eight):
    """Two ranks that wait for each other no longer than a test can."""
    with hl.ranks(2, timeout=20) as pool:
        yield pool
