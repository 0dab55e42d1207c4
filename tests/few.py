"""Of many cases of a test a few run with `make test`, and all of them with --long, as `.ci/run` runs them.

A few are those that a list begins with, or those at even distances in it: where a list is ordered by kind, some of
every kind.
"""

from collections.abc import Iterable

import pytest


def first(number: int, cases: Iterable) -> list:
    """These cases: so many at the beginning run with make test, the others are long.

    A tuple holds the arguments of one case, as for pytest.mark.parametrize.
    """
    return [_marked(one, place < number) for place, one in enumerate(cases)]


def one_in(number: int, cases: Iterable) -> list:
    """These cases: the first of every so many runs with make test, the others are long."""
    return [_marked(one, place % number == 0) for place, one in enumerate(cases)]


def _marked(case, soon: bool):
    if isinstance(case, type(pytest.param())):  # which may have marks already
        return case if soon else pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.long])
    values = case if type(case) is tuple else (case,)  # a named one is an argument
    return pytest.param(*values, marks=() if soon else pytest.mark.long)
