"""A second opinion: PyTorch's own data, sharded and tensor parallelism, on the same ranks, makes the same numbers.

One model from one seed, one global batch, one rule for the loss, in float64; compared are the losses, every gradient
before the first update, and every weight after three steps of SGD. torch's DDP and FSDP *average* gradients, ours are
summed; so their loss is multiplied by the replicas, see `Peer`. `bench/sharding.py` times the same peers.

torch 2.13 does all of it with gloo on a CPU, in process groups of its own beside hybridlab's. What it does not do is
proved against one device only (`tests/training/test_check.py`): a tied embedding under tensor parallelism
(`parallelize_module`
gives embedding and head a weight each, without a word) or in two units of FSDP (refused); dropout by the place in the
batch where the sequence is cut; the norm of gradients of which some are DTensors and some are not (refused).
"""

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from few import first

import hybridlab as hl
from hybridlab.training.make_job import job_of

pytestmark = pytest.mark.ranks
SHAPE = hl.Shape(layers=3, width=16, heads=4, context=8, kv_heads=2, dropout=0.1)
CLOSE = 1e-10  # relative to the largest entry of its kind


@dataclasses.dataclass
class Peer:
    """A model as torch runs it in parallel.

    call      the forward;  model  whose parameters those are
    averaged  over how many ranks torch takes the mean of gradients: the loss times that makes it their sum
    around    the context in which forward and backward stand
    """

    call: Callable
    model: torch.nn.Module
    averaged: int = 1
    around: Callable = nullcontext

    def gradients(self, inputs, targets, tokens: int) -> torch.Tensor:
        """Forward and backward of this rank's part of a batch; returns its part of the loss."""
        from hybridlab.training.models.gpt import token_loss

        with self.around():
            loss = token_loss(self.call(inputs), targets) / tokens
            (self.averaged * loss).backward()
        return whole(loss.detach())


def data_parallel(model, comm) -> Peer:
    """torch's DistributedDataParallel; its buckets have the sizes of ours: 1 MiB, then 25."""
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return Peer(ddp, model, averaged=comm.size)


def fully_sharded(model, comm, owners: int | None = None, keep: bool = False) -> Peer:
    """torch's FSDP2: every block a unit, embedding and head the outermost one.

    owners  how many neighbours share a weight, their copies being replicated (HSDP);  keep  weights until the backward
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if owners is None:
        mesh = init_device_mesh(kind_of(model), (comm.size,))
    else:
        mesh = init_device_mesh(kind_of(model), (comm.size // owners, owners), mesh_dim_names=("copies", "owners"))
    for unit in (*model.blocks, model):
        fully_shard(unit, mesh=mesh, reshard_after_forward=not keep)
    return Peer(model, model, averaged=comm.size)


def tensor_parallel(model, comm, sequence: bool = False) -> Peer:
    """torch's tensor parallelism, vocabulary and loss included; with `sequence`, norms and residuals are cut too.

    On a mesh with replicas, these share the weights by FSDP2.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import loss_parallel, parallelize_module

    replicas = comm.mesh["dp"]
    mesh = init_device_mesh(kind_of(model), (replicas, comm.mesh["tp"]), mesh_dim_names=("dp", "tp"))
    plan = _ends(sequence)
    for number in range(len(model.blocks)):
        plan |= {f"blocks.{number}.{name}": style for name, style in _block(sequence).items()}
    parallelize_module(model, mesh["tp"], plan)
    for unit in (*model.blocks, model) if replicas > 1 else ():
        fully_shard(unit, mesh=mesh["dp"])
    return Peer(model, model, averaged=replicas, around=loss_parallel)


def kind_of(model) -> str:
    """The kind of device that a model is on."""
    return next(model.parameters()).device.type


def _ends(sequence):
    """How embedding and head are cut: along the vocabulary."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as tp

    between = Shard(1) if sequence else Replicate()
    plan = {
        "embed.token": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "head.scores": tp.ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence:
        plan["embed"] = tp.PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=between)
        plan["head.norm"] = tp.SequenceParallel()
    return plan


def _block(sequence):
    """How a block is cut: the first matrices by columns, which are heads in attention, the last ones by rows."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as tp

    between = Shard(1) if sequence else Replicate()
    columns = ("attention.q", "attention.k", "attention.v", "mlp.up")
    plan = {name: tp.ColwiseParallel() for name in columns}
    plan |= {name: tp.RowwiseParallel(output_layouts=between) for name in ("attention.out", "mlp.down")}
    if sequence:
        gather = {"input_layouts": between, "desired_input_layouts": Replicate()}
        plan |= {name: tp.PrepareModuleInput(**gather) for name in ("attention", "mlp")}
        plan |= {name: tp.SequenceParallel() for name in ("attention_norm", "mlp_norm")}
    return plan


