"""The predictor's scoreboard: predict every published run without using its source, and write the errors to a page.

python -m tools.scoreboard            write results/predictor.json and docs/predictor.md
python -m tools.scoreboard --check    write nothing; fail where they are not current
python -m tools.scoreboard --against FOLDER
                                      compute the errors on vTrain's rows again, from its folder `data`

All times are answers of `hl.plan`, with every field of the plan fixed and the fraction of the peak given as `fit`.
"""

import argparse
import json
import sys

import numpy as np

from hybridlab.predict.judged import bars, held_out, megatron, on_tpus, others, peaks, scores
from hybridlab.predict.judged.calibrated import shares
from hybridlab.predict.judged.explained import why
from hybridlab.predict.judged.run import Run
from hybridlab.predict.papers import sc21
from hybridlab.predict.papers.published import published
from tools.course import HOUSE
from tools.predictor_page import GROUPS, page

RECORD, PAGE = HOUSE / "results" / "predictor.json", HOUSE / "docs" / "predictor.md"
GAP = 4 / 3  # the largest ratio of left-out errors to those of rows whose source was used


def found() -> dict:
    """The content of the record."""
    every = scores.judged(Run.called)
    runs = [one.run for one in every]
    record = {
        "groups": {name: {str(key): one._asdict() for key, one in scores.by(every, name).items()} for name in GROUPS},
        "shares": [
            {"machine": machine, "source": source, "share": round(share, 4)}
            for (machine, source), share in shares(runs).items()
        ],
        "rows": [_row(one) for one in every],
        "pairs": [
            {"faster": str(one.faster), "slower": str(one.slower), "source": one.faster.source, "right": one.right}
            for one in scores.pairs(every)
        ],
        "memory": [one._asdict() | {"error": one.error} for one in peaks.peaks()],
        "left_out": _left_out(),
        "bars": {f"{near}, {kind}": [*one] for (near, kind), one in bars.bars(every).items()},
        "calibrated": {kind: [*one] for kind, one in bars.calibrated(every).items()},
        "seen": _seen(every),
        "covered": _covered(every),
        "before": {name: {"date": held_out.DATES[name]} | one._asdict() for name, one in held_out.before(runs).items()},
        "ceilings": _ceilings([run for run in runs if run.kind == "experts"]),
        "constants": held_out.constants(),
        "aside": [one._asdict() for one in others.ASIDE],
        "peers": [peer._asdict() for peer in others.PEERS],
    }
    return {"targets": _targets(every, record)} | record


def _row(one) -> dict:
    run = one.run
    return {
        "source": run.source, "note": run.note, "model": run.model, "machine": run.machine, "devices": run.plan.devices,
        "precision": run.precision, "kind": run.kind, "software": run.software, "context": run.shape.context,
        "batch": run.batch, "plan": str(run.plan), "measured_seconds": run.seconds,
        "predicted_seconds": run.seconds / (1 + one.error), "error": one.error, "share": one.share, "why": why(run),
        "calibrated_on": list(one.sources),
    }  # fmt: skip


def _seen(every) -> list[dict]:
    """Of each kind, and of all rows: how many do not fit; the errors left out, and those with the planner's own share,
    for which the row's own source was used too."""
    groups = {}
    for one in every:
        groups.setdefault(one.run.kind, []).append((one.error, one.run.called(), not one.run.fits))
    groups["all"] = [row for rows in groups.values() for row in rows]
    return [{"kind": kind} | _gap(*zip(*rows)) for kind, rows in groups.items()]


def _gap(left_out, seen, refused) -> dict:
    quantiles = lambda errors: [float(np.quantile(np.abs(errors), share)) for share in (0.5, 0.9)]
    return {"rows": len(seen), "refused": sum(refused), "left_out": quantiles(left_out), "seen": quantiles(seen)}


def _covered(every) -> list[dict]:
    groups = held_out.coverage(every)
    named = {f"{near}, {kind}": one for (near, kind), one in groups.items()}
    named["all"] = held_out.overall(groups, len(scores.by(every, "source")))
    return [{"group": name} | one._asdict() for name, one in named.items()]


def _ceilings(runs) -> dict[str, float]:
    """The smallest error of nine in ten rows with experts: with one number for each plan, and for plan and program."""
    plan = lambda run: (run.model, run.machine, run.precision, run.plan, run.batch)
    program = lambda run: (*plan(run), run.software)
    return {"plan": held_out.ceiling(runs, plan), "program": held_out.ceiling(runs, program)}


