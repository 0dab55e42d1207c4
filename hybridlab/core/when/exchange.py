"""Write a schedule as text or as a file, and read it.

One text form, PyTorch's, in four spellings; all of them can be read:

    0F0,0F1,,0B0             a CSV file: a line is a rank, a cell an action; empty cells are idle slots
    rank 0: 0F0 0F1 0B0      what `print(schedule)` shows
    0F0 0F1    0B0  # warm   typed, or pasted from a grid: blanks, tabs, commas or semicolons between the actions
    Step 0: 0F0     1F0      PyTorch's printed table, under its head: a line is a step, a column a rank

A blank line between two ranks is an idle rank, as in PyTorch's files. Blank lines before the first rank and after the
last are skipped; where the lines name their ranks, all of them are. An idle rank may also be written `""` (as we do),
`,` or `rank 2:`. A comment goes from # to the end of its line, and a line with only a comment is skipped; but a #
before a digit is a weight version, as in 0F0#3.

The text contains each rank's actions in order. What follows from that is read back: places, replicas, chunks, windows,
data-parallel copies, and skips and breaks where messages are written out. A CSV file begins with lines for the other
facts, such as slices=3 (`stated`). The name is kept by JSON only.

`Schedule` uses this file and has its functions as methods (`to_csv`, `from_csv`, `save`, `load`, …). So what is read
here are *facts*: the arguments of `Schedule.of`.
"""

import io
import itertools
import json
import os
import re
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from hybridlab.core.files import put, regular
from hybridlab.core.when import stated
from hybridlab.core.when.action import COLLECTIVES, MOST, SWAPS, Action, last_backwards
from hybridlab.core.when.inferred import checked, completed

if TYPE_CHECKING:
    from hybridlab.core.when.schedule import Schedule

FORMAT, VERSION = "hybridlab.schedule", 1
RANKS, LINES, BYTES = 128, 100_000, 8 * 2**20  # larger schedules are not read

T = TypeVar("T")
_COMMENT = re.compile(r"(?:^|(?<=[\s,;]))#(?!\d).*")
_NAME = re.compile(r"""\s*["']?rank\s*([0-9]{1,6})\b["']?\s*[:,;\t]?""", re.IGNORECASE)
_HEAD = re.compile(r"\s*Rank 0(?:\s+Rank [0-9]+)*\s*")
_TOKEN = re.compile(r"""\([^()]*\)\w*|[,;\t]|[^\s,;"']+""")

# --- out ---------------------------------------------------------------------------------------------------------


def to_text(schedule: "Schedule") -> str:
    """The text form: the facts that the actions do not contain, then a line per rank with a cell per action."""
    ranks = (",".join(map(str, program)) + "\n" if program else '""\n' for program in schedule.program)
    return stated.lines_of(schedule) + "".join(ranks)


def to_pytorch(schedule: "Schedule") -> str:
    """The text form for `_load_csv` of PyTorch's runtime; lowered schedules load with `format="compute_comms"`.

    That runtime divides the gradients by m in REDUCE_GRAD. It adds that action itself to lists without messages; in a
    lowered schedule, this function adds it after the last backward of every stage that has none.

    raises  ValueError that names the first thing which PyTorch's form cannot express (it would read 0F0@1 as 0F0)

    >>> from hybridlab.core.when.schedule import Schedule
    >>> to_pytorch(Schedule.from_csv("0F0@1 0B0@1"))
    Traceback (most recent call last):
    ...
    ValueError: PyTorch's form cannot express 0F0@1 (rank 0, cell 1): PyTorch has no model replicas; leave it out
    """
    for rank, program in enumerate(schedule.program):
        for number, action in enumerate(program, 1):
            if lacks := next(filter(None, (_beyond_pytorch(part, schedule) for part in action.each)), ""):
                where = f"{action} (rank {rank}, cell {number})"
                raise ValueError(f"PyTorch's form cannot express {where}: PyTorch has no {lacks}; leave it out")
    beyond = {
        "skip from stage to stage": schedule.skips,
        "break between stages": schedule.breaks,
        "tie of stages": schedule.tied,
        "exchange": schedule.exchanges,
    }
    for what, groups in beyond.items():
        if groups:
            raise ValueError(f"PyTorch's form cannot express the {what} {', '.join(map(str, groups[0]))}: leave it out")
    cells = map(_with_sums, schedule.program) if schedule.lowered else (map(str, one) for one in schedule.program)
    return "".join(",".join(rank) + "\n" for rank in cells)


def _with_sums(program: Sequence[Action]) -> list[str]:
    """The cells of one rank, with a REDUCE_GRAD after the last backward of each stage that has none."""
    summed = {action.stage for action in program if action.kind == "REDUCE_GRAD"}
    ends = [(number, stage) for (stage, _), number in last_backwards(program).items() if stage not in summed]
    cells = [[str(action)] for action in program]
    for number, stage in ends:
        cells[number].append(f"{stage}REDUCE_GRAD")
    return list(itertools.chain.from_iterable(cells))


