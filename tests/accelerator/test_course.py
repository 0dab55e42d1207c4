"""Notebooks on an emulated GPU: a few that are quick here, all of them by `make test-gpu-notebooks`."""

import json
import os
import subprocess
import sys

import pytest

from accelerator import course, environment

pytestmark = [pytest.mark.long, pytest.mark.notebooks, pytest.mark.ranks]

QUICK = ("02_one_device", "20_collectives", "33_context")


@pytest.mark.skipif(bool(environment.missing()), reason=environment.missing())
def test_notebooks_run_on_a_gpu_that_ranks_share():
    command = [sys.executable, course.__file__, *QUICK, "--devices", "1"]
    ran = subprocess.run(command, capture_output=True, text=True)
    *lines, last = ran.stdout.splitlines()
    assert {one["name"]: one["raised"] for one in map(json.loads, lines)} == dict.fromkeys(QUICK, {}), ran.stdout
    assert ran.returncode == 0 and last.startswith("3 notebooks on gpu:1 in ")


@pytest.mark.skipif(bool(environment.missing()), reason=environment.missing())
def test_a_rank_is_killed_on_a_gpu_and_the_others_continue_with_what_they_kept():
    asked = (
        "from hybridlab.labs.hybrid.killed_rank import killed\n"
        "found = killed(rank=1, step=2, optimizer='adamw', rate=0.01)\n"
        "print(found.moved, found.largest_gap <= 1e-10)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, env=os.environ | environment.emulated(1)
    )
    assert ran.stdout == "0 True\n", ran.stderr


def test_a_cell_that_raises_is_told_with_its_number_and_the_cells_behind_it_run(tmp_path):
    import nbformat

    cells = ["import torch", "1 / 0", "print(torch.accelerator.current_accelerator())", "missing"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    nbformat.write(notebook, tmp_path / "99_wrong.ipynb")
    told = course.told_by(tmp_path / "99_wrong.ipynb")
    assert (told["name"], told["ok"]) == ("99_wrong", False)
    assert told["raised"] == {1: "ZeroDivisionError: division by zero", 3: "NameError: name 'missing' is not defined"}
