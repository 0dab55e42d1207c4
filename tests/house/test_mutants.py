"""The mutation bench: what it draws, and what it finds in a package so small that the answer is known."""

import ast
from functools import cache

import pytest
from few import one_in

from tools.mutants.__main__ import HYBRIDLAB, bench
from tools.mutants.draw import KINDS, Mutant, candidates, drawn
from tools.mutants.edits import OPERATORS
from tools.mutants.meanings import MEANINGS
from tools.mutants.report import accepted, found_again, gone, good, record, standing, text, unnoticed
from tools.mutants.tree import Tree
from tools.mutants.trial import Verdict

HOUSE = HYBRIDLAB.root


@cache
def some(number, seed=0):
    return drawn(HOUSE, HYBRIDLAB.files(), number, seed)


def read(one):
    return (HOUSE / one.file).read_text(encoding="utf-8")


# --- the draw -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_seed_draws_the_same_again_and_another_seed_others():
    candidates.cache_clear()
    assert drawn(HOUSE, HYBRIDLAB.files(), 50, seed=3) == some(50, 3) != some(50, 4)


@pytest.mark.long
def test_a_draw_has_the_number_asked_for_at_most_one_of_a_line_and_every_floor_has_its_share():
    lines = {(one.file, one.line) for one in some(200)}
    assert len(lines) == len(some(200)) == 200
    counts = [sum(one.file.startswith(f"hybridlab/{floor}/") for one in some(200)) for floor in HYBRIDLAB.floors]
    assert sum(counts) == 200 and min(counts) >= 15


@pytest.mark.long
def test_every_mutant_differs_from_its_file_in_one_line_and_compiles_to_something_else():
    for one in some(200)[::4]:
        before, after = read(one), one.applied(read(one))
        differ = [n for n, lines in enumerate(zip(before.split("\n"), after.split("\n")), start=1) if len({*lines}) > 1]
        assert differ == [one.line] and before.count("\n") == after.count("\n")
        compile(after, one.file, "exec")
        assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))


@pytest.mark.slow
@pytest.mark.parametrize("floor", one_in(4, HYBRIDLAB.floors))
def test_every_floor_has_hundreds_of_lines_to_draw_from(floor):
    lines = {(file, one.line) for file in HYBRIDLAB.files()[floor] for one in candidates(HOUSE, file)}
    assert len(lines) >= 200


@pytest.mark.slow
def test_every_kind_of_mistake_can_be_made_somewhere():
    found = {one.operator for files in HYBRIDLAB.files().values() for file in files for one in candidates(HOUSE, file)}
    assert found == set(OPERATORS)


def mistakes(tmp_path, code, kinds=("line",)):
    """{kind of mistake: what becomes of a line of the code}."""
    (tmp_path / "code.py").write_text(code)
    found = {}
    for one in candidates(tmp_path, "code.py", kinds):
        found.setdefault(one.operator, []).append(one.after.strip())
    candidates.cache_clear()
    return found


@pytest.mark.parametrize(
    "code, operator, after",
    [
        ("if a < b: c()", "comparison", ["if a <= b: c()", "if a >= b: c()"]),
        ("é = a ** b", "arithmetic", ["é = a * b"]),
        ("x = (a) + (b)", "arithmetic", ["x = (a) - (b)"]),
        ("x = -a", "sign", ["x = a"]),
        ("x = a and b or c", "logic", ["x = a and b and c", "x = a or b or c"]),
        ("x = not a", "negation", ["x = a"]),
        ("x = 1 if a else 2", "branch", ["x = 1 if (not (a)) else 2"]),
        ("x = [a for a in b if f(a)]", "branch", ["x = [a for a in b if (not (f(a)))]"]),
        ("x = True", "flag", ["x = False"]),
        ("x = 5", "number", ["x = 4", "x = 6"]),
        ("x = 0.5", "number", ["x = 0.25", "x = 1.0"]),
        ("x = a.min(b)", "extreme", ["x = a.max(b)"]),
        ("x = sorted(a, key=f)", "order", ["x = list(a)"]),
        ("x = a[0]", "index", ["x = a[-1]"]),
        ("x = a[b:c]", "index", ["x = a[:c]", "x = a[b:]"]),
        ("x = f(a, b=c)", "keyword", ["x = f(a)"]),
        ("x = f(b=c, d=e)", "keyword", ["x = f(b=c)", "x = f(d=e)"]),
        ("x = {'dp': 1, 'first': 2, 'tp': 3}", "word", 3),
        ("def f(x):\n    return x", "statement", ["return None"]),
        ("def f(x):\n    x.y = 1", "statement", ["pass"]),
        ("def f(x):\n    raise ValueError('no' + x)", "statement", ["pass"]),
    ],
)
def test_each_kind_of_mistake_on_a_line_of_its_own(tmp_path, code, operator, after):
    found = sorted(mistakes(tmp_path, code)[operator])
    assert found == after if isinstance(after, list) else len(found) == after


