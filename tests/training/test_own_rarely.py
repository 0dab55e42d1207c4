"""What the first batch of somebody's own training hides: a bound that is exceeded later, an output without a gradient,
a microbatch in which no row counts, a trace without memory, a `state_dict` with its own names, a weight without dims.

The cases are from kinds of public reports about other libraries: max_norm of embeddings and clamped critics (WGAN)
under DDP, set_materialize_grads and L1 penalties in custom operations, losses of images without objects, torch.func in
a layer, models that rename their weights when they are saved, and scalar weights under FSDP. The other side is plain
PyTorch.
"""

import sys

import cloudpickle
import pytest
import torch
from owned import DP2, PP2, RATE, ROWS, STEPS, data, plain, squares, trained
from torch import nn

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def around(*middle):
    def net(seed):
        return nn.Sequential(nn.Linear(6, 6), *(make() for make in middle), nn.Linear(6, 3))

    return net


# ---- a forward that writes, although nothing changes at first


class Bounded(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.inner, self.write = nn.Linear(6, 6), write
        self.register_buffer("top", torch.tensor(100.0))

    def forward(self, x):
        with torch.no_grad():
            self.write(self, x)
        return self.inner(x) / self.top


class Looked(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 6, max_norm=100.0)

    def forward(self, x):
        return x + self.table((x[:, 0] > 0).long())


WRITES = {
    "a clamp": (lambda: Bounded(lambda one, x: one.inner.weight.clamp_(-9, 9)), "inner.weight"),
    "a clamp of data": (lambda: Bounded(lambda one, x: one.inner.weight.data.clamp_(-9, 9)), "inner.weight"),
    "a maximum": (lambda: Bounded(lambda one, x: one.top.copy_(one.top.maximum(x.max()))), "top"),
    "an output": (lambda: Bounded(lambda one, x: torch.maximum(one.top, x.max(), out=one.top)), "top"),
    "the norms of a table": (Looked, "table.weight"),
}


@pytest.mark.parametrize("case", WRITES)
def test_a_write_that_changes_nothing_yet_is_refused(case):
    """A rank ended with an error of autograd, or trained with other numbers after the bound was exceeded."""
    make, name = WRITES[case]
    says = f"layer 1 .* writes into {name} in its forward, and each microbatch .* without an operation in place"
    with pytest.raises(ValueError, match=says) as found:
        hl.dry_run(PP2, model=around(make)(0), loss=squares, data=data)
    assert "\n" not in str(found.value)


# ---- a backward that mixes rows, in a module that only lists its layers


class Listed(nn.Module):
    def __init__(self, *listed):
        super().__init__()
        self.listed = nn.ModuleList(listed)

    def layers(self):
        return [*self.listed]


class Normed(nn.Module):
    def forward(self, x):
        made = 2 * x
        if made.requires_grad:
            made.register_hook(lambda gradient: gradient / gradient.norm())
        return made


class Added(nn.Module):
    def forward(self, x, y):
        return x + y


@pytest.mark.parametrize(
    "more",
    [
        {"model": Listed(*around(Normed)(0))},
        {"model": nn.Sequential(nn.Linear(6, 3), Normed(), Added()), "skips": {2: 0}},
    ],
)
def test_a_backward_that_mixes_rows_is_refused_where_only_layers_can_be_called(more):
    """Without a forward of the whole module, nothing was compared."""
    with pytest.raises(
        ValueError, match="the model mixes rows: .* compute each row independently in forward, backward"
    ):
        hl.dry_run(DP2, loss=squares, data=data, **more)


# ---- an output without a gradient


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, one, other):
        return 5 * one if other is None else 2 * one + 3 * other


