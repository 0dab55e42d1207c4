"""A tensor in the memory of a weight, or a weight that another layer reads, is refused: the copy on a rank has another
memory, and both sides of a proof would have such copies."""

import sys

import cloudpickle
import pytest
import torch
from torch import nn

import hybridlab as hl
from hybridlab.training.models.carried import carried

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def squares(output, target):
    return ((output - target) ** 2).sum()


def data(step, rows):
    drawn = torch.Generator().manual_seed(step)
    return [torch.randn(rows, width, generator=drawn, dtype=torch.float64) for width in (4, 3)]


def examine(model, loss=squares):
    hl.dry_run(hl.Mesh(pp=2), model=model, loss=loss, data=data)


class By(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Has(nn.Module):
    """A layer with a matrix, held in one of several ways."""

    def __init__(self, weight, how: str):
        super().__init__()
        if how == "a buffer":
            self.register_buffer("its", weight)
        self.kept = {"nested": [weight]} if how == "an attribute" else {}

    def forward(self, x):
        return x @ (self.kept["nested"][0] if self.kept else self.its).to(x.dtype)


def in_a_class(weight):
    class Closed(nn.Module):
        def forward(self, x):
            return x @ weight.to(x.dtype)

    return Closed()


BESIDE = {
    "a buffer": lambda weight: Has(weight, "a buffer"),
    "an attribute": lambda weight: Has(weight, "an attribute"),
    "a function": lambda weight: By(lambda x: x @ weight.to(x.dtype)),
    "a forward": in_a_class,
}


def net(beside=None, trained=True):
    torch.manual_seed(0)
    first = nn.Linear(4, 4, dtype=torch.float64).requires_grad_(trained)
    layers = [beside(first.weight.detach())] if beside else []
    return nn.Sequential(first, nn.Tanh(), *layers, nn.Linear(4, 3))


@pytest.mark.parametrize("how", BESIDE)
def test_a_tensor_in_the_memory_of_a_weight_is_refused(how):
    """Plain torch would train it along; the copies of ranks, and of one device, would not."""
    with pytest.raises(ValueError, match="is in the memory of the weight 0.weight"):
        examine(net(BESIDE[how]))
    examine(net(lambda weight: BESIDE[how](weight.clone())))
    examine(net(BESIDE[how], trained=False))


class Object:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, output, target):
        return squares(output * self.weight.sum(), target)

    def bound(self, output, target):
        return self(output, target)


LOSSES = {
    "a closure": lambda weight: lambda output, target: squares(output * weight.sum(), target),
    "an object": Object,
    "a method": lambda weight: Object(weight).bound,
    "a module": lambda weight: Weighted(weight),
}


class Weighted(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("its", weight)

    def forward(self, output, target):
        return squares(output * self.its.sum(), target)


@pytest.mark.parametrize("how", LOSSES)
def test_a_loss_with_the_memory_of_a_weight_is_refused(how):
    model = net()
    with pytest.raises(ValueError, match="a tensor of the loss .* is in the memory of the weight 0.weight"):
        examine(model, LOSSES[how](model[0].weight.detach()))
    examine(model, LOSSES[how](model[0].weight.detach().clone()))


@pytest.mark.parametrize("how", ["an object", "a method"])
def test_a_loss_whose_object_has_a_weight_is_refused(how):
    with pytest.raises(ValueError, match="the loss has weights"):
        examine(net(), LOSSES[how](nn.Parameter(torch.ones(3, dtype=torch.float64))))


class Reads(nn.Module):
    def __init__(self, other, read):
        super().__init__()
        self.other, self.read = [other], read

    def forward(self, x):
        return x @ self.read(self.other[0]).to(x.dtype)


READ = {
    "detached": lambda its: its.weight.detach(),
    "data": lambda its: its.weight.data.T,
    "a buffer": lambda its: its.scale,
}


@pytest.mark.parametrize(("read", "hidden"), [*((read, False) for read in READ), ("data", True)])
def test_a_weight_of_another_layer_that_is_read_without_a_gradient_is_refused(read, hidden):
    """The rank with this layer has no numbers for that weight, and would compute with whatever is in its memory."""
    model = net()
    model[0].register_buffer("scale", torch.ones(4, 4, dtype=torch.float64))
    function = lambda x, others=(model[0],): x @ READ[read](others[0]).to(x.dtype)
    model.insert(2, By(function) if hidden else Reads(model[0], READ[read]))
    whose = "the module that was given" if hidden else "layer 0"
    with pytest.raises(ValueError, match=rf"computes with a weight \(4, 4\) of {whose}"):
        examine(model)


def test_every_function_is_looked_into():
    """Each layer's forward is a new bound method: a freed one must not lend its id to the next."""
    known = {}
    for weight in torch.ones(50):
        assert any(one is weight for _, one in carried(Object(weight).bound, known))


def test_a_function_that_returns_no_module_is_refused():
    with pytest.raises(ValueError, match="the function of the seed returned a NoneType: return the nn.Module"):
        examine(lambda seed: None)


class About:
    """An object that is not called: only the attributes that code names count, a property's too."""

    def __init__(self):
        self._net, self.other = nn.Linear(1, 1), nn.Linear(1, 1)

    @property
    def net(self):
        return self._net


def test_what_a_property_reads_is_carried_along():
    about = About()
    assert carried(lambda x: about.net(x)) == [("_net", about._net)]


def test_attributes_that_a_second_function_names_are_carried_along_too():
    about = About()
    first, second = lambda x: about.other(x), lambda x: about._net(first(x))
    assert {id(one) for _, one in carried(second)} == {id(about.other), id(about._net)}
