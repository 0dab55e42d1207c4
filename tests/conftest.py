"""Slow tests run when asked for: `pytest --slow`, as `make test` does. So do long tests, soak tests, browser tests.

And what several files of tests share.
"""

import gc
import linecache
import os
import pathlib
import re
import sys
import time

import pytest
from hypothesis import settings

from tools.later import function_of, listed

ASKED_FOR = ("slow", "long", "soak")
NAMED = ("browser", "peers")
os.environ.setdefault("HYBRIDLAB_DEVICES", "cpu")  # the same tests on every machine; `make test-gpu` says otherwise
LATER = listed(pathlib.Path(__file__).with_name("later.txt").read_text(encoding="utf-8"))
sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema would compile its forty grammars of web addresses, a second
for library in ("OMP", "OPENBLAS", "MKL"):  # for tensors this small, threads only wait for each other
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def pytest_addoption(parser):
    for mark in ASKED_FOR:
        parser.addoption(f"--{mark}", action="store_true", help=f"run the tests marked {mark} too")


def pytest_collection_modifyitems(config, items):
    for item in items:  # an example says itself that it starts ranks
        if isinstance(item, pytest.DoctestItem) and any("# starts ranks" in one.source for one in item.dtest.examples):
            item.add_marker("ranks")
        for mark in {LATER.get(item.nodeid), LATER.get(function_of(item.nodeid))} - {None}:
            item.add_marker(mark)
            item.add_marker("later")
    marks = [mark for mark in ASKED_FOR if not config.getoption(f"--{mark}")]
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in marks)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_ignore_collect(collection_path, config):
    """Tests with a browser, and those beside packages of others, are collected where they are named: `pytest
    tests/browser`, as make test-browser does, and make test-peers.

    A file of long tests only is not opened without --long, and so with the other marks; nor one of ranks only where
    `-m` says "not ranks": importing it takes as long as running others.
    """
    room = collection_path.name
    if room in NAMED and not any(room in pathlib.Path(one).parts for one in config.args):
        return True
    unasked = [mark for mark in ASKED_FOR if not config.getoption(f"--{mark}")]
    unasked += ["ranks"] * config.option.markexpr.startswith("not ranks")
    if collection_path.suffix == ".py" and unasked:
        found = re.search(r"^pytestmark = \W*pytest\.mark\.(\w+)", collection_path.read_text(), re.M)
        return (found and found[1] in unasked) or None
    return None


def pytest_configure(config):
    """No file changes while tests run: before each of 600 doctests a debugger asks that of every file ever read."""
    checked = linecache.checkcache
    linecache.checkcache = lambda filename=None: filename and checked(filename)
    settings.register_profile("house", deadline=None)  # on a busy machine, any example may take longer than 200 ms
    settings.load_profile("house")


def pytest_collection(session):
    """Thousands of tests are found, none is dropped: nothing to collect as garbage until they are there."""
    gc.disable()


def pytest_collection_finish(session):
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def warm_parent(request):
    """Ranks whose parent has had the time to import what optimizers need: else each of the first does, in 1.5 s."""
    of_ranks = any(item.get_closest_marker("ranks") for item in request.session.items)
    if not (of_ranks and request.config.getoption("--long")):
        return
    from hybridlab import ranks  # here, so that tests without ranks do not pay for it

    warm = False
    while not warm:
        with ranks(1) as pool:
            (warm,) = pool.run(lambda comm: "torch._dynamo" in sys.modules)
        time.sleep(0.2)


@pytest.fixture
def first_attempt(monkeypatch):
    """The test begins as a student does: without a wrong answer so far."""
    from hybridlab import labs  # here, so that tests without exercises do not pay for it

    monkeypatch.setitem(labs.answer.__globals__, "_given", {})


@pytest.fixture(scope="module")
def bench():
    """Checks on ranks that stay for the tests of a file."""
    from equality import Bench  # here, so that tests without ranks do not pay for it

    with Bench() as bench:
        yield bench


@pytest.fixture
def kept(bench):
    """The ranks of hl.run, of hl.train and of what labs run are those of the bench."""
    with bench.lent():
        yield
