"""The reference: a training loop in one process, without parallel code, whose results all layouts must equal.

It is accompanied by *shadows*: the same loop, with initial weights that are larger or smaller by one last bit. Their
distance from it is the largest effect that rounding alone can have on any layout: the noise of each tensor, measured
and not guessed.
"""

import math
from functools import partial

import torch

from hybridlab.core.what.seams import draws_of
from hybridlab.runtime import tallies
from hybridlab.training.first_weights import whole_of
from hybridlab.training.gaps import FACTOR, difference, largest, tolerance_of
from hybridlab.training.job import Job
from hybridlab.training.models.calls import Shapes
from hybridlab.training.models.draws import buffers_of
from hybridlab.training.models.plain import refuse_another, widest, width_of
from hybridlab.training.models.trees import as_computed, flat, mapped_together
from hybridlab.training.rates import set_rate

SHADOWS = {"float64": 1}  # in other dtypes noise is large, so it is measured by MORE: see `further`
MORE = 3


class OneDevice:
    """A full model in one process, with the dtypes of reductions and master weights that a job requires.

    moved    0, or the number of a shadow
    copy     the index of the copy whose microbatches it reads, if copies train alone; None: it reads all
    named    its weights by name;  masters  the tensors of its optimizer: the weights, or copies in another dtype
    first    the initial numbers of the masters
    """

    def __init__(self, job: Job, moved: int = 0, copy: int | None = None):
        self.job, self.module = job, whole_of(job)
        each = job.schedule.replicas // job.schedule.dp
        self.reads = [copy in (None, replica // each) for replica in job.schedule.replica_of] * job.accumulate
        if moved:
            move(self.module, moved)
        self.named, dtype = dict(self.module.named_parameters()), getattr(torch, job["master_dtype"])
        own = lambda weight: weight if weight.dtype == dtype else torch.nn.Parameter(weight.detach().to(dtype))
        self.masters = {name: own(weight) for name, weight in self.named.items()}
        self.first = {name: weight.detach().clone() for name, weight in self.masters.items()}
        self.optimizer = job.optimizer_of(self.masters)

    def gradients(self, step: int) -> float:
        """Do forward and backward of one global batch, microbatch after microbatch, and return its loss.

        A weight without a gradient has the gradient 0, as in an all-reduce.
        """
        job, draws, losses = self.job, draws_of(self.module), []
        sums = {name: torch.zeros_like(w, dtype=getattr(torch, job["sum_dtype"])) for name, w in self.named.items()}
        draws.step = step
        set_rate(job, [self.optimizer], step)
        for number, (inputs, targets) in enumerate(zip(*job.batch(step))):
            if not self.reads[number]:
                continue
            draws.row = number * job.rows
            self.module.zero_grad()
            loss = job.model.loss(job.model.through(self.module, inputs), targets) / job.tokens
            if loss.requires_grad:  # not if no row of this microbatch counts
                loss.backward()
            losses.append(loss.item())
            for name, weight in self.named.items():
                sums[name] += 0 if weight.grad is None else weight.grad
        for layer in tallies.tallying(self.module).values():
            layer.settle()
        for name, weight in self.masters.items():
            weight.grad = sums[name].to(weight.dtype)
        return math.fsum(losses)

    def gradient(self) -> dict:
        """Every gradient, by name."""
        return {name: weight.grad for name, weight in self.masters.items()}

    def norm(self) -> float:
        """The norm of the gradient, computed as in `Trainer.gradient_norm`."""
        return math.sqrt(math.fsum(float(one.double().square().sum()) for one in self.gradient().values()))

    @torch.no_grad()
    def update(self):
        """One optimizer step, clipped if the job requires it."""
        self.job.clipped(list(self.gradient().values()), self.norm)
        self.optimizer.step()
        for name, weight in self.named.items():
            weight.copy_(self.masters[name])

    def moves(self) -> dict:
        """The total change of every weight."""
        return {name: weight.detach() - self.first[name] for name, weight in self.masters.items()}


@torch.no_grad()
def move(module: torch.nn.Module, number: int):
    """Change every weight by one unit in the last place; the direction differs from number to number."""
    drawn = torch.Generator().manual_seed(number)
    for weight in module.parameters():
        real = torch.view_as_real(weight) if weight.is_complex() else weight
        if real.is_floating_point():
            up = torch.rand(real.shape, generator=drawn) < 0.5
            real.copy_(torch.nextafter(real, torch.where(up, math.inf, -math.inf).to(real.dtype)))


def alone_on_rank(comm, job: Job) -> dict:
    """Train a job in one process.

    returns "losses", each per loss term of its global batch, before the update; "gradient" (by name) and "norm" of the
    first step; "weight" and "buffer", by name, at the end; "moves", the distance that each weight has moved; "touched",
    by name: the elements that had a gradient in any step; "noise": for all these, the distance of the shadows; after
    Adam "bound", by name: the largest effect of rounding noise in all steps, see `adam_moves`; "nothing", in words, if
    there are no numbers to compare
    """
    one, *shadows = every = [OneDevice(job, moved) for moved in range(1 + shadows_of(job))]
    losses, touched, bound, noise, home = [], {}, {}, {"losses": 0.0}, {}
    for step in range(job.steps):
        loss, *others = [device.gradients(step) for device in every]
        losses.append(loss)
        noise["losses"] = max([noise["losses"], *(abs(other - loss) for other in others)])
        touch(touched, one.gradient())
        noisy = [shadow.gradient() for shadow in shadows]
        off = spread(one.gradient(), noisy if step else noisy + further(job, one.gradient(), noisy))
        if not step:
            home = {"gradient": {name: x.clone() for name, x in one.gradient().items()}, "norm": one.norm()}
            noise |= {"gradient": off, "norm": max(abs(shadow.norm() - one.norm()) for shadow in shadows)}
        for device in every:
            device.update()
        if job.optimizer != "sgd":
            adam_moves(bound, one, off, job)
    home |= {"touched": touched, "losses": losses} | ({"bound": bound} if bound else {})
    home |= ended(one.module, one.masters, one.moves())
    found = [ended(device.module, device.masters, device.moves()) for device in shadows]
    noise |= noise_at_end(home, found)
    return home | {"noise": noise, "nothing": nothing(home, job)}


def owner_on_rank(comm, job: Job) -> str:
    """Compare batches, microbatch by microbatch, with the run of the model's owner: the batches of all steps, or only
    the first one if rounding is coarse. Returns the reason for a difference, or ""."""
    device, exact = OneDevice(job), job.dtype == job["master_dtype"] == "float64" and job.flushes
    first = (batches[0] for batches in job.batch(0))
    make, one_shape = partial(whole_of, job), Shapes(job.links.sent, dict(enumerate(job.layers)))
    module = device.module if exact else widest(make, job.model, *first, getattr(torch, job.dtype))
    for step in range(job.steps if exact else 1):
        batches = job.batch(step)
        parts = [slice(begin, begin + job.rows) for begin in range(0, job.rows * len(batches[0]), job.rows)]
        inputs, targets = (as_computed(mapped_together(torch.cat, each), width_of(module)) for each in batches)
        draws_of(module).step = step
        try:
            refuse_another(job.model, module, inputs, targets, parts, one_shape)
        except ValueError as error:
            return f"{error} (step {step})" if step else str(error)
        if step < job.steps - 1:
            device.gradients(step)
            device.update()
    return ""


def ended(module, weights: dict, moves: dict) -> dict:
    """The results of training."""
    weights = {name: weight.detach() for name, weight in weights.items()}
    return {"weight": weights, "moves": moves, "buffer": buffers_of(module)}


def shadows_of(job: Job) -> int:
    """The number of shadows that measure the noise of a job."""
    return SHADOWS.get(job.dtype, MORE)


def further(job: Job, first: dict, others: list[dict]) -> list[dict]:
    """The gradients of more shadows at the first step, if the first ones show more noise than the dtype's tolerance.

    The gradient of attention keys' bias is nothing but noise: one shadow differed by a quarter of it, but a layout and
    other shadows by nine tenths.
    """
    off = spread(first, others)
    if all(off[name] <= tolerance_of(job) * largest(x) for name, x in first.items()):
        return []
    more = [OneDevice(job, moved) for moved in range(1 + len(others), 1 + MORE)]
    for shadow in more:
        shadow.gradients(0)
    return [shadow.gradient() for shadow in more]


def spread(first: dict, others: list[dict]) -> dict[str, float]:
    """{name: the largest difference between an element of the first and the same element of the others}."""
    return {name: max(difference(other[name], x) for other in others) for name, x in first.items()}


def noise_at_end(home: dict, shadows: list[dict]) -> dict[str, dict[str, float]]:
    """The noise in the results of training: the distance between the shadows; for a weight, also one unit in the last
    place.

    An update stores a weight, which rounds it. The error of a weight that changes little can then be large relative to
    this change, but only if a sum falls between two representable numbers. So no shadow is certain to show it.
    """
    noise = {kind: spread(home[kind], [one[kind] for one in shadows]) for kind in ("moves", "buffer")}
    for name, weight in home["weight"].items():
        noise["moves"][name] += torch.finfo(weight.dtype).eps * largest(weight)
    return noise


def touch(touched: dict, gradients: dict):
    """Record the elements that these gradients touch."""
    for name, gradient in gradients.items():
        touched[name] = touched.get(name, False) | (gradient != 0)


def adam_moves(bound: dict, one: OneDevice, noise: dict[str, float], job: Job):
    """Add to `bound` the maximum effect of noise in gradients on each element of each weight in Adam's last step.

    One step moves an element by rate·m/√v, and noise δ in the gradient changes that by at most about rate·4δ/√v, and
    never by more than 2·rate.
    """
    least = tolerance_of(job)
    group = next((group for group in one.optimizer.param_groups if "betas" in group), {})
    for name, weight in one.masters.items():
        state = one.optimizer.state.get(weight, {})
        if "exp_avg_sq" in state:
            size = (state["exp_avg_sq"] / (1 - group["betas"][1] ** float(state["step"]))).sqrt()
            off = max(FACTOR * noise[name], least * largest(weight.grad))
            move = group["lr"] * (4 * off / (size + group["eps"])).clamp(max=2)
            rounding = torch.finfo(weight.dtype).eps * (1 + largest(weight))
            bound[name] = bound.get(name, 0) + move + rounding


def nothing(home: dict, job: Job) -> str:
    """The reason why there is nothing to compare, in words: the first tensor with a nan or infinity, or that all
    numbers are 0."""
    kinds = [home[kind].values() for kind in ("gradient", "weight") if kind in home]
    numbers = [torch.tensor(home["losses"]), *(x for kind in kinds for x in kind)]
    if not all(bool(x.isfinite().all()) for x in numbers):
        return f"{_first_unlike_a_number(job)} of one device is not finite"
    if "gradient" in home and not any(bool(x.any()) for x in home["gradient"].values()):
        return "every gradient of one device is 0"
    return ""


def _first_unlike_a_number(job: Job) -> str:
    """The name of the first tensor of a training run with an element that is not finite."""
    device = OneDevice(job)
    for name, weight in device.named.items():
        if not _finite(weight):
            return f"the weight {name}"
    for step in range(job.steps):
        for number, (inputs, targets) in enumerate(zip(*job.batch(step))):
            where = f"of microbatch {number} of step {step}"
            for what, x in (("inputs", inputs), ("targets", targets)):
                if not all(_finite(one) for one in flat(x)):
                    return f"a number among the {what} {where}"
            if not _finite(job.model.loss(job.model.through(device.module, inputs), targets)):
                return f"the loss {where}"
        device.gradients(step)
        for name, gradient in device.gradient().items():
            if not _finite(gradient):
                return f"the gradient of {name} in step {step}"
        device.update()
    return "a weight after the last step"


def _finite(x) -> bool:
    return bool(x.isfinite().all())
