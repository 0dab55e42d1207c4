"""Measure the bytes that forwards save for their backwards, when they are saved and when they are freed.

Autograd passes every tensor that it saves to a pair of hooks. Our hook returns it in a wrapper, so that we notice when
it is freed. Memory counts once, even if several tensors are views of it. Weights do not count, since they exist anyway.

See also `predict.bytes.saved` (the same by formula) and notebook 02.
"""

from torch.autograd.graph import saved_tensors_hooks


class Saved(saved_tensors_hooks):
    """A count of the bytes that autograd saves while a `with` block runs: `now` are held, and `peak` is the maximum.

    weights  tensors that do not count

    >>> import torch
    >>> x = torch.ones(10, requires_grad=True)
    >>> with Saved([x]) as saved:
    ...     y = (x.exp() * x).sum()  # the result of exp is kept
    >>> y.backward()
    >>> saved.peak, saved.now
    (40, 0)
    """

    def __init__(self, weights=()):
        self.now = self.peak = 0
        self._weights = {_place(weight) for weight in weights}
        self._holders = {}  # {place in memory: how many hold it}
        super().__init__(lambda x: x if _place(x) in self._weights else _Held(x, self), _found)

    def __enter__(self):
        super().__enter__()
        return self

    def _come(self, x):
        place = _place(x)
        self._holders[place] = self._holders.get(place, 0) + 1
        if self._holders[place] == 1:
            self.now += x.untyped_storage().nbytes()
            self.peak = max(self.peak, self.now)

    def _gone(self, x):
        place = _place(x)
        self._holders[place] -= 1
        if not self._holders[place]:
            del self._holders[place]
            self.now -= x.untyped_storage().nbytes()


class _Held:
    """A saved tensor that reports when it is freed."""

    def __init__(self, x, saved):
        self.x, self.saved = x, saved
        saved._come(x)

    def __del__(self):
        self.saved._gone(self.x)


def _found(held):
    return held.x if isinstance(held, _Held) else held


def _place(x):
    return x.untyped_storage().data_ptr()
