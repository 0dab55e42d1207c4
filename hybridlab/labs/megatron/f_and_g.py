"""Notebook 30: f and g with images going forward and gradients coming back, drawn from the tensors that real ranks
hold.
"""

import numpy as np

from hybridlab.labs.collectives.on_ranks import images
from hybridlab.show.layouts.tiles import tiles
from hybridlab.show.paper.still import Still


def there_and_back(pool, pair: str) -> Still:
    """A conjugate operation, "f" or "g", with images going forward and gradients coming back, computed by autograd."""
    homes = pool.run(_differentiate, pair, images(pool.size))
    x, y, from_loss, to_x = ([home[name] for home in homes] for name in ("x", "y", "from loss", "to x"))
    told = f"{pair} on {pool.size} ranks: forward it {_effect(x, y)}, backward it {_effect(from_loss, to_x)}"
    steps = [f"{pair} forward", "the loss", f"{pair} backward"]
    return tiles([x, y, from_loss, to_x], steps, ["x", f"{pair}(x)", f"gradient of {pair}(x)", "gradient of x"], told)


def _effect(before, after) -> str:
    """The effect of an operation on the numbers of all ranks, in words."""
    if all(np.array_equal(a, b) for a, b in zip(before, after)):
        return "changes nothing"
    return "sums over the ranks" if all(np.array_equal(b, sum(before)) for b in after) else "does something else"


def _differentiate(comm, pair, shapes):
    """On a rank: f between a tensor that all ranks have and their different work, or g after partial sums; backward.

    A rank's own numbers are 2ʳ, those that all ranks have are 2ᵖ: so a picture shows whose numbers they are.
    """
    import torch

    from hybridlab.world.talk import typed

    mine, alike = 2**comm.rank * torch.tensor(shapes[comm.rank]), 2**comm.size * torch.tensor(shapes[0])
    x, gradient = (alike, mine) if pair == "f" else (mine, alike)
    x = x.requires_grad_()
    y = typed.enter(comm, x, None) if pair == "f" else typed.all_reduce(comm, x, None, to="I")
    y.backward(gradient)
    tensors = {"x": x, "y": y, "from loss": gradient, "to x": x.grad}
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}
