"""In a deleted folder torch ends a process while it loads: whatever needs torch says so first, and the rest works."""

import json
import subprocess
import sys

import pytest

SAID = "the current folder was deleted, and torch cannot load there: start in another one"


def in_a_lost_folder(tmp_path, *words: str) -> subprocess.CompletedProcess:
    lost = tmp_path / "lost"
    lost.mkdir()
    leave = f"import os, sys; os.chdir({str(lost)!r}); os.rmdir({str(lost)!r}); "
    return subprocess.run([sys.executable, "-c", leave + words[0], *words[1:]], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "dry-run", "demo", "grade", "doctor"])
def test_a_command_that_needs_torch_ends_in_a_sentence(command, tmp_path):
    ended = in_a_lost_folder(tmp_path, "from hybridlab.cli.main import main; sys.exit(main())", command, "--json")
    assert ended.returncode == 2 and ended.stderr.strip().endswith(f"hybridlab {command}: {SAID}")
    assert json.loads(ended.stdout.splitlines()[-1])["code"] == 2


@pytest.mark.slow
def test_a_public_function_that_needs_torch_does_not_end_the_process(tmp_path):
    call = "import hybridlab as hl\ntry: hl.check(hl.Mesh(pp=1))\nexcept ValueError as error: print(error)"
    assert in_a_lost_folder(tmp_path, call).stdout.strip() == SAID


@pytest.mark.slow
def test_a_schedule_needs_no_folder(tmp_path):
    ended = in_a_lost_folder(tmp_path, "from hybridlab.cli.main import main; sys.exit(main())", "schedule")
    assert ended.returncode == 0 and "rank 3: 3F0" in ended.stdout
