"""One-line mistakes: for each kind of mistake a function from a node of the syntax tree to edits of its text.

An edit replaces bytes of one line. It may spoil the syntax: whoever draws one compiles the result.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: ("<", "<=", ">="), ast.LtE: ("<=", "<", ">"), ast.Gt: (">", ">=", "<="), ast.GtE: (">=", ">", "<"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.Pow: ("**", "*"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "&"),
}  # fmt: skip
OPPOSITES = {"min": "max", "minimum": "maximum", "any": "all", "floor": "ceil", "argmin": "argmax", "zeros": "ones"}
OPPOSITES |= {other: name for name, other in OPPOSITES.items()}
WORD = re.compile(r"[A-Za-z_]\w{0,23}")  # a string that is a name or a kind, and no sentence
SMALL = 100  # from here on, one more or less is rarely seen: twice and half as much


class Edit(NamedTuple):
    """`new` in place of the bytes from `begin` to `end` of a line; lines count from 1, as in the syntax tree."""

    line: int
    begin: int
    end: int
    new: str


class Source:
    """The text of a file, asked for by nodes of its tree; columns are bytes, as in the syntax tree.

    words   every string in it that is a name or a kind
    again   assignments to names that the function has given a value before, or got as arguments
    inner   what is called, or asked for a field, an item or a method: no value that is passed on
    later   assignments to fields outside `__init__`: the field may have a value already
    """

    def __init__(self, text: str):
        self.lines = [line.encode() for line in text.splitlines()]
        self.tree = ast.parse(text)
        strings = [node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant)]
        self.words = sorted({one for one in strings if isinstance(one, str) and WORD.fullmatch(one)})
        self.again, self.later, self.inner = set(), set(), set()
        for node in ast.walk(self.tree):
            match node:
                case ast.FunctionDef():
                    self._known(node)
                case ast.Call(func=part) | ast.Attribute(value=part) | ast.Subscript(value=part):
                    self.inner.add(part)

    def _known(self, function):
        arguments = function.args
        known = {one.arg for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
        inside = [one for one in ast.walk(function) if isinstance(one, ast.Assign | ast.AugAssign | ast.For)]
        for node in sorted(inside, key=lambda one: (one.lineno, one.col_offset)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
            if isinstance(node, ast.Assign) and names & known:
                self.again.add(node)
            if isinstance(node, ast.Assign) and function.name not in ("__init__", "__post_init__"):
                self.later.add(node)
            known |= names

    def whole(self, node, new: str) -> Iterator[Edit]:
        """The edit that replaces a node, where it stands on one line."""
        if node.lineno == node.end_lineno:
            yield Edit(node.lineno, node.col_offset, node.end_col_offset, new)

    def text(self, node) -> str:
        """A node's text, where it stands on one line."""
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def between(self, left, right, old: str, *new: str) -> Iterator[Edit]:
        """The edits that replace an operator between two nodes, where both nodes meet on one line."""
        if left.end_lineno == right.lineno:
            at = self.lines[right.lineno - 1].find(old.encode(), left.end_col_offset, right.col_offset)
            for one in new if at >= 0 else ():
                yield Edit(right.lineno, at, at + len(old), one)


def comparison(node, source):
    """Another comparison: `<` as `<=` and as `>=`, `==` as `!=`, `in` as `not in`."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:]):
            yield from source.between(left, right, *COMPARISONS[type(operator)])


def arithmetic(node, source):
    """Another operator: `+` as `-`, `*` as `//`, `&` as `|`."""
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        if not any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
            yield from source.between(node.left, node.right, *ARITHMETIC[type(node.op)])
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield from source.between(node.target, node.value, *(f"{one}=" for one in ARITHMETIC[type(node.op)]))


def sign(node, source):
    """`-x` and `~x` as `x`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
        yield Edit(node.lineno, node.col_offset, node.col_offset + 1, "")


def logic(node, source):
    """`and` as `or`, `or` as `and`."""
    if isinstance(node, ast.BoolOp):
        names = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:]):
            yield from source.between(left, right, *names)


