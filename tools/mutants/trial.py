"""The trial of one mutant: tests run against it, batch after batch, until one fails or none is left."""

import json
import time
from dataclasses import asdict, dataclass
from functools import partial

from tools.mutants import child
from tools.mutants.draw import Mutant
from tools.mutants.lanes import Call
from tools.mutants.reach import Unit, cost, ordered
from tools.mutants.tree import Tree

LEAST_SECONDS, SLOWER = 60.0, 4.0  # a batch is ended after so long, and so many times what it took without the mutant


@dataclass(frozen=True)
class Verdict:
    """How the trial of a mutant ended.

    by      the test that failed; or what else told it: an import, an end of the process, a limit of time; None: nothing
    seconds of the trial;  unasked  how many tests there was no more time for
    code, test  what the package and the tests that decided were, see `Tree`
    """

    mutant: Mutant
    by: str | None
    seconds: float
    unasked: int
    code: str
    test: str


def trial(tree: Tree, units: list[Unit], mutant: Mutant, patience: float):
    """The work of a lane that tries this mutant; returns a `Verdict`. After so many seconds no test begins."""

    def work(lane):
        begin, by = time.monotonic(), None
        batches = list(ordered(units, mutant.file, mutant.function))
        first = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        with lane.holding(mutant):
            while batches and not by and time.monotonic() - begin < patience:
                by, first = (yield from _failing(lane, batches.pop(0), first)), None
        unasked = 0 if by else sum(len(tests) for batch in batches for _, tests in batch)
        test = tree.test(by.partition("::")[0]) if by else tree.tests()
        return Verdict(mutant, by, round(time.monotonic() - begin, 2), unasked, tree.code(), test)

    return work


def _failing(lane, batch, first):
    """What fails in a batch, or None. A test with ranks has to fail twice: it may have met a busy machine."""
    left = {unit.name: list(tests) for unit, tests in batch}
    while True:
        ended, told = yield from _ran(lane, batch, left, first)
        if not told.failed:
            break
        failed = told.failed[0]
        unit = next((unit for unit, _ in batch if failed in unit.tests and unit.tests[failed].ranks), None)
        if unit is None:
            return failed
        _, again = yield from _ran(lane, [(unit, [failed])], {unit.name: [failed]}, None)
        if again.failed or failed not in again.tests:
            return failed
        for tests in left.values():
            tests[:] = [test for test in tests if test not in told.tests and test != failed]
    if ended.code in (0, 5):  # 5: pytest has found no tests, all were parameters that the mutant has not
        return None
    end = "out of time" if ended.code is None else f"the process ended with {ended.code}"
    return f"{end}, in {told.running}" if told.running else end


def _ran(lane, batch, left, first):
    """Run what is left of a batch; (how the child ended, what it told)."""
    wanted = [test for tests in left.values() for test in tests]
    known = {test for unit, _ in batch for test in (*unit.tests, *unit.others)}
    whole = {unit.name for unit, _ in batch if unit.name.endswith(".ipynb")}  # a cell needs those before it
    left_out = {test for test in known - set(wanted) if test.partition("::")[0] not in whole}
    call = partial(child.run, lane.room, list(left), first, left_out, wanted)
    ended = yield Call(call, LEAST_SECONDS + SLOWER * cost(batch))
    return ended, child.told(lane.room)


class Tried:
    """The verdicts so far, kept in a file: an interrupted bench goes on where it was.

    One is valid as long as the package is the same, and the test that decided; a survivor, as long as all tests are.
    """

    def __init__(self, tree: Tree):
        self.tree, self.file = tree, tree.cache / "tried.jsonl"

    def valid(self, patience: float) -> dict[Mutant, Verdict]:
        """The verdicts that still hold; more patience than was had asks the tests again that were left unasked."""
        found, code, tests = {}, self.tree.code(), self.tree.tests()
        for line in self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else ():
            saved = json.loads(line)
            verdict = Verdict(**saved | {"mutant": Mutant(**saved["mutant"])})
            test = self.tree.test(verdict.by.partition("::")[0]) if verdict.by else tests
            if (verdict.code, verdict.test) == (code, test) and not (verdict.unasked and verdict.seconds < patience):
                found[verdict.mutant] = verdict
        return found

    def add(self, verdict: Verdict):
        """Keep one more."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
