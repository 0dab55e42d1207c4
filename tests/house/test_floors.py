"""The floors: nothing imports upward, and importing the package loads neither torch nor a notebook."""

import ast
import importlib
import subprocess
import sys
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
BELOW_ALL = {"lazily", "signatures"}  # how a package loads its names, how a verb tells its arguments: no more


@cache
def imports(file: Path, root: Path = PACKAGE) -> list[str]:
    """Every module that a file imports, anywhere in it."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
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
    return sorted(reached - MAY_IMPORT[floor] - BELOW_ALL - {floor})


def files(floor):
    return sorted((PACKAGE / floor).rglob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("floor", MAY_IMPORT)
def test_nothing_imports_upward(floor):
    assert files(floor)
    assert {file.name: upward(file) for file in files(floor) if upward(file)} == {}


def test_what_is_below_all_imports_nothing_of_ours():
    for name in BELOW_ALL:
        assert not [one for one in imports(PACKAGE / f"{name}.py") if one.startswith("hybridlab")]


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


CIRCLES = {  # groups of modules that import each other, and why
    (
        "measuring.course_suite",
        "measuring.cpu_suite",
        "measuring.record",
    ): "a record names its suites, which make rows of a record; it imports one when that is asked for",
}


def reached(file: Path, root: Path = PACKAGE) -> set[Path]:
    """The files of the same floor that a file imports, also inside its functions."""
    floor, found = file.relative_to(root).parts[0], set()
    for name in imports(file, root):
        path = root.joinpath(*name.split(".")[1:])
        found |= {one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file() and one != file}
    return {one for one in found if one.relative_to(root).parts[0] == floor}


def circles(root: Path = PACKAGE) -> set[tuple[str, ...]]:
    """The groups of modules of one floor that reach each other by their imports, directly or over others."""
    behind = {file: reached(file, root) for file in root.rglob("*.py") if file.parent != root}
    for middle in behind:  # Warshall: what is reached over one more file
        for its in behind.values():
            its |= behind[middle] if middle in its else set()
    found = set()
    for file, its in behind.items():
        group = [other for other in its if file in behind[other]]
        found.add(tuple(sorted(".".join(one.relative_to(root).with_suffix("").parts) for one in group)))
    return found - {()}


@pytest.mark.slow
def test_no_modules_of_a_floor_import_each_other_in_a_circle():
    assert circles() == set(CIRCLES)


def test_a_circle_would_be_seen(tmp_path):
    (tmp_path / "core").mkdir()
    for name, text in {
        "a": "from hybridlab.core.b import b",
        "b": "def f():\n    from hybridlab.core import c",
        "c": "import hybridlab.core.a",
        "d": "from hybridlab.core.a import a",
    }.items():
        (tmp_path / "core" / f"{name}.py").write_text(text)
    assert circles(tmp_path) == {("core.a", "core.b", "core.c")}


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
