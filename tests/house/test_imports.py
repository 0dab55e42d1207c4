"""Every name that a test, bench or tool imports from this project is there: some are run by hand, or last, in CI."""

import ast
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
ROOTS = (HOUSE, HOUSE / "tests")  # what Python searches when tests run


def file_of(module: str, near: Path) -> Path | None:
    """The file of a module of this project, for an importing file in the folder `near`."""
    for root in (near, *ROOTS):
        path = root.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return file
    return None


@cache
def names_in(file: Path) -> set[str]:
    """Every name that a module binds at its top: assigned, defined or imported there, or a file of a folder."""
    names = {one.stem for one in file.parent.iterdir()} if file.stem == "__init__" else set()
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        match node := waiting.pop():
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                continue  # names inside are its own
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=found) | ast.ImportFrom(names=found):
                names |= {one.asname or one.name.partition(".")[0] for one in found}
        waiting += ast.iter_child_nodes(node)
    return names


def missing(file: Path) -> list[str]:
    """The imports of a file that find nothing: "module.name"."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and (source := file_of(node.module, file.parent)):
            known = names_in(source)
            dynamic = "__getattr__" in known  # such a module finds names when they are asked for
            found += [f"{node.module}.{one.name}" for one in node.names if not dynamic and one.name not in known]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["tests", "tools", "bench", "examples"])
def test_what_is_imported_is_there(folder):
    files = sorted((HOUSE / folder).rglob("*.py"))
    assert files and {str(file): gone for file in files if (gone := missing(file))} == {}


def test_a_name_that_has_moved_is_seen(tmp_path):
    (tmp_path / "there.py").write_text("from math import pi\ndef one():\n    gone = 1\nTWO: int = 2\n")
    (tmp_path / "asks.py").write_text("from there import one, TWO, pi, gone\nfrom math import nothing\n")
    assert missing(tmp_path / "asks.py") == ["there.gone"]
