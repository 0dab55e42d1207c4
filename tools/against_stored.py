"""Run every cell of every notebook, and compare it with its stored output.

    python -m tools.against_stored                          all notebooks, two at a time
    python -m tools.against_stored --core                   without the parts under Further
    python -m tools.against_stored --core --few             of a few of every part of the course, as `make test` does
    python -m tools.against_stored 01_tour                  this one

Two notebooks at a time disturb each other's measurements. A notebook that differs is run a second time, alone; a list
of these is printed at the end.
"""

import argparse
import pathlib
import sys

import pytest

from tools.course import FOLDER, HOUSE

NBVAL = ("-q", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=120")
TOLERANT = f"--nbval-sanitize-with={HOUSE / 'tests' / 'nbval.cfg'}"
TWO = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
LONG = (  # these first, the longest of them at once: so two at a time end together
    "40_hybrid", "11_gpipe", "14_zero_bubble", "13_interleaved", "15_pipedream", "12_1f1b", "10_naive", "22_zero_fsdp",
    "21_data_parallel", "30_megatron",
)  # fmt: skip
FEW = ("12_1f1b", "30_megatron", "41_choosing", "00_start", "20_collectives", "35_layouts", "42_sc21")


class Differing:
    """A plugin of pytest that notes the files of which something failed."""

    def __init__(self):
        self.paths = set()

    def pytest_runtest_logreport(self, report):
        """A cell has run."""
        if report.failed:
            self.paths.add(report.nodeid.partition("::")[0])

    pytest_collectreport = pytest_runtest_logreport  # a notebook that cannot be read


def in_order(paths) -> list[pathlib.Path]:
    """The longest first, then the others as they come.

    >>> [path.stem for path in in_order(map(pathlib.Path, ("00_start", "11_gpipe", "40_hybrid")))]
    ['40_hybrid', '11_gpipe', '00_start']
    """
    return sorted(paths, key=lambda path: LONG.index(path.stem) if path.stem in LONG else len(LONG))


def run(paths, *options) -> tuple[int, list[pathlib.Path]]:
    """(pytest's exit code, the notebooks that differ) of one run over these notebooks."""
    differing = Differing()
    code = pytest.main([*NBVAL, TOLERANT, *options, *map(str, paths)], plugins=[differing])
    return int(code), [path for path in paths if any(path.match(one) for one in differing.paths)]


def compare(paths, *options) -> int:
    """Run the notebooks, and again those that differ; the exit code of the last run."""
    code, again = run(paths, *TWO, *options)
    if again:
        print("Two at a time they disturb each other's measurements. Once more, alone:", flush=True)
        code, _ = run(again, *options)
    names = ", ".join(path.stem for path in again) or "none"
    print(f"Tried again, alone: {len(again)} of {len(paths)} notebooks: {names}")
    return code


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", help="their names or files; default: every notebook in notebooks/")
    parser.add_argument("--core", action="store_true", help="only the cells of their cores")
    parser.add_argument("--few", action="store_true", help="only some notebooks of every part of the course")
    asked = parser.parse_args(arguments)
    options = ("-p", "tools.core_cells") if asked.core else ()
    of_the_course = {path.stem: path for path in FOLDER.glob("*.ipynb")}
    wanted = [of_the_course.get(name, pathlib.Path(name)) for name in asked.notebooks]
    if missing := [str(path) for path in wanted if not path.is_file()]:
        parser.error(f"no notebook is named {', '.join(missing)}: choose among {', '.join(sorted(of_the_course))}")
    usual = map(of_the_course.get, FEW) if asked.few else sorted(of_the_course.values())
    return compare(in_order(wanted or usual), *options)


if __name__ == "__main__":
    sys.exit(main())
