"""Draw mutants, run the tests of `make test` against each, and tell which survive; writes results/mutants.json.

    python -m tools.mutants [--number 200] [--seed 0] [--workers 2] [--minutes M] [--patience 300]
    python -m tools.mutants --floors world predict --out results/mutants-elsewhere.json     of other folders
    python -m tools.mutants --kinds meaning --out results/mutants-meaning.json     mistakes in meaning, see `meanings`
    python -m tools.mutants --list                          the mutants, without a trial
    python -m tools.mutants --only hybridlab/core/where/mesh.py   those of one file or folder; the record stays as it is
    python -m tools.mutants --again                         those that no test noticed, in the record; the rest stands

What is done is kept in build/mutants: an interrupted bench goes on, and one with a new test tries survivors again.
"""

import argparse
import gc
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

from tools.mutants.draw import KINDS, Mutant, drawn
from tools.mutants.lanes import opened, worked
from tools.mutants.reach import reach
from tools.mutants.report import accepted, found_again, gone, good, record, standing, text, unnoticed
from tools.mutants.tree import Tree
from tools.mutants.trial import Tried, Verdict, trial

HOUSE = pathlib.Path(__file__).resolve().parents[2]
FLOORS = "core", "runtime", "modes", "training", "scheduling"
HYBRIDLAB = Tree(HOUSE, "hybridlab", FLOORS, HOUSE / "build" / "mutants")
RESULTS = HOUSE / "results" / "mutants.json"
PATIENCE = 300.0
WARM = (  # what tests import, and what is no mutant's
    "torch", "torch.distributed", "torch._dynamo", "numpy", "numba", "pytest", "hypothesis", "safetensors.torch",
    "cloudpickle", "plotly.graph_objects", "IPython", "ipywidgets", "anywidget", "nbformat", "nbval.plugin",
)  # fmt: skip


def warm_up():
    """Import once what every child would import, with one thread: lanes share the cores."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # read when numpy and torch are imported
    for name in WARM:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every page that the children share


def bench(tree: Tree, chosen, workers, minutes=float("inf"), patience=PATIENCE) -> tuple[list[Mutant], list[Verdict]]:
    """The mutants that `chosen(tree)` names, and the verdicts on those that there was time for, in their order.

    minutes   after which no trial begins;  patience  seconds of a trial after which no test begins
    """
    begin = time.monotonic()
    with opened(tree.root, workers + 1) as (still, *lanes):
        tree = replace(tree, root=still.tree)  # as it was at the start, whatever is written meanwhile
        mutants, tried = chosen(tree), Tried(tree)
        units, known = reach(tree, lanes), tried.valid(patience)
        waiting = [one for one in mutants if one not in known]
        print(f"{len(mutants)} mutants, {len(mutants) - len(waiting)} tried before", flush=True)
        works = (trial(tree, units, one, patience) for one in waiting)
        for number, verdict in enumerate(worked(works, lanes, begin + 60 * minutes), start=1):
            tried.add(verdict)
            known[verdict.mutant] = verdict
            by = verdict.by or "SURVIVED"
            print(f"{number}/{len(waiting)}  {verdict.seconds:6.1f} s  {verdict.mutant}  {by}", flush=True)
    return mutants, [known[one] for one in mutants if one in known]


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floors", nargs="+", default=FLOORS, metavar="FOLDER", help=f"default: {' '.join(FLOORS)}")
    parser.add_argument("--kinds", nargs="+", default=("line",), choices=tuple(KINDS), help="default: line")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, metavar="FILE", help="the record")
    parser.add_argument("--only", default="", metavar="PATH", help="of the mutants drawn, those of this file or folder")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time; default: 2")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no trial begins after so long")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for a mutant that no test notices")
    parser.add_argument("--notebooks", action="store_true", help="run notebooks against survivors too (slow)")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--again", action="store_true", help="only those of the record that no test had noticed")
    asked = parser.parse_args(arguments)
    before = json.loads(asked.out.read_text(encoding="utf-8")) if asked.again else {}
    house = replace(HYBRIDLAB, floors=tuple(asked.floors), notebooks=asked.notebooks)

    def chosen(tree):
        if asked.again:
            return [one for row in unnoticed(before) if (one := found_again(row, tree.root))]
        every = drawn(tree.root, tree.files(), asked.number, asked.seed, tuple(asked.kinds))
        return [one for one in every if one.file.startswith(asked.only)]

    if asked.list:
        print(*(f"{one.operator:10} {one}" for one in chosen(house)), sep="\n")
        return 0
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no child stays behind
    warm_up()
    mutants, verdicts = bench(house, chosen, asked.workers, asked.minutes, asked.patience)
    if asked.again:
        verdicts = standing(before, verdicts)
    found = record(verdicts, accepted() | (gone(before, HOUSE) if asked.again else {}))
    print(f"\n{text(found)}")
    if asked.again:
        head = {name: value for name, value in before.items() if name not in found}
        head["again"] = {"commit": _commit(), "took": round(time.monotonic() - begin), "tried": len(mutants)}
        asked.out.write_text(json.dumps(head | found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    elif asked.only or len(verdicts) < len(mutants):
        print(f"{len(verdicts)} of {len(mutants)} tried: a part of the bench is not recorded")
    else:
        floors = "" if house.floors == FLOORS else f" --floors {' '.join(house.floors)}"
        kinds = "" if asked.kinds == ("line",) else f" --kinds {' '.join(asked.kinds)}"
        head = {
            "command": f"make mutants ARGS='--number {asked.number} --seed {asked.seed}{floors}{kinds}'",
            "seed": asked.seed,
        }
        head |= {"commit": _commit(), "took": round(time.monotonic() - begin), "machine": _machine()}
        asked.out.write_text(json.dumps(head | found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(not good(found))


def _commit() -> str:
    """The commit of the tree, with a + where files differ from it."""
    git = lambda *words: subprocess.run(["git", *words], cwd=HOUSE, capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "hybridlab", "tests"))


def _machine() -> dict:
    from hybridlab.training.run import provenance  # when no child is forked any more: theirs comes from their copy

    return provenance()


if __name__ == "__main__":
    sys.exit(main())