@pytest.mark.parametrize(
    "code, operator, after",
    [
        ("x = mesh['cp']", "axis", ['x = mesh["dp"]', 'x = mesh["tp"]']),
        ("x = mesh.pp", "axis", ["x = mesh.dp", "x = mesh.tp"]),
        ("x = a.sum(dim=-1)", "axis", ["x = a.sum(dim=0)"]),
        ("event.wait()", "wait", ["pass"]),
        ("x = f(a, group=b)", "group", ["x = f(a, group=None)"]),
        ("x = mesh.group(a, b)", "group", ["x = mesh.group(a, b)[:1]"]),
        ("x = f(a, b, 1)", "exchanged", ["x = f(a, 1, b)", "x = f(b, a, 1)"]),
        ("x = a / b", "divisor", ["x = (a)", "x = (a) / ((b) + 1)"]),
        ("x = a * b", "divisor", ["x = (a)", "x = (b)"]),
        ("x = range(a)", "span", ["x = range((a) - 1)"]),
        ("x = range(a, b)", "span", ["x = range((a) + 1, b)", "x = range(a, (b) - 1)"]),
        ("x = a[b:c]", "span", ["x = a[(b) + 1:c]", "x = a[b:(c) - 1]"]),
        ("x = [f(a) for a in b]", "span", ["x = [f(a) for a in list(b)[1:]]", "x = [f(a) for a in list(b)[:-1]]"]),
        ("def f(x):\n    x = g(x)\n    y = x", "stale", ["pass"]),
        ("def f(self):\n    self.x = y", "stale", ["pass"]),
        ("x = {'a': b, **c}", "lost", ["x = { **c}", "x = {'a': b, }"]),
        ("found.append(a)", "lost", ["pass"]),
        ("x = a | b", "lost", ["x = (a)", "x = (b)"]),
        ("x = a.clone()", "alias", ["x = a"]),
        ("x = deepcopy(a)", "alias", ["x = (a)"]),
        ("x = a.float()", "precision", ["x = a"]),
        ("x = a.numel()", "byte", ["x = (a.numel() + 1)"]),
    ],
)
def test_each_mistake_in_meaning(tmp_path, code, operator, after):
    assert sorted(mistakes(tmp_path, code, ("meaning",))[operator]) == after


@pytest.mark.long
def test_every_mistake_in_meaning_can_be_made_somewhere():
    found = {
        one.operator
        for files in HYBRIDLAB.files().values()
        for file in files
        for one in candidates(HOUSE, file, ("meaning",))
    }
    assert found == set(MEANINGS)


def test_a_rare_kind_of_mistake_is_drawn_as_often_as_a_common_one(tmp_path):
    lines = ["def f(a, b):", "    w.wait()", *(f"    a = a + {n}" for n in range(2, 60)), "    return a"]
    (tmp_path / "code.py").write_text("\n".join(lines))
    first = [drawn(tmp_path, {"all": ["code.py"]}, 2, seed, ("line", "meaning")) for seed in range(20)]
    assert sum("wait" in {one.operator for one in some} for some in first) >= 5


@pytest.mark.parametrize(
    "code",
    [
        '"""Words 1 + 1."""',
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    x = 1",
        "def f(x: 1 + 1) -> 1 + 1: ...",
        "@cache(size=1)\ndef f(x): ...",
        "def __repr__(self):\n    return self.a + 1",
        "x = f'{a + 1}'",
        "__all__ = ['a', 'b']",
        "class Wrong(ValueError):\n    def __init__(self, a):\n        super().__init__(a + 1)",
    ],
)
def test_words_and_declarations_have_no_mistakes(tmp_path, code):
    assert mistakes(tmp_path, code) == {}


