"""`%%ranks`: cells that run on ranks, and what stays, what is lost and what is said when one fails."""

import linecache
import os
import sys
import time
from types import SimpleNamespace

import jupyter_client
import pytest

import hybridlab as hl
from hybridlab.world.cells import cells, namespace
from hybridlab.world.explain import places

pytestmark = pytest.mark.ranks


class Shell:
    """What the magic uses of IPython: the cells so far, the running one included, and the notebook's variables."""

    def __init__(self):
        self.input_hist_raw, self.user_ns = [""], {}
        self.history_manager = self


class Notebook:
    """Cells as a reader types them."""

    def __init__(self):
        self.shell = Shell()
        self.cells = cells.Cells(self.shell)

    def cell(self, text, line=""):
        self.shell.input_hist_raw.append(text)
        return self.cells.magic(line, text + "\n")

    def line(self, text):
        self.shell.input_hist_raw.append(text)
        return self.cells.magic(text)


@pytest.fixture
def notebook():
    one = Notebook()
    one.line("2")
    yield one
    one.cells.stop()


def shown(error):
    """What IPython shows of an error, without colours."""
    return "\n".join(error._render_traceback_()).replace("\x1b[31m", "").replace("\x1b[0m", "")


def test_variables_live_from_cell_to_cell_and_values_come_home_sorted(notebook):
    assert notebook.cell("import torch\nx = torch.tensor([rank + 1.0])") is None
    values = notebook.cell("comm.all_reduce(x)\nx.item()")
    assert values == [3.0, 3.0]
    assert repr(values) == "rank 0: 3.0\nrank 1: 3.0"
    assert repr(notebook.cell("x")) == "rank 0: tensor([3.])\nrank 1: tensor([3.])"


def test_a_function_can_be_defined_anew(notebook):
    notebook.cell("def f():\n    return rank")
    notebook.cell("def g():\n    return f() * 10")
    assert notebook.cell("g()") == [0, 10]
    notebook.cell("def f():\n    return rank + 5")
    assert notebook.cell("g()") == [50, 60]


def test_some_ranks_only(notebook):
    values = notebook.cell("mine = rank\nmine", line="1")
    assert values == [1] and repr(values) == "rank 1: 1"
    assert notebook.cell("'mine' in globals()") == [False, True]


def test_a_value_that_cannot_travel_comes_as_text(notebook):
    values = notebook.cell("{1, 2} if rank else 'plain'")
    assert values == ["plain", "{1, 2}"]


def test_variables_of_the_notebook_are_pushed(notebook):
    notebook.shell.user_ns["rate"] = 0.5
    notebook.line("push rate")
    assert notebook.cell("rate * rank") == [0.0, 0.5]
    with pytest.raises(ValueError, match="this notebook has no variable speed"):
        notebook.line("push speed")


def test_the_ledger_names_the_cell_and_its_line(notebook):
    notebook.cell("import torch\n\ncomm.all_reduce(torch.ones(1))")
    rows = notebook.cell("comm.barrier()\ncomm.ledger.source")
    assert rows == [["cell [3]:2"]] * 2  # the first line is %%ranks, as a notebook counts


def test_an_error_of_all_ranks_is_told_once_and_costs_nothing(notebook):
    notebook.cell("kept = rank")
    with pytest.raises(hl.RankError) as caught:
        notebook.cell("def f():\n    return unknown\nf()")
    text = shown(caught.value)
    assert "all 2 ranks failed: NameError: name 'unknown' is not defined (cell [3]:3)" in text
    assert 'File "cell [3]", line 4, in <module>\n    f()' in text
    assert "namespace.py" not in text and cells.GONE not in text
    assert notebook.cell("kept") == [0, 1]


def test_an_error_of_one_rank_costs_nothing_while_nobody_waits_for_it(notebook):
    notebook.cell("kept = rank")
    with pytest.raises(hl.RankError, match=r"^rank 1 failed: ValueError: odd \(cell \[3\]:3\); the ranks keep"):
        notebook.cell("if rank:\n    raise ValueError('odd')")
    assert notebook.cell("kept") == [0, 1]


def test_an_error_while_others_wait_ends_the_ranks_and_says_what_is_lost(notebook):
    notebook.cell("kept = rank")
    with pytest.raises(hl.RankError, match=r"rank 1 failed: ValueError: odd \(cell \[3\]:3\)") as caught:
        notebook.cell("if rank == 1:\n    raise ValueError('odd')\ncomm.barrier()")
    assert "raise ValueError('odd')" in shown(caught.value) and cells.GONE in shown(caught.value)
    assert notebook.cell("'kept' in globals()") == [False, False]


def test_a_message_left_open_is_no_reason_to_stay(notebook):
    """Whoever stays would find the forgotten message in a later cell."""
    notebook.cell("import torch")
    with pytest.raises(hl.RankError, match="ValueError: odd .* the next run starts fresh ranks"):
        notebook.cell("m = comm.isend(torch.ones(1), 1 - rank)\nraise ValueError('odd')")


def test_ranks_that_ended_between_two_cells_are_announced(notebook, capfd):
    (pid, _) = notebook.cell("import os\nos.getpid()")
    notebook.cell("rank", line="0")
    assert "gone" not in capfd.readouterr().err
    os.kill(pid, 9)
    time.sleep(0.3)
    notebook.cell("rank")
    assert "what earlier runs left in them is gone" in capfd.readouterr().err


