"""Choose which tests wait, so that `make test-fast` takes seconds and `make test` some minutes: tests/later.txt.

    make later

It runs the tests on a machine that does nothing else, and notes the seconds of each case.

slow  A test without processes of which one case takes more than `BRIEF`; it waits for `make test`.
long  A case that waits for `make test-long`. The quickest case of each test stays in `make test`, if it is quick
      enough. Of the other cases, the quickest ones stay while the sum allows. Tests of the house always stay, since
      any change can break them.
"""

import pathlib
import sys
import xml.etree.ElementTree as tree
from collections.abc import Iterable

HOUSE = "tests/house/"
FILE = pathlib.Path(__file__).parents[1] / "tests/later.txt"
HEAD = "# Tests and cases that wait, and for what: written by `make later` from measured seconds.\n"
WORKERS = 2  # processes that share the tests, as in the Makefile
MINUTES = 6.5  # in make test, for all tests that are not fast
BRIEF = 1 / 100  # seconds of a fast case
LEAST, MOST = 1.0, 1.75  # seconds: a shorter case never waits for test-long, a longer one always does


def function_of(case: str) -> str:
    """The test of a case, by their names for pytest.

    >>> function_of("tests/a.py::test_b[3-c]")
    'tests/a.py::test_b'
    """
    return case.partition("[")[0]


def slow_of(seconds: dict[str, float]) -> list[str]:
    """The tests of which some case is not brief.

    seconds  of each case

    >>> slow_of({"a::t[1]": 0.001, "a::t[2]": 0.1, "b::s": 0.002})
    ['a::t']
    """
    return sorted({function_of(case) for case, took in seconds.items() if took > BRIEF})


def chosen(seconds: dict[str, float], budget: float) -> list[str]:
    """The cases to leave out, so that the others last as long as the budget, if that is possible.

    seconds  of each case
    budget   seconds in all

    >>> chosen({"a::t[1]": 1.6, "a::t[2]": 1.2, "a::t[3]": 1.4, "b::s": 1.7, "b::u": 4}, budget=4.5)
    ['a::t[1]', 'b::u']
    """
    quick_first = sorted((case for case in seconds if seconds[case] <= MOST), key=seconds.__getitem__)
    first: dict[str, str] = {}
    for case in quick_first:
        first.setdefault(function_of(case), case)
    left = budget - sum(seconds[case] for case in first.values())
    out = [case for case in seconds if seconds[case] > MOST]
    for case in quick_first:
        if case not in first.values() and seconds[case] >= LEAST:
            left -= seconds[case]
            out += [case] * (left < 0)
    return sorted(out)


def listed(text: str) -> dict[str, str]:
    """{test or case: mark} in the text of the file.

    >>> listed("# Tests\\nslow a::t\\nlong a::t[a b]\\n")
    {'a::t': 'slow', 'a::t[a b]': 'long'}
    """
    lines = (line.partition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: mark for mark, _, name in lines}


def measured(file: pathlib.Path) -> dict[str, float]:
    """Seconds of each case, from a report of pytest (--junitxml, of the family xunit1)."""
    cases: Iterable[tree.Element] = tree.parse(file).iter("testcase")
    return {f"{case.attrib['file']}::{case.attrib['name']}": float(case.attrib["time"]) for case in cases}


def main(without_processes: str, others: str):
    brief, rest = measured(pathlib.Path(without_processes)), measured(pathlib.Path(others))
    slow = slow_of(brief)
    rest |= {case: took for case, took in brief.items() if function_of(case) in slow}
    out = [case for case in chosen(rest, 60 * MINUTES * WORKERS) if not case.startswith(HOUSE)]
    lines = [f"slow {test}\n" for test in slow] + [f"long {case}\n" for case in out]
    FILE.write_text(HEAD + "".join(lines), encoding="utf-8")
    fast = sum(took for case, took in brief.items() if case not in rest)
    kept = sum(rest.values()) - sum(rest[case] for case in out)
    for what, sum_of in (("fast tests", fast), ("the others of make test", kept)):
        print(f"{what}: {sum_of / 60 / WORKERS:.1f} min in {WORKERS} processes")
    print(f"{len(slow)} tests are slow, and {len(out)} of {len(rest)} cases wait for test-long")


if __name__ == "__main__":
    main(*sys.argv[1:])