def _targets(every, record) -> list[dict]:
    kinds, size = scores.by(every, "kind"), lambda some: np.abs([one.error for one in some])
    dense, experts, pairs = kinds["dense"], kinds["experts"], record["pairs"]
    in_all, all_covered = (next(one for one in record[name] if "all" in one.values()) for name in ("seen", "covered"))
    held = lambda source: float(np.median([abs(one["error"]) for one in record["memory"] if one["source"] == source]))
    aside = [one for one in others.ASIDE if one.goal]
    most = [
        ("all rows, median error", in_all["left_out"][0], 0.06),
        ("all rows, 90th percentile", in_all["left_out"][1], 0.20),
        ("each source one vote, mean of the medians", held_out.votes(every), 0.07),
        ("dense rows in 16 bits, median error", dense.median, 0.06),
        ("dense rows in 16 bits, 90th percentile", dense.nine_of_ten, 0.15),
        *((f"{kind} rows, median error", one.median, 0.10) for kind, one in kinds.items() if kind != "dense"),
        ("experts rows, 90th percentile", experts.nine_of_ten, 0.20),
        ("rows whose experts are on several nodes, median error",
         float(np.median(size(one for one in every if held_out.crosses(one.run)))), 0.12),
        ("rows on TPUs, median error",
         float(np.median(size(one for one in every if one.run.machine.startswith("tpu")))), 0.08),
        *((f"vTrain, {one.what}, median error", one.median, one.goal) for one in aside),
        ("A100 without any calibration (selective_recomputation), mean error",
         float(np.mean([abs(run.error()) for run in megatron.selective()])), 0.036),
        ("SC'21 table 1, leave one out, mean error", sc21.errors().means[1], 0.02),
        *((f"memory ({source}), median error", held(source), 0.02)
          for source in ("zero_bubble_tables", "simumax_b200_memory")),
        ("published runs that do not fit, by the planner", in_all["refused"] / in_all["rows"], 0.05),
        ("left-out median, more than with the row's own source",
         in_all["left_out"][0] / in_all["seen"][0] - 1, GAP - 1),
    ]  # fmt: skip
    least = [
        ("dense rows within 15 %", float(np.mean(size(one for one in every if one.run.kind == "dense") <= 0.15)), 0.9),
        (f"order: pairs predicted in the right order, of {len(pairs)}",
         sum(one["right"] for one in pairs) / len(pairs), 0.9),
        ("rows inside the bar of half, their source left out", all_covered["half"], 0.45),
        ("rows inside the bar of nine in ten, their source left out", all_covered["nine_of_ten"], 0.85),
    ]  # fmt: skip
    told = lambda what, value, goal, met: {"what": what, "found": value, "goal": goal, "met": bool(met)}
    return [told(*one, one[1] <= one[2]) for one in most] + [told(*one, one[1] >= one[2]) for one in least]


def _left_out() -> list[dict]:
    rows = [row for row in published("megatron_bridge") if megatron.left_out(row)]
    reasons = {}
    for row in rows:
        reasons.setdefault((row["kind"], row["model"], megatron.left_out(row)), []).append(row)
    offloaded = [row for row in on_tpus.rows("v5e") if on_tpus.left_out(row)]
    return [
        {
            "source": "maxtext_tpu_v5e",
            "what": "pre-training, 128b",
            "rows": len(offloaded),
            "why": on_tpus.left_out(offloaded[0]),
        },
        *(
            {"source": "megatron_bridge", "what": f"{kind}, {name}", "rows": len(some), "why": reason}
            for (kind, name, reason), some in reasons.items()
        ),
    ]


def _rounded(value):
    """Numbers rounded to seven digits, so that all machines write the same record."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def _again(folder: str) -> int:
    """Compare the stored errors on vTrain's rows with new ones."""
    pairs = list(zip(others.ASIDE, others.found(folder)))
    for stored, new in pairs:
        print(f"{'same   ' if new == stored else 'CHANGED'}  {new}")
    over = others.without_room(folder)
    print(f"{'same   ' if over == others.OVER else 'CHANGED'}  {over} runs do not fit without recomputation")
    return int(over != others.OVER or any(new != stored for stored, new in pairs))


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is not current")
    parser.add_argument("--against", metavar="FOLDER", help="of vTrain: compute the errors on its rows again")
    chosen = parser.parse_args(arguments)
    if chosen.against:
        return _again(chosen.against)
    check = chosen.check
    record = _rounded(found())
    made = {RECORD: json.dumps(record, indent=1, ensure_ascii=False) + "\n", PAGE: page(record)}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(HOUSE)}: {'not current; run  make scoreboard' if check else 'written'}")
        if not check:
            path.write_text(made[path], encoding="utf-8")
    for one in record["targets"]:
        print(f"{'met   ' if one['met'] else 'MISSED'}  {one['what']}: {one['found']:.1%}, aim {one['goal']:.1%}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
