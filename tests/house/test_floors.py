"""The floors: nothing imports upward, and importing the package loads neither torch nor a notebook."""

import ast
import importlib
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import hybridlab

PACKAGE = Path(hybridlab.__file__).parent
MAY_IMPORT = {  # each floor, and the floors below it
    "core": set(),
    "scheduling": {"core"},
    "predict": {"core", "scheduling"},
    "world": {"core"},
    "runtime": {"core", "scheduling", "predict", "world"},
    "modes": {"core", "scheduling", "predict", "world", "runtime"},
    "training": {"core", "scheduling", "predict", "world", "runtime", "modes"},
    "show": {"core", "scheduling", "predict"},
    "measuring": {"core", "scheduling", "predict", "world", "runtime", "modes", "training"},
    "labs": {"core", "scheduling", "predict", "world", "runtime", "modes", "training", "measuring", "show"},
    "cli": {"core", "scheduling", "predict", "world", "runtime", "modes", "training", "measuring", "show", "labs"},
    "front": {"core", "scheduling", "predict", "world", "runtime", "modes", "training", "measuring", "show"},
}
PURE = ("core", "scheduling", "predict")
BELOW_ALL = ["lazily", "signatures", "doors"]  # how a package loads its names; how a verb tells and checks arguments


@cache
def imports(file: Path, root: Path = PACKAGE) -> list[str]:
    """Every module that a file imports, anywhere in it."""
    found, tree = [], ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]  # names of types, for the checker alone: nothing is loaded
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = ["hybridlab", *file.relative_to(root).parts[: -node.level]] if node.level else []
            module = ".".join([*here, node.module or ""]).strip(".")
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]  # a name may be a module
    return found


def upward(file: Path, root: Path = PACKAGE) -> list[str]:
    floor = file.relative_to(root).parts[0]
    reached = {name.split(".")[1] for name in imports(file, root) if name.startswith("hybridlab.")}
    return sorted(reached - MAY_IMPORT[floor] - {floor, *BELOW_ALL})


