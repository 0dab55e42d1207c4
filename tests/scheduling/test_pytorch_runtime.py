"""Our schedules played by PyTorch's own pipeline runtime, and PyTorch's by our ranks: both train as one device does."""

import tempfile
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn

import hybridlab as hl

pytestmark = [pytest.mark.ranks, pytest.mark.long]
RANKS, MICROBATCHES, WIDTH, STEPS, RATE = 2, 4, 16, 3, 0.1
BEYOND = {"dualpipe", "chimera", "pipedream", "pipedream_2bw"}  # replicas of stages, versions of weights
SKIPPING = {"seq1f1b", "terapipe", "vocabulary_1f1b"}  # edges between stages that are no neighbours
MOVING = {"bpipe", "pipeoffload"}  # activations that leave the rank: those of bpipe on four ranks or more
OURS = sorted({*hl.schedules(), "automatic"} - BEYOND - SKIPPING - {"pipeoffload"})
CHUNKED = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
THEIRS = [("GPipe", False), *((name, comms) for name in CHUNKED for comms in (False, True))]  # one stage: no messages


def stages_of(count):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(count)]


def batch(step):
    x = torch.randn(2 * MICROBATCHES, WIDTH, generator=torch.Generator().manual_seed(step)).double()
    return x, x.cumsum(1)


def mean_square(output, target):
    return (output - target).square().mean()


def one_device(count):
    """The weights, stage by stage, after plain training."""
    net = nn.Sequential(*stages_of(count))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for step in range(STEPS):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        mean_square(net(inputs), targets).backward()
        optimizer.step()
    return [[weight.detach() for weight in stage.parameters()] for stage in net]


def on_rank(comm, text, place, count, form):
    """This rank's weights after training by PyTorch's runtime, {stage: weights}."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    layers = stages_of(count)
    mine = sorted(stage for stage, rank in place.items() if rank == comm.rank)
    stages = [PipelineStage(layers[stage], stage, count, torch.device("cpu")) for stage in mine]
    runtime = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=mean_square, scale_grads=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "schedule.csv")
        file.write_text(text)
        runtime._load_csv(str(file), format=form)
    optimizer = torch.optim.SGD([weight for stage in mine for weight in layers[stage].parameters()], lr=RATE)
    for step in range(STEPS):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        runtime.step(*([inputs] if 0 in mine else []), target=targets if count - 1 in mine else None, losses=[])
        optimizer.step()
    return {stage: [weight.detach() for weight in layers[stage].parameters()] for stage in mine}


@pytest.fixture(scope="module")
def pool():
    with hl.ranks(hl.Mesh(pp=RANKS)) as pool:
        yield pool


@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
@pytest.mark.parametrize("name", OURS)
def test_pytorchs_runtime_trains_right_by_our_schedules(name, form, pool):
    made = hl.automatic(RANKS, MICROBATCHES) if name == "automatic" else hl.schedule(name, RANKS, MICROBATCHES)
    text = (made if form == "compute_only" else hl.lower(made)).to_pytorch()
    place = {stage: rank for (stage, _), rank in made.place.items()}
    homes = pool.run(on_rank, text, place, made.stages, form)
    found = {stage: weights for home in homes for stage, weights in home.items()}
    gaps = [float((a - b).abs().max()) for stage, plain in enumerate(one_device(made.stages))
            for a, b in zip(found[stage], plain)]  # fmt: skip
    assert len(gaps) == 2 * made.stages and max(gaps) < 1e-14


@pytest.mark.parametrize(
    "name, lacks", [*((name, "skip") for name in sorted(SKIPPING)), *((name, "SWAP_OUT") for name in sorted(MOVING))]
)
def test_what_pytorchs_form_cannot_say_is_refused(name, lacks):
    made = hl.schedule(name, 4, 8)
    for one in (made, hl.lower(made)):
        with pytest.raises(ValueError, match=f"PyTorch's form cannot express .*{lacks}.*leave it out"):
            one.to_pytorch()


@pytest.mark.parametrize("name, comms", THEIRS)
def test_our_ranks_train_right_by_pytorchs_schedules(name, comms, tmp_path):
    """Also with the gathers that PyTorch writes for FSDP: ranks that hold their weights whole pass over them."""
    from torch.distributed.pipelining import _schedule_visualizer as viewer
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    chunks = {"num_stages_per_rank": 2} if name in CHUNKED else {}
    ops = viewer.get_schedule_ops(name, RANKS, MICROBATCHES, with_comms=comms, **chunks)
    holder = mock.Mock(pipeline_order_with_comms=dict(enumerate(ops)))
    _PipelineScheduleRuntime._dump_csv(holder, tmp_path / "theirs.csv", "compute_comms")
    read = hl.Schedule.from_csv(tmp_path / "theirs.csv")
    assert ("UNSHARD" in read.to_csv()) is comms
    assert hl.check(hl.Mesh(pp=RANKS), read, MICROBATCHES, dtype="float64").ok
