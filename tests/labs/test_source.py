"""The source of functions as notebooks have them: on its own it does what the function did, or it is told why not."""

import functools
import itertools
import linecache
import sys
import types

import pytest
from few import one_in

from hybridlab.labs.exercises.source import source_of

number = itertools.count()


def cell(text: str, names: dict | None = None) -> dict:
    """The names of a notebook after a cell; its source is known, as IPython makes it known."""
    file = f"<cell of sources {next(number)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names = {"__name__": "__main__"} if names is None else names
    exec(compile(text, file, "exec"), names)
    return names


def again(text: str, *given, name: str = "f"):
    """(what the function of a cell gives, what its source gives on its own)."""
    function = cell(text)[name]
    return function(*given), source_of(function).load()(*given)


# --- what stands in a block ---------------------------------------------------------------------------------------

IN_A_BLOCK = {
    "docstring": 'if True:\n    def f():\n        """One\n  two."""\n        return f.__doc__\n',
    "f-string": 'if True:\n    def f(x=3):\n        return f"""a {x}\n  b {x\n }"""\n',
    "parenthesis": "if True:\n    def f():\n        return (1 +\n  2)\n",
    "comment": "if True:\n    def f():\n# first\n        x = 5\n\n        return x\n",
    "string": 'if True:\n    def f():\n        x = """a\n            b\nc"""\n        return x\n',
    "joined strings": 'if True:\n    def f():\n        x = ("a"\n            "b")\n        return x\n',
    "bytes": 'if True:\n    def f():\n        return b"""a\n        b"""\n',
    "tabs": "if True:\n\tdef f():\n\t\tif True:\n\t\t\treturn 4\n",
    "class": 'if True:\n    class C:\n        K = """a\n        b"""\n    def f():\n        return C.K\n',
    "lambda": "if True:\n    f = (lambda: 1 +\n2)\n",
    "try": "try:\n    def f():\n        return 1\nfinally:\n    pass\n",
    "form feed": "if True:\n    def f():\n        return '\x0c \u2028 x'\n",
}


@pytest.mark.parametrize("text", IN_A_BLOCK.values(), ids=IN_A_BLOCK)
def test_what_stands_in_a_block_says_the_same_without_it(text):
    was, comes = again(text)
    assert was == comes


def test_comments_come_along():
    assert "# first" in source_of(cell(IN_A_BLOCK["comment"])["f"]).text


# --- names --------------------------------------------------------------------------------------------------------

NAMES = {
    "default of a package": "import math\ndef f(x=math.floor(2.5)):\n    return x\n",
    "default that has no text": "import torch\ndef f(x=torch.zeros(2), *, y=torch.ones(2)):\n"
    "    return (x + y).tolist()\n",
    "default function": "def base():\n    return 7\ndef f(g=base):\n    return g()\n",
    "default that changed": "k = 3\ndef f(x=k, *, y=2 * k):\n    return x, y\nk = 4\n",
    "default in a loop": "def base():\n    return 7\nf = [(lambda k=k: base() + k) for k in (-1, 0, 1)][1]\n",
    "default of a default": "def base(x=1):\n    return x\ndef f(g=(base, lambda x=base: x())):\n"
    "    return g[0](), g[1]()\n",
    "defaults of which some are plain": "k = 1\ndef g(a=0, b=k, /, c='x', *, d, e=k):\n    return a, b, c, d, e\n"
    "def f(): return g(d=8)\n",
    "annotation": "import torch\ndef f(x: torch.Tensor = None) -> torch.Tensor:\n    return 1\n",
    "two closures": "def fac(k, g=None):\n    def inner():\n        return k + (g() if g else 0)\n    return inner\n"
    "f = fac(3, fac(-3, fac(10)))\n",
    "two lambdas": "def fac(k):\n    return lambda: k\na, b = fac(1), fac(2)\ndef f():\n    return a(), b()\n",
    "a closure that calls itself": "def fac(k):\n    def inner(n):\n        return k * inner(n - 1) if n else 1\n"
    "    return inner\n"
    "a, b = fac(2), fac(3)\ndef f():\n    return a(3), b(3)\n",
    "closures that call each other": "def fac():\n    def even(n):\n        return n == 0 or odd(n - 1)\n"
    "    def odd(n):\n        return n > 0 and even(n - 1)\n    return even\ng = fac()\ndef f():\n"
    "    return g(7), g(8)\n",
    "a closure that keeps": "def fac(n):\n    def inner():\n        nonlocal n\n        n += 1\n        return n\n"
    "    return inner\n"
    "g = fac(3)\ndef f():\n    return 0\nf = lambda: isinstance(g(), int)\n",
    "a closure named as a builtin": "def fac(max):\n    def inner():\n        return max, sum([1, 2])\n"
    "    return inner\n"
    "f = fac(3)\n",
    "a builtin of one's own": "def sum(x):\n    return 'mine'\ndef f():\n    return sum([1])\n",
    "another name": "def g():\n    return 5\nf = g\n",
    "another name for itself": "def f(n=3):\n    return g(n - 1) if n else 'end'\ng = f\n",
    "a name that changed": "def f():\n    return 1\ng = f\ndef f():\n    return 10 + g()\n",
    "builtins of a package": "from torch import zeros\nfrom math import floor\ndef f():\n"
    "    return floor(zeros(1).item())\n",
    "inf and nan": "table = {'a': inf, 'b': [-inf, (1.5,)]}\ndef f():\n    return table\n".replace(
        "inf", "float('inf')"
    ),
    "functions in a table": "def g():\n    return 4\ntable = {'g': g, 'max': max, 3: (g,)}\ndef f():\n"
    "    return table['g']()\n",
    "dtype": "import torch\nkind, table = torch.float32, {'x': (torch.int64, torch.device('cpu'), torch.Size([2]))}\n"
    "def f():\n    return kind, table\n",
    "fractions": "from fractions import Fraction\nfrom decimal import Decimal\nx, y = Fraction(1, 4), Decimal('0.1')\n"
    "def f():\n    return x, y\n",
    "numpy": "import numpy as np\nx = np.float64(0.5), np.int64(3)\ndef f():\n    return x\n",
    "sets": "x = {1, 2}, frozenset(), set()\ndef f():\n    return x\n",
    "__name__": "def f():\n    return __name__ is None\n",
}


