"""A new exercise: its stubs work as they are written, in a copy of the checkout."""

import shutil
import subprocess
import sys

import nbformat
import pytest

from tools.course import HOUSE
from tools.new_exercise import room_of, write


@pytest.fixture
def house(tmp_path):
    """A copy of what an exercise is written into."""
    for part in ("hybridlab", "tests/labs", "tests/house", "notebooks", "tools"):
        shutil.copytree(HOUSE / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for file in ("pyproject.toml", "tests/conftest.py", "tests/equality.py", "tests/later.txt"):
        shutil.copy(HOUSE / file, tmp_path / file)
    return tmp_path


def run(house, *command):
    return subprocess.run([sys.executable, *command], cwd=house, capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "name, ranks",
    [
        ("tour.idle_again", False),  # two notebooks share its room
        pytest.param("matmul.fresh", True, marks=pytest.mark.ranks),
        pytest.param("choosing.fresh", True, marks=pytest.mark.ranks),  # a room that has had no trial
    ],
)
def test_what_is_written_is_found_clean_and_right(house, name, ranks):
    written = write(name, ranks, house)
    ours = [str(path) for path in written if path.suffix == ".py"]
    clean = run(house, "-m", "ruff", "check", *ours)
    assert clean.returncode == 0, clean.stdout
    assert run(house, "-m", "ruff", "format", "--check", *ours).returncode == 0
    room, notebook = room_of(name)
    cells = nbformat.read(house / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    assert sum(f'"{name}"' in cell.source for cell in cells) == 2
    tests = ["tests/labs/test_exercises.py", "tests/house/test_floors.py", f"tests/labs/test_labs_{room}.py"]
    chosen = f"{name} or names_every_file or {name.partition('.')[2]}_is"
    tried = run(house, "-m", "pytest", "-q", "-p", "no:nbval", "--slow", "--long", "-k", chosen, *tests)
    assert tried.returncode == 0, tried.stdout
    assert int(tried.stdout.split(" passed")[0].split()[-1]) > 10, tried.stdout


@pytest.mark.parametrize(
    "name, told",
    [
        ("gpipe.size", "there is an exercise gpipe.size already"),
        ("gtype.size", "no room has exercises called gtype: choose one of start, tour"),
        ("gpipe", "'gpipe' is not the name of an exercise"),
        ("gpipe.Idle", "is not the name of an exercise"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(name, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        write(name, house=tmp_path)
    assert not list(tmp_path.iterdir())
