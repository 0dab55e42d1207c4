"""A student's layer and a student's backward, run on real ranks: numbers, words, and the order of the operations.

The verdict of a rank is a sentence that continues "Rank 0"; it is empty if all is right.
"""

from hybridlab.labs.trials.against import SMALL, against_one_device, gap, words_of
from hybridlab.labs.trials.watched import Watched

# --- the forward from typed collectives ---------------------------------------------------------------------------


@against_one_device
def try_layer(run, answer, case):
    """The student's forward on this rank: answer(comm, x, share, lengths, inner, outer); the backward is autograd's."""
    from hybridlab.labs.axonn.on_ranks import inputs
    from hybridlab.modes.products.grid_layer import block, here, share

    comm, inner, outer = run.comm, case.inner, case.outer
    x, w, sizes, forward, backward = _package(comm, case)
    run.begin()
    y = answer(comm, x, w, sizes, inner, outer)
    X, (W,), G = inputs((case.sizes[0], case.sizes[1:]))
    g, whole = here(comm, G, outer), block(comm, W, inner, outer)
    alone = (x.detach() @ whole.T, "returned a partial sum of Y, from its own inputs. Which ranks have the other "
             "inputs of these rows?")  # fmt: skip
    otherwise = "along which axis are the inputs cut, and so the partial sums?"
    run.result(y, here(comm, X @ W.T, outer), "Y", [alone], otherwise, forward)
    summand = (g @ whole, "its dX is a partial sum, from its own outputs. All ranks along outer have used this x: "
               "which type must x have?")  # fmt: skip
    of_x = "along which axis has x entered, and what do all ranks along inner do with the sum Y?"
    of_w = "along z each rank has used the block for its own rows."
    leaves = {"X": (x, here(comm, G @ W, inner), [summand], of_x),
              "its shard of W": (w, share(comm, G.T @ X, inner, outer), (), of_w)}  # fmt: skip
    run.backward(y, g, "Y", leaves, backward)


def _package(comm, case) -> tuple:
    """(this rank's x, its share of W, the layer's sizes), and the words that the package's layer sends both ways."""
    from hybridlab.labs.axonn.on_ranks import inputs
    from hybridlab.modes.products.grid_layer import GridLinear, here

    X, (W,), G = inputs((case.sizes[0], case.sizes[1:]))
    layer = GridLinear(comm, W, case.inner, case.outer)
    mine = lambda: here(comm, X, case.inner).clone().requires_grad_()
    start = len(comm.ledger)
    y = layer(mine())
    forward, middle = words_of(comm.ledger, start), len(comm.ledger)
    y.backward(here(comm, G, case.outer))
    share = layer.share.detach().clone().requires_grad_()
    return mine(), share, layer.sizes, forward, words_of(comm.ledger, middle)


# --- the overlapped backward --------------------------------------------------------------------------------------


def try_product(comm, answer, case) -> str:
    """The student's autograd function on this rank: answer.apply(x, w, comm, outer), watched in its backward."""
    from hybridlab.labs.axonn.on_ranks import inputs
    from hybridlab.modes.products.grid_layer import block, here

    if not hasattr(answer, "apply"):
        return "has no autograd function: answer with the class itself, a torch.autograd.Function."
    numbers = lambda: inputs((case.sizes[0], case.sizes[1:]))
    x = here(comm, numbers()[0], case.inner).clone().requires_grad_()
    w = block(comm, numbers()[1][0], case.inner, case.outer).clone().requires_grad_()
    g = here(comm, numbers()[2], case.outer)
    seen = []
    y = answer.apply(x, w, Watched(comm, seen), case.outer)
    if gap(y.detach(), x.detach() @ w.detach().T) > SMALL:
        return "has a different forward: leave it as it was, X·Wᵀ of this rank's parts."
    seen.clear()
    with _products(seen, x.numel(), w.numel()):
        y.backward(g)
    _, (W,), G = numbers()
    right, partial = here(comm, G @ W, case.inner), g @ w.detach()
    told = _of_order(seen, case.outer) if comm.mesh[case.outer] > 1 else ""
    return told or _of_products(x, w, right, partial, g.T @ x.detach())


def _products(seen, of_x: int, of_w: int):
    """A context that records matmuls with results as large as X or W, as dX and dW."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), more=None):
            made = function(*args, **(more or {}))
            if function.overloadpacket.__name__ in ("mm", "bmm", "addmm"):
                seen.extend((name, size) for name, size in (("dX", of_x), ("dW", of_w)) if made.numel() == size)
            return made

    return Products()


def _of_order(seen: list[tuple], outer: str) -> str:
    """The mistake in the order of a backward's matmuls, sends and waits."""
    order, axes = [what for what, _ in seen], [axis for what, axis in seen if what == "all_reduce"]
    for one in ("dX", "dW"):
        if order.count(one) != 1:
            return f"computed {one} {order.count(one)} times; its backward has two matmuls, dX and dW, each once."
    if not axes:
        return "sent nothing: its dX is a partial sum, from its own outputs. Along which axis must it be all-reduced?"
    if axes != [outer]:
        told = ", then ".join(f"along {axis}" for axis in axes)
        return f"added {told}; dX is added once, along outer, which is {outer} here."
    if "waited all_reduce" not in order:
        return "never waits for its message: the all-reduce must end before dX is returned."
    if order.index("all_reduce") < order.index("dX"):
        return "began to send before dX was computed: what did it send?"
    if order.index("dW") < order.index("all_reduce"):
        return "began to send after both matmuls: no work is left to overlap with the message."
    if order.index("waited all_reduce") < order.index("dW"):
        return "waited for the all-reduce before it computed dW: all_reduce waits at once, iall_reduce only starts."
    return ""


def _of_products(x, w, right, partial, by_w) -> str:
    """The mistake in dX and dW."""
    for name, mine in (("dX", x), ("dW", w)):
        if mine.grad is None:
            return f"returned None for {name}: return (dX, dW, None, None), one for each argument of forward."
    if gap(x.grad, right) > SMALL:
        if gap(x.grad, partial) < SMALL:
            return "returned its partial sum of dX; `wait` of the message returns the sum."
        return "returned a different dX from that of one device: dX = dY·W, added along outer."
    if gap(w.grad, by_w) > SMALL:
        return "returned a different dW from that of one device: dW = dYᵀ·X, of this rank's rows alone."
    return ""