class Penalized(torch.autograd.Function):
    """A penalty that is only a gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + 0.01 * ctx.saved_tensors[0].sign()


class Calling(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.inner, self.call = nn.Linear(6, 6), call

    def forward(self, x):
        return self.call(self.inner(x))


class Taking(nn.Module):
    def __init__(self, take):
        super().__init__()
        self.take = take

    def forward(self, x):
        return self.take(x)


first_of = lambda: Taking(lambda x: x[0])
APART = {
    "a backward that asks for None": (lambda: Calling(Doubled.apply), first_of),
    "a root of zero": (lambda: Calling(lambda x: (x, (0 * x).sum(1).sqrt())), first_of),
    "a penalty behind detach()": (lambda: Calling(Penalized.apply), lambda: Taking(torch.Tensor.detach)),
}


@pytest.mark.parametrize("case", APART)
def test_a_backward_that_tells_no_gradient_from_zeros_is_refused_where_a_stage_ends(case):
    """It trained with other gradients, or ended with a nan."""
    says = "differs where an output of a layer has no gradient .*: a stage then receives zeros .* choose a cut="
    with pytest.raises(ValueError, match=says) as found:
        hl.dry_run(PP2, model=around(*APART[case])(0), loss=squares, data=data, cut=[2, 2])
    assert "\n" not in str(found.value)
    hl.dry_run(PP2, model=around(*APART[case])(0), loss=squares, data=data, cut=[3, 1])  # here no stage sends it


@pytest.mark.ranks
def test_a_penalty_trains_where_its_output_has_a_gradient():
    net = around(lambda: Calling(Penalized.apply), nn.Tanh)
    for schedule in ("1f1b", "zb_h1"):
        got = trained(hl.Model(net, squares, data), PP2, schedule=schedule)
        assert got == pytest.approx(plain(net), rel=1e-9)


# ---- a microbatch in which no row counts


def of_large(output, target):
    large = target > 1.2
    return (output - target).square()[large].sum() if large.any() else torch.zeros(())


@pytest.mark.ranks
@pytest.mark.parametrize("mesh, more", [(PP2, {}), (PP2, {"schedule": "zb_h1"}), (DP2, {"zero": 2})])
def test_a_loss_may_have_no_graph_where_no_row_counts(mesh, more):
    """The comparison with a rank failed in its backward, and half a backward of a stage had no gradients to send."""
    want = plain(around(nn.Tanh), of_large)
    assert trained(hl.Model(around(nn.Tanh), of_large, data), mesh, **more) == pytest.approx(want, rel=1e-9)
    assert hl.check(mesh, model=around(nn.Tanh)(0), loss=of_large, data=data, batch=ROWS, **more).equal


# ---- weights and layers in other forms


class Along(nn.Module):
    """A derivative along a direction, which torch.func computes with tensors that have no memory of their own."""

    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(6, 6), nn.Parameter(torch.tensor(1.5))
        self.used = nn.Parameter(torch.ones(6, dtype=torch.bool), requires_grad=False)

    def forward(self, x):
        made, turned = torch.func.jvp(lambda one: self.inner(one).tanh(), (x,), (torch.ones_like(x),))
        return self.scale * (made + turned) * self.used


class Renaming(nn.Sequential):
    def state_dict(self, *args, **kwargs):
        return {f"net.{name}": x for name, x in super().state_dict(*args, **kwargs).items()}


@pytest.mark.ranks
def test_a_scalar_weight_a_derivative_and_own_names_train_and_go_on_under_another_layout(tmp_path):
    """torch.func had no memory to compare, a truth value no sign, a scalar's averages no shard, and names were lost."""

    def net(seed):
        return Renaming(nn.Linear(6, 6), Along(), nn.Linear(6, 3))

    torch.manual_seed(0)
    own = net(0).double()
    steps = torch.optim.AdamW([x for x in own.parameters() if x.requires_grad], lr=RATE, weight_decay=0.0)
    want = []
    for step in range(STEPS):
        x, y = (one.double() for one in data(step, ROWS))
        loss = squares(own(x), y) / ROWS
        steps.zero_grad()
        loss.backward()
        steps.step()
        want.append(loss.item())
    ask = {"optimizer": "adamw", "checkpoint": tmp_path}
    begun = trained(hl.Model(net, squares, data), PP2, steps=1, schedule="zb_h1", **ask)
    there = {"batch": ROWS, "steps": STEPS, "rate": RATE, "dtype": "float64", "progress": False, "resume": True}
    ended = hl.train(hl.Mesh(pp=2), model=hl.Model(net, squares, data), microbatches=4, **there, **ask)
    assert begun + ended["losses"] == pytest.approx(want, rel=1e-9)
    for name, x in own.named_parameters():
        torch.testing.assert_close(ended["model"].get_parameter(name), x, rtol=1e-8, atol=1e-9)


@pytest.mark.ranks
@pytest.mark.parametrize("zero", [1, 3])
def test_the_averages_of_a_scalar_weight_are_sharded_when_a_run_goes_on(zero, tmp_path):
    def net(seed):
        return nn.Sequential(nn.Linear(6, 6), Scaled(), nn.Linear(6, 3))

    ask = {"optimizer": "adamw"}
    want = trained(hl.Model(net, squares, data), PP2, **ask)
    begun = trained(hl.Model(net, squares, data), PP2, steps=1, checkpoint=tmp_path, **ask)
    there = {"checkpoint": tmp_path, "resume": True, "zero": zero}
    assert begun + trained(hl.Model(net, squares, data), DP2, **there, **ask) == pytest.approx(want, rel=1e-9)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.scale * x


# ---- lists of layers, and traces


@pytest.mark.parametrize(
    "listed, told",
    [(lambda one: [one.enter, torch.tanh], "tanh"), (lambda one: {"enter": one.enter}, "'enter'"), (id, r"\d+")],
)
def test_layers_that_are_no_modules_are_told(listed, told):
    class Listing(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(6, 3)

        def layers(self):
            return listed(self)

    with pytest.raises(ValueError, match=rf"layers\(\) of Listing lists {told}, which is not a module: return a list"):
        hl.dry_run(DP2, model=Listing(), loss=squares, data=data)


class Teaching(nn.Module):
    """The first weights of a layer, kept at the first call as a teacher."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        if not hasattr(self, "first"):
            self.first = self.enter.weight.detach().clone()
        return self.leave(self.enter(x) @ self.first)


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_a_trace_of_a_module_that_keeps_its_first_weights_is_refused():
    with pytest.raises(
        ValueError, match="Teaching keeps something that it computed from its first weights, but a trac"
    ):
        hl.Model.traced(Teaching(), squares, data, cuts=["leave"])
