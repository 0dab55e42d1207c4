"""What a type checker and an editor see of the package: no error, every argument's name, a wrong one told."""

import ast
import json
import pathlib
import subprocess
import sys
import threading

import pytest

import hybridlab

HOUSE = pathlib.Path(__file__).resolve().parents[2]
CHECKED = [path for floor in ("core", "scheduling", "predict") for path in (HOUSE / "hybridlab" / floor).rglob("*.py")]
SURFACE = HOUSE / "tests/house/surface.py"
SECONDS = 240  # of which a quiet machine needs five
SERVER = "from basedpyright.langserver import main; main()"
WRONG = """import hybridlab as hl

hl.check(hl.Mesh(pp=2), microbatchs=4)
hl.schedule("1f1b", ranks="four", microbatches=8)
hl.simulat
"""


def public(body, inside=False):
    """The public functions of a module's or a class's body, and the methods of its public classes."""
    for one in body:
        if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
            yield from public(one.body, inside=True)
        elif isinstance(one, ast.FunctionDef) and (not one.name.startswith("_") or one.name.startswith("__")):
            yield one, inside


def bare(source: str) -> list[str]:
    """The arguments and results of public functions that a source leaves without a type, as function.argument."""
    found = []
    for one, is_method in public(ast.parse(source).body):
        told = [one.args.vararg, *one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs, one.args.kwarg]
        names = [
            arg.arg for arg in told if arg and not arg.annotation and not (is_method and arg.arg in ("self", "cls"))
        ]
        found += [f"{one.name}.{name}" for name in names + ["return"] * (not one.returns and one.name != "__init__")]
    return found


def test_public_functions_of_the_pure_floors_are_annotated():
    assert {path.name: left for path in CHECKED if (left := bare(path.read_text(encoding="utf-8")))} == {}


def test_a_bare_argument_is_found():
    source = "def f(a: int, b, *c): ...\nclass A:\n    def g(self, *, d=1) -> None: ...\ndef _h(x): ...\n"
    assert bare(source) == ["f.c", "f.b", "f.return", "g.d"]


@pytest.mark.long
def test_the_public_surface_has_no_error_and_mistakes_are_reported(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG, encoding="utf-8")
    words = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(HOUSE), str(SURFACE), str(wrong)]
    told = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False).stdout
    report = json.loads(told)
    assert report["summary"]["filesAnalyzed"] == 2
    found = [(pathlib.Path(one["file"]).name, one["range"]["start"]["line"]) for one in report["generalDiagnostics"]]
    assert found == [("wrong.py", 2), ("wrong.py", 3), ("wrong.py", 4)], told
    assert "microbatchs" in report["generalDiagnostics"][0]["message"]


class Editor:
    """The client of a language server: it sends requests, answers those of the server, and waits for its reply."""

    def __init__(self):
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.limit = threading.Timer(SECONDS, self.server.kill)
        self.limit.start()
        self.asked = 0
        folder = {"uri": HOUSE.as_uri(), "name": "house"}
        self.ask("initialize", processId=None, rootUri=folder["uri"], workspaceFolders=[folder], capabilities={})
        self.tell("initialized")

    def close(self):
        self.ask("shutdown")
        self.tell("exit")
        self.server.communicate(timeout=SECONDS)
        self.limit.cancel()

    def send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def tell(self, method, **params):
        self.send(method=method, params=params)

    def receive(self) -> dict:
        length = 0
        while (line := self.server.stdout.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.server.stdout.read(length))

    def ask(self, method, **params):
        self.asked += 1
        self.send(id=self.asked, method=method, params=params)
        while "result" not in (message := self.receive()) or message.get("id") != self.asked:
            if "id" in message and "method" in message:  # a question of the server's, such as for settings: none
                items = message.get("params", {}).get("items")
                self.send(id=message["id"], result=[None] * len(items) if items else None)
        return message["result"]

    def completed(self, text: str) -> set[str]:
        """What is offered behind the end of a text."""
        uri = (HOUSE / f"tests/house/typed_{self.asked}.py").as_uri()
        self.tell("textDocument/didOpen", textDocument={"uri": uri, "languageId": "python", "version": 1, "text": text})
        place = {"line": text.count("\n"), "character": len(text.rpartition("\n")[2])}
        offered = self.ask("textDocument/completion", textDocument={"uri": uri}, position=place)
        return {one["label"].strip() for one in offered["items"]}


@pytest.fixture(scope="module")
def editor():
    one = Editor()
    yield one
    one.close()


@pytest.mark.long
def test_an_editor_completes_the_public_names(editor):
    assert editor.completed("import hybridlab as hl\nhl.") >= set(hybridlab.__all__) - {"__version__"}


@pytest.mark.long
@pytest.mark.parametrize(
    "call, names",
    [
        ("hl.check(hl.Mesh(pp=2), ", {"microbatches=", "model=", "loss=", "zero=", "sabotage="}),
        ("hl.train(hl.Mesh(pp=2), ", {"steps=", "optimizer=", "data=", "dtype="}),
        ("hl.plan('gpt3-175b', 'a100', ", {"gpus=", "batch=", "recompute=", "zero="}),
        ("hl.schedule('gpipe', ", {"ranks=", "microbatches=", "chunks="}),
    ],
)
def test_an_editor_completes_the_arguments_of_a_verb(editor, call, names):
    assert editor.completed(f"import hybridlab as hl\n{call}") >= names


@pytest.mark.long
def test_an_editor_offers_no_argument_that_a_verb_lacks(editor):
    assert "microbatchs=" not in editor.completed("import hybridlab as hl\nhl.check(hl.Mesh(pp=2), ")
