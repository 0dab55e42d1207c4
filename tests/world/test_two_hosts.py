"""Two hosts with a network between them: a pipeline across, its time over a slow link, a cut link, a host that dies."""

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

DELAY, RATE = 0.02, 12.5e6  # seconds, bytes per second (100 Mbit/s)
WIDTH, CONTEXT, ROWS, MICROBATCHES = 32, 64, 16, 4
MEASURED = """
import json
from dataclasses import replace
from statistics import mean

import hybridlab as hl
from test_two_hosts import CONTEXT, MICROBATCHES, ROWS, WIDTH

shape = hl.Shape(layers=4, width=WIDTH, heads=2, context=CONTEXT)
schedule = hl.schedule("1f1b", ranks=4, microbatches=MICROBATCHES)
lengths = []
for _ in range(3):
    real = hl.run(schedule, work="model", shape=shape, rows=ROWS, steps=3)
    costs = hl.Costs.measured(real)
    averaged = replace(costs, latency=mean(map(costs.of_message, range(3))), handshake=0, bytes=0, bandwidth=None)
    predicted = [hl.simulate(real.schedule, one, rendezvous=True).length for one in (costs, averaged)]
    lengths.append([one / real.length for one in predicted])
sent = [row["bytes"] for row in real.ledger if (row["rank"], row["op"], row["purpose"]) == (1, "isend", "messages")]
links = {name: real.origin[name] for name in ("latency", "handshake", "bandwidth", "bytes")}
print("found", json.dumps(links | {"lengths": lengths, "sent": sent, "steps": real.steps}))
"""


def hosts_with(folder, slow=None):
    try:
        with two_hosts(folder, slow) as both:
            yield both
    except OSError as error:
        pytest.skip(f"network namespaces cannot be made on this system: {error}")


@pytest.fixture
def hosts(tmp_path):
    yield from hosts_with(tmp_path)


@pytest.fixture
def far_hosts(tmp_path):
    yield from hosts_with(tmp_path, (DELAY, RATE))


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


def test_a_pipeline_over_a_slow_link_takes_the_time_that_its_edges_predict(far_hosts, tmp_path):
    """Two stages on each host: one of three edges is slow, and their mean predicts too little."""
    (tmp_path / "measured.py").write_text(MEASURED)
    with Nodes(far_hosts, str(tmp_path / "measured.py"), each=2) as nodes:
        assert nodes.codes(seconds=400) == [0, 0], [host.told() for host in far_hosts]
    (line,) = (line for line in far_hosts[0].told("out").splitlines() if line.startswith("found"))
    found = json.loads(line.removeprefix("found"))
    one_message = ROWS * CONTEXT * WIDTH * 4
    assert found["bytes"] == [one_message] * 3 + [0]
    assert found["sent"].count(one_message) >= 2 * MICROBATCHES * found["steps"], "activations on, gradients back"
    near, slow, other, _ = found["latency"]
    assert max(near, other) < DELAY <= slow < 3 * DELAY  # on a busy machine a rank wakes late
    near, slow, other, _ = found["handshake"]
    assert max(near, other) < 0.8 * DELAY < slow < 3 * DELAY
    near, slow, other, _ = found["bandwidth"]
    assert slow < 1.1 * RATE < min(near, other)
    one_link = [ratio for _, ratio in found["lengths"]]
    assert min(abs(ratio - 1) for ratio, _ in found["lengths"]) <= 0.08, found  # other programs only make it worse
    assert max(one_link) < 0.92, found


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