def test_what_only_an_error_says_has_no_mistakes(tmp_path):
    code = """
    def f(x):
        ways = x + 1
        if x < 2:
            why = _told(ways)
            raise ValueError(why)
    def _told(x):
        return x * 2
    """
    found = mistakes(tmp_path, "\n".join(line[4:] for line in code.splitlines()))
    assert found.keys() == {"comparison", "number", "statement"}
    assert found["statement"] == ["pass"]  # the error is not raised


# --- the trial, on a toy --------------------------------------------------------------------------------------

CODE = """
SIZES = (1, 2)[1:]


def total(numbers):
    found = 0
    for one in numbers:
        found += one
    return found


def at_most(number):
    return number if number < 9 else 9


def halves(number):
    return [number // 2, number - number // 2]


def counted(number):
    while number > 0:
        number -= 1
    return number


FIRST = SIZES[0]
"""
TESTS = """
from toy.floor.sums import at_most, counted, total

def test_total():
    assert total([1, 2]) == 3

def test_at_most():
    assert [at_most(number) for number in (8, 9, 10)] == [8, 9, 9]

def test_halves_in_another_process():
    import subprocess, sys
    code = "from toy.floor.sums import halves; print(halves(4))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[2, 2]\\n"

def test_counted():
    assert counted(3) == 0

def test_what_fails_anyhow():
    assert total([]) == 1
"""
CONFIGURED = """
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
markers = ["ranks", "notebooks"]
"""
LONG = """
def pytest_addoption(parser):
    parser.addoption("--long", action="store_true")
    parser.addoption("--slow", action="store_true")
"""
TEST = "tests/test_sums.py"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A package of one file whose tests take no time, so that one that hangs is ended soon."""
    files = {"toy/__init__.py": "", "toy/floor/__init__.py": "", "toy/floor/sums.py": CODE, TEST: TESTS}
    for name, content in (files | {"tests/conftest.py": LONG, "pyproject.toml": CONFIGURED}).items():
        file = tmp_path / "toy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    monkeypatch.setattr("tools.mutants.trial.LEAST_SECONDS", 4.0)
    return Tree(tmp_path / "toy", "toy", ("floor",), tmp_path / "cache")


HALVES = "return [number // 2, number - number // 2]"
KILLED = {  # (the line, and the line in its place): what tells
    ("SIZES = (1, 2)[1:]", "SIZES = (1, 2)[2:]"): "import",
    ("found += one", "pass"): f"{TEST}::test_total",
    (HALVES, HALVES.replace("-", "+")): f"{TEST}::test_halves_in_another_process",
    ("return number if number < 9 else 9", "return number if number < 9 else 10"): f"{TEST}::test_at_most",
    ("number -= 1", "pass"): f"out of time, in {TEST}::test_counted",
}
SURVIVES = "return number if number < 9 else 9", "return number if number <= 9 else 9"
COUNTED = "while number > 0:", "while number >= 0:"


def planted(*lines):
    """Those mutants of the toy that have these lines."""

    def chosen(tree):
        every = [one for files in tree.files().values() for file in files for one in candidates(tree.root, file)]
        by_lines = {(one.before.strip(), one.after.strip()): one for one in every}
        return [by_lines[one] for one in lines]

    return chosen


def found_by(verdicts):
    return {(one.mutant.before.strip(), one.mutant.after.strip()): one.by for one in verdicts}


@pytest.mark.long
def test_planted_mutants_are_killed_by_the_test_that_should_and_one_survives(toy, capsys):
    mutants, verdicts = bench(toy, planted(*KILLED, SURVIVES), workers=2, minutes=1)
    assert [one.mutant for one in verdicts] == mutants
    assert found_by(verdicts) == KILLED | {SURVIVES: None}
    assert f"fails without a mutant, and is not asked: {TEST}::test_what_fails_anyhow" in capsys.readouterr().out
    assert (toy.root / "toy/floor/sums.py").read_text() == CODE


@pytest.mark.long
def test_what_was_tried_is_not_tried_again_until_a_test_changes(toy, capsys):
    def tried():
        _, verdicts = bench(toy, planted(COUNTED, SURVIVES), workers=1, minutes=1)
        return found_by(verdicts), capsys.readouterr().out

    weak = TESTS.replace("counted(3) == 0", "counted(3) <= 0")
    (toy.root / TEST).write_text(weak)
    assert tried()[0] == {COUNTED: None, SURVIVES: None}
    assert "2 mutants, 2 tried before" in tried()[1]
    (toy.root / TEST).write_text(TESTS)
    found, said = tried()
    assert found == {COUNTED: f"{TEST}::test_counted", SURVIVES: None}
    assert "2 mutants, 0 tried before" in said


# --- the report -----------------------------------------------------------------------------------------------


def verdict(after, by, unasked=0):
    mutant = Mutant("hybridlab/core/where/mesh.py", 7, "number", "    x = 1", f"    x = {after}", "f")
    return Verdict(mutant, by, 1.0, unasked, "", "")


def test_a_report_counts_the_explained_apart_and_lists_survivors():
    verdicts = [verdict(2, "tests/test_mesh.py::test_x")] * 38 + [verdict(0, None, unasked=9), verdict(3, None)]
    found = record(verdicts, {("hybridlab/core/where/mesh.py", "x = 1", "x = 3"): "x is 1 or 3."})
    assert found["floors"] == {"core": {"tried": 40, "killed": 38}} and found["share"] == 0.95
    assert text(found).splitlines()[-9:] == [
        "killed 38 of 40: 95.0%, at least 95%",
        "killed or explained 39 of 40: 97.5%",
        "",
        "no test notices:",
        "  hybridlab/core/where/mesh.py:7  x = 1  →  x = 0  (9 slow tests not asked)",
        "",
        "may survive:",
        "  hybridlab/core/where/mesh.py:7  x = 1  →  x = 3",
        "    x is 1 or 3.",
    ]
    assert not good(found)


def test_what_was_not_noticed_is_found_again_where_its_line_stands_by_now(tmp_path):
    file = "pkg/core/one.py"
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("def f(x):\n    return x + 1\n")
    old = [Verdict(one, by, 1.0, 0, "", "") for one, by in zip(candidates(tmp_path, file), (None, "test_f", None))]
    found = record(old, {})
    candidates.cache_clear()
    (tmp_path / file).write_text("# a line more\n\n\ndef f(x):\n    return x + 1\n")
    rows = unnoticed(found)
    again = [found_again(row, tmp_path) for row in rows]
    assert [one.line for one in again] == [row["line"] + 3 for row in rows] and len(again) == len(old) - 1
    assert found_again(rows[0] | {"before": "return x + 2"}, tmp_path) is None
    lost = {"mutants": [rows[0] | {"before": "return x + 2", "killed_by": None}, rows[1] | {"killed_by": None}]}
    assert gone(lost, tmp_path) == {(rows[0]["file"], "return x + 2", rows[0]["after"]): "This line is gone."}
    newer = standing(found, [Verdict(again[0], "test_g", 2.0, 0, "", "")])
    assert [one.by for one in newer] == ["test_g", "test_f", *[None] * (len(old) - 2)]
    assert record(newer, {})["killed"] == 2


def test_the_bench_is_good_when_enough_are_killed_and_every_survivor_is_explained():
    reasons = {("hybridlab/core/where/mesh.py", "x = 1", "x = 3"): "."}
    some = [verdict(2, "tests/test_mesh.py::test_x")] * 19
    assert good(record([*some, verdict(3, None)], reasons))
    assert not good(record([*some, verdict(0, None)], reasons))
    assert not good(record([*some[1:], verdict(3, None)], reasons))
    assert not good(record([], reasons))


@pytest.mark.slow
def test_every_accepted_survivor_still_stands_in_its_file_and_has_a_reason():
    for (file, before, after), why in accepted().items():
        lines = {(one.before.strip(), one.after.strip()) for one in candidates(HOUSE, file, tuple(KINDS))}
        assert (before, after) in lines and why.endswith("."), (file, before)