def negation(node, source):
    """`not x` as `x`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield Edit(node.lineno, node.col_offset, node.col_offset + len("not "), "")


def branch(node, source):
    """`if x` as `if not x`, where x is neither a comparison nor logic: these have mistakes of their own."""
    tests = getattr(node, "ifs", None) or [getattr(node, "test", None)]
    for test in tests if isinstance(node, ast.If | ast.While | ast.IfExp | ast.comprehension) else ():
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            if test.lineno == test.end_lineno:
                yield from source.whole(test, f"(not ({source.text(test)}))")


def flag(node, source):
    """True as False, False as True."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield from source.whole(node, str(not node.value))


def number(node, source):
    """A number as one more and one less; a fraction, and a number from 100 on, as twice and half as much."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value, exact = node.value, isinstance(node.value, int)
        if value == 0:
            others = [type(value)(1)]
        elif exact and value < SMALL:
            others = [value + 1, value - 1]
        else:
            others = [value * 2, value // 2 if exact else value / 2]
        for other in others:
            yield from source.whole(node, repr(other))


def extreme(node, source):
    """min as max, any as all, and their like, by name or as a method."""
    if isinstance(node, ast.Call):
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in OPPOSITES:
            end = function.end_col_offset
            yield Edit(function.end_lineno, end - len(name), end, OPPOSITES[name])


def order(node, source):
    """`sorted(x)` and `reversed(x)` as `list(x)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("sorted", "reversed"):
        if node.lineno == node.end_lineno:
            yield from source.whole(node, f"list({source.text(node.args[0])})")


def index(node, source):
    """`x[0]` as `x[-1]`, `x[-1]` as `x[0]`; a slice without one of its bounds."""
    if isinstance(node, ast.Subscript):
        text = ast.unparse(node.slice)
        if text in ("0", "-1"):
            yield from source.whole(node.slice, "-1" if text == "0" else "0")
        for bound in (node.slice.lower, node.slice.upper) if isinstance(node.slice, ast.Slice) else ():
            if bound is not None:
                yield from source.whole(bound, "")


def statement(node, source):
    """A statement left out: a call, a `raise`, a stored item; a local name that gets None; a return of None."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Raise():
            yield from source.whole(node, "pass")
        case ast.Continue() | ast.Break() | ast.Delete() | ast.Return(value=None):
            yield from source.whole(node, "pass")
        case ast.Return() if not isinstance(node.value, ast.Constant):
            yield from source.whole(node, "return None")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield from source.whole(node, "pass")
        case ast.Assign(targets=[ast.Name()]) if not isinstance(node.value, ast.Constant):
            yield from source.whole(node.value, "None")


def keyword(node, source):
    """A call without one of its keyword arguments."""
    if not isinstance(node, ast.Call):
        return
    given = sorted([*node.args, *node.keywords], key=lambda one: (one.lineno, one.col_offset))
    for before, one, after in zip([None, *given], given, [*given[1:], None]):
        if not isinstance(one, ast.keyword) or one.arg is None or one.lineno != one.end_lineno:
            continue
        if before and before.end_lineno == one.lineno:
            yield Edit(one.lineno, before.end_col_offset, one.end_col_offset, "")
        elif after and after.lineno == one.lineno:
            yield Edit(one.lineno, one.col_offset, after.col_offset, "")
        else:
            yield from source.whole(one, "")


def word(node, source):
    """The name of a kind, an axis or an operation as the one in the same file that is most like it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in source.words:
        here = node.value
        unlike = lambda other: (here.isupper() != other.isupper(), abs(len(here) - len(other)), other)
        for other in sorted(set(source.words) - {here}, key=unlike)[:1]:
            yield from source.whole(node, f'"{other}"')


OPERATORS = {
    one.__name__: one
    for one in (
        comparison, arithmetic, sign, logic, negation, branch, flag, number, extreme, order, index, statement, keyword,
        word,
    )
}  # fmt: skip
