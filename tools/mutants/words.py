"""What only words depend on: a mistake there changes what an error says and not what the package does.

Words are the exceptions that are raised; classes of exceptions; `__repr__` and its like; what is printed; and private
functions and local names that nothing but words use.
"""

import ast
import builtins

ERRORS = {name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, BaseException)}
SHOWS = ("__repr__", "__str__", "__format__", "_repr_html_", "_repr_mimebundle_", "_repr_svg_")


def words(tree: ast.Module) -> set[ast.AST]:
    """Every node of a tree that only words depend on.

    >>> tree = ast.parse("def f(x):\\n    why = x + 1\\n    if x > 2:\\n        raise ValueError(why)")
    >>> sorted({node.lineno for node in words(tree) if isinstance(node, ast.stmt)})
    [2]
    """
    nodes = list(ast.walk(tree))
    found = _below(one for node in nodes for one in _told(node))
    before = -1
    while before < len(found):  # words of words
        before = len(found)
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node not in found:
                private = node.name.startswith("_") and not node.name.startswith("__")
                only = private and _only_in(found, nodes, node.name)
                found |= _below([node] if only else _notes(node, found))
    return found


def _below(nodes) -> set[ast.AST]:
    return {one for node in nodes for one in ast.walk(node)}


def _told(node) -> list[ast.AST]:
    """What in this node is words whoever uses it."""
    match node:
        case ast.Raise():
            return [one for one in (node.exc, node.cause) if one]
        case ast.ClassDef():
            bases = [getattr(base, "id", "") for base in node.bases]
            return [node] if any(base in ERRORS or base.endswith("Error") for base in bases) else []
        case ast.FunctionDef(name=name):
            return [node] if name in SHOWS else []
        case ast.Call(func=ast.Name(id="print")):
            return [node]
    return []


def _only_in(found, nodes, name) -> bool:
    """Whether a name is used, and nowhere but in words."""
    uses = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)]
    uses = [node for node in uses if name == (node.id if isinstance(node, ast.Name) else node.attr)]
    return bool(uses) and all(node in found for node in uses)


def _notes(function, found):
    """The assignments in a function to names that only words use."""
    inside = list(ast.walk(function))
    for node in inside:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            if _only_in(found, inside, node.targets[0].id):
                yield node