def whole(x) -> torch.Tensor:
    """All of a tensor, also of one that torch has shared out."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


# on each rank


def torchs(comm, job, peer, **options):
    """What torch makes of a job: losses, first gradients and last weights, all of them whole."""
    one = peer(job.model.made(job.seed, getattr(torch, job.dtype)), comm, **options)
    replica = comm.coordinates.get("dp", 0)
    named, draws = dict(one.model.named_parameters()), one.model.draws
    optimizer, losses, gradients = job.optimizer_of(named), [], {}
    for step in range(job.steps):
        optimizer.zero_grad()
        draws.step, draws.row = step, replica * job.rows
        inputs, targets = (parts[replica] for parts in job.batch(step))
        loss = one.gradients(inputs, targets, job.tokens)
        losses.append(comm.all_reduce(loss.clone(), "dp"))
        gradients = gradients or {name: whole(weight.grad).clone() for name, weight in named.items()}
        optimizer.step()
    return losses, gradients, {name: whole(weight.detach()) for name, weight in named.items()}


def ours(comm, job):
    """What we make of it: losses, and this rank's part of the first gradients and of the last weights."""
    from hybridlab.training.loop import Trainer

    trainer = Trainer(comm, job)
    losses = trainer.gradients(0)[0]
    gradients = {name: share.grad.clone() for name, share in trainer.parameters.items()}
    trainer.update()
    for step in range(1, job.steps):
        losses += trainer.step(step)[0]
    losses = torch.tensor(losses, dtype=torch.float64)
    return losses, gradients, {name: share.detach() for name, share in trainer.parameters.items()}


def gaps(comm, job, peer, **options) -> dict[str, float]:
    """How far the two are apart on this rank: the largest difference over the largest entry, kind by kind."""
    mine, its = ours(comm, job), torchs(comm, job, peer, **options)
    found = {"loss": float((mine[0] - torch.stack(its[0])).abs().max())}
    for kind, parts, wholes in zip(("gradient", "weight"), mine[1:], its[1:]):
        scale = max(float(one.abs().max()) for one in wholes.values())
        pairs = [(part, held(job.layout, name, comm.rank, wholes[name])) for name, part in parts.items()]
        found[kind] = max(float((part - other).abs().max()) for part, other in pairs if part.numel()) / scale
    return found


def held(layout, name, rank, tensor):
    """What a rank has of a whole tensor: its box, or its share of that."""
    box = tensor[layout.box(name, rank)]
    return box if layout[name].owners == 1 else box.flatten()[layout.share(name, rank)]


# on the kernel


def largest(pool, peer, options=None, **more) -> float:
    """The largest gap of all ranks and kinds."""
    job = job_of(pool.mesh, microbatches=1, **{"shape": SHAPE, "dtype": "float64", **more})
    return max(gap for found in pool.run(gaps, job, peer, **(options or {})) for gap in found.values())


@pytest.fixture(scope="module")
def four():
    """Four replicas; kept, because each rank imports torch's modes for itself, in three seconds."""
    with hl.ranks(hl.Mesh(dp=4)) as pool:
        yield pool


@pytest.fixture(scope="module")
def two():
    """Two ranks that cut every layer between them."""
    with hl.ranks(hl.Mesh(tp=2)) as pool:
        yield pool


@pytest.mark.parametrize("sums", first(1, ["after", "each", "buckets"]))
def test_replicas_are_torchs_ddp(four, sums):
    assert largest(four, data_parallel, sums=sums) < CLOSE


def test_a_tied_embedding_is_torchs_ddp(four):
    tied = hl.Shape(layers=1, width=16, heads=4, context=8, tied=True)
    assert largest(four, data_parallel, sums="buckets", shape=tied) < CLOSE


@pytest.mark.parametrize("zero", first(1, [1, 2]))
def test_shared_optimizers_and_gradients_are_torchs_ddp(four, zero):
    assert largest(four, data_parallel, zero=zero) < CLOSE


@pytest.mark.parametrize("zero, keep", first(1, [(3, False), (2, True)]))
def test_shared_weights_are_torchs_fsdp(four, zero, keep):
    """Weights that FSDP does not let go before the backward are ZeRO's second stage."""
    assert largest(four, fully_sharded, {"keep": keep}, zero=zero) < CLOSE


def test_hybrid_shares_are_torchs_hsdp(four):
    assert largest(four, fully_sharded, {"owners": 2}, zero=3, owners=2) < CLOSE


@pytest.mark.parametrize("sequence", first(1, [False, True]))
def test_cut_layers_are_torchs_tensor_parallelism(two, sequence):
    """Nothing is dropped where the sequence is cut: torch's layers do not know which of its positions are theirs."""
    shape = dataclasses.replace(SHAPE, dropout=0.0) if sequence else SHAPE
    assert largest(two, tensor_parallel, {"sequence": sequence}, sequence=sequence, shape=shape) < CLOSE


@pytest.mark.long
def test_cut_layers_of_shared_weights_are_both_of_torchs_at_once():
    with hl.ranks(hl.Mesh(dp=2, tp=2)) as pool:
        assert largest(pool, tensor_parallel, zero=3) < CLOSE


def test_a_mean_in_place_of_the_sum_is_noticed(four):
    """The mutant of this file: torch left to average, its gradients are a quarter of ours."""

    def averaging(model, comm):
        peer = data_parallel(model, comm)
        peer.averaged = 1
        return peer

    assert largest(four, averaging) > 0.1
