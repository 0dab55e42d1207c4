"""Stages that record their calls: forwards and backwards in order, and the number of forwards held at once.

They also record two mistakes: an input that was not marked, and one that was overwritten before its backward.

A forward is held while autograd keeps a tensor that it saved: until its backward, or until there is no reference to it.
"""

import weakref

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class Watch:
    """The records of one rank's stages: `did`, [(kind, number of the forward in its stage, stage)], and `most` held at
    once.

    unmarked   whether a stage after the first was called with an x for which autograd keeps no gradient
    overwrote  [(number of the forward, stage)] with an x that had changed before its backward

    >>> from hybridlab.labs.engine.toy import microbatches, stage
    >>> watch = Watch()
    >>> watched = Watched(stage(0, stages=1), watch)
    >>> outputs = [watched(x) for x, _ in microbatches(2)]
    >>> for y in outputs:
    ...     y.sum().backward()
    >>> watch.did
    [('F', 0, 0), ('F', 1, 0), ('B', 0, 0), ('B', 1, 0)]
    >>> watch.most, watch.holds
    (2, 0)
    """

    def __init__(self):
        self.did, self.most = [], 0
        self.unmarked, self.overwrote = False, []
        self._held = weakref.WeakSet()

    @property
    def holds(self) -> int:
        """The number of forwards held now."""
        return len(self._held)

    def hold(self, forward: object):
        """Count this forward for as long as the object lives."""
        self._held.add(forward)


class Watched(nn.Module):
    """The stage `inner` with its number, watched."""

    def __init__(self, inner: nn.Module, watch: Watch, number: int = 0):
        super().__init__()
        self.inner = inner
        self._watch, self._number, self._forwards = watch, number, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        which, watch, number = self._forwards, self._watch, self._number
        self._forwards += 1
        watch.did.append(("F", which, number))
        watch.unmarked |= number > 0 and not x.requires_grad
        y, its, came = self._kept(x), x.detach(), x.detach().clone()
        watch.most = max(watch.most, watch.holds)
        if y.requires_grad:
            y.register_hook(lambda _: self._back(which, its, came))
        return y

    def _back(self, which, x, came):
        self._watch.did.append(("B", which, self._number))
        if not torch.equal(x, came):
            self._watch.overwrote.append((which, self._number))

    def _kept(self, x):
        forward = _Forward()
        self._watch.hold(forward)
        # Detached: otherwise the tensors saved for an output would keep the output, and so themselves.
        with saved_tensors_hooks(lambda saved: (forward, saved.detach()), lambda pair: pair[1]):
            return self.inner(x)


class _Forward:
    """One forward: it lives as long as something that autograd saved for it."""
