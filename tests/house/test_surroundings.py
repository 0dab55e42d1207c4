"""The first hour in surroundings that are not ours: what cannot work ends in one sentence that says what to do."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from few import one_in

from hybridlab import __version__
from hybridlab.cli.main import main
from hybridlab.lazily import how_to_install

HOUSE = pathlib.Path(__file__).resolve().parents[2]


def make(folder, *words, **more):
    """What `make` says in a folder that has what set-up needs, and its exit code."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"):
        shutil.copy(HOUSE / name, folder)
    (folder / "hybridlab").mkdir(exist_ok=True)
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", "TORCH=cpu", *words]
    done = subprocess.run(command, cwd=folder, env=os.environ | more, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr, done.returncode


def said(folder, variable, **more):
    """What a recipe finds in a variable of its environment."""
    return make(folder, f"--eval=show: ; @echo $${variable}", "show", **more)[0].strip()


@pytest.mark.long
@pytest.mark.ranks
def test_without_a_network_one_sentence_says_so_at_once(tmp_path):
    nobody = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": "",
              "PIP_EXTRA_INDEX_URL": ""}  # fmt: skip
    told, code = make(tmp_path, "setup", "INDEX=http://127.0.0.1:9", **nobody)
    assert code and told.count("No package index answers: connect this machine to the network") == 1
    assert "Retrying" not in told and "No matching distribution" not in told


@pytest.mark.ranks
def test_a_python_that_makes_no_environments_is_told_before_anything_is_made(tmp_path):
    blind = tmp_path / "blind"
    blind.mkdir()
    (blind / "ensurepip.py").write_text("raise ImportError")
    told, code = make(tmp_path, "setup", PYTHONPATH=str(blind))
    assert code and "install its module venv (Debian and Ubuntu: sudo apt install python3-venv)" in told
    assert not (tmp_path / ".venv").exists()


@pytest.mark.slow
def test_pip_installs_into_the_environment_whatever_it_was_told_elsewhere(tmp_path):
    assert said(tmp_path, "PIP_USER", PIP_USER="1") == "0"
    assert said(tmp_path, "PIP_TARGET", PIP_TARGET="/elsewhere") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "driver, build, index", [("580.65.06", "cuda", "cpu"), ("550.54.15", "cu129", "cu129"), ("470.1", "cpu", "cpu")]
)
def test_the_build_of_torch_fits_the_driver(tmp_path, driver, build, index):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho '{driver}, Default, Disabled'\n")
    smi.chmod(0o755)
    command = [
        "make",
        "--no-print-directory",
        f"PYTHON={sys.executable}",
        "--eval=show: ; @echo $(TORCH) $(INDEX)",
        "show",
    ]
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=HOUSE, env=env, capture_output=True, text=True)
    assert done.stdout.split() == [build, f"https://download.pytorch.org/whl/{index}"], done.stderr


@pytest.mark.slow
def test_without_a_home_folder_there_is_one(tmp_path):
    own = tmp_path / "with a space"
    own.mkdir()
    assert said(own, "HOME", HOME=str(tmp_path / "none")) == str(own / ".venv" / "home")
    assert said(own, "HOME", HOME=str(tmp_path)) == str(tmp_path)
    if os.getuid():  # nothing is closed to root
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        assert said(own, "HOME", HOME=str(closed)) == str(own / ".venv" / "home")


# --- what pip was not asked to install ---------------------------------------------------------------------------

WITHOUT = {  # a package, what a user calls, and the extra that has it
    "hl.check()": ("torch", "torch"),
    "hl.models.GPT": ("torch", "torch"),
    "hl.draw(hl.simulate(hl.schedule('1f1b', ranks=2, microbatches=2)))": ("plotly", "lab"),
    "hl.explore('1f1b')": ("anywidget", "lab"),
    "hl.ranks(2).run(print)": ("cloudpickle", "torch"),
    "hl.weights('run')": ("safetensors", "torch"),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", one_in(2, WITHOUT))
def test_a_missing_package_is_named_with_its_extra(call):
    package, extra = WITHOUT[call]
    program = f"import sys; sys.modules[{package!r}] = None\nimport hybridlab as hl\n{call}"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60).stderr
    last = told.strip().splitlines()[-1]
    assert last.endswith(f"{package} is not installed: pip install 'hybridlab[{extra}]' (in a checkout: make setup)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, package",
    one_in(
        3,
        [
            ("check --pp 2", "torch"),
            ("check --pp 2", "cloudpickle"),
            ("train --help", "torch"),
            ("demo", "plotly"),
            ("demo", "tqdm"),
        ],
    ),
)
def test_a_command_says_so_too_and_shows_no_traceback(words, package):
    program = f"import sys; sys.modules[{package!r}] = None\nfrom hybridlab.cli.main import main\nsys.exit(main())"
    command = [sys.executable, "-c", program, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"hybridlab {words.split()[0]}: {package} is not installed: pip install 'hybridlab[")


def test_a_module_of_nobodys_extras_is_no_business_of_ours():
    assert how_to_install(ModuleNotFoundError(name="numpy_of_tomorrow")) == ""


def test_the_command_tells_its_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hybridlab {__version__}\n"
