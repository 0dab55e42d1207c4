"""Long tests run when asked for: `pytest --long`, as `make test` does."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the tests marked long too")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="many cases: run with --long"))
