"""What the tests of others' models share: one step on ranks that stay, held against the module's own run.

Ranks import transformers or timm once, for all models. The other side knows nothing of this package but the first
numbers: the module's own forward, on the whole batch, with plain autograd.
"""

import contextlib
import copy
import functools
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

import hybridlab as hl
from hybridlab.training.compare import held
from hybridlab.training.gaps import largest
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of
from hybridlab.training.models.model import Model
from hybridlab.world.processes.launch import ranks

NEAR = 1e-10  # of the largest entry of each tensor, in float64
SMALL = (
    1e-6  # of the largest of all gradients: below, NEAR is less than float64 tells, as of a bias of keys, which is 0
)
ROWS = 4
LAYOUTS = {
    "pp2 zb_h1": {"mesh": hl.Mesh(pp=2), "schedule": "zb_h1", "microbatches": 2},
    "dp2 zero3": {"mesh": hl.Mesh(dp=2), "microbatches": 1, "zero": 3},
    "pp2 dp2 zero1": {"mesh": hl.Mesh(dp=2, pp=2), "microbatches": 1, "zero": 1},
    "tp2": {"mesh": hl.Mesh(tp=2), "microbatches": 2},
}


@contextlib.contextmanager
def pools(layouts):
    """{layout: ranks that stay}."""
    with contextlib.ExitStack() as open_:
        yield {name: open_.enter_context(ranks(LAYOUTS[name]["mesh"], timeout=300)) for name in layouts}


def outcomes(model, pools: dict, own_output) -> dict[str, str]:
    """{layout: "equal", by how much it is not, or the sentence that refuses it}, of a `Model` in every layout."""
    proof, found = model.for_proof(), {}
    for name, pool in pools.items():
        try:
            with mock.patch.object(Model, "between", _between):
                job = job_of(**LAYOUTS[name], model=proof, batch=ROWS, dtype="float64")
                vars(job)["between"] = job.between
        except ValueError as refused:
            found[name] = str(refused)
            continue
        off = _largest_gap(job, pool.run(_gradients, job), *_own(job, own_output))
        found[name] = "equal" if off <= NEAR else f"differs by {off:.1e}"
    return found


_between = functools.cache(Model.between)  # a model is examined once for each number of rows


class Wide(TorchFunctionMode):
    """While it lasts, what would be computed in float32 is in float64: norms, softmax and routers of Hugging Face round
    to float32 inside, where the last bit of a sum becomes a relative 6e-8. On both sides."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        wide = lambda x: torch.float64 if x is torch.float32 else x
        if function is torch.Tensor.float:
            return args[0].double()
        return function(*map(wide, args), **{name: wide(x) for name, x in (kwargs or {}).items()})


def _gradients(comm, job):
    trainer = Trainer(comm, job)
    with Wide():
        losses = trainer.gradients(0)[0]
    return {"losses": losses, "gradient": {name: x.grad.clone() for name, x in trainer.parameters.items()}}


def _own(job, own_output) -> tuple[float, dict]:
    """(loss, gradients) of the module's own forward, whole, on the whole batch."""
    module = copy.deepcopy(job.model.made(job.seed, torch.float64))
    inputs, targets = job.model.batch(0, ROWS)
    inputs = inputs.double() if torch.is_tensor(inputs) and inputs.is_floating_point() else inputs
    with Wide():
        scores = own_output(module, inputs)
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, -2), targets.flatten(), reduction="sum")
    (loss / targets.numel()).backward()
    gradients = {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in module.named_parameters()}
    return loss.item() / targets.numel(), gradients


def _largest_gap(job, parts, loss, gradients) -> float:
    gaps = [abs(sum(part["losses"]) - loss) / abs(loss) for part in parts]
    smallest = SMALL * max(map(largest, gradients.values()))
    for name, own in gradients.items():
        pieces = list(held("gradient", name, parts, own, job))
        assert pieces, f"no rank has {name}"
        size = max(largest(own), smallest)
        gaps += [largest(mine - its) / size for mine, its in pieces]
    return max(gaps)
