"""A step keeps the host waiting for the device at a few places only, each for a reason."""

import pytest
import torch

from accelerator import matrix, waits
from accelerator.waits import Waits
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.runtime import masks
from hybridlab.training.make_job import job_of
from hybridlab.training.models.trees import mapped

pytestmark = [pytest.mark.long, pytest.mark.ranks]  # an accelerator is built first

# Of every step. A batch comes from the host when the step before is over; its losses are read at the end.
BATCH, NUMBERS = "training/loop.py Trainer._batch", "training/loop.py Trainer._numbers"
# Of experts: how many tokens chose each is read, because messages and matrices get their lengths from it; the order of
# rows by expert, which follows from that, is made on the host.
COUNTS, ORDER = "modes/parts/token_order.py in_order", "modes/parts/dispatch.py through"
# Of an optimizer on the host: what it has updated is copied to the device.
UPDATED = "modes/parts/replicated.py Replicated._used_as"

TWO = Mesh(dp=2)
JOBS = {name: (*job, ()) for name, job in matrix.MODES.items() if job[0] in (TWO, Mesh(tp=2), Mesh(pp=2))}
JOBS |= {
    "offload zero 3": (*matrix.MODES["offload zero 3"], (UPDATED,)),
    "clip": (TWO, {"clip": 0.05, "optimizer": "adamw"}, ()),
    "pipeline": (Mesh(pp=2), {"ahead": 1}, ()),
    "driven": (Mesh(pp=2), {"driven": True}, ()),
    "swapped": (Mesh(pp=2), {"schedule": "gpipe", "device_memory": 0.5}, ()),
    "halves": (Mesh(pp=2), {"schedule": "zb_h1"}, ()),
    "versions": (Mesh(pp=2), {"schedule": "pipedream"}, ()),
    "recomputed": (Mesh(pp=2), {"recompute": "full"}, ()),
    "documents": (Mesh(pp=2), {"shape": Shape(documents=(32, 32), context=64)}, ()),
    "context gathered": (Mesh(cp=2), {}, ()),
    "context in a ring": (Mesh(cp=2), {"attend": "ring"}, ()),
    "grid": (Mesh(x=2), {}, ()),
    "rows of a picture": (Mesh(h=2), {"model": "conv"}, ()),
    "experts": (Mesh(ep=2), {"shape": Shape(experts=4, chosen=2)}, (COUNTS, ORDER)),
    "resnet": (TWO, {"model": "resnet"}, ()),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_step_waits_for_the_device_where_it_must_and_nowhere_else(proofs, name):
    mesh, arguments, more = JOBS[name]
    told = proofs.pool(mesh).run(waits.of_a_step, job_of(mesh, **arguments))
    assert {place for one in told for place in one} == {BATCH, NUMBERS, *more}, told
    assert max(one[NUMBERS] for one in told) == 1 + ("clip" in arguments)  # the losses, the norm


def with_masks_made_anew(comm, job):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("of_row", "begins"):
            patch.setattr(masks, name, getattr(masks, name).__wrapped__)
        return waits.of_a_step(comm, job)


def test_a_mask_that_is_made_in_every_layer_would_be_seen(proofs):
    mesh, arguments, _ = JOBS["documents"]
    told = proofs.pool(mesh).run(with_masks_made_anew, job_of(mesh, **arguments))
    more = {"runtime/masks.py of_row", "runtime/masks.py begins"}
    assert {place for one in told for place in one} == {BATCH, NUMBERS, *more}


@pytest.mark.parametrize(
    "look, times",
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: bool((x > 0).all()), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: torch.equal(x, x), 1),
        (lambda x: x.copy_(torch.ones(4)), 1),
        (lambda x: torch.empty(4).copy_(x, non_blocking=True), 0),
        (lambda x: x.copy_(torch.ones(4), non_blocking=True), 0),
        (lambda x: x[torch.tensor([1])] + x.clone().sort().values.sum(), 0),
        (lambda x: torch.ones(3).sum().item(), 0),
    ],
)
def test_who_reads_waits_and_who_computes_does_not(one, look, times):
    def seen(comm):
        x = torch.arange(4.0, device=comm.device)
        with Waits() as waiting:
            mapped(look, x)  # of the package, as what is counted is
        return dict(waiting.found)

    assert one.run(seen) == [{"training/models/trees.py mapped": 1} if times else {}]