@pytest.mark.parametrize("text", NAMES.values(), ids=NAMES)
def test_all_that_a_function_needs_comes_with_it(text):
    was, comes = again(text)
    assert was == comes


def test_not_a_number_comes_along():
    text = "x = [float('nan')]\ndef f():\n    return x\n"
    assert str(again(text)) == "([nan], [nan])"


# --- classes ------------------------------------------------------------------------------------------------------

CLASSES = {
    "without a method": "class Cfg:\n    K = 101\ndef f():\n    return Cfg.K\n",
    "an error": "class Oops(ValueError): pass\ndef f():\n    try:\n        raise Oops('x')\n"
    "    except Oops as error:\n        return str(error)\n",
    "that holds a class": "class A:\n    class B:\n        K = 3\ndef f():\n    return A.B.K\n",
    "that holds a class with methods": "class A:\n    class B:\n        def k(self): return 4\ndef f():\n"
    "    return A.B().k()\n",
    "dataclass": "from dataclasses import dataclass, field\nN = 3\n@dataclass(frozen=True, order=True)\nclass DC:\n"
    "    x: int\n    y: int = N\n    z: list = field(default_factory=list)\ndef f():\n"
    "    return repr(DC(1)), DC(1) < DC(2)\n",
    "dataclass with slots": "from dataclasses import dataclass\n@dataclass(slots=True)\nclass DC:\n    x: int = 1\n"
    "    def twice(self): return 2 * self.x\ndef f():\n    return DC(4).twice()\n",
    "named tuple": "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int = 2\ndef f():\n"
    "    return P(1).y\n",
    "enum": "from enum import IntEnum, auto\nclass E(IntEnum):\n    A = 1\n    B = auto()\ndef f():\n"
    "    return E.B + 1\n",
    "a member": "from enum import Enum\nclass E(Enum):\n    A = 'a'\nmine = [E.A]\ndef f():\n"
    "    return mine[0].value\n",
    "an instance": "from dataclasses import dataclass\nfrom typing import NamedTuple\nclass P(NamedTuple):\n"
    "    x: int\n"
    "@dataclass\nclass C:\n    p: P\n    n: int = 1\nmine = C(P(5), 2)\ndef f():\n    return mine.p.x, mine.n\n",
    "property": "class A:\n    @property\n    def x(self): return self._y()\n    def _y(self): return 3\ndef f():\n"
    "    return A().x\n",
    "in a function": "def fac(k):\n    class A:\n        def x(self): return k\n    return A\nA = fac(3)\ndef f():\n"
    "    return A().x()\n",
    "two of a factory": "def fac(k):\n    class A:\n        def x(self): return k\n    return A\n"
    "B, C = fac(3), fac(4)\n"
    "def f():\n    return B().x(), C().x()\n",
    "super": "class A:\n    def x(self): return 1\nclass B(A):\n    def x(self): return super().x() + 1\ndef f():\n"
    "    return B().x()\n",
}


@pytest.mark.parametrize("text", one_in(3, CLASSES.values()), ids=CLASSES)
def test_classes_come_along(text):
    was, comes = again(text)
    assert was == comes


