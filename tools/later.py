"""Choose the cases that `make test` leaves to --long, so that the others end in some minutes: tests/later.txt.

    make later

It runs the tests that start processes, and the slow ones, on a machine that does nothing else, and notes the seconds of
each case. The quickest case of each test stays, if it is quick enough. Of the other cases, the quickest ones stay while
the sum allows.
"""

import pathlib
import sys
import xml.etree.ElementTree as tree
from collections.abc import Iterable

FILE = pathlib.Path(__file__).parents[1] / "tests/later.txt"
HEAD = "# Cases that wait for --long, written by `make later` from measured seconds. Others run in make test.\n"
WORKERS = 2  # processes that share the tests, as in the Makefile
MINUTES = 5.0  # for all of them
LEAST, MOST = 1.0, 8.0  # seconds: a shorter case is never listed, a longer one always is


def chosen(seconds: dict[str, float], budget: float) -> list[str]:
    """The cases to leave out, so that the others last as long as the budget, if that is possible.

    seconds  of each case, by its name for pytest
    budget   seconds in all

    >>> chosen({"a::t[1]": 6, "a::t[2]": 4, "a::t[3]": 5, "b::s": 7, "b::u": 9}, budget=17)
    ['a::t[1]', 'b::u']
    """
    quick_first = sorted((case for case in seconds if seconds[case] <= MOST), key=seconds.__getitem__)
    first: dict[str, str] = {}
    for case in quick_first:
        first.setdefault(case.partition("[")[0], case)
    left = budget - sum(seconds[case] for case in first.values())
    out = [case for case in seconds if seconds[case] > MOST]
    for case in quick_first:
        if case not in first.values() and seconds[case] >= LEAST:
            left -= seconds[case]
            out += [case] * (left < 0)
    return sorted(out)


def listed(text: str) -> list[str]:
    """The cases in the text of the file."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def measured(file: pathlib.Path) -> dict[str, float]:
    """Seconds of each case, from a report of pytest (--junitxml, of the family xunit1)."""
    cases: Iterable[tree.Element] = tree.parse(file).iter("testcase")
    return {f"{case.attrib['file']}::{case.attrib['name']}": float(case.attrib["time"]) for case in cases}


def main(report: str):
    seconds = measured(pathlib.Path(report))
    out = chosen(seconds, 60 * MINUTES * WORKERS)
    FILE.write_text(HEAD + "".join(f"{case}\n" for case in out), encoding="utf-8")
    kept = sum(seconds.values()) - sum(seconds[case] for case in out)
    print(
        f"{len(out)} of {len(seconds)} cases wait; the others take {kept / 60 / WORKERS:.1f} min in {WORKERS} processes"
    )


if __name__ == "__main__":
    main(sys.argv[1])
