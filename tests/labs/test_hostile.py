"""Hostile submissions: others keep their grades, nothing is written outside, and solutions stay out of sight."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import textwrap
import time

import pytest
from test_grade import alive, function, submit

import hybridlab
from hybridlab.labs.exercises import class_reports as reports
from hybridlab.labs.exercises import grade as grading
from hybridlab.labs.exercises.confined import ALWAYS, NAMESPACES

ROOT = pathlib.Path(hybridlab.__file__).parents[1]
SECRET = "def _order"  # in a file of solutions: whoever shows it has read it
HARMLESS = {"naive.speedup": 1}

ALONE = "os.fork() or (os.setsid(), os.fork() and os._exit(0), os.execvp('sleep', ['sleep', '622']))"
# what an answer does before it gives its result; {folder} is where the submissions lie, {root} the package's
ATTACKS = {
    "alters a later one": "for f in pathlib.Path('{folder}').iterdir(): f.write_text('[]')",
    "removes the others": "import shutil; shutil.rmtree('{folder}')",
    "reads the others": "raise ValueError(pathlib.Path('{folder}/zoe.json').read_text())",
    "lists the others": "raise ValueError(str(os.listdir('{folder}')))",
    "reads solutions": "raise ValueError(pathlib.Path('{root}/hybridlab/labs/gpipe/solutions.py').read_text())",
    "imports solutions": "from hybridlab.labs.gpipe import solutions; raise ValueError(str(vars(solutions).keys()))",
    "changes the package": "pathlib.Path('{root}/hybridlab/mark_of_a_submission.py').write_text('')",
    "writes a file": "pathlib.Path('{folder}/../mark').write_text('was here')",
    "writes at home": "pathlib.Path('~/mark-of-a-submission').expanduser().write_text('was here')",
    "writes in /tmp": "pathlib.Path('/tmp/mark-of-a-submission').write_text('was here')",
    "shares memory": "pathlib.Path('/dev/shm/mark-of-a-submission').write_text('was here')",
    "fills the disk": "f = open('big', 'wb'); [f.write(bytes(10**8)) for _ in range(100)]",
    "fills the memory": "x = [bytearray(10**9) for _ in range(1000)]",
    "goes on alone": ALONE,
    "goes on in a session": "import subprocess; subprocess.Popen(['sleep', '622'], start_new_session=True)",
    "forks and forks": "[os.fork() for _ in range(9)]",
    "kills its parent": "os.kill(os.getppid(), 9)",
    "kills all": "os.kill(-1, 9)",
    "kills the first": "os.kill(1, 9)",
    "kills all by a signal without a name": "os.kill(-1, 40)",
    "raises half a character": "raise ValueError('\\ud800')",
    "writes verdicts": """
        for fd in pathlib.Path('/proc').glob('[0-9]*/fd/*'):
            try: open(fd, 'w').write('["naive.slots", true, "of course"]\\n["1f1b.order", true, ""]\\n')
            except OSError: pass""",
    "writes verdicts to what it has": "[os.write(fd, b'[\"naive.slots\", true, 1]\\n') for fd in (1, 2)]",
    "takes a debugger": "os.system('gdb -p 1 --batch; cat /proc/*/environ')",
    "calls home": "import socket; socket.create_connection(('127.0.0.1', {port}), 2).sendall(b'hello')",
    "prints without end": "while True: print('x' * 10**6)",
    "writes without end": "while True: os.write(1, b'x' * 10**6), os.write(2, b'x' * 10**6)",
    "never ends": "while True: pass",
    "stops itself": "os.kill(os.getpid(), 19)",
    "ends itself": "os._exit(0)",
    "aborts": "os.abort()",
    "raises a long text": "raise ValueError('x' * 10**8)",
    "raises escapes": "raise ValueError('\\x1b[2J\\x1b]0;mine\\x07')",
    "returns without end": "return [0] * 10**8",
    "returns a forgery": "import torch; return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)",
    "patches the wire": "from hybridlab.world.processes import frames; frames.json.dumps = lambda *_: '[1,2'",
}


def hostile(code: str) -> dict:
    body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    careful = f"    assert not os.access({str(ROOT)!r}, os.W_OK), 'in the open: this attack is real'"
    return function(f"import os, pathlib\n\ndef f(*_):\n{careful}\n{body}\n    return 'FB'\n")


def sleepers():
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found += [entry] if pathlib.Path(f"/proc/{entry}/cmdline").read_bytes() == b"sleep\x00622\x00" else []
    return found


def marks(folder):
    places = [folder.parent / "mark", pathlib.Path("~/mark-of-a-submission").expanduser()]
    return [
        one
        for one in [*places, *pathlib.Path("/tmp").glob("mark-of*"), *pathlib.Path("/dev/shm").glob("mark-of*")]
        if one.exists()
    ]


@pytest.mark.soak
@pytest.mark.ranks
def test_hostile_submissions_change_nothing_but_their_own_row(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    submit(folder, "ada", {"naive.slots": 5} | HARMLESS)
    submit(folder, "zoe", {"naive.slots": 5} | HARMLESS)
    if any(row.behind != (*NAMESPACES, *ALWAYS) for row in grading.grade(folder)):
        pytest.skip("what is attacked here needs namespaces, which this system keeps from its users; rows say so")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    package = {file: file.stat().st_mtime_ns for file in (ROOT / "hybridlab").rglob("*.py")}
    with socket.create_server(("127.0.0.1", 0)) as home:
        home.setblocking(False)
        for number, code in enumerate(ATTACKS.values()):
            told = code.replace("{folder}", str(folder)).replace("{root}", str(ROOT))
            told = told.replace("{port}", str(home.getsockname()[1]))
            submit(folder, f"m{number:02}", {"1f1b.order": hostile(told)} | HARMLESS, versions={"of": "m"})
        rows = {row.file: row for row in grading.grade(folder, seconds=60)}
        with pytest.raises(BlockingIOError):
            home.accept()
    assert {name: (folder / name).read_bytes() for name in before} == before
    for name in before:
        assert rows[name].tasks == {
            "naive.slots": (True, "5 slots."),
            "naive.speedup": rows["ada.json"].tasks["naive.speedup"],
        }
        assert not rows[name].problem and rows[name].behind == (*NAMESPACES, *ALWAYS)
    for attack, row in zip(ATTACKS, [row for name, row in rows.items() if name.startswith("m")]):
        assert set(row.tasks) <= {"1f1b.order", "naive.speedup"}, attack
        assert row.tasks.get("1f1b.order", (False, ""))[0] is not True, (attack, row)
        assert "zoe" not in str(row) and "FB" not in attack, attack
        assert not any(SECRET in reply or "SOLUTIONS" in reply for _, reply in row.tasks.values()), attack
        assert all(len(reply) < 3000 for _, reply in row.tasks.values()), attack
    assert marks(folder) == [] and sleepers() == [] and alive() == []
    assert package == {file: file.stat().st_mtime_ns for file in (ROOT / "hybridlab").rglob("*.py")}


# What each protection that is printed keeps from a submission: an attempt that does not raise has broken it. An attempt
# on a setting of the host opens it and closes it, and changes nothing where it gets through.
ATTEMPTS = {
    "no IP network": [
        "import socket; socket.create_connection(('127.0.0.1', {port}), 1)",
        "import socket; socket.create_connection(('1.1.1.1', 53), 1)",
        "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).connect(('2606:4700::1111', 53))",
        "import socket; [n for _, n in socket.if_nameindex() if n != 'lo'][0]",
    ],
    "only the files that Python needs, read-only": [
        "open('/etc/shadow')",
        "open('{folder}/zoe.json')",
        "os.listdir('{folder}')",
        "os.listdir('{root}/tests')",
        "os.listdir('{root}/notebooks')",
        "os.listdir('/var')",
        "os.listdir('/home')",
        "open('/usr/mark', 'w')",
        "open('/mark', 'w')",
        "open('{root}/hybridlab/mark', 'w')",
        "open('{root}/hybridlab/__init__.py', 'a')",
        "os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)); open('/tmp/disk', 'rb')",
        "assert ctypes.CDLL(None).mount(None, b'/', None, 32, None) == 0",
        "assert ctypes.CDLL(None).umount2(b'{root}/hybridlab', 2) == 0",
        "os.chroot('/proc/1/root')",
    ],
    "no access to settings of the host": [
        "os.close(os.open('/proc/sys/kernel/hostname', os.O_WRONLY))",
        "os.close(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))",
        "os.close(os.open('/proc/sys/vm/overcommit_memory', os.O_WRONLY))",
        "os.close(os.open('/proc/sysrq-trigger', os.O_WRONLY)); assert os.stat('/proc/sysrq-trigger').st_rdev == 0",
        "import socket; socket.sethostname(socket.gethostname())",
        "import time; time.clock_settime(time.CLOCK_REALTIME, time.time())",
        "os.listdir('/sys')",
        "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))",
        "assert open('/proc/sys/kernel/hostname').read().strip() == '{host}'",
    ],
    "no other process visible": [
        "os.kill({pid}, 0)",
        "os.listdir('/proc/{pid}')",
        "assert max(int(one) for one in os.listdir('/proc') if one.isdigit()) > 1000",
        "os.kill(1, 15); import time; time.sleep(0.2); os.listdir('/proc/1') and 1 / 0",
    ],
    "no access to the solutions": [
        "assert open('{root}/hybridlab/labs/gpipe/solutions.py').read()",
        "from hybridlab.labs.gpipe import solutions; solutions.SOLUTIONS",
        "import glob; assert any('exercises' not in f and os.path.getsize(f)"
        " for f in glob.glob('{root}/hybridlab/labs/*/**/*solutions*', recursive=True))",
    ],
    "limits on time, on files and on the memory of each process": [
        "bytearray(10**13)",
        "f = open('big', 'wb'); [f.write(bytes(10**7)) for _ in range(60)]",
    ],
    "no new privileges": [
        "os.setuid(0)",
        "os.setgid(0)",
        "assert 'CapEff:\\t0000000000000000' not in open('/proc/self/status').read()",
        "assert 'NoNewPrivs:\\t1' not in open('/proc/self/status').read()",
        "assert os.getuid() == 0",
    ],
    "only the environment variables that Python needs": [
        "os.environ['SECRET_OF_THE_GRADER']",
        "assert b'SECRET_OF_THE_GRADER' in open('/proc/1/environ', 'rb').read()",
    ],
}


# a second opinion, by the system's own command, about what the system gives its users
OWN_ROOT = "unshare --user --map-root-user --mount --pid --fork --mount-proc mount -t tmpfs none /tmp"


@pytest.mark.ranks
def test_each_protection_that_is_printed_holds_against_a_submission_that_tries_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_GRADER", "x")
    submit(tmp_path, "zoe", HARMLESS)
    about = {"folder": tmp_path, "root": ROOT, "pid": os.getpid(), "host": socket.gethostname()}
    with socket.create_server(("127.0.0.1", 0)) as home:
        about["port"] = home.getsockname()[1]
        every = [one.format(**about) for attempts in ATTEMPTS.values() for one in attempts]
        code = f"""
            import ctypes
            broken = []
            for number, attempt in enumerate({every!r}):
                try:
                    exec(attempt, {{"os": os, "ctypes": ctypes, "pathlib": pathlib}})
                    broken.append(number)
                except BaseException:
                    pass
            raise ValueError("broken are " + str(broken))
        """
        submit(tmp_path, "eve", {"1f1b.order": hostile(code)} | HARMLESS)
        eve, zoe = grading.grade(tmp_path, seconds=100)
    assert zoe.behind == eve.behind
    if not set(NAMESPACES) <= set(eve.behind):  # a system that gives its users none: nothing of it is promised
        assert subprocess.run(["sh", "-c", OWN_ROOT], capture_output=True).returncode, "but it gives them"
        assert not set(NAMESPACES) & set(eve.behind) and not any(word in grading.note([eve]) for word in NAMESPACES)
        return
    assert set(ATTEMPTS) == {*NAMESPACES, *ALWAYS[:-1]} == set(eve.behind) - {ALWAYS[-1]}, "each of them is tried"
    assert "broken are []" in eve.tasks["1f1b.order"][1], (eve, [*enumerate(every)])
    assert zoe.right == 1 and not zoe.problem


NO_SUBMISSION = {
    "fifo": lambda path: os.mkfifo(path),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "another's": lambda path: path.symlink_to(path.parent / "zoe.json"),
    "folder": lambda path: path.mkdir(),
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "device": lambda path: path.symlink_to("/dev/tty"),
    "gone": lambda path: path.symlink_to("nowhere"),
    "empty": lambda path: path.write_text(""),
    "deep": lambda path: path.write_text("[" * 100_000),
    "large": lambda path: path.write_bytes(b" " * 6_000_000),
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "list": lambda path: path.write_text("[1]"),
    "number": lambda path: path.write_text('{"form": 1, "student": 1e999, "seed": 0, "answers": {}}'),
    "huge number": lambda path: path.write_text('{"form": 1, "student": ' + "9" * 5000 + ', "seed": 0, "answers": {}}'),
    "answers": lambda path: path.write_text('{"form": 1, "student": null, "seed": 0, "answers": [1]}'),
}


def test_what_is_no_submission_costs_its_own_row_and_no_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, make in NO_SUBMISSION.items():
        make(tmp_path / f"{name}.json")
    begin = time.monotonic()
    for row in grading.grade(tmp_path):
        assert row.problem and row.tasks == {} and not row.behind, row
        assert row.problem.isprintable()
    assert time.monotonic() - begin < 2


@pytest.mark.ranks
def test_names_are_shown_as_letters_and_verdicts_only_of_what_was_answered(tmp_path, monkeypatch):
    evil = "\x1b[2J\x1b]0;mine\x07"
    submit(tmp_path, f"x{evil}", {f"naive{evil}": 1}, f"Ada{evil}\u202e")
    told = [[*NAMESPACES], ["naive.slots", True, ""], [f"naive{evil}", "yes", ""], ["naive.speedup", True, evil]]
    monkeypatch.setattr(grading, "_alone", lambda *_: [told[0], *map(json.dumps, told[1:])])
    (row,) = rows = grading.grade(tmp_path)
    assert row.tasks == {} and row.right == 0
    table = grading.table(rows)
    assert table.replace("\n", "").isprintable() and "\x1b" not in grading.note(rows)
    assert "no IP network" in grading.note(rows) and "not filtered" in grading.note(rows)


@pytest.mark.ranks
def test_no_reply_of_a_submission_stops_the_reports_of_the_class(tmp_path, monkeypatch):
    submit(tmp_path, "eve", {"naive.slots": 1, "1f1b.order": 2}, "  ")
    told = [["naive.slots", False, "\ud800\x1b[2J\nsecond line\u202e"], ["1f1b.order", False, "x" * 10**4]]
    monkeypatch.setattr(grading, "_alone", lambda *_: [[], *map(json.dumps, told)])
    (row,) = rows = grading.grade(tmp_path)
    assert [reply for _, reply in row.tasks.values()] == ["\ufffd\ufffd[2J\nsecond line\ufffd", "x" * 3000]
    (page,) = reports.write_pages(tmp_path / "pages", rows, tuple(row.tasks))
    assert "second line" in page.read_text("utf-8")
    assert reports.told(reports.statistics(rows, tuple(row.tasks))).isascii() is False
    assert "\neve.json  " in grading.table(rows), "a student without letters is shown by the file"


def test_every_end_of_a_submissions_process_has_a_sentence():
    assert grading._ended(137) == "its process was killed by SIGKILL"
    assert [grading._ended(code) for code in range(256) if not grading._ended(code)] == [""]
    assert grading._ended(168) == "its process was killed by signal 40"


@pytest.mark.long
@pytest.mark.ranks
def test_where_the_system_gives_no_namespaces_it_is_said(tmp_path, monkeypatch):
    """Without them, limits hold all the same, and what was started ends."""
    submit(tmp_path, "ada", {"naive.slots": 5, "1f1b.order": function(f"import os\ndef f(*_):\n    {ALONE}")})
    (tmp_path / "none.py").write_text(
        "import sys\nfrom hybridlab.labs.exercises import confined\nconfined.namespaces.own = lambda *_: False\n"
        "confined.namespaces.split = lambda *_: False\n"
        "sys.exit(confined.main(*sys.argv[1:]))\n"
    )
    monkeypatch.setattr(grading, "CONFINED", (str(tmp_path / "none.py"),))
    (row,) = rows = grading.grade(tmp_path)
    assert sleepers() == [] and "no IP network" not in grading.note(rows)
    if os.getuid() == 0:  # whose files and settings would be the submission's
        assert not row.tasks and "you are root, and this system gives no namespaces" in row.problem
    else:
        assert row.tasks["naive.slots"][0] is True and row.behind == ALWAYS


def test_it_is_a_test_of_many():
    assert len(ATTACKS) >= 30
