"""A user's model in shards: one row goes through it, first unsharded, and then through the shards of the first and of
the last rank along tp.

Tensor parallelism reads the names of dims, and never a forward. A forward that holds a number of heads, or a width of
the unsharded matrices, fails on a shard, or silently makes other heads of it. So the input of each matrix that is
sharded by its inputs must be a shard of its unsharded input. This needs no ranks: where ranks would add up their
partial sums, the unsharded output takes the place of the sum.

Relatives: `rehearsal`, which compares gradients too, on ranks; `modes.parts.tp_boundaries`, the places where shards
meet the stream.
"""

import math
import traceback
from pathlib import Path

import torch
from torch import nn

from hybridlab.core.what.seams import draws_of
from hybridlab.modes.parts.plain_layers import first
from hybridlab.modes.parts.tp_boundaries import crossings
from hybridlab.modes.tensor_parallel import fit
from hybridlab.training.first_weights import part_of
from hybridlab.training.models.plain import strange
from hybridlab.training.models.trees import as_computed
from hybridlab.world.talk.dry import DryComm

REMEDY = (
    "compute only elementwise between two sharded matrices, without weights of the whole width (a PReLU may have one "
    "weight); in attention, a rank has only some heads: read their number from the tensor, x.view(b, t, -1, "
    'head_width) and .flatten(2), and name their dimensions "NH D" with sizes={"N": heads}'
)

LOUD = 1.0, 16.0, 1 / 16
Call = tuple[torch.Tensor, torch.Tensor]  # the input and the output of a matrix
Passed = dict[str, list[Call]]  # of each matrix that ends in a sum of partial sums, by name


def refuse_other_shards(job):
    """Raise an error unless the forward of a user's model gives the same result with shards along tp as without.

    This does not apply to reference models, whose proofs are the project's tests, or if other axes shard the weights
    too.

    raises  ValueError with the module's name, and what to change
    """
    axes = {axis for param in job.layout.params for axis in param.shard}
    if axes != {"tp"} or not strange(job.whole):
        return
    original = job.model.original(job.seed, getattr(torch, job.dtype))
    kinds = {one.name: one.kind for one in crossings(job.whole, job.layout)}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        whole = _Passing(job, part_of(job, original), kinds)
        left = {loud: whole.run(loud) for loud in LOUD}
        for name in kinds:
            if name not in whole.called:
                raise ValueError(
                    f"{_named(job.whole, name)} is sharded along tp={job.mesh['tp']}, but no forward calls it, so no "
                    "rank adds up its partial sums: call the layer instead of reading its weight, or leave its dims "
                    "without names"
                )
        for place in (0, job.mesh["tp"] - 1):
            ranks = job.mesh.group(job.mesh.rank(tp=place), "pp")
            boxes = {name: box for rank in ranks for name, box in job.boxes(rank).items()}
            module = part_of(job, original, boxes)
            fit(module, DryComm(job.mesh, ranks[0]), job.layout)
            _compare(_Passing(job, module, kinds), left, boxes)


def _compare(shard: "_Passing", whole: dict[float, Passed], boxes: dict[str, tuple]):
    ways = shard.job.mesh["tp"]
    for loud, passed in whole.items():
        try:
            mine = shard.run(loud, passed)
        except Exception as error:
            raise ValueError(
                f"{shard.culprit()} fails on a shard along tp={ways} ({_said(error)}): {REMEDY}"
            ) from error
        for name, calls in passed.items():
            _refuse_another(shard.module, mine[name], calls, name, boxes[f"{name}.weight"], ways)


def _refuse_another(module: nn.Module, mine: list[Call], whole: list[Call], name: str, box: tuple, ways: int):
    """Raise an error unless the input of a matrix that is sharded by its inputs is a shard of its unsharded input."""
    near = math.sqrt(torch.finfo(next(module.parameters()).dtype).eps)
    for (arrived, _), (all_, _) in zip(mine, whole):
        its = all_[..., box[1]] if all_.is_floating_point() else all_  # an embedding is given tokens
        if arrived.shape == its.shape and not its.isfinite().all():
            continue  # too loud for this dtype
        off = near * float(its.abs().max())
        if arrived.shape != its.shape or not torch.allclose(arrived, its, rtol=near, atol=off):
            around = name.rpartition(".")[0] or name
            raise ValueError(
                f"{_named(module, around)} computes something different on a shard along tp={ways}: the input "
                f"that {name} gets is not a shard of its input without sharding; {REMEDY}"
            )


class _Passing:
    """One row on its way through a module, watched.

    kinds   {name: "enter" for a module that reads the stream; others for a matrix that ends in a sum of partial sums}
    called  the names of the modules that were called
    """

    def __init__(self, job, module: nn.Module, kinds: dict[str, str]):
        self.job, self.module, self.inside, self.called = job, module, [], set()
        self.loud, self.passed, self.whole = 1.0, {}, {}
        draws_of(module).on = False  # masks are drawn by place, and the proof compares them
        for name, one in module.named_modules():
            one.register_forward_pre_hook(lambda *_, name=name: self._enter(name))
            one.register_forward_hook(self._leave)
        for name, one in module.named_modules():
            if isinstance(one, nn.Linear) and _is_sharded_by_outputs(job.layout, name):
                one.register_forward_hook(lambda _, arrived, left: self.loud * left)
        self.joins = [name for name, kind in kinds.items() if kind != "enter"]
        for name in self.joins:
            module.get_submodule(name).register_forward_hook(self._noting(name), with_kwargs=True)

    def _enter(self, name):
        self.inside.append(name)
        self.called.add(name)

    def _leave(self, *_):
        self.inside.pop()

    def _noting(self, name):
        def note(_, arrived, named, left):
            self.passed[name].append((first(arrived, named), left))
            return next(self.whole[name])[1] if name in self.whole else None

        return note

    def run(self, loud: float, whole: Passed | None = None) -> Passed:
        """Pass the first row of the data through the module.

        loud   the outputs of matrices that are sharded by their outputs are multiplied by this: a limit in the forward,
               such as a clamp, may have no effect on the first row
        whole  of a pass through the unsharded model, whose outputs replace the sums of partial sums
        """
        self.loud, self.whole = loud, {name: iter(calls) for name, calls in (whole or {}).items()}
        self.passed = {name: [] for name in self.joins}
        inputs, _ = self.job.model.batch(0, 1, self.job.seed)
        self.job.model.through(self.module, as_computed(inputs, getattr(torch, self.job.dtype)))
        return self.passed

    def culprit(self) -> str:
        """The innermost module in which the pass failed, preferably one whose class is the user's."""
        kinds = {name: type(self.module.get_submodule(name)).__module__ for name in self.inside}
        own = [name for name, home in kinds.items() if not home.startswith(("torch.", "hybridlab."))]
        return _named(self.module, (own or self.inside or [""])[-1])


def _is_sharded_by_outputs(layout, name: str) -> bool:
    param = layout.named.get(f"{name}.weight")
    return param is not None and "tp" in param.shard and param.shard["tp"].dim == 0


def _named(module: nn.Module, name: str) -> str:
    kind = type(module.get_submodule(name)).__name__
    return f"{name} ({kind})" if name else kind


def _said(error: Exception) -> str:
    """An error, and the line of the program that raised it."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    told = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {told}, {Path(line.filename).name}:{line.lineno}"
