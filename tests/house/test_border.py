"""The border: notebooks, README, docs and examples import `hybridlab` and rooms of `hybridlab.labs`, no more."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

import hybridlab as hl

HOUSE = Path(__file__).parents[2]
NOTEBOOKS = sorted((HOUSE / "notebooks").glob("*.ipynb"))
TEXTS = sorted([HOUSE / "README.md", *(HOUSE / "docs").rglob("*.md"), *(HOUSE / "examples").glob("*.md")])
PROGRAMS = sorted((HOUSE / "examples").rglob("*.py"))


def blocks(file: Path) -> list[str]:
    """The python of a file: a notebook's cells, the blocks of a text, a program; without magics and prompts."""
    if file.suffix == ".ipynb":
        cells = json.loads(file.read_text())["cells"]
        found = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    elif file.suffix == ".md":
        found = re.findall(r"^```python[^\n]*\n(.*?)^```", file.read_text(), re.DOTALL | re.MULTILINE)
    else:
        found = [file.read_text()]
    return [re.sub(r"^[ \t]*[%!].*$", "", re.sub(r"^(>>>|\.\.\.) ?", "", one, flags=re.M), flags=re.M) for one in found]


def public(module: str, name: str | None = None) -> bool:
    """Whether users may import a module, or a name from it: names are those of the package's and the rooms' tables."""
    if not re.fullmatch(r"hybridlab(\.labs(\.\w+)?)?", module):
        return False
    home = importlib.import_module(module)
    rooms = {"labs"} if module == "hybridlab" else set()
    if module == "hybridlab.labs":
        rooms = {path.parent.name for path in (HOUSE / "hybridlab" / "labs").glob("*/__init__.py")}
    return name is None or name in rooms or name in home.__all__


def across(file: Path) -> list[str]:
    """The imports of a file that reach behind the border."""
    found = []
    for node in (node for block in blocks(file) for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.Import):
            ours = [one.name for one in node.names if one.name.split(".")[0] == "hybridlab"]
            found += [name for name in ours if not public(name)]
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "hybridlab":
            found += [f"{node.module}.{one.name}" for one in node.names if not public(node.module, one.name)]
    return found


@pytest.mark.parametrize("file", NOTEBOOKS + TEXTS + PROGRAMS, ids=lambda file: file.name)
def test_what_users_read_imports_only_public_names(file):
    assert across(file) == []


FRONT = sorted((HOUSE / "hybridlab" / "front").glob("*.py"))


def test_every_namespace_is_a_file_of_front_and_has_the_names_that_it_tells():
    files = {path.stem for path in FRONT} - {"__init__"}
    assert files == hl._NAMESPACES.keys() and len(files) > 10
    for name in files:
        space = getattr(hl, name)
        assert space.__all__ and not [one for one in space.__all__ if not hasattr(space, one)], name


def test_a_function_of_a_namespace_has_the_name_by_which_it_is_called():
    """Doors go around several functions at once, in an order."""
    spaces = [importlib.import_module(f"hybridlab.front.{path.stem}") for path in FRONT if path.stem != "__init__"]
    given = {(space, name): getattr(space, name) for space in spaces for name in getattr(space, "__all__", ())}
    assert len(given) > 100
    for (space, name), one in given.items():
        own = getattr(one, "__name__", name)
        assert own == name or getattr(given.get((space, own)), "__name__", own) == own, (
            f"{space.__name__}.{name} is {own}"
        )


def test_much_is_read():
    assert len(NOTEBOOKS) == 26 and PROGRAMS
    assert sum("import" in block for file in NOTEBOOKS for block in blocks(file)) > 25
    assert any("hybridlab" in block for block in blocks(HOUSE / "README.md"))


@pytest.mark.parametrize(
    "line",
    [
        "import hybridlab.predict.time.simulate",
        "import hybridlab.core.where.mesh as m",
        "from hybridlab.core.what.catalog import machine",
        "from hybridlab import core",
        "from hybridlab.labs.matmul.grids import compared",
        "from hybridlab.labs.matmul import solutions",
        "def f():\n    %time 1\n    from hybridlab.front import typed",
    ],
)
def test_an_import_from_behind_would_be_seen(tmp_path, line):
    cell = {"cell_type": "code", "source": ["%pip list\n", "import hybridlab as hl\n", *line.splitlines(keepends=True)]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    (tmp_path / "a.md").write_text(f"Text.\n\n```python\nfrom hybridlab import labs, typed\n{line}\n```\n")
    assert len(across(tmp_path / "a.ipynb")) == len(across(tmp_path / "a.md")) == 1
