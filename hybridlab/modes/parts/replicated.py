"""The weights of a rank, unsharded during use, and the reduction of their gradients over the ranks that hold a copy.

All ranks send buckets (packs) in the same order, although their backward may finish gradients in any order: ranks that
disagree about the next all-reduce would wait for each other forever. A weight without a gradient counts as zero: its
bucket and those after it are sent when the backward has ended.

Relatives: `modes.data_parallel`, which describes the three forms; `modes.zero`, which keeps a shard of each sum;
`runtime.pending`, the handles to wait for.
"""

from collections import Counter
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import torch

from hybridlab.core.when.action import MAKES_GRADIENT
from hybridlab.core.where.layout import Layout
from hybridlab.runtime.pending import Sum, Sums
from hybridlab.world.talk.message import twin
from hybridlab.world.talk.nans import UNWATCHED


class Policy(NamedTuple):
    """Dtypes of gradient reductions and of the optimizer's master copy; None: the dtype of the weights.

    host  the master copy stays in the host's memory (offload): gradients go there, updated weights come back
    """

    sums: torch.dtype | None = None
    master: torch.dtype | None = None
    host: bool = False


AS_WEIGHTS = Policy()


class Replicated:
    """The weights of a rank's stages, unsharded while they are used, in one version; their gradients are reduced in
    buckets.

    comm      the communicator of this rank
    layout    of the parameters on the mesh
    policy    dtypes of reductions and of master weights, and the device of the optimizer
    stages    {stage: module};  named  {stage: {name: weight}}, with the names of the layout;  by_name  the same for all
              stages together
    program   this rank's actions: they determine the weights that each REDUCE_GRAD reduces, and the last backward of
              each stage
    early     launch a bucket as soon as the last backward has made its gradients, instead of at the REDUCE_GRAD
    moved     bytes copied to the optimizer's device ("down") and back ("up"), if it is another device

    Opens the groups of the layout, so all ranks must create their weights at the same time.

    raises  ValueError if the program has no REDUCE_GRAD for gradients that have to be reduced
    """

    nans = UNWATCHED  # the watch for the first tensor with a nan
    parts: dict = {}  # {pack: a part of the weights that stays between steps}, see `modes.parts.two_levels`

    def __init__(self, comm, layout: Layout, stages: dict, named: dict, program, early, policy=AS_WEIGHTS):
        self.comm, self.layout, self.stages, self.named = comm, layout, stages, named
        self.by_name = {name: weight for its in named.values() for name, weight in its.items()}
        self.policy, self.moved = policy, Counter()
        comm.open(*layout.groups)
        self.due, self._makes = self._due(program), Counter(_gradients(program))
        self.shares = self._shares()
        self.arm(True)
        if policy.sums is not None:
            self._hook_sums()
        if early:
            self._hook()

    # for the optimizer

    def _shares(self) -> dict:
        """{name: the tensor that the optimizer updates here}: the weight, or a master copy in another dtype."""
        return {name: self._master(weight) for name, weight in self.by_name.items()}

    def _master(self, weight):
        apart = self.policy.host or self.policy.master not in (None, weight.dtype)
        return torch.nn.Parameter(self._kept_as(weight.detach())) if apart else weight

    def _kept_as(self, values):
        """Weights in the dtype and on the device of the optimizer's copy."""
        dtype = self.policy.master or values.dtype
        return self._brought(values, dtype) if self.policy.host else values.to(dtype)

    def _brought(self, x, dtype):
        """A tensor copied from the device to the host, in another dtype."""
        return twin(x, dtype).copy_(x, non_blocking=True)

    @property
    def alone(self) -> list[torch.Tensor]:
        """The weights between steps that are in no module: shards without another copy, and weights stored next to
        shards."""
        only = lambda param: param.rest == 3 and param.groups == 1
        return [share for name, share in self.shares.items() if only(self.layout[name])] + [*self.parts.values()]

    @torch.no_grad()
    def publish(self):
        """Copy the updated weights to the device of the stages."""
        for name, weight in self.by_name.items():
            if self.shares[name] is not weight:
                weight.copy_(self._used_as(self.shares[name], weight))

    def _used_as(self, kept, weight):
        """The optimizer's weights, in the form that the stages use."""
        back = kept.to(weight.dtype)
        self.moved["up"] += back.nbytes if self.policy.host else 0
        return back.to(weight.device)

    def _give(self, share, gradient):
        """Move a reduced gradient to the optimizer's device."""
        self.moved["down"] += gradient.nbytes if self.policy.host else 0
        share.grad = self._brought(gradient, share.dtype) if self.policy.host else gradient.to(share.dtype)

    def stepped(self, step: int):
        """Called after the optimizer's step, before `publish`."""

    hides = False  # whether later steps hide what `stepped` sends

    def begun_before(self, step: int):
        """Begin the exchanges that are under way when this step ends, as they are in a longer training run."""

    def states(self, name: str) -> dict[str, torch.Tensor]:
        """{kind: tensor} of a weight that a checkpoint stores, in addition to its value and its optimizer's state."""
        return {}

    def restore(self, name: str, kinds: dict):
        """Restore these tensors of a weight from `kinds`, as a checkpoint stores them."""

    @property
    def besides(self) -> list[torch.Tensor]:
        """All tensors of `states` that exist in every step."""
        return []

    # for a step

    def begin(self):
        """Start a step with empty gradients."""
        for name, weight in self.by_name.items():
            weight.grad = self.shares[name].grad = None
        self.summed = {}

    def arm(self, last: bool):
        """Start a run of the schedule; only the last run of a step reduces gradients, the others accumulate them."""
        self.left = self._makes.copy() if last else Counter(dict.fromkeys(self._makes, float("inf")))
        self.sent, self.ready = {}, Counter()

    def call(self, stage, version):
        """The module of a stage, ready to be called."""
        return self.stages[stage]

    def collect(self, stage, microbatch, version):
        """Called after a backward: if gradients accumulate in another dtype, add them there."""
        self.left[stage] -= 1
        if self.policy.sums is not None:
            for name, weight in self.named[stage].items():
                self._add_up(name, weight)

    def reduce(self, comm, action):
        """Start the reductions of this stage's gradients that have not started yet. Returns handles to wait for."""
        packs = self.due.get(action.stage, ())
        for pack in packs:
            self._send(pack)
        return Sums([self.sent[pack] for pack in packs])

    def finish(self):
        """End a step: every shard gets its gradient, including shards that the program does not reduce."""
        for name, share in self.shares.items():
            if share.grad is None:
                self._give(share, self._gradient(name))
        if self.policy.host and self.comm.device.type != "cpu":
            torch.accelerator.synchronize(self.comm.device)  # the optimizer reads the copies on the host

    # reductions

    def _due(self, program) -> dict:
        """{stage: the packs that its REDUCE_GRAD reduces, in order}: a pack of several stages belongs to the last of
        them.
        """
        pack_of = {name: self.layout[name].pack for name in self.by_name}
        at = {}
        for action in program:
            if action.kind == "REDUCE_GRAD":
                at |= {pack_of[name]: action.stage for name in self.named[action.stage] if self._meets(name)}
        for name, pack in pack_of.items():
            if self._meets(name) and pack not in at:
                raise ValueError(
                    f"no action reduces the gradient of {name}: end the schedule with REDUCE_GRAD for its stage"
                )
        return {stage: sorted(pack for pack, its in at.items() if its == stage) for stage in set(at.values())}

    def _meets(self, name) -> bool:
        return len(self.layout.summed(name, self.comm.rank)) > 1

    def _send(self, pack):
        """Start the sum of one pack, unless it is under way."""
        if pack not in self.sent:
            names = self.layout.packs[pack]
            gradients = {name: self._gradient(name) for name in names}
            for name, gradient in gradients.items():
                self.nans.made(lambda name=name: f"this rank's partial gradient of {name}", gradient)
            self.sent[pack] = self._started(pack, names, self._flat(pack, gradients))

    def _flat(self, pack, tensors: dict):
        """The tensors of a pack in one buffer, each at its offset, and zeros where there is none."""
        layout, rank, parts, end = self.layout, self.comm.rank, [], 0
        starts = {name: layout.offset(name, rank) for name in tensors}
        length = layout[layout.packs[pack][0]].owners * layout.piece(pack, rank)
        for name, start in [*sorted(starts.items(), key=lambda one: one[1]), ("", length)]:
            if start > end:
                parts.append(next(iter(tensors.values())).new_zeros(start - end))
            if name:
                parts.append(tensors[name].reshape(-1))
                end = start + tensors[name].numel()
        return torch.cat(parts)

    def _started(self, pack, names, flat):
        """All-reduce a pack; when it is over, every weight's gradient is a view of it."""
        message = self.comm.iall_reduce(flat, self.layout.summed(names[0], self.comm.rank))
        return Sum(message, lambda flat: self._take(names, flat))

    def _take(self, names, flat):
        start = 0
        for name in names:
            weight, share = self.by_name[name], self.shares[name]
            piece = flat[start : start + weight.numel()].view_as(weight)
            self._give(share, piece)
            start += weight.numel()

    def _gradient(self, name):
        """This rank's accumulated gradient."""
        weight, summed = self.by_name[name], self.summed.get(name)
        if summed is None:
            return torch.zeros_like(weight) if weight.grad is None else weight.grad
        return summed  # and weight.grad is empty: see `collect`

    def _add_up(self, name, weight):
        if weight.grad is None:
            return
        if name in self.summed:
            self.summed[name].add_(weight.grad)
        else:
            self.summed[name] = weight.grad.to(self.policy.sums)
        weight.grad = None

    # inside the backward

    def _hook_sums(self):
        """Accumulate each gradient as soon as it is computed: a stage never stores all of them in their own dtype."""
        for name, weight in self.by_name.items():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(lambda made, name=name: self._add_up(name, made))

    def _hook(self):
        for stage, packs in self.due.items():
            for pack in packs:
                names = self.layout.packs[pack]
                homes = [home for home, its in self.named.items() if names[0] in its]
                for name in (one for one in names if self.by_name[one].requires_grad):
                    self.by_name[name].register_post_accumulate_grad_hook(partial(self._made, stage, pack, homes))

    def _made(self, stage, pack, homes, weight):
        """Note that a gradient of a pack has grown; after the pack's last gradient, send it, and the packs that waited
        for it.
        """
        if pack in self.sent:
            raise RuntimeError(f"a gradient of {self.layout.packs[pack]} was made after its sum had begun")
        if sum(self.left[home] for home in homes) == 1:
            self.ready[pack] += 1
            complete = lambda one: self.ready[one] == len(self.layout.packs[one])
            for one in takewhile(complete, self.due[stage]):
                self._send(one)


def _gradients(program) -> list[int]:
    """The stage of every action that computes weight gradients."""
    return [part.stage for action in program for part in action.each if part.kind in MAKES_GRADIENT]
