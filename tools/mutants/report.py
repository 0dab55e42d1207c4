"""What the bench has found, in words and as a record."""

import tomllib
from collections import Counter
from dataclasses import asdict
from pathlib import Path, PurePath

from tools.mutants.draw import KINDS, Mutant, candidates
from tools.mutants.trial import Verdict

ACCEPTED = Path(__file__).with_name("accepted.toml")
LEAST = 0.95  # of the mutants, that tests notice


def accepted(file: Path = ACCEPTED) -> dict[tuple, str]:
    """{(file, line before, line after): why the mutant may survive}."""
    rows = tomllib.loads(file.read_text(encoding="utf-8")).get("survivor", [])
    return {(row["file"], row["before"], row["after"]): row["why"] for row in rows}


def gone(found: dict, root: Path) -> dict[tuple, str]:
    """{(file, line before, line after): "…"} of the survivors in a record whose line is in the code no more."""
    rows = [row for row in found["mutants"] if not row["killed_by"] and not found_again(row, root)]
    return {(row["file"], row["before"], row["after"]): "This line is gone." for row in rows}


def why(mutant: Mutant, reasons: dict) -> str | None:
    """Why this mutant may survive, or None."""
    return reasons.get((mutant.file, mutant.before.strip(), mutant.after.strip()))


def record(verdicts: list[Verdict], reasons: dict) -> dict:
    """The figures, and what became of each mutant."""
    killed = [one for one in verdicts if one.by]
    explained = [one for one in verdicts if not one.by and why(one.mutant, reasons)]
    return {
        "tried": len(verdicts),
        "killed": len(killed),
        "explained": len(explained),
        "share": round(len(killed) / max(1, len(verdicts)), 4),
        "floors": _shares(verdicts, lambda mutant: PurePath(mutant.file).parts[1]),
        "operators": _shares(verdicts, lambda mutant: mutant.operator),
        "mutants": [_row(one, reasons) for one in verdicts],
    }


def _shares(verdicts, part) -> dict[str, dict]:
    """{part: how many were tried, and killed}."""
    tried = Counter(part(one.mutant) for one in verdicts)
    killed = Counter(part(one.mutant) for one in verdicts if one.by)
    return {name: {"tried": count, "killed": killed[name]} for name, count in sorted(tried.items())}


def _row(verdict, reasons):
    mutant = {name: value for name, value in asdict(verdict.mutant).items() if name != "function"}
    mutant |= {"before": mutant["before"].strip(), "after": mutant["after"].strip()}
    said = {} if verdict.by else {"why": why(verdict.mutant, reasons), "unasked": verdict.unasked}
    return mutant | {"killed_by": verdict.by, "seconds": verdict.seconds} | said


def unnoticed(found: dict) -> list[dict]:
    """The rows of a record that no test noticed and nothing explains."""
    return [row for row in found["mutants"] if not row["killed_by"] and not row["why"]]


def found_again(row: dict, root: Path) -> Mutant | None:
    """The mutant of a row in the code as it is, wherever its line stands by now; None where it is gone."""
    same = lambda one: (one.before.strip(), one.after.strip()) == (row["before"], row["after"])
    return next((one for one in candidates(root, row["file"], tuple(KINDS)) if same(one)), None)


def standing(found: dict, again: list[Verdict]) -> list[Verdict]:
    """All verdicts of a record, with those that were tried again in the places of the old ones."""
    key = lambda file, before, after: (file, before.strip(), after.strip())
    newer = {key(one.mutant.file, one.mutant.before, one.mutant.after): one for one in again}
    return [newer.get(key(row["file"], row["before"], row["after"]), _verdict(row)) for row in found["mutants"]]


def _verdict(row: dict) -> Verdict:
    mutant = Mutant(row["file"], row["line"], row["operator"], row["before"], row["after"], "")
    return Verdict(mutant, row["killed_by"], row["seconds"], row.get("unasked", 0), "", "")


def text(found: dict) -> str:
    """The record as a page: shares by floor and by kind of mistake, then the survivors."""
    lines = [f"{'':12} tried  killed"]
    for part in ("floors", "operators"):
        lines += [f"{name:12} {one['tried']:5}  {one['killed']:6}" for name, one in found[part].items()] + [""]
    tried, killed, explained = found["tried"], found["killed"], found["explained"]
    share = lambda number: f"{number / max(1, tried):.1%}"
    lines.append(f"killed {killed} of {tried}: {share(killed)}, at least {LEAST:.0%}")
    lines.append(f"killed or explained {killed + explained} of {tried}: {share(killed + explained)}")
    for head, wanted in (("no test notices", False), ("may survive", True)):
        some = [one for one in found["mutants"] if not one["killed_by"] and bool(one["why"]) is wanted]
        lines += ["", f"{head}:"] if some else []
        for one in some:
            left = f"  ({one['unasked']} slow tests not asked)" if one["unasked"] else ""
            lines.append(f"  {one['file']}:{one['line']}  {one['before']}  →  {one['after'] or '(nothing)'}{left}")
            lines += [f"    {one['why']}"] if wanted else []
    return "\n".join(lines)


def good(found: dict) -> bool:
    """Whether enough mutants are killed, and every survivor is explained."""
    return found["share"] >= LEAST and found["killed"] + found["explained"] == found["tried"] > 0
