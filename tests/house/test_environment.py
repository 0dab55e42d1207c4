"""What a newcomer installs, builds and types agrees with pyproject.toml, the one list."""

import ast
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile

import nbformat
import pytest
from nbval.plugin import get_sanitize_patterns
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

HOUSE = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
COURSE = [extra for extra in EXTRAS if extra not in ("browser", "colab")]  # what `make setup` installs
DIRECT = [Requirement(line) for lines in (PROJECT["dependencies"], *map(EXTRAS.get, COURSE)) for line in lines]


def lines_of(name):
    """The lines of a file that are neither empty nor a comment, without outer space."""
    lines = (line.strip() for line in (HOUSE / name).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def targets():
    """The names of the Makefile's targets."""
    return set(re.findall(r"^([a-z-]+):(?!=)", (HOUSE / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


# --- the lock -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-browser.lock"])
def test_every_line_of_a_lock_is_one_plain_pin(lock):
    for line in lines_of(lock):
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), f"not name==version without a suffix: {line}"


def is_pinned_in(lock, requirement):
    pins = {canonicalize_name(n): v for n, v in (line.split("==") for line in lines_of(lock))}
    name = canonicalize_name(requirement.name)
    assert name in pins, f"{lock} lacks {name}"
    assert Version(pins[name]) in requirement.specifier


@pytest.mark.parametrize("requirement", DIRECT, ids=str)
def test_the_lock_pins_every_direct_dependency_inside_its_range(requirement):
    is_pinned_in("requirements.lock", requirement)


def test_what_only_browser_tests_need_is_pinned_beside_it():
    for line in EXTRAS["browser"]:
        is_pinned_in("requirements-browser.lock", Requirement(line))
    everywhere, beside = (
        {line.split("==")[0] for line in lines_of(lock)} for lock in ("requirements.lock", "requirements-browser.lock")
    )
    assert everywhere & beside == set()


def test_torch_has_the_range_that_the_code_is_written_for():
    torch = next(requirement for requirement in DIRECT if requirement.name == "torch")
    inside = {version: version in torch.specifier for version in ("2.9.1", "2.10.0", "2.13.0", "2.99", "3.0.0")}
    assert inside == {"2.9.1": False, "2.10.0": True, "2.13.0": True, "2.99": True, "3.0.0": False}


def test_the_core_needs_numpy_and_nothing_else():
    assert [Requirement(line).name for line in PROJECT["dependencies"]] == ["numpy"]


# --- conda ----------------------------------------------------------------------------------------------------


def test_environment_yml_installs_what_the_lock_pins():
    dashed = [line.removeprefix("- ") for line in lines_of("environment.yml") if line.startswith("- ")]
    assert dashed == [
        "conda-forge",
        f"python{PROJECT['requires-python']},<3.14",
        "pip",
        "pip:",
        "-r requirements.lock",
        "-e .",
    ]


def test_the_makefile_locks_the_same_extras():
    assert f"EXTRAS := {','.join(COURSE)}\n" in (HOUSE / "Makefile").read_text(encoding="utf-8")


# --- the package ----------------------------------------------------------------------------------------------


def test_the_version_is_the_same_in_both_places():
    tree = ast.parse((HOUSE / "hybridlab" / "__init__.py").read_text(encoding="utf-8"))
    said = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__version__"]
    ]
    assert said == [PROJECT["version"]]


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for path in (HOUSE / "hybridlab").rglob("*.py")}
    assert folders
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.long
@pytest.mark.ranks
def test_a_wheel_carries_every_file_of_the_package(tmp_path):
    """Built from a copy, with two files put beside the code so that the check never passes for want of any."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOUSE / name, tmp_path)
    for name in ("notebooks", "results"):
        shutil.copytree(HOUSE / name, tmp_path / name)
    package = tmp_path / "hybridlab"
    shutil.copytree(HOUSE / "hybridlab", package, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    (package / "core" / "probe.js").write_text("export default {}")
    (package / "core" / "probe.css").write_text("p {}")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    carried = set(zipfile.ZipFile(wheel).namelist())
    there = {path.relative_to(tmp_path).as_posix() for path in package.rglob("*") if path.is_file()}
    assert there - carried == set(), "add their endings to package-data in pyproject.toml"
    brings_the_course(wheel, tmp_path)


def brings_the_course(wheel, tmp_path):
    """In an environment of its own, away from any checkout, the wheel copies the course out and knows its records."""
    bare = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    (site,) = bare.glob("lib/python*/site-packages")
    (site / "all_others.pth").write_text(sysconfig.get_path("purelib"))  # not the checkout: no .pth is read of these
    command = [sys.executable, "-m", "pip", f"--python={bare}", "install", "-q", "--no-deps", wheel]
    subprocess.run(command, check=True, capture_output=True)
    own = tmp_path / "elsewhere"
    own.mkdir()
    words = [bare / "bin" / "python", "-m", "hybridlab", "notebooks", "mine"]
    told = subprocess.run(words, cwd=own, capture_output=True, text=True)
    assert told.stdout.endswith("Your copies are in mine\n"), told.stderr
    originals = {path.name for path in (HOUSE / "notebooks").glob("*.ipynb")}
    assert {path.name for path in (own / "mine").glob("*.ipynb")} == originals
    asked = "import hybridlab.measuring.recorded as r; print(r.__file__, len(r.recorded()))"
    where, records = subprocess.run([words[0], "-c", asked], cwd=own, capture_output=True, text=True).stdout.split()
    assert where.startswith(str(bare)) and int(records) > 0


# --- what the README tells ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/lecturers.md",
        "docs/notebooks.md",
        "docs/where.md",
        "notebooks/README.md",
        ".ci/run",
        ".github/workflows/test.yml",
    ],
)
def test_every_make_target_named_on_a_page_exists(page):
    typed = r"(?:`|^[ \t]*(?:- run: )?)make ([a-z][a-z-]*)"  # in backticks, or at the start of a line
    named = set(re.findall(typed, (HOUSE / page).read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named, f"{page} names no target"
    assert named <= targets()


def test_continuous_integration_runs_only_what_contributors_are_told():
    commands = [line for line in lines_of(".ci/run") if not line.startswith(("set ", "cd ", "in_time()"))]
    browser = "if tools/chromium; then HYBRIDLAB_BROWSER=required in_time 30 make test-browser; fi"
    kinds = 'in_time 30 make test-gpu ARGS="mode schedule model"'
    notebooks, long, peers, dry = (f"in_time 30 make test-{name}" for name in ("notebooks", "long", "peers", "dry"))
    later, words = (
        f"{long} ARGS='{more}'" for more in ('-m "later and long"', '--dist load -k "test_exercises or test_planner"')
    )
    rest = "in_time 15 make test-long"
    assert commands == ["make test", later, words, notebooks, kinds, browser, peers, dry, rest]
    told = (HOUSE / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [
        one for one in re.findall(r"make ([\w-]+)", " ".join(commands)) if not re.search(rf"make {one}\b(?!-)", told)
    ] == []


@pytest.mark.parametrize("passed, said", [(0, "done"), (1201, "20 minutes are over: left out: echo done")])
def test_what_does_not_begin_in_time_is_said(passed, said):
    (function,) = (line for line in lines_of(".ci/run") if line.startswith("in_time()"))
    told = subprocess.run(
        ["bash", "-c", f"{function}\nSECONDS={passed}; in_time 20 echo done"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == said


def test_the_readme_links_every_notebook():
    readme = (HOUSE / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in sorted((HOUSE / "notebooks").glob("*.ipynb"))]
    assert [name for name in names if f"(notebooks/{name})" not in readme] == []


# --- the notebooks' outputs -----------------------------------------------------------------------------------


def sanitised(text):
    """`text` as nbval compares it."""
    for pattern, replacement in get_sanitize_patterns((HOUSE / "tests" / "nbval.cfg").read_text(encoding="utf-8")):
        text = re.sub(pattern, replacement, text)
    return text


@pytest.mark.parametrize(
    "one, other",
    [
        ("forward   9.8 ms", "forward 101.25 ms"),
        ("took 3 s", "took 1.2e-3 s"),
        ("hop 85 µs", "hop 1,085 μs"),
        ("peak 12.5 MiB", "peak   1.5 GiB"),
        ("rank 0, pid 411", "rank 0, pid 20977"),
        ("<Timeline at 0x7f3a10b2c4d0>", "<Timeline at 0x7f9911b2c4d0>"),
        ("measured 2026-11-21", "measured 2027-01-02 08:30:11"),
        ('File "/tmp/ipykernel_311/123.py"', 'File "/tmp/ipykernel_9/77.py"'),
        ("1.25 GB/s", "980.1 MB/s"),
        ("idle: measured ≈27.3%, off by ≈-1.2 points", "idle: measured ≈31%, off by ≈+2.5 points"),
        ("<i>a </i>≈50 ms</span>≈+8.0 %: as foreseen</span>", "<i>a </i>≈1,050 ms</span>≈-0.5 %: as foreseen</span>"),
        ('<g class="measured"><path d="M1 2"/></g>', '<g class="measured"><path d="M1 3"/><path d="M4 5"/></g>'),
        ("a: this machine 2 s\nb: 1", "a: this machine 2 s; 2 cores, 2026-11-21 9 s; 1 × T4, 2026-12-01 1 ms\nb: 1"),
        ("a</span></p>", 'a</span><span class="elsewhere b"><i>2 </i>s</span><span class="elsewhere b"></span></p>'),
    ],
)
def test_a_measured_number_does_not_fail_a_notebook(one, other):
    assert sanitised(one) == sanitised(other)


@pytest.mark.parametrize(
    "one, other",
    [
        ("27.3 %", "37.5 %"),
        ("4 stages", "8 stages"),
        ("sent 1024 bytes", "sent 2048 bytes"),
        ("16.6 GB per rank", "31.4 GB per rank"),
        ("length 33", "length 34"),
        ("rank 0 pid 1", "rank 1 pid 1"),
        ("2F0 2B0", "2F0 2B1"),
        ("≈+8.0 %: as foreseen", "≈+18.0 %: more than 10 % off"),
        ("a: this machine 2 s; rank 0 waits", "a: this machine 2 s; rank 1 waits"),
        ('<path d="M1 2"/><g class="measured"></g>', '<path d="M1 3"/><g class="measured"></g>'),
    ],
)
def test_a_computed_number_does(one, other):
    assert sanitised(one) != sanitised(other)


@pytest.fixture
def tool():
    """tools/notebooks.py as a module."""
    spec = importlib.util.spec_from_file_location("notebooks_tool", HOUSE / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_notebook_is_stored_without_what_differs_from_run_to_run(tool):
    v4 = nbformat.v4
    slider = v4.new_output("display_data", {tool.WIDGET: {"model_id": "a1"}, "image/svg+xml": "<svg/>"})
    bare = v4.new_output("display_data", {tool.WIDGET: {"model_id": "a2"}})
    result = v4.new_output("execute_result", {"text/plain": "4"}, execution_count=7)
    cells = [
        v4.new_code_cell("slider", outputs=[slider, bare], execution_count=3, metadata={"execution": {"at": "noon"}}),
        v4.new_markdown_cell("text"),
        v4.new_code_cell("2 + 2", outputs=[result], execution_count=7, metadata={"tags": ["raises-exception"]}),
        v4.new_code_cell(""),
    ]
    state = {"widgets": {tool.WIDGET: {"state": {}}}, "language_info": {"name": "python", "version": "3.11.7"}}
    notebook = tool.stored_form(v4.new_notebook(cells=cells, metadata=state))
    assert notebook.metadata == tool.METADATA
    assert [cell.get("execution_count") for cell in notebook.cells] == [1, None, 2, None]
    assert [dict(output.data) for output in notebook.cells[0].outputs] == [{"image/svg+xml": "<svg/>"}]
    assert notebook.cells[2].outputs[0].execution_count == 2
    assert [cell.metadata for cell in notebook.cells] == [{}, {}, {"tags": ["raises-exception"]}, {}]
    assert tool.text(tool.stored_form(notebook)) == tool.text(notebook)


@pytest.mark.slow
def test_every_stored_notebook_is_in_that_form(tool, capsys):
    assert tool.main(["--check"]) == 0, capsys.readouterr().out


def test_the_check_of_that_form_can_fail(tool, tmp_path):
    saved_by_hand = nbformat.v4.new_notebook(metadata={"widgets": {tool.WIDGET: {"state": {}}}})
    path = tmp_path / "saved_by_hand.ipynb"
    path.write_text(tool.text(saved_by_hand), encoding="utf-8")
    assert tool.main(["--check", str(path)]) == 1
