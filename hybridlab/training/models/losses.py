"""The examination of a loss: it runs on one batch, and a problem is reported in one sentence.

Every rank at the end of a pipeline has a copy of the loss, and calls it once for each of its microbatches, in its own
process. So a loss must be a sum over rows that depends on nothing but the output and the target: it has no weights,
draws no numbers, and keeps no state.

Read next: `examination`, which uses it for a user's model; `carried`, which finds the values that a function reads.
"""

from contextlib import suppress

import torch
from torch import nn

from hybridlab.core.what.seams import draws_of
from hybridlab.training.models.borrowed import read_by
from hybridlab.training.models.carried import carried
from hybridlab.training.models.copies import Fitted, apart
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.left_behind import changed, generators, kept_by_loss, overwritten
from hybridlab.training.models.trees import flat, mapped, rows_of, same
from hybridlab.training.models.words import said, shapes

REPEATED = "each rank calls the loss a different number of times"
A_SUM = 'make it a sum over rows, reduction="sum", without a division by a number of rows or tokens, or pairs of rows'
REMEDY = "keep no state between calls; data can return, together with the targets, everything that depends on the step"


def refuse_loss(loss, outputs, targets):
    """Raise an error for a loss that fails, that is not a number, or that depends on more than its arguments."""
    _refuse_weights(loss)
    one, new = (apart(loss.fitted_to(outputs) if isinstance(loss, Fitted) else loss) for _ in range(2))
    before, states = mapped(torch.clone, (outputs, targets)), generators()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        first = _value(one, outputs, targets)
        if not same((outputs, targets), before):
            raise ValueError(
                "the loss changes its arguments in place, but other calls need them unchanged: write "
                "target = target - 1 instead of target -= 1"
            )
        kept = kept_by_loss(one)
        others = mapped(lambda x: x / 2 if x.is_floating_point() else x, outputs), mapped(_last_everywhere, targets)
        with suppress(Exception):
            one(*others)  # another call in between
        name = overwritten(kept, kept_by_loss(one))  # for example a bank of rows: equal calls write the same values
        again = _value(one, outputs, targets)
        if states != generators():
            raise ValueError(
                "the loss draws random numbers, so ranks would draw different ones: draw them in data(step, rows), "
                "from a generator seeded with the step, or set a network inside the loss to eval()"
            )
    if name := name or changed(kept, kept_by_loss(one)):
        raise ValueError(f"the loss changes {name}, but {REPEATED}: {REMEDY}")
    if not same(first, again):
        raise ValueError(f"the loss returns two numbers for one output, but {REPEATED}: {REMEDY}")
    _refuse_first(new, first, (outputs, targets), others)
    _refuse_read(loss, outputs, targets)


def _refuse_first(new, first, arguments, others):
    """Raise an error for a loss that still uses something of its first call.

    new    the loss before its first call;  first  the value for these arguments, if they are those of the first call
    """
    later = first
    with torch.random.fork_rng(devices=[]), torch.no_grad(), suppress(Exception):  # it may not take other arguments
        new(*others)
        later = new(*arguments)
    if not torch.allclose(later, first, equal_nan=True):
        raise ValueError(
            f"the loss keeps something that it has computed in its first call ({first:.4g} becomes {later:.4g} after "
            "another first call), but every rank has other first rows: compute it in each call, or before the loss is "
            "given"
        )


def _refuse_weights(loss):
    """Raise an error if a loss refers to weights."""
    for name, one in carried(loss):
        if any(x.requires_grad for x in (one.parameters() if isinstance(one, nn.Module) else flat(one))):
            raise ValueError(
                f"the loss has weights ({name}), which would get no gradient: move them into the last layer, return "
                "with the output what the loss needs of other layers, or freeze them with requires_grad_(False)"
            )


def _refuse_read(loss, outputs, targets):
    """Raise an error if a loss computes with weights, however it has found them."""
    leaves = mapped(lambda x: x.detach().requires_grad_() if x.is_floating_point() else x, outputs)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        found = read_by([loss(leaves, targets)])
    given = {id(x) for x in flat(leaves)}
    for weight in (one for one in found if id(one) not in given):
        raise ValueError(
            f"the loss computes with a weight {tuple(weight.shape)}, which would get no gradient: move it into the "
            "last layer, or freeze it with requires_grad_(False)"
        )


def _last_everywhere(x):
    return x[-1:].expand_as(x).clone()


def _value(loss, outputs, targets) -> torch.Tensor:
    """The loss of all rows, a tensor of one number."""
    try:
        whole = loss(outputs, targets)
    except Exception as error:
        raise ValueError(
            f"loss(output, target) fails on {shapes([outputs])} and {shapes([targets])}: {said(error)}"
            f"{_of_another_dtype(loss, outputs)}"
        ) from error
    if not torch.is_tensor(whole):
        raise ValueError(f"the loss returned a {type(whole).__name__}: return a tensor of one number, without .item()")
    if whole.dim():
        raise ValueError(f"the loss has shape {tuple(whole.shape)}: sum it to one number")
    return whole


def _of_another_dtype(loss, outputs) -> str:
    """The remedy for a function that refers to a network: ranks can change the dtype only if the loss is a module."""
    for name, one in carried(loss) if not isinstance(loss, nn.Module) else ():
        of_it = one.parameters() if isinstance(one, nn.Module) else [one]
        if other := next((x.dtype for x in of_it if x.is_floating_point() and x.dtype != flat(outputs)[0].dtype), None):
            dtype = str(other).removeprefix("torch.")
            return f"; it reads {name}, which stays in {dtype}: make the loss an nn.Module that holds {name}"
    return ""


def refuse_means(model, module, layers, takes, made, targets) -> bool:
    """Raise an error for a loss that is a mean: unlike a sum, the mean of all rows is not the sum of the rows' losses.

    made  {layer: its output}, and -1: the inputs

    returns  whether the first dim of the outputs has the rows; in a loss for speech, for example, it may be another dim
    """
    rows, last, draws = len(flat(targets)[0]), len(layers) - 1, draws_of(module)
    row = lambda x, number: rows_of(x, slice(number, number + 1))
    parts = None
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        whole = model.loss(made[last], targets)
        near = {"rtol": max(1e-3, rows * torch.finfo(whole.dtype).eps), "equal_nan": True}
        if all(x.shape[:1] == (rows,) for x in flat(made[last])):
            parts = sum(model.loss(row(made[last], number), row(targets, number)) for number in range(rows))
            if torch.allclose(whole, parts, **near):
                return True
        try:
            other = 0.0
            for draws.row in range(rows):  # dropout draws what it drew for this row
                output = in_sequence(dict(layers), takes, {-1: row(made[-1], draws.row)})[last]
                other = other + model.loss(output, row(targets, draws.row))
        except Exception as error:
            if parts is None:
                raise ValueError(f"loss(output, target) fails on one row: {said(error)}") from error
            other = parts
    draws.row = 0
    if torch.allclose(whole, other, **near):
        return False
    raise ValueError(f"the loss of {rows} rows is {whole:.4g}, but their separate losses sum to {other:.4g}: {A_SUM}")
