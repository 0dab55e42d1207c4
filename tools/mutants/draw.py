"""Which mutants are tried: every one-line mistake that can be made in some folders, and a number of them by a seed."""

import ast
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from tools.mutants.edits import OPERATORS, Edit, Source
from tools.mutants.meanings import MEANINGS
from tools.mutants.words import words

KINDS = {"line": OPERATORS, "meaning": MEANINGS}

DECLARED = ("__all__", "__slots__")
MODULE = "<module>"  # the function around a line that runs when the module is imported, as Python calls it


@dataclass(frozen=True)
class Mutant:
    """One line of one file, before and after.

    file      its path in the tree;  line  its number, from 1;  before, after  the line without its end
    operator  the kind of mistake, see `edits.OPERATORS` and `meanings.MEANINGS`
    function  the qualified name of the function around it, or "<module>"
    """

    file: str
    line: int
    operator: str
    before: str
    after: str
    function: str

    def __str__(self):
        return f"{self.file}:{self.line}  {self.before.strip()}  →  {self.after.strip() or '(nothing)'}"

    def applied(self, text: str) -> str:
        """The text of the file with this mistake in it; raises ValueError when the line is another one by now."""
        lines = text.split("\n")
        if lines[self.line - 1] != self.before:
            raise ValueError(f"{self.file}:{self.line} is no longer {self.before.strip()!r}: draw again")
        lines[self.line - 1] = self.after
        return "\n".join(lines)


@cache
def candidates(root: Path, file: str, kinds: tuple[str, ...] = ("line",)) -> tuple[Mutant, ...]:
    """Every mutant of one file of these kinds, by line; some do not compile (see `drawn`)."""
    source = Source((root / file).read_text(encoding="utf-8"))
    operators = {name: one for kind in kinds for name, one in KINDS[kind].items()}
    found = set()
    for node, function in _behaviour(source.tree, MODULE, "", words(source.tree)):
        for name, operator in operators.items():
            if name == "statement" and function == MODULE:  # a name that is missing: no import survives
                continue
            for edit in operator(node, source):
                found.add(_mutant(file, name, edit, source, function))
    return tuple(sorted(found, key=lambda one: (one.line, one.operator, one.after)))


def _mutant(file, name, edit: Edit, source, function):
    line = source.lines[edit.line - 1]
    after = line[: edit.begin] + edit.new.encode() + line[edit.end :]
    return Mutant(file, edit.line, name, line.decode(), after.decode(), function)


def _behaviour(node: ast.AST, function: str, prefix: str, skipped: set) -> Iterator[tuple[ast.AST, str]]:
    """Yield (node, the function that runs it) for every node that says what the package does.

    prefix  what Python puts before the name of a function that is defined here
    """
    if node in skipped or _is_declaration(node):
        return
    yield node, function
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "annotation", "returns"):
            continue
        inside = function, prefix
        if field == "body" and isinstance(node, ast.ClassDef):
            inside = function, f"{prefix}{node.name}."
        elif field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{prefix}{node.name}", f"{prefix}{node.name}.<locals>."
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _behaviour(child, *inside, skipped)


def _is_declaration(node) -> bool:
    """Whether a node is a docstring, a formatted text, a list of names, or for type checkers or scripts only."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())) | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in DECLARED
        case ast.If():
            return any(word in ast.unparse(node.test) for word in ("TYPE_CHECKING", "__name__"))
    return False


def drawn(
    root: Path, floors: dict[str, list[str]], number: int, seed: int, kinds: tuple[str, ...] = ("line",)
) -> list[Mutant]:
    """So many mutants, at most one of a line, shared out among floors as their lines that can have one.

    floors  {name: its files}.  The same tree, number and seed give the same mutants on every machine; a longer list of
    one floor begins with the shorter one. Fewer come back where there are no more lines.
    """
    lines = {floor: _lines(root, files, kinds) for floor, files in floors.items()}
    every = sum(map(len, lines.values()))
    quotas = _shared({floor: number * len(its) / max(1, every) for floor, its in lines.items()}, min(number, every))
    common = Counter(name for its in lines.values() for ways in its.values() for name in {one.operator for one in ways})
    found = []
    for floor, its in lines.items():
        chance = random.Random(f"{seed} {floor}")
        # Of two lines the one whose mistakes are rarer is likelier, so that waits are tried as well as numbers.
        rare = {place: 1 / min(common[one.operator] for one in its[place]) for place in sorted(its)}
        order = sorted(rare, key=lambda place: chance.random() ** (1 / rare[place] / len(common)), reverse=True)
        one_each = (_one_of(root, its[place], common, chance) for place in order)
        found += sorted(islice(filter(None, one_each), quotas[floor]), key=lambda one: (one.file, one.line))
    return found


def _lines(root, files, kinds) -> dict[tuple, list[Mutant]]:
    """The mutants of every line that can have one."""
    found = {}
    for file in files:
        for one in candidates(root, file, kinds):
            found.setdefault((file, one.line), []).append(one)
    return found


def _shared(exact: dict[str, float], number: int) -> dict[str, int]:
    """Whole numbers near these, that add up to `number`.

    >>> _shared({"a": 1.2, "b": 1.4, "c": 1.4}, 4)
    {'a': 1, 'b': 2, 'c': 1}
    """
    whole = {name: int(one) for name, one in exact.items()}
    left = number - sum(whole.values())
    for name in sorted(exact, key=lambda name: whole[name] - exact[name])[:left]:
        whole[name] += 1
    return whole


def _one_of(root, its: list[Mutant], common, chance) -> Mutant | None:
    """One mutant of a line that compiles to something else: of the rarest kind that can be made there.

    A statement is left out only where no other mistake can be made: that one is the easiest to notice.
    """
    text = _text(root, its[0].file)
    operators = sorted({one.operator for one in its}, key=lambda name: (name == "statement", common[name], name))
    for operator in operators:
        ways = [one for one in its if one.operator == operator]
        for one in chance.sample(ways, len(ways)):
            if _compiled(one.applied(text)) not in (None, _compiled(text)):
                return one
    return None


@cache
def _text(root, file):
    return (root / file).read_text(encoding="utf-8")


@cache
def _compiled(text) -> str | None:
    """What a text means, line numbers aside; None where it means nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # `(1)()` and its like are mistakes too
        try:
            tree = ast.parse(text)
            compile(tree, "mutant", "exec")
        except SyntaxError:
            return None
    return ast.dump(tree)