def test_a_cell_that_is_no_python_reaches_no_rank(notebook):
    notebook.cell("kept = rank")
    with pytest.raises(hl.RankError) as caught:
        notebook.cell("kept = 7\nx = = 3")
    assert "no rank has run this cell: SyntaxError: invalid syntax (cell [3]:3)" in shown(caught.value)
    assert notebook.cell("kept") == [0, 1]


def test_ranks_of_a_mesh(notebook):
    notebook.line("dp=2 pp=1")
    assert notebook.cell("comm.coordinates") == [{"dp": 0, "pp": 0}, {"dp": 1, "pp": 0}]


@pytest.mark.parametrize(
    "line, sentence",
    [("four", "%ranks four is not understood"), ("dp=2 pp", "%ranks dp=2 pp is not understood"), ("0", "0")],
)
def test_a_size_that_is_none_is_told_and_keeps_the_ranks(notebook, line, sentence):
    notebook.cell("kept = rank")
    with pytest.raises(ValueError, match=sentence):
        notebook.line(line)
    assert notebook.cell("kept") == [0, 1]


@pytest.mark.parametrize("line", ["2", "-1", "first"])
def test_ranks_that_are_none_are_told(notebook, line):
    with pytest.raises(ValueError, match="write numbers from 0 to 1"):
        notebook.cell("rank", line=line)


def test_progress_is_told_while_the_cell_runs(notebook):
    heard = []
    pool = notebook.cells._pool
    source = "import time\nfor i in progress(range(6)):\n    time.sleep(0.15 * (i < 3))"
    pool.run(_progress, source, on_event=lambda r, e: heard.append((r, e)))
    assert [event["done"] for rank, event in heard if rank == 0] == [1, 2, 3, 6], "now and then, and the last one"
    assert {event["of"] for _, event in heard} == {6}


def _progress(comm, source):
    namespace.VARIABLES["progress"] = lambda items: namespace.progress(comm, items)
    namespace.evaluate(source, "cell [1]", namespace.VARIABLES)


def test_a_bar_is_as_far_as_the_slowest_rank(capfd):
    from hybridlab.world.cells.progress import Bar

    with Bar(2) as bar:
        bar(0, {"loss": 1.0})
        assert bar._bar is None
        bar(0, {"done": 3, "of": 4})
        assert bar._bar.n == 0
        bar(1, {"done": 2, "of": 4})
        assert (bar._bar.n, bar._bar.total) == (2, 4)


# --- in a real kernel -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernel():
    manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def ask(client, code, after_start=lambda: None):
    """Run a cell; returns its texts by channel, and its number."""
    told = {"stdout": "", "stderr": "", "result": "", "error": ""}
    begun = []

    def hear(message):
        content = message["content"]
        if message["msg_type"] == "stream":
            told[content["name"]] += content["text"]
            if "begun" in content["text"] and not begun:
                begun.append(True)
                after_start()
        elif message["msg_type"] == "execute_result":
            told["result"] += content["data"]["text/plain"]
        elif message["msg_type"] == "error":
            told["error"] += "\n".join(content["traceback"])

    reply = client.execute_interactive(code, output_hook=hear, timeout=60)
    return told | {"number": reply["content"]["execution_count"]}


def running(pid):
    """Whether a process runs; one that has ended and waits for its parent to read how does not."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_in_a_kernel_the_magic_is_there_and_an_interrupt_stops_the_ranks_and_keeps_the_variables(kernel):
    manager, client = kernel
    ask(client, "import hybridlab as hl\nmine = 42")
    assert ask(client, "%%ranks\nrank * 2")["result"] == "\n".join(f"rank {r}: {2 * r}" for r in range(4))
    told = ask(client, "%%ranks\nimport os\nprint('pid', os.getpid(), flush=True)")
    pids = [int(line.split()[-1]) for line in told["stdout"].splitlines()]
    interrupted = []

    def interrupt():
        interrupted.append(time.monotonic())
        manager.interrupt_kernel()

    told = ask(client, "%%ranks\nprint('begun')\nwhile True: pass", after_start=interrupt)
    assert "KeyboardInterrupt" in told["error"] and "the ranks were stopped" in told["error"]
    assert "launch.py" not in told["error"]
    assert "what earlier runs left in them is gone" in told["stderr"]
    while any(map(running, pids)):
        assert time.monotonic() - interrupted[0] < 2
        time.sleep(0.02)
    assert ask(client, "mine")["result"] == "42"
    assert ask(client, "%%ranks\nrank")["result"].startswith("rank 0: 0")


def test_in_a_kernel_an_error_is_shown_as_in_a_cell(kernel):
    _, client = kernel
    ask(client, "import hybridlab")
    told = ask(client, "%%ranks\ndef f():\n    return 1 / 0\nf()")
    assert "return 1 / 0" in told["error"] and "ZeroDivisionError" in told["error"]
    assert f"(cell [{told['number']}]:3)" in told["error"]
    assert "cells.py" not in told["error"]


@pytest.mark.parametrize("file, told", [("/tmp/ipykernel_7/1.py", "cell [3]"), ("/home/me/lab.py", "lab.py")])
def test_a_cell_has_its_number_in_ipython_7_too_which_keeps_none_with_its_files(monkeypatch, file, told):
    lines = ["def f():\n", "    return 1\n"]
    monkeypatch.setitem(linecache.cache, "/tmp/ipykernel_7/1.py", (0, None, lines, ""))
    history = SimpleNamespace(input_hist_parsed=["", "".join(lines), "x = 1", "".join(lines).rstrip()])
    shell = SimpleNamespace(compile=SimpleNamespace(), history_manager=history)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert places.title(file) == told