def _beyond_pytorch(action, schedule):
    alone = schedule.ranks > 1 and not schedule.lowered
    lacks = {
        f"{action.kind} in a list without messages (lower it first)": alone and action.kind in COLLECTIVES,
        f"action of kind {action.kind}": action.kind in ("C", "R", "OPT", "NORM", "VALID", *SWAPS),
        "messages that skip stages": action.peer >= 0,
        "model replicas": action.replica > 0,
        "weight versions": action.version >= 0,
    }
    return next((what for what, needed in lacks.items() if needed), None)


def to_dict(schedule: "Schedule") -> dict:
    """A schedule as plain values, with its actions as text; JSON stores these."""
    facts = {key: getattr(schedule, key) for key in FACTS}
    facts |= {key: [list(stages) for stages in facts[key]] for key in LISTED}
    program = [list(map(str, actions)) for actions in schedule.program]
    return {"format": FORMAT, "version": VERSION, **facts, "program": program}


def written(text: str, path: str | PathLike[str] | None = None) -> str:
    """The text itself, written to `path` if one is given."""
    if path is not None:
        put(path, text)
    return text


# --- in ----------------------------------------------------------------------------------------------------------


def from_source(source: str | PathLike[str], name: str = "typed order") -> dict:
    """The facts in a text, or in the text file at a path: a `Path`, or one line that ends in .csv, .tsv or .txt."""
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"a schedule cannot be read from a {type(source).__name__}: give a string or a path")
    if isinstance(source, str) and ("\n" in source or not source.endswith((".csv", ".tsv", ".txt"))):
        return from_text(source, name)
    return from_text(read(source), name)


def load(source: str | PathLike[str] | io.IOBase) -> dict:
    """The facts in a file, given by its path or open for reading bytes: saved JSON, or a text form."""
    text = read(source)
    if text.lstrip()[:1] != "{":
        return from_text(text)
    try:
        saved = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("this file is damaged JSON: save it again with schedule.save(path)") from None
    return from_dict(saved)


