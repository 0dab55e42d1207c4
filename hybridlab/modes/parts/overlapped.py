"""Tensor parallelism overlapped with its messages: each matmul is computed in pieces while other pieces are sent.

The stream is sharded along the sequence, so t ranks have t parts of the positions. A matmul before which the parts are
all-gathered needs no full input to begin: a rank multiplies its own part while the next one arrives. A matmul whose
partial sums are reduce-scattered needs not be complete: a rank computes the rows of one owner while the sum of the
previous rows travels.

  a pair          forward                              backward
  its entrance    parts come by, each is multiplied    dX: matmuls are summed on the way; dW: the parts come by again
  its exit        matmuls are summed on the way       parts of dY come by: rows of dX, and a term of dW

Each arrow is t - 1 hops of b·s/t·h numbers, which together are the bytes of the collective. A hop is hidden if its
matmul takes longer (`predict.time.pieces`). In two directions, half as many hops follow each other, and each overlaps
with two matmuls. All matrices that read the same input take part in one circle, and only the rank's own part is saved.

Source: Wang et al. 2023, "Overlap Communication with Dependent Computation via Decomposition", ASPLOS. Relatives:
`sequence_parallel`, the same without overlap; `circle`, which sends; `tensor_parallel`, the mode.

Shape suffixes   B rows, T positions, D width of the stream, F local width: outputs or inputs of this rank's shard
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.where.layout import even
from hybridlab.modes.parts.circle import Circle
from hybridlab.modes.parts.plain_layers import first, first_is
from hybridlab.modes.parts.sequence_parallel import CutStream
from hybridlab.predict.plans.equal_parts import refuse_directions, refuse_partial_sums


def matmul(x_BTD, weight_FD):
    """One piece of a linear layer's output; with the transposed weight, of the gradient of its input."""
    return x_BTD @ weight_FD.T


def by_weight(gradient_BTF, x_BTD):
    """The term that one piece adds to the gradient of a weight."""
    return gradient_BTF.flatten(0, -2).T @ x_BTD.flatten(0, -2)


class Entered(torch.autograd.Function):
    """Linear layers that read the same sharded input: their outputs for the full sequence.

    args, kwargs  those of `torch.autograd.Function`: call `Entered.apply`
    """

    @staticmethod
    def forward(ctx, part_BTD, rows, *weights):
        made = [part_BTD.new_empty(*rows.shape(part_BTD), len(weight)) for weight in weights]
        for source, its_BTD in rows.passing(part_BTD):
            for y_BTF, weight in zip(made, weights):
                y_BTF[:, rows.of[source]] = matmul(its_BTD, weight)
        ctx.save_for_backward(part_BTD, *weights)
        ctx.rows = rows
        return tuple(made)

    @staticmethod
    def backward(ctx, *gradients):
        (part_BTD, *weights), rows, by_part = ctx.saved_tensors, ctx.rows, None
        if ctx.needs_input_grad[0]:
            by_part = rows.summed(
                lambda owner: _sum(matmul(g[:, rows.of[owner]], w.T) for g, w in zip(gradients, weights))
            )
        by_weights = [torch.zeros_like(weight) for weight in weights]
        for source, its_BTD in rows.passing(part_BTD):
            for by, gradient_BTF in zip(by_weights, gradients):
                by += by_weight(gradient_BTF[:, rows.of[source]], its_BTD)
        return by_part, None, *by_weights


class Left(torch.autograd.Function):
    """A linear layer sharded by its inputs: this rank's positions of the summed outputs.

    args, kwargs  those of `torch.autograd.Function`: call `Left.apply`
    """

    @staticmethod
    def forward(ctx, x_BTF, rows, weight_DF):
        ctx.save_for_backward(x_BTF, weight_DF)
        ctx.rows = rows
        return rows.summed(lambda owner: matmul(x_BTF[:, rows.of[owner]], weight_DF))

    @staticmethod
    def backward(ctx, gradient_BTD):
        (x_BTF, weight_DF), rows = ctx.saved_tensors, ctx.rows
        by_x, by = torch.empty_like(x_BTF), torch.zeros_like(weight_DF)
        for source, its_BTD in rows.passing(gradient_BTD):
            by_x[:, rows.of[source]] = matmul(its_BTD, weight_DF.T)
            by += by_weight(its_BTD, x_BTF[:, rows.of[source]])
        return by_x, None, by


