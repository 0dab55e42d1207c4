"""Which tests execute which functions: recorded once from the tree as it is, and kept until it changes.

Only a test that executes a mutated line can fail from it. Recorded is by function: quick enough to follow ranks too.
Tests come in units, which one process runs: a file of tests, or a folder of the package with its doctests.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePath

from tools.mutants import child, tracer
from tools.mutants.draw import MODULE
from tools.mutants.lanes import Call, worked
from tools.mutants.tree import Tree

LIMIT = 3600.0  # seconds for all tests of a unit, traced
LONG = 60.0  # seconds of a batch of several units, at most


@dataclass(frozen=True)
class Test:
    """One test that passes: its seconds, whether it starts processes, and the functions that it runs.

    functions  numbers, see `Unit.names`
    """

    seconds: float
    ranks: bool
    functions: list[int]


@dataclass(frozen=True)
class Unit:
    """What was recorded of one unit.

    name   its file or folder;  code, test  what they were then, see `Tree`
    seconds  of the whole process;  names  of every function that ran in it, "core/where/mesh.py:Mesh.rank"
    tests  those that passed, in order;  others  the rest: they cannot tell a mutant
    """

    name: str
    code: str
    test: str
    seconds: float
    names: list[str]
    tests: dict[str, Test]
    others: list[str]

    def running(self, file: str, function: str) -> list[str]:
        """The tests that run this function; where it is the module itself, those that run anything of it."""
        wanted = {n for n, name in enumerate(self.names) if name == f"{file}:{function}"}
        if function == MODULE:
            wanted = {n for n, name in enumerate(self.names) if name.startswith(f"{file}:")}
        return [name for name, test in self.tests.items() if not wanted.isdisjoint(test.functions)]

    def holds(self, file: str, function: str) -> bool:
        """Whether this function ran at all, perhaps before the first test or with a result that is kept."""
        return f"{file}:{function}" in self.names


def reach(tree: Tree, lanes) -> list[Unit]:
    """What every unit reaches: read where it was recorded, else recorded now. Tests that fail are told."""
    code, names = tree.code(), units(lanes[0]) + tree.books()
    known = {name: _read(tree, name, code) for name in names}
    fresh = [name for name in names if known[name] is None]
    if fresh:
        print(f"recording what {len(fresh)} of {len(names)} files and folders of tests execute", flush=True)
    for unit in worked((partial(_recorded, tree, name, code) for name in fresh), lanes):
        known[unit.name] = unit
        file = _file(tree, unit.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(unit)))
    return list(known.values())


def units(lane) -> list[str]:
    """The units of the tree in this lane."""

    def work(lane):
        ended = yield Call(partial(child.collect, lane.room), LIMIT)
        told = child.told(lane.room)
        if ended.code or told.failed:
            raise RuntimeError(f"the tests cannot be collected: {told.failed or (lane.room / 'said').read_text()}")
        return list(told.tests)

    (tests,) = worked([work], [lane])
    return sorted({_unit_of(test.partition("::")[0]) for test in tests})


def _unit_of(file: str) -> str:
    """
    >>> _unit_of("tests/test_mesh.py"), _unit_of("hybridlab/core/where/mesh.py")
    ('tests/test_mesh.py', 'hybridlab/core')
    """
    path = PurePath(file)
    return file if path.name.startswith("test_") else str(PurePath(*path.parts[:2]))


def _recorded(tree, name, code, lane):
    ended = yield Call(partial(child.trace, lane.room, name, lane.tree / tree.package), LIMIT)
    told = child.told(lane.room)
    if ended.code is None or ended.code < 0 or not told.started:
        raise RuntimeError(f"{name} cannot be recorded: {(lane.room / 'said').read_text()[-2000:]}")
    names, by_test = _seen(lane.room / tracer.SEEN)
    tests = {
        test: Test(told.tests[test], test in told.ranks, sorted(by_test.get(number, ())))
        for number, test in enumerate(told.started, start=1)
        if test in told.tests
    }
    others = [test for test in told.started if test not in tests]
    if told.failed:
        print(f"fails without a mutant, and is not asked: {', '.join(told.failed)}", flush=True)
    return Unit(name, code, tree.test(name), round(ended.seconds, 2), names, tests, others)


def _seen(file: Path) -> tuple[list[str], dict[int, set[int]]]:
    """The names of functions, and for every test's number the functions that it ran."""
    names, by_test = {}, {}
    for line in file.read_text().splitlines() if file.exists() else ():
        number, path, function = line.split("\t")
        place = names.setdefault(f"{path}:{_around(function)}", len(names))
        by_test.setdefault(int(number), set()).add(place)
    return list(names), by_test


def _around(function: str) -> str:
    """The named function that an anonymous one stands in.

    >>> _around("Mesh.group.<locals>.<lambda>"), _around("<lambda>"), _around("f.<locals>.g")
    ('Mesh.group', '<module>', 'f.<locals>.g')
    """
    parts = function.split(".")
    named = next((n for n, part in enumerate(parts) if part.startswith("<") and part != "<locals>"), len(parts))
    kept = parts[:named]
    if kept and kept[-1] == "<locals>":
        kept.pop()
    return ".".join(kept) or MODULE


def _file(tree, name) -> Path:
    return tree.cache / "reach" / f"{name.replace('/', '-')}.json"


def _read(tree, name, code) -> Unit | None:
    """What was recorded of this unit, if nothing has changed since."""
    file = _file(tree, name)
    if not file.exists():
        return None
    unit = Unit(**json.loads(file.read_text()))
    if (unit.code, unit.test) != (code, tree.test(name)):
        return None
    return Unit(**vars(unit) | {"tests": {test: Test(**one) for test, one in unit.tests.items()}})


def ordered(units: list[Unit], file: str, function: str):
    """Batches of tests against a mistake in this function, those first that are likely to notice it soon.

    Yields lists of (unit, its tests). First come the tests that run the function, without ranks and then with; then
    those that ran beside them in one process, where something may have been kept. Among units the one named after the
    file comes first, then the quickest; each batch has twice as many as the one before, unless
    it is `LONG`. A function that nobody was seen
    to run (machine code is not seen) counts as run by all that run anything of its file.
    """
    inside = file.partition("/")[2]
    if not any(unit.holds(inside, function) for unit in units):
        function = MODULE
    named = {unit.name for unit in units if PurePath(file).stem in PurePath(unit.name).stem}
    # what stands in a table of a module, a test may look at without running anything of it
    every = lambda unit: list(unit.tests) if function == MODULE and unit.name in named else []
    runs = {unit.name: every(unit) or unit.running(inside, function) for unit in units}
    rest = {
        unit.name: [test for test in unit.tests if test not in set(runs[unit.name])]
        for unit in units
        if unit.holds(inside, function)
    }
    for tests, ranks in ((runs, False), (runs, True), (rest, False), (rest, True)):
        chosen = []
        for unit in units:
            its = [test for test in tests.get(unit.name, ()) if unit.tests[test].ranks == ranks]
            if its:
                chosen.append((unit, its if ranks else sorted(its, key=lambda test: unit.tests[test].seconds)))
        chosen.sort(key=lambda one: (one[0].name not in named, cost([one])))
        size = 1
        while chosen:
            while size > 1 and cost(chosen[:size]) > LONG:
                size -= 1
            yield chosen[:size]
            chosen, size = chosen[size:], 2 * size


def cost(batch) -> float:
    """The seconds that these tests of these units took when they were recorded."""
    return sum(
        sum(unit.tests[test].seconds for test in its)
        + max(0.0, unit.seconds - sum(test.seconds for test in unit.tests.values()))
        for unit, its in batch
    )