def read(source: str | PathLike[str] | io.IOBase) -> str:
    """The text in a file, given by its path or open for reading bytes."""
    try:
        if isinstance(source, io.IOBase):
            raw = source.read(BYTES + 1)
        else:
            with open(regular(source, "the schedule file"), "rb") as file:
                raw = file.read(BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read the schedule: {error.strerror}") from None
    if len(raw) > BYTES:
        raise ValueError(f"this file is too long for a schedule: give at most {BYTES // 2**20} MB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} of this file is not text: save the schedule as UTF-8 text") from None


def from_text(text: str, name: str = "typed order") -> dict:
    """The facts in a text, in any of these forms; the schedule need not be valid.

    raises  ValueError that names line and cell, and the valid entries

    >>> facts = from_text("0F0 0F1 0B0 0B1  # first stage\\n1F0 1B0 1F1 1B1")
    >>> facts["place"], facts["microbatches"]
    ({(0, 0): 0, (1, 0): 1}, 2)
    """
    if len(text) > BYTES:
        raise ValueError(f"this text is too long for a schedule: give at most {BYTES // 2**20} MB")
    if (nul := text.find("\0")) >= 0:
        raise ValueError(f"character {nul} is a NUL byte, so this is not text: write actions, such as 0F0 0B0")
    if text.lstrip()[:1] == "{":
        raise ValueError("this text is JSON: read it from a file with Schedule.load(path)")
    said, lines = stated.first_of(_lines(text))
    first = next(((number, line) for number, line in lines if line.strip()), (0, ""))
    is_table = _HEAD.fullmatch(first[1])
    ranks = _columns(first[1], lines) if is_table else _rows(itertools.chain([first], lines))
    made = completed(name, ranks, "line {}, cell {}")
    for key, (number, value) in said.items():
        if not _is_sound(made, key, value):
            raise ValueError(f"line {number}: {key} does not fit the actions: correct it, or leave it out")
    told = {key: tuple(map(tuple, value)) if key in LISTED else value for key, (_, value) in said.items()}
    return checked(made | told)


def _lines(text):
    """Yield (number, line) without comments, and without the lines that have only a comment."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if number > LINES or len(line) > BYTES // 4:
            raise ValueError(
                f"line {number} is beyond the limits: give at most {LINES} lines of {BYTES // 4} characters"
            )
        said = _COMMENT.sub("", line)
        if said.strip() or not line.strip():
            yield number, said


def _rows(lines):
    """Yield the cells of every rank, from a text with a line per rank."""
    rank, blank, named = 0, 0, None
    for number, line in lines:
        if not line.strip():
            blank += 1
            continue
        name = _NAME.match(line)
        named = bool(name) if named is None else named
        idle = 0 if named else blank
        rank += idle
        if rank >= RANKS:
            raise ValueError(f"line {number} would be rank {rank}: give at most {RANKS} ranks")
        if bool(name) != named:
            raise ValueError(f"line {number} differs from the others: write 'rank {rank}:' on every line, or on none")
        if name and int(name[1]) != rank:
            raise ValueError(
                f"line {number} is labelled rank {int(name[1])}: label it rank {rank}, and list each "
                "rank once, in order"
            )
        yield from itertools.repeat((), idle)
        yield _cells(number, line[name.end() :] if name else line)
        rank, blank = rank + 1, 0


def _cells(number, line):
    """Yield (line, cell, text) for every action on a line; empty cells count."""
    borders = words = 0
    for token in _TOKEN.finditer(line):
        if token[0] in ",;\t":
            borders += 1
        else:
            yield number, max(borders, words) + 1, token[0]
            words += 1


def _columns(head, lines):
    """The cells of every rank, from PyTorch's table with a line per step and a column per rank."""
    starts = [column.start() for column in re.finditer("Rank", head)]
    if len(starts) > RANKS:
        raise ValueError(f"this table has {len(starts)} ranks, and the limit is {RANKS}: give fewer")
    columns = [[] for _ in starts]
    for number, line in lines:
        for rank, (start, end) in enumerate(itertools.pairwise([*starts, len(line)])):
            if cell := line[start:end].partition("<--")[0].strip():
                columns[rank].append((number, rank + 1, cell))
    return columns


# --- JSON --------------------------------------------------------------------------------------------------------

LISTED = ("skips", "breaks", "exchanges", "tied")
FACTS = ("name", "chunks", "slices", "pieces", "window", "dp", *LISTED)  # stored besides the program


def refuse_version(what: str, version: object, read: int) -> None:
    """Raise ValueError unless a file has the version that this hybridlab reads."""
    if version != read:
        newer = isinstance(version, int) and version > read
        remedy = "update hybridlab" if newer else "save it again with this hybridlab"
        raise ValueError(f"this {what} has format version {version!r}, but this hybridlab reads {read}: {remedy}")


def from_dict(saved: dict) -> dict:
    """The facts stored by `to_dict`.

    raises  ValueError if the input is something else, of a later version, or damaged
    """
    kept = saved.get("format") if isinstance(saved, dict) else None
    if kept != FORMAT:
        is_timeline = kept == "hybridlab.timeline"
        hint = "take it from Timeline.load(path).schedule" if is_timeline else "save one with schedule.save(path)"
        raise ValueError(f"this JSON is not a saved hybridlab schedule: {hint}")
    refuse_version("schedule", saved.get("version"), VERSION)
    saved = {"exchanges": [], "breaks": [], "slices": 1, "pieces": 0} | saved  # older files have none
    program = saved.get("program")
    if not _is_lists(program, str):
        raise ValueError("the saved schedule has no lists of actions under 'program': save it again")
    cells = [[(rank, i, cell) for i, cell in enumerate(actions)] for rank, actions in enumerate(program)]
    made = completed("saved", cells, "program[{}][{}]")
    for key in FACTS:
        if not _is_sound(made, key, saved.get(key)):
            raise ValueError(f"the saved schedule is damaged at {key!r}: save it again")
    told = {key: saved[key] for key in FACTS} | {key: tuple(map(tuple, saved[key])) for key in LISTED}
    return checked(made | told | {"microbatches": len(made["replica_of"]) // saved["dp"]})


def _is_sound(made, key, value):
    """Whether a saved fact has the right type, and agrees with the actions."""
    if key == "name":
        return isinstance(value, str)
    if key in LISTED:
        stages = {stage for stage, _ in made["place"]}
        pairs = key == "tied" or _is_lists(value, int) and all(len(edge) == 2 for edge in value)
        sound = _is_lists(value, int) and pairs and stages.issuperset(itertools.chain(*value))
        return sound and (key != "breaks" or all(end == begin + 1 for begin, end in value))
    if type(value) is not int or not 0 <= value < MOST:
        return False
    if key == "window":
        return bool(value) == bool(made["window"])
    stages = 1 + max(stage for stage, _ in made["place"])
    if key == "slices":
        return value > 0 and stages % value == 0
    if key == "pieces":
        return not value or value + 1 < stages
    return value > 0 and (key == "chunks" or len(made["programs"]) % value == len(made["replica_of"]) % value == 0)


def _is_lists(value, kind: type[T]) -> TypeGuard[list[list[T]]]:
    return isinstance(value, list) and all(
        isinstance(one, list) and all(type(item) is kind for item in one) for one in value
    )
