"""What this process has changed in modules is missing on ranks: it is told, and not trained without it.

The cases are from public reports about other libraries: BigDL #6307 (a patch without effect in processes), fairseq
#449 (modules that processes have not imported), dask/distributed #3882 (a setting that workers do not read).
"""

import string
import sys
from contextlib import contextmanager

import cloudpickle
import pytest
from owned import PP2, data, squares
from torch import nn

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def digits():
    return float(len(string.digits))


def scaled_squares(output, target):
    return squares(output, target) * digits()


def scaled_data(step, rows):
    x, y = data(step, rows)
    return x * digits(), y


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return self.inner(x) * digits()


def net(seed, middle=nn.Tanh):
    return nn.Sequential(nn.Linear(6, 6), middle(), nn.Linear(6, 3))


def with_scale(seed):
    return net(seed, Scaled)


def more(seed):
    return nn.Sequential(*net(seed), *(nn.Linear(3, 3) for _ in range(len(string.digits) - 10)))


def smaller(seed):
    model = net(seed)
    model[0].weight.data /= digits()
    return model


def by_a_setting(patch):
    patch.setattr(string, "digits", "01234567890")


def by_a_replaced_function(patch):
    patch.setattr(nn.Tanh, "forward", lambda layer, x: x.sin())


@contextmanager
def hooked():
    """With a hook on all modules."""
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, _, made: 2 * made if isinstance(module, nn.Tanh) else None
    )
    yield
    hook.remove()


CHANGED = {  # a change, a model, a loss, data, and what is said
    "a setting of a layer": (by_a_setting, with_scale, squares, data, r"has another output of layer 1 \(Scaled\)"),
    "a setting of the loss": (by_a_setting, net, scaled_squares, data, "has another loss"),
    "a setting of data": (by_a_setting, net, squares, scaled_data, "gets other inputs"),
    "a setting of weights": (by_a_setting, smaller, squares, data, "begins with another 0.weight"),
    "a setting of the model": (by_a_setting, more, squares, data, "has other weights or layers"),
    "a replaced function": (by_a_replaced_function, net, squares, data, r"has another output of layer 1 \(Tanh\)"),
}


@pytest.mark.ranks
@pytest.mark.parametrize("case", CHANGED)
def test_what_this_process_has_changed_is_missed_on_ranks(case, monkeypatch):
    """It was trained without the change, and the check said equal."""
    change, make, loss, batches, said = CHANGED[case]
    change(monkeypatch)
    model = hl.Model(make, loss, batches)
    with pytest.raises(ValueError, match=f"on a rank, this model {said}. Ranks import modules again"):
        hl.train(PP2, model=model, batch=8, microbatches=4, steps=1, progress=False)


@pytest.mark.ranks
@pytest.mark.parametrize("verb", [hl.check, hl.train])
def test_hooks_on_all_modules_are_missed(verb):
    more = {"steps": 1, "progress": False} if verb is hl.train else {}
    with hooked(), pytest.raises(ValueError, match=r"has another output of layer 1 \(Tanh\)"):
        verb(PP2, model=hl.Model(net, squares, data), batch=8, microbatches=4, **more)


def changing(seed):
    """The remedy: each process makes the change itself."""
    string.digits = "01234567890"
    return net(seed, Scaled)


@pytest.mark.ranks
def test_a_function_of_the_seed_may_make_the_change(monkeypatch):
    monkeypatch.setattr(string, "digits", string.digits)  # to restore it
    assert hl.check(PP2, model=hl.Model(changing, squares, data), batch=8, microbatches=4).ok
