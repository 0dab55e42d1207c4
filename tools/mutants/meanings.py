"""Mistakes in meaning, those that a person makes who has understood the code nearly: one line, as in `edits`.

Each kind is a function from a node of the syntax tree to edits: another axis, a wait that is missing, a wrong divisor.
"""

import ast
import re

from tools.mutants.edits import Edit

OTHER_AXIS = {"dp": ("tp", "pp"), "tp": ("dp", "pp"), "pp": ("dp", "tp"), "cp": ("dp", "tp"), "ep": ("dp", "tp")}
OTHER_DIMENSION = {"0": "-1", "1": "0", "-1": "0", "-2": "-1", "2": "1"}
DIMENSIONS = "dim", "dim0", "dim1", "axis"
WAITS = re.compile(r"wait|synchronize|barrier|flush|join|record_stream|drain|finish|settle")
GATHERED = "append", "add", "update", "extend", "setdefault", "load_state_dict", "insert", "put"
COPIES = "clone", "copy", "deepcopy"
WIDER = "float", "double"
DTYPES = "to", "type"
SPANS = "range", "Span", "arange", "islice"
BYTES = re.compile(r"byte|numel|itemsize|element_size|held|sent$")
EITHER_WAY = "min", "max", "isinstance", "issubclass", "intersect1d", "gcd", "isclose", "hypot"
GROUPS = "group", "among", "peers"


def name_of(node) -> str:
    """The last part of the name of what is called, or of what is read."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "id", getattr(node, "attr", ""))


def axis(node, source):
    """Another axis: "dp" as "tp", `mesh.pp` as `mesh.dp`; another dimension of a tensor."""
    match node:
        case ast.Constant(value=str(here)) if here in OTHER_AXIS:
            for other in OTHER_AXIS[here]:
                yield from source.whole(node, f'"{other}"')
        case ast.Attribute(attr=here) if here in OTHER_AXIS:
            for other in OTHER_AXIS[here]:
                yield Edit(node.end_lineno, node.end_col_offset - len(here), node.end_col_offset, other)
        case ast.keyword(arg=name) if name in DIMENSIONS:
            other = OTHER_DIMENSION.get(ast.unparse(node.value))
            if other:
                yield from source.whole(node.value, other)


def wait(node, source):
    """A wait, a barrier or a flush that is left out."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom):
        called = node.value if isinstance(node.value, ast.Call) else node.value.value
        if isinstance(called, ast.Call) and WAITS.search(name_of(called)):
            yield from source.whole(node, "pass")


def group(node, source):
    """All ranks in the place of a group; of a group or of several, only the first."""
    if isinstance(node, ast.keyword) and node.arg in GROUPS and ast.unparse(node.value) != "None":
        yield from source.whole(node.value, "None")
    if isinstance(node, ast.Call) and name_of(node) in ("group", "groups") and node.lineno == node.end_lineno:
        yield from source.whole(node, f"{source.text(node)}[:1]")


def exchanged(node, source):
    """Two arguments that stand side by side, each in the place of the other."""
    if isinstance(node, ast.Call) and name_of(node) not in EITHER_WAY:
        for left, right in zip(node.args, node.args[1:]):
            simple = all(isinstance(one, ast.Name | ast.Attribute | ast.Constant) for one in (left, right))
            if simple and left.lineno == right.end_lineno and source.text(left) != source.text(right):
                yield Edit(
                    left.lineno, left.col_offset, right.end_col_offset, f"{source.text(right)}, {source.text(left)}"
                )


def divisor(node, source):
    """Divided by one more, or not at all; a factor that is left out."""
    if isinstance(node, ast.BinOp) and node.lineno == node.end_lineno:
        left, right = source.text(node.left), source.text(node.right)
        if isinstance(node.op, ast.Div | ast.FloorDiv) and not left.startswith(("'", '"')):
            mark = "/" if isinstance(node.op, ast.Div) else "//"
            yield from source.whole(node, f"({left})")
            yield from source.whole(node, f"({left}) {mark} (({right}) + 1)")
        elif isinstance(node.op, ast.Mult):
            yield from source.whole(node, f"({left})")
            yield from source.whole(node, f"({right})")


def span(node, source):
    """A range, a slice or a loop that begins one later or ends one sooner."""
    if isinstance(node, ast.Call) and name_of(node) in SPANS and node.args:
        if not any(isinstance(one, ast.Starred) for one in node.args):
            first, last = node.args[0], node.args[min(1, len(node.args) - 1)]
            yield from _moved(last, source, "- 1")
            if first is not last:
                yield from _moved(first, source, "+ 1")
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield from _moved(node.lower, source, "+ 1")
        if node.upper is not None:
            yield from _moved(node.upper, source, "- 1")
    elif isinstance(node, ast.For | ast.comprehension) and node.iter.lineno == node.iter.end_lineno:
        every = source.text(node.iter)
        yield from source.whole(node.iter, f"list({every})[1:]")
        yield from source.whole(node.iter, f"list({every})[:-1]")


def _moved(node, source, by):
    if node.lineno == node.end_lineno:
        yield from source.whole(node, f"({source.text(node)}) {by}")


def stale(node, source):
    """An old value: a name that has one already, or a field, does not get the new one."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        again = isinstance(target, ast.Name) and node in source.again
        field = isinstance(target, ast.Attribute) and node in source.later
        if again or field:
            yield from source.whole(node, "pass")


def lost(node, source):
    """State that is lost: an entry of a dict, what is put into a list, one side of a union."""
    match node:
        case ast.Dict():
            for key, value in zip(node.keys, node.values):
                start = key or value
                if start.lineno == value.end_lineno:
                    begin = start.col_offset - (0 if key else len("**"))
                    line = source.lines[value.end_lineno - 1]
                    comma = line[value.end_col_offset : value.end_col_offset + 1] == b","
                    yield Edit(start.lineno, begin, value.end_col_offset + comma, "")
        case ast.Expr(value=ast.Call() as call) if name_of(call) in GATHERED:
            yield from source.whole(node, "pass")
        case ast.Starred() if node.lineno == node.end_lineno:
            yield from source.whole(node, "*()")
        case ast.BinOp(op=ast.BitOr()) if node.lineno == node.end_lineno:
            yield from source.whole(node, f"({source.text(node.left)})")
            yield from source.whole(node, f"({source.text(node.right)})")


def alias(node, source):
    """The thing itself in the place of its copy."""
    if isinstance(node, ast.Call) and name_of(node) in COPIES and node.lineno == node.end_lineno:
        if isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            yield from source.whole(node, source.text(node.func.value))
        elif len(node.args) == 1:
            yield from source.whole(node, f"({source.text(node.args[0])})")


def precision(node, source):
    """No change of precision where there was one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.lineno == node.end_lineno:
        narrow = name_of(node) in WIDER and not node.args
        if narrow or (name_of(node) in DTYPES and len(node.args) == 1 and not node.keywords):
            yield from source.whole(node, source.text(node.func.value))


def byte(node, source):
    """One more of what is counted or claimed in bytes."""
    if isinstance(node, ast.Call | ast.Attribute) and BYTES.search(name_of(node)) and node not in source.inner:
        if node.lineno == node.end_lineno and not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            yield from source.whole(node, f"({source.text(node)} + 1)")


MEANINGS = {
    one.__name__: one for one in (axis, wait, group, exchanged, divisor, span, stale, lost, alias, precision, byte)
}  # fmt: skip
