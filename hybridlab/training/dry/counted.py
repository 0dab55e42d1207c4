"""A trainer that counts the memory of its rank by kind, action by action (`core.dry.KINDS`).

It works the same with any communicator, also on real ranks: so a dry run can be compared with a real one.
"""

import gc
from functools import partial

import torch
from torch.utils._pytree import tree_leaves

from hybridlab.runtime.work import ModelWork
from hybridlab.training import loop
from hybridlab.training.dry.alive import Alive, Held
from hybridlab.training.models.draws import tensors_of
from hybridlab.training.models.trees import flat

NEVER = -1  # the number of a step after which no exchange is sent


class CountedWork(ModelWork):
    """The work of a stage, with a record of the memory after every action.

    alive  the count;  marks  (an action, the number of its last operation), in order
    """

    def __init__(self, alive: Alive, *about, **more):
        super().__init__(*about, **more)
        self.alive, self.marks = alive, []
        alive.forget(alive.of(x for room in self.rooms.values() for x in room))
        self.left: dict[tuple[int, int], list[Held]] = {}  # by stage and microbatch: the saved storages

    def bind(self, action, part):
        return partial(self._noted, action, part, super().bind(action, part))

    def room(self, edge, name):
        return self.in_flight(super().room, edge, name)

    def reduce(self, comm, action):
        return self.in_flight(super().reduce, comm, action)

    def unshard(self, comm, action):
        return self.in_flight(super().unshard, comm, action)

    def mark(self, what: str):
        """Record that an action is done."""
        self.marks.append((what, self.alive.tick()))

    def in_flight(self, make, *about):
        """Call a function whose memory all belongs to messages."""
        self.alive.came()
        made = make(*about)
        self.alive.name("in flight", self.alive.came())
        return made

    def _noted(self, action, part, call, arrived):
        alive, at = self.alive, (part.stage, part.microbatch)
        alive.came()
        entered = alive.of(tree_leaves(arrived))
        leaving = call(arrived)
        came, left = alive.came(), alive.of(tree_leaves(leaving))
        if part.kind in ("F", "R"):
            entered += alive.of(x for x in tree_leaves(self.kept[at][0]) if x.requires_grad)
            alive.name("activations", entered, from_now=True)
            alive.name("activations", came)
            self.left[at] = self.left.get(at, []) + entered + came
        elif part.kind == "C":
            alive.name("activations", entered, from_now=True)
            alive.name("in flight", came)
            self.left[at] = entered
        else:
            self._after_backward(part, at, came, left)
        if part is action.each[-1]:
            self.mark(str(action))
        return leaving

    def _after_backward(self, part, at, came, left):
        """The results of a backward, of one of its halves, or of an update; saved tensors may be in messages."""
        alive = self.alive
        kept = {"I": "activations", "OPT": "weights"}.get(part.kind, "gradients")
        alive.name(kept, came)
        alive.name("in flight", left)
        if part.kind == "I":
            self.left[at] += came
        elif part.kind in ("B", "W"):
            alive.name("in flight", self.left.pop(at), from_now=True)


class Counted(loop.Trainer):
    """A trainer whose memory is counted; it is created and runs its steps inside its `alive`."""

    def __init__(self, comm, job, alive: Alive):
        self.alive = alive
        super().__init__(comm, job)

    def _module(self):
        """The module. Only the parts that this rank holds have memory; the others have names and shapes."""
        module, boxes = super()._module(), self.job.boxes(self.comm.rank)
        mine = set(self.alive.of(x for name, x in tensors_of(module).items() if name in boxes))
        self.alive.forget([one for one in [*self.alive.held.values()] if one not in mine])
        return module

    def works(self, *about) -> CountedWork:
        return CountedWork(self.alive, *about)

    def whole_step(self):
        """Run one step as in later training: the optimizer state exists from the start. Returns the number of the last
        operation before it."""
        self._rehearse()
        if self.job.norms:  # a step may begin with the end of the one before
            super().gradients(0)
            self.update()
        gc.collect()  # objects from the trainer's creation that are in reference cycles
        self._name_what_stays()
        self.comm.ledger.clear()
        self.work.marks.clear()
        before, ends = self.alive.operations, self.job.keeper.busiest(self.job, self.comm.rank)
        if self.job.flushes and self.weights.hides:  # what was sent after the last step is under way in this one
            self.work.in_flight(self.weights.stepped, ends)
            ends = NEVER
        self.gradients(0)
        if self.job.flushes:
            self.work.draws.step = ends
            self.update()
            self.work.mark("update")
        self._name_what_stays()
        return before

    def _rehearse(self):
        """Make the optimizer create its state: by gradients of zero, or by a step of a schedule with updates."""
        if not self.job.flushes:
            self.gradients(0)
            return
        for share in self.parameters.values():
            share.grad = torch.zeros_like(share)
        self.optimizer.step()
        self.work.in_flight(self.weights.begun_before, self.job.keeper.busiest(self.job, self.comm.rank))

    def gradients(self, step):
        found = super().gradients(step)
        made = [weight.grad for weight in self.parameters.values() if weight.grad is not None]
        self.alive.name("gradients", self.alive.of(made), from_now=True)
        self.work.mark("sums")
        return found

    def _batch(self, step, unseen=False):
        both = super()._batch(step, unseen)
        self.alive.name("data", self.alive.of(x for microbatches in both for one in microbatches for x in flat(one)))
        return both

    def _name_what_stays(self):
        modules, shares = self.weights.stages.values(), list(self.parameters.values())
        computing = [x for module in modules for x in (*module.parameters(), *module.buffers())]
        state = [x for one in self.optimizers for its in one.state.values() for x in its.values() if torch.is_tensor(x)]
        state += self.weights.besides if self.job.flushes else []
        state += self.work.step.besides if self.job.norms else []
        self.alive.name("optimizer", self.alive.of([*state, *shares]))
        self.alive.name("weights", self.alive.of([*computing, *self.alone]))
