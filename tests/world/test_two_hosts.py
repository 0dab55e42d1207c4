"""Two hosts with a network between them: a pipeline across, a cut link, a host that dies, and runs that resume."""

import json

import pytest
from two_hosts import Nodes, two_hosts

import hybridlab as hl

pytestmark = [pytest.mark.ranks, pytest.mark.long]

HANG = 5.0  # seconds
SLACK = 10.0  # seconds from an error on a rank until its interpreter has printed it, on a machine that others use too
JOB = dict(
    shape=hl.Shape(layers=4, width=16, heads=2, context=8), batch=4, dtype="float64", optimizer="adamw", rate=2e-3
)  # fmt: skip
ENDLESS = """
import sys
from pathlib import Path

import hybridlab as hl
from hybridlab.training.loop import train_on_rank
from hybridlab.training.make_job import job_of
from hybridlab.training.resume import Saving
from test_two_hosts import HANG, JOB

def heard(rank, event):
    if "loss" in event:
        print("step", event["step"], flush=True)

job = job_of(mesh=hl.Mesh(pp=2), microbatches=2, steps=100_000, **JOB)
with hl.ranks(job.mesh, hang_s=HANG) as pool:
    pool.run(train_on_rank, job, False, Saving(Path(sys.argv[1]), 3, False, False), on_event=heard)
"""
RESUMED = """
import json
import sys

import hybridlab as hl
from test_two_hosts import JOB

folder, steps, axis = sys.argv[1:]
more = dict(checkpoint=folder, resume=True, steps=int(steps), progress=False, microbatches={"dp": 1, "tp": 2}[axis])
print("losses", json.dumps(hl.train(hl.Mesh(**{axis: 2}), **JOB, **more)["losses"]))
"""


@pytest.fixture
def hosts(tmp_path):
    try:
        with two_hosts(tmp_path) as both:
            yield both
    except OSError as error:
        pytest.skip(f"network namespaces cannot be made on this system: {error}")


@pytest.fixture
def folder(tmp_path):
    """The one for checkpoints, which both hosts share; beside it programs."""
    (tmp_path / "run").mkdir()
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "resumed.py").write_text(RESUMED)
    return tmp_path / "run"


def resumed_and_equal(hosts, folder, axis):
    """Resume along another axis from the newest checkpoint; losses are those of one device that never stopped."""
    done = max(int(one.name.removeprefix("step-")) for one in folder.iterdir() if one.name[-1].isdigit())
    with Nodes(hosts, str(folder.parent / "resumed.py"), str(folder), str(done + 3), axis) as nodes:
        assert nodes.codes() == [0, 0], [host.told() for host in hosts]
    (line,) = (line for line in hosts[0].told("out").splitlines() if line.startswith("losses"))
    whole = hl.train(hl.Mesh(), microbatches=2, steps=done + 3, progress=False, **JOB)["losses"]
    assert json.loads(line.removeprefix("losses")) == pytest.approx(whole[done:], rel=1e-10)


def test_a_pipeline_from_host_to_host_is_equal_to_one_device(hosts):
    with Nodes(hosts, "-m", "hybridlab", *"check --pp 2 --tp 2 --steps 2 --json".split(), each=2) as nodes:
        assert nodes.codes() == [0, 0], [host.told() for host in hosts]
    report = json.loads(next(line for line in hosts[0].told("out").splitlines() if line.startswith("{")))
    assert report["ok"] and report["largest_gap"] < 1e-10
    counted, formula = report["bytes"]["messages between stages"]
    assert counted == formula > 0


def told(hosts, mine, other):
    """The beginning of what one rank says when it has lost the other."""
    lost = f"lost a rank that it was talking to: rank {other} on {hosts[other].name}, in "
    return f"rank {mine} on {hosts[mine].name} {lost}"


def test_a_cut_link_is_named_by_both_hosts_and_the_run_resumes_under_data_parallelism(hosts, folder):
    with Nodes(hosts, str(folder.parent / "endless.py"), str(folder)) as nodes:
        nodes.wait_for(hosts[0], "step 7", "out")
        hosts[0].cut()
        for mine, other in ((0, 1), (1, 0)):
            nodes.wait_for(hosts[mine], told(hosts, mine, other), seconds=HANG + SLACK)
    hosts[0].mend()
    resumed_and_equal(hosts, folder, "dp")


def test_a_host_that_dies_is_named_by_the_other_and_the_run_resumes_under_tensor_parallelism(hosts, folder):
    """Its agent too: an agent that is killed alone leaves its ranks at work."""
    with Nodes(hosts, str(folder.parent / "endless.py"), str(folder)) as nodes:
        nodes.wait_for(hosts[0], "step 7", "out")
        hosts[1].die()
        nodes.wait_for(hosts[0], told(hosts, 0, 1), seconds=HANG + SLACK)
    resumed_and_equal(hosts, folder, "tp")
