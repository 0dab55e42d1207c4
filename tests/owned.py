"""What tests of one's own model share: data, a loss, three steps of plain autograd, and the same steps on ranks."""

import sys

import cloudpickle
import torch

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import the tests
PP2, DP2 = hl.Mesh(pp=2), hl.Mesh(dp=2)
ROWS, STEPS, RATE = 8, 3, 0.1


def squares(output, target):
    return (output - target).square().sum()


def data(step, rows):
    x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(step))
    return x, x[:, :3].flip(1)


def stepped(model, loss=squares, data=data, dtype=torch.float64):
    """The losses of three steps by plain autograd, of a module that has this dtype."""
    wide = lambda x: x.to(dtype.to_complex() if x.is_complex() else dtype if x.is_floating_point() else x.dtype)
    steps, found = torch.optim.SGD([x for x in model.parameters() if x.requires_grad], lr=RATE), []
    for step in range(STEPS):
        x, y = map(wide, data(step, ROWS))
        value = loss(model(x), y) / ROWS
        steps.zero_grad()
        value.backward()
        steps.step()
        found.append(value.item())
    return found


def plain(make, loss=squares, data=data, dtype=torch.float64):
    """The same losses, of make(0)."""
    torch.manual_seed(0)
    return stepped(make(0).to(dtype), loss, data, dtype)


def trained(model, mesh, dtype="float64", **more):
    """The same losses, on the ranks of a mesh."""
    ask = {"steps": STEPS, "batch": ROWS, "optimizer": "sgd", "rate": RATE, "dtype": dtype, "progress": False}
    return hl.train(mesh, model=model, **ask | {"microbatches": 4} | more)["losses"]