def test_of_several_classes_with_one_name_it_is_the_newest():
    names = cell("class Cfg:\n    K = 1\n")
    cell("class Cfg:\n    K = 2\ndef f():\n    return Cfg.K\n", names)
    assert source_of(names["f"]).load()() == 2
    cell("class Cfg:\n    K = 1\n")  # of another notebook
    assert source_of(names["f"]).load()() == 2


# --- decorators ---------------------------------------------------------------------------------------------------

TIMED = """
import functools, torch
def timed(g):
    @functools.wraps(g)
    def wrapper(*given):
        return 100 + g(*given)
    return wrapper
def bare(g):
    def wrapper(*given):
        return 200 + g(*given)
    return wrapper
def times(n):
    return lambda g: lambda *given: n * g(*given)
"""
DECORATED = {
    "of torch": "@torch.no_grad()\ndef f():\n    return torch.is_grad_enabled()\n",
    "of torch, called": "@torch.no_grad\ndef g():\n    return 3\ndef f():\n    return g()\n",
    "wraps": "@timed\ndef f():\n    return 1\n",
    "wraps twice": "@timed\n@timed\ndef f():\n    return 1\n",
    "without wraps": "@bare\ndef f():\n    return 1\n",
    "with arguments": "@times(3)\n@bare\ndef f():\n    return 1\n",
    "cached": "@functools.lru_cache(maxsize=4)\ndef g(n):\n    return n * g(n - 1) if n else 1\ndef f():\n"
    "    return g(5)\n",
    "without @": "def g():\n    return 1\nf = timed(g)\n",
    "in a block": "if True:\n    @timed\n    def f():\n        return 1\n",
}


@pytest.mark.parametrize("text", DECORATED.values(), ids=DECORATED)
def test_decorated_functions_come_along_as_they_are_decorated(text):
    was, comes = again(TIMED + text)
    assert was == comes


def test_a_cached_function_is_an_answer():
    assert source_of(cell(TIMED + DECORATED["cached"])["g"]).load()(4) == 24


# --- what cannot come along ---------------------------------------------------------------------------------------

REFUSED = {
    "partial": ("import functools\nf = functools.partial(max, 3)\n", "a partial .*: answer with a function, def …"),
    "uses a partial": (
        "import functools\ng = functools.partial(max, 3)\ndef f():\n    return g\n",
        r"g \(partial\).*def",
    ),
    "a tensor": (
        "import torch\nw = torch.ones(2)\ndef f():\n    return w\n",
        r"it uses w \(Tensor\).*: make it inside",
    ),
    "in a table": ("w = {1: [object()]}\ndef f():\n    return w\n", r"it uses w \(dict with an object in it\)"),
    "a method": ("class A:\n    def g(self): return 1\nf = A().g\n", "a method .*: answer with a function, def …"),
    "wrapped without @": (
        "import torch\ndef g():\n    return 1\nf = torch.no_grad()(g)\n",
        "write the wrapper as a decorator, @",
    ),
    "cached without @": (
        "import functools\ndef g():\n    return 1\nf = functools.cache(g)\n",
        "write the wrapper as a decorator, @",
    ),
    "names found late": (
        "def g(): return 1\nclass A:\n    x = globals()['g']()\ndef f():\n    return A.x\n",
        "KeyError: 'g'",
    ),
}


@pytest.mark.parametrize("text, piece", REFUSED.values(), ids=REFUSED)
def test_what_cannot_come_along_is_told_with_what_to_do(text, piece):
    with pytest.raises(ValueError, match=piece):
        source_of(cell(text)["f"])


def test_a_cell_that_was_changed_and_not_run_again_is_told():
    function = cell("def f():\n    return 1 + len('a')\n")["f"]
    file = function.__code__.co_filename
    lines = ["def f():\n", "    return 2 + len('a')\n"]
    linecache.cache[file] = sum(map(len, lines)), None, lines, file
    with pytest.raises(ValueError, match="the function f in memory differs from its cell: run its cell again"):
        source_of(function)
    del linecache.cache[file]
    with pytest.raises(ValueError, match="the source of f is not available: run its cell again"):
        source_of(function)


def test_a_file_beside_the_notebook_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "my_helpers.py").write_text("N = 3\ndef helper():\n    return N\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = cell(
        "import my_helpers\nfrom my_helpers import helper\ndef f():\n    return helper()\ndef g():\n"
        "    return my_helpers\n"
    )
    source = source_of(names["f"])
    sys.modules.pop("my_helpers")
    assert "import" not in source.text and source.load()() == 3
    with pytest.raises(ValueError, match="my_helpers, your own file, which is not submitted: copy the parts"):
        source_of(names["g"])


def test_a_function_that_only_has_the_name_of_a_package_s_is_no_import():
    mine = functools.wraps(types.resolve_bases)(lambda bases: "mine")
    with pytest.raises(ValueError, match="was wrapped by another function"):
        source_of(mine)
