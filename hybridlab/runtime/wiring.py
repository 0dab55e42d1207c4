"""Wiring: the slots of an action's values, and the partners and tags of its messages; found once, when a player binds
its list.
"""

from hybridlab.core.when.along import ALONG
from hybridlab.core.when.law import makes, takes
from hybridlab.core.when.schedule import Schedule


class Wiring:
    """The slots and messages of one rank's list.

    line     the ranks of its group, by their place in the schedule;  widest  the most tensors on an edge
    numbers  {value: its slot}
    """

    def __init__(self, schedule: Schedule, line: list[int], rank: int, widest: int):
        self.schedule, self.line, self.rank, self.widest, self.numbers = schedule, line, rank, widest, {}

    def slots(self, part) -> tuple[list[int], list[int]]:
        """The slots of an action's inputs and of its outputs, edge by edge."""
        taken, made = takes(part.kind), makes(part.kind)
        # An activation leaves its slot once, for the action that takes it; the work saves it for the other actions.
        taken = [value for value in taken if value != "activation<" or "activation>" in made]
        return self._slots_of(taken, part), self._slots_of(made, part)

    def _slots_of(self, values, part) -> list[int]:
        """The slots of the values that travel on edges."""
        on_edges = [(value[:-1], value[-1]) for value in values if value[-1] in "<>" and value[:-1] not in ALONG]
        return [self._slot(name, edge, part.microbatch) for name, mark in on_edges for edge in self._edges(part, mark)]

    def _edges(self, part, mark) -> list[int]:
        """The numbers of the edges into a stage (<) or out of it (>), without the edge after the model."""
        at = "><".index(mark)
        return [number for number, edge in self.schedule.inside.items() if edge[at] == part.stage]

    def _slot(self, *value) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def message(self, action) -> tuple:
        """(slot, edge, value name, other rank, tag) of a SEND or RECV; a tag is used once in a step."""
        name = "activation" if action.kind.endswith("F") else "gradient"
        (other,) = {*action.edge} - {action.stage}
        edge = self.schedule.edges.index(action.edge)
        number = 2 * (edge * len(self.schedule.replica_of) + action.microbatch) + (name == "activation")
        slot = self._slot(name, edge, action.microbatch)
        return slot, edge, name, self.line[self.schedule.place[other, action.replica]], number * self.widest

    def move(self, action) -> tuple[int, int]:
        """(other rank, tag) of one half of a move of a loan; a tag is used once in a step."""
        one, other = (self.schedule.place[stage, action.replica] for stage in (action.stage, action.peer))
        home = self.line[one] == self.rank
        returns = home == (action.kind == "SWAP_IN")
        each = len(self.schedule.replica_of)
        number = 2 * ((len(self.schedule.edges) + action.stage) * each + action.microbatch) + returns
        return self.line[other if home else one], number * self.widest