class Rows(Circle):
    """The ring of the ranks along tp, and the positions of each."""

    def __init__(self, comm, context: int, directions: int = 1):
        spans = even(context, comm.mesh["tp"])
        super().__init__(comm, "tp", [high - low for low, high in spans], 1, directions)
        self.context, self.of = context, [slice(*span) for span in spans]

    def shape(self, part_BTD) -> tuple[int, int]:
        """Rows and positions of the full sequence."""
        return len(part_BTD), self.context


class OverlappedStream(CutStream):
    """The residual stream, sharded along the sequence, whose messages travel during the matmuls next to them.

    readers     {a module that reads the stream: the linear layers in it that multiply its input}
    directions  in which parts travel
    """

    def __init__(self, comm, context: int, readers: dict[nn.Module, list[nn.Linear]], directions: int = 1):
        super().__init__(comm, context)
        self.rows, self.readers = Rows(comm, context, directions), readers

    def enter(self, module):
        """Give a module's layers that read the stream their outputs for the full sequence, piece by piece."""
        readers = self.readers[module]
        matmuls = lambda part_BTD: Entered.apply(part_BTD, self.rows, *(one.weight for one in readers))
        feed(module, readers, matmuls, self.rows.context)

    def multiplied(self, x_BTF, weight_DF):
        """This rank's positions of the output of a linear layer sharded by its inputs."""
        return Left.apply(x_BTF, self.rows, weight_DF)


class Unread(torch.Tensor):
    """A tensor of which only the sizes may be read: a placeholder for an input that no rank gathers."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ABOUT_A_TENSOR:
            with torch._C.DisableTorchFunctionSubclass():
                found = func(*args, **kwargs or {})
            if not isinstance(found, torch.Tensor):
                return found
        raise _refusal(f"{func.__name__} reads it too")


ABOUT_A_TENSOR = ("__get__", "size", "dim", "__len__")


def feed(module: nn.Module, readers: list[nn.Linear], matmuls, context: int):
    """Let a module begin with the outputs of all layers that read its input; it never sees the input itself.

    matmuls  a function from this rank's part of the input to the layers' outputs for all positions, without biases
    context   the number of all positions
    """
    made, on_whole = {}, module.forward

    def outputs(part_BTD):
        return [y if one.bias is None else y + one.bias for one, y in zip(readers, matmuls(part_BTD))]

    def on_part(*args, **named):
        part_BTD = first(args, named)
        unread = part_BTD.detach()[:1, :1, :1].expand(len(part_BTD), context, part_BTD.shape[2]).as_subclass(Unread)
        made.update((one, (unread, y)) for one, y in zip(readers, outputs(part_BTD)))
        try:
            args, named = first_is(unread, args, named)
            return on_whole(*args, **named)
        finally:
            made.clear()

    def output(one, x):
        unread, y = made[one]
        if x is not unread:
            raise _refusal("a layer reads it in another form")
        return y

    if readers == [module]:
        module.forward = lambda part_BTD: outputs(part_BTD)[0]
        return
    module.forward = on_part
    for one in readers:
        vars(one)["forward"] = partial(output, one)  # hides the forward of the class


def refuse(job, readers_in: Callable[[nn.Module], dict]):
    """Raise an error unless the matmuls of a job can be computed in pieces.

    readers_in  a function from a module of the model to {a module that reads the stream: the layers in it that multiply
                its input}
    """
    kinds = {part.kind for program in job.schedule.program for action in program for part in action.each}
    if kinds & {"I", "W"}:
        raise ValueError(
            f"{job.schedule.name} splits the backward in two, but overlap=True computes both gradients while the same "
            "pieces arrive: leave out overlap, or choose 1f1b"
        )
    refuse_directions(job["directions"])
    refuse_partial_sums(job.mesh["x"])

    def in_pieces(module):
        for layer, its in readers_in(module).items():
            matmuls = lambda x_BTD, its=its: [functional.linear(x_BTD, one.weight) for one in its]
            feed(layer, its, matmuls, job.sizes["T"])

    job.one_row(in_pieces)


def _refusal(why: str) -> ValueError:
    return ValueError(
        f"overlap=True gives the input of a module to its Linear layers piece by piece, but {why}: leave out overlap, "
        "or let only Linear layers with named dimensions read it"
    )


def _sum(terms):
    total = next(terms)
    for one in terms:
        total += one
    return total