def files(floor):
    return sorted((PACKAGE / floor).rglob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("floor", MAY_IMPORT)
def test_nothing_imports_upward(floor):
    assert files(floor)
    assert {file.name: upward(file) for file in files(floor) if upward(file)} == {}


def test_what_is_below_all_imports_only_what_is_below_it():
    for place, name in enumerate(BELOW_ALL):
        ours = {one.split(".")[1] for one in imports(PACKAGE / f"{name}.py") if one.startswith("hybridlab")}
        assert ours <= set(BELOW_ALL[:place])


def test_predictions_are_added_one_after_the_other():
    """By `core.added`: the built-in sum of floats has another last digit since Python 3.12, that of arrays has not."""
    names = {(file.name, node.lineno) for file in files("predict") for node in ast.walk(ast.parse(file.read_text()))
             if isinstance(node, ast.Name) and node.id == "sum"}  # fmt: skip
    assert names == set()


def test_an_upward_import_would_be_seen(tmp_path):
    (tmp_path / "core").mkdir()
    file = tmp_path / "core" / "mesh.py"
    file.write_text("def f():\n    from hybridlab.predict.time.simulate import simulate\n")
    assert upward(file, tmp_path) == ["predict"]


def test_every_folder_is_a_floor():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(MAY_IMPORT)


ROOMS = sorted(path.parent for floor in MAY_IMPORT for path in (PACKAGE / floor).rglob("__init__.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_a_room_names_every_file_that_is_in_it(room):
    told = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    inside = {file.stem for file in room.glob("*.py")} - {"__init__", "__main__"}
    if room.name != "labs":  # its rooms are the notebooks'
        inside |= {inner.parent.name for inner in room.glob("*/__init__.py")}
    assert inside and sorted(name for name in inside if f"`{name}`" not in told) == []


def test_every_name_of_a_notebooks_room_can_be_had():
    rooms = [importlib.import_module(f"hybridlab.labs.{room.name}") for room in ROOMS if room.parent.name == "labs"]
    names = [(room, name) for room in rooms for name in getattr(room, "__all__", ())]
    assert len(names) > 50 and all(getattr(room, name) is not None for room, name in names)


def reached(file: Path, root: Path = PACKAGE) -> set[Path]:
    """The files of the same floor that a file imports, also inside its functions."""
    floor, found = file.relative_to(root).parts[0], set()
    for name in imports(file, root):
        path = root.joinpath(*name.split(".")[1:])
        found |= {one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file() and one != file}
    return {one for one in found if one.relative_to(root).parts[0] == floor}


def circles(behind: dict[Path, set[Path]]) -> set[tuple[str, ...]]:
    """The groups of boxes that reach each other, directly or over others.

    behind  {box: those that it imports}; here it becomes all that it reaches
    """
    for middle in behind:  # Warshall: what is reached over one more box
        for its in behind.values():
            its |= behind[middle] if middle in its else set()
    groups = {tuple(sorted(other for other in its if box in behind[other])) for box, its in behind.items()}
    return {tuple(".".join(box.with_suffix("").parts) for box in group) for group in groups - {()}}


def among_files(root: Path = PACKAGE) -> dict[Path, set[Path]]:
    """{file: the files of its floor that it imports}, told from the root."""
    found = {file: reached(file, root) for file in root.rglob("*.py") if file.parent != root}
    return {file.relative_to(root): {one.relative_to(root) for one in its} for file, its in found.items()}


def among_rooms(root: Path = PACKAGE, but=()) -> dict[Path, set[Path]]:
    """{room: the rooms of its floor that its files import}. A floor's own files are a room too."""
    found = defaultdict(set)
    for file, its in among_files(root).items():
        if file.parts[0] not in but:
            found[file.parent] |= {one.parent for one in its if one.parent != file.parent}
    return found


@pytest.mark.slow
def test_no_modules_of_a_floor_import_each_other_in_a_circle():
    assert circles(among_files()) == set()


@pytest.mark.slow
def test_no_rooms_of_a_floor_import_each_other_in_a_circle():
    assert circles(among_rooms()) == set()


def test_a_circle_would_be_seen(tmp_path):
    for name, text in {
        "core/a": "from hybridlab.core.b import b",
        "core/b": "def f():\n    from hybridlab.core import c",
        "core/c": "import hybridlab.core.a",
        "core/d": "from hybridlab.core.a import a",
        "world/one/a": "from hybridlab.world.two.b import b",
        "world/two/b": "from hybridlab.world import c",
        "world/c": "def f():\n    import hybridlab.world.one.d",
        "world/one/d": "",
        "world/three/e": "from hybridlab.world.one.a import a\nfrom hybridlab.core.a import a",
    }.items():
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert circles(among_files(tmp_path)) == {("core.a", "core.b", "core.c")}
    assert circles(among_rooms(tmp_path)) == {("world", "world.one", "world.two")}


MOST_LINES = 320  # of a file: past about 300 it holds two ideas


def too_long(root: Path = PACKAGE) -> dict[str, int]:
    lines = {str(file.relative_to(root)): len(file.read_text().splitlines()) for file in root.rglob("*.py")}
    return {file: its for file, its in lines.items() if its > MOST_LINES}


def test_no_file_is_too_long_for_one_idea():
    assert too_long() == {}


def test_a_file_that_is_too_long_would_be_seen(tmp_path):
    for name, lines in (("long", MOST_LINES + 1), ("short", MOST_LINES)):
        (tmp_path / f"{name}.py").write_text("pass\n" * lines)
    assert too_long(tmp_path) == {"long.py": MOST_LINES + 1}


@pytest.mark.slow
@pytest.mark.parametrize("floor", PURE)
def test_pure_floors_need_numpy_only(floor):
    standard = sys.stdlib_module_names
    for file in files(floor):
        foreign = {name.split(".")[0] for name in imports(file)} - standard - {"numpy", "hybridlab"}
        assert not foreign, (file.name, foreign)


def loaded_after(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout
    return set(out.split())


@pytest.mark.slow
def test_importing_and_predicting_load_no_torch():
    heavy = {"torch", "plotly", "anywidget", "ipywidgets", "IPython", "cloudpickle", "safetensors"}
    predict = "import hybridlab as hl\nhl.simulate(hl.schedule('1f1b', ranks=2, microbatches=2)).summary"
    assert not heavy & loaded_after(predict)


@pytest.mark.long
def test_what_loads_torch_would_be_seen():
    assert "torch" in loaded_after("import hybridlab.training.models.gpt")


def test_every_public_name_can_be_had():
    assert all(getattr(hybridlab, name) is not None for name in hybridlab.__all__)
    with pytest.raises(AttributeError, match="hybridlab has no 'shedule'"):
        hybridlab.shedule


EACH_MODULE = """
import importlib, sys
from pathlib import Path
import hybridlab

files = sorted(Path(hybridlab.__file__).parent.rglob("*.py"))
parts = [file.relative_to(Path(hybridlab.__file__).parents[1]).with_suffix("").parts for file in files]
names = [".".join(one).removesuffix(".__init__") for one in parts if one[-1] != "__main__"]
for room in (importlib.import_module(".".join(one[:-1])) for one in parts if one[-1] == "__init__"):
    [getattr(room, name) for name in getattr(room, "__all__", ())]  # a name that is loaded may hide a module
for name in names:
    exec(f"import {name} as m")
    if m is not sys.modules[name]:
        print(name)
print(len(names))
"""


@pytest.mark.slow
def test_every_module_can_be_imported_under_another_name():
    done = subprocess.run([sys.executable, "-c", EACH_MODULE], capture_output=True, text=True, check=True)
    *hidden, count = done.stdout.split()
    assert not hidden and int(count) > 500


def test_a_module_that_a_function_hides_would_be_seen(tmp_path):
    room = tmp_path / "hybridlab"
    room.mkdir()
    (room / "__init__.py").write_text("from hybridlab.play import play\n__all__ = ['play']\n")
    (room / "play.py").write_text("def play(): pass\n")
    done = subprocess.run([sys.executable, "-c", EACH_MODULE], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["hybridlab.play", "2"], done.stderr


def test_files_of_tests_have_names_of_their_own():
    """pytest imports them by these names; browser tests run apart."""
    files = [path for path in (PACKAGE.parent / "tests").rglob("test_*.py") if "browser" not in path.parts]
    names = [path.name for path in files]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
