"""Apply the law to every action of a schedule: the flow of values, in numbers.

All code about order, memory or messages reads a `Flow`: play, validation, lowering, simulation, timelines.
"""

from functools import cached_property, lru_cache

import numpy as np

from hybridlab.core.when.action import CODE, DOWN, KINDS, MESSAGES, SWAPS, Action
from hybridlab.core.when.along import ALONG, along, first_norms, norms, of_a_rank, steps
from hybridlab.core.when.journeys import journeys
from hybridlab.core.when.law import KIND, makes, takes
from hybridlab.core.when.lists import Lists
from hybridlab.core.when.meetings import meetings
from hybridlab.core.when.room import Room, arrows
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.values import BEGIN, END, WIRE, Values


def flow_of(schedule: Schedule, room: Room | None = None) -> "Flow":
    """The flow of a schedule; the last few results are cached."""
    return _flow_of(schedule, room)


@lru_cache(maxsize=4)
def _flow_of(schedule, room):
    return Flow(schedule, room)


class Flow(Values):
    """The law applied to one schedule: the values that every action consumes and produces.

    takes, makes    the values consumed and produced: `Lists` of value numbers, one per action (a fused pair is one)
    rank            the rank of each action;  program: each rank's first action (ranks + 1)
    given           flags: values that need no maker (the initial weights)
    meeting         the meeting that each action must attend, or -1;  attendance  how many actions each one waits for
    room            memory capacity of a device: an action that would not fit also takes `room`, made by the SWAP_OUT
                    that it must wait for (see `core.when.room`);  waits_for  that SWAP_OUT of each action, or -1
    lacks           how much memory each action lacks even after it has waited, or 0

    >>> from hybridlab.core.when.schedule import actions
    >>> toy = Schedule.of("toy", [np.concatenate([actions("F", 0, [0]), actions("B", 0, [0])])], {(0, 0): 0}, 1)
    >>> flow = Flow(toy)
    >>> [flow.describe(value) for value in flow.makes[0]]
    ['activation of stage 0 for microbatch 0', 'saved tensors of 0F0', 'input of 0F0']
    """

    def __init__(self, schedule: Schedule, room: Room | None = None):
        self.schedule, self.room = schedule, room
        columns = np.ascontiguousarray(schedule.rows.T, dtype=np.int32)
        self.kind, self.stage, self.microbatch, self.replica, self.version, self.peer = columns
        kinds = np.flatnonzero(np.bincount(self.kind))
        self.parts_of_kind = {KINDS[code]: np.flatnonzero(self.kind == code) for code in kinds}
        self.lowered = any(kind in self.parts_of_kind for kind in MESSAGES)
        self.first_row, self.rank = np.arange(len(self.kind)), schedule.rank_of
        if schedule.fused:
            self.first_row = np.delete(self.first_row, np.array(schedule.fused) + 1)
            self.rank = self.rank[self.first_row]
        self.program = np.searchsorted(self.first_row, schedule.starts)
        self.actions = len(self.first_row)
        self._find_homes()
        versions = 2 + int(max(self.version.max(initial=0), self._updates.max(initial=0)))
        swaps, copies = len(self.parts_of_kind.get("SWAP_OUT", ())), 2 + 2 * len(self.parts_of_kind.get("UNSHARD", ()))
        longest = 1 + int(self._journeys.max(initial=0)) if any(kind in self.parts_of_kind for kind in SWAPS) else 0
        super().__init__(schedule, versions, copies, swaps, longest, norms(schedule))
        self.takes, self.makes = self._lists(takes), self._lists(makes)
        self.given = np.zeros(self.size, dtype=bool)
        self._give_first_weights()
        self.given[first_norms(self)] = True
        self.meeting, self.attendance = meetings(self)
        if room is not None:
            self.waits_for, self.lacks = arrows(self, room)
            self._take_room()

    def _find_homes(self):
        """The rank of each stage, and the replica of each microbatch."""
        s = self.schedule
        self.home, self._copies = np.full((s.stages + 1, s.replicas), -1), np.zeros((s.stages, s.replicas), np.int32)
        for (stage, replica), rank in s.place.items():
            self.home[stage, replica] = rank
            self._copies[stage, replica] = s.copy_of[stage, replica]
        self.home[-1] = self.home[-2]  # the edge after the model ends where it starts
        self.owner = np.array(s.replica_of)
        # a row without one, or with an impossible one, must not reach into another block
        self._microbatch = np.clip(self.microbatch, 0, len(s.replica_of) - 1)
        self._stage, self._replica = np.clip(self.stage, 0, s.stages - 1), np.clip(self.replica, 0, s.replicas - 1)
        self._copy = self._copies[self._stage, self._replica]

    # the law, term by term

    def _lists(self, side) -> Lists:
        """The values that all actions take, or make: `side` is `law.takes` or `law.makes`."""
        found = []
        for kind, parts in self.parts_of_kind.items():
            found.append((parts, [run for term in side(kind) for run in self._values(term, kind, parts)]))
        return Lists.of_rows(found, len(self.kind), self.dtype).joined(self.first_row)

    def _values(self, term: str, kind: str, parts: np.ndarray):
        """Yield (count, values) for one term of the law over all parts of one kind.

        count   how many values each part has: numbers, flags, or 1 for all;  values  all of them, part after part

        `activation<` of 0F0, 1F0 and 2F0, for example, is ([False, True, True], [what leaves stage 0, what leaves stage
        1]), since nothing comes into stage 0; `saved` is (1, three values).
        """
        away, name, mark = term[0] == "^", term.strip("^<>~*+"), term[-1]
        if name in ALONG:
            number = self._latest[parts] + 1 if kind == "OPT" else steps(self.schedule)[parts]
            yield from along(self, name, mark == "<", parts, number)
        elif mark in "<>":
            yield from self._on_all_edges(name, mark == "<", parts)
        elif mark == "~":
            yield 1, self._on_its_edge(name, away, kind in DOWN, parts)
        elif mark == "*":
            windows = [self._window(part) if kind == "REDUCE_GRAD" else of_a_rank(self, part) for part in parts]
            yield np.array([len(window) for window in windows]), np.concatenate(windows)
        elif name == "whole":
            yield 1, self._whole[parts]
        else:
            yield 1, self._at_rest("^" * away + name)[parts] + (mark == "+")  # the next version is the next number

    # what travels

    def _on_all_edges(self, name, into, parts):
        """Yield (flags, values): the values of the parts on the edges into their stages, or out of them."""
        microbatch = self._microbatch[parts]
        for there, edge in self._edges(self.stage[parts], into):
            if there.all():
                yield 1, self._on_edge(name, edge, END if into else BEGIN, microbatch)
            else:
                yield there, self._on_edge(name, edge[there], END if into else BEGIN, microbatch[there])

    def _on_its_edge(self, name, on_wire, down, parts):
        """The values of messages: each on its own edge, on the wire or at this end of it."""
        stage, peer = self.stage[parts], self.peer[parts]
        edge = stage if down else np.maximum(stage - 1, 0)
        for number, (begin, end) in self._skips():
            here, there = (begin, end) if down else (end, begin)
            edge = np.where((stage == here) & (peer == there), number, edge)
        side = WIRE if on_wire else BEGIN if down else END
        return self._on_edge(name, edge, side, self._microbatch[parts])

    def _edges(self, stage, into):
        """Yield (flags, edges): which stages have an edge into them (or out of them), and its number.

        First the chain, in which edge i leads from stage i to stage i + 1 unless it is a break; then one skip after the
        other.
        """
        edge = stage - int(into)
        yield (edge >= 0) & ~self._broken[edge], edge
        for number, skip in self._skips():
            yield stage == skip[into], np.full_like(stage, number)

    @cached_property
    def _broken(self):
        """One flag per edge of the chain: is it a break?"""
        return np.isin(np.arange(self.schedule.stages), [begin for begin, _ in self.schedule.breaks])

    def _skips(self):
        return enumerate(self.schedule.skips, start=self.schedule.stages)

    def _on_edge(self, name, edge, side, microbatch):
        """The numbers of travelling values at one end of their edges. A value that never leaves its rank stays at
        `BEGIN`.
        """
        if not self.lowered:
            side = BEGIN
        elif side != BEGIN:
            side = self._travels[edge, self.owner[microbatch]] * np.int32(side)
        value = self.number(name, edge, side, microbatch)
        if name == "gradient":  # after the model the gradient is the activation
            back = self.block["gradient"] - self.block["activation"]
            np.subtract(value, back, out=value, where=edge == self.schedule.stages - 1)
        return value

    @cached_property
    def _travels(self):
        """travels[edge, replica]: does the edge lead to another rank, or are tokens exchanged on it?"""
        begin, end = self.edges.T
        return (self.home[begin] != self.home[end]) | self.exchanged[:, None]

    @cached_property
    def exchanged(self) -> np.ndarray:
        """One flag per edge: are tokens exchanged on it, inside its rank?"""
        return np.array([edge in self.schedule.exchanges for edge in self.schedule.edges])

    def crossing(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows, edges, down): every row that makes a value for another rank, and the edge it travels on, down or up.

        >>> flow = Flow(Schedule.from_csv("0F0,0B0\\n1F0,1B0"))
        >>> [column.tolist() for column in flow.crossing()]  # what 0F0 and 1B0 make
        [[0, 3], [0, 0], [True, False]]
        """
        found = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=bool))]
        for kind, parts in self.parts_of_kind.items():
            travelling = [value for value in makes(kind) if KIND[kind].microbatch and value[-1] in "<>"]
            for mark in (value[-1] for value in travelling):
                for there, edge in self._edges(self.stage[parts], into=mark == "<"):
                    rows, edge = parts[there], edge[there]
                    away = self._travels[edge, self.owner[self._microbatch[rows]]]
                    found.append((rows[away], edge[away], np.full(away.sum(), mark == ">")))
        rows, edges, down = map(np.concatenate, zip(*found))
        return rows, edges, down

    # what stays on a stage

    def _at_rest(self, name) -> np.ndarray:
        """For every row, the number of its value of this name, which belongs to a stage."""
        if name == "weights":
            return self.number(name, self.stage, self._copy, self._latest)
        if name == "summed":
            return self.number(name, self.stage, self._copy, np.maximum(self.version, 0))
        if name == "weight_gradient":
            return self.number(name, self.stage, self._microbatch)
        if name == "room":
            return self.number(name, np.cumsum(self.kind == CODE["SWAP_OUT"]) - 1)
        return self._saved + self.block[name]

    @cached_property
    def _saved(self):
        """The position of each row's values of the `VERSIONED` names in their blocks, which have the same shape."""
        where = self.stage, self._microbatch, np.maximum(self.version, 0), self._journeys
        return self.number("saved", *where) - self.block["saved"]

    @cached_property
    def _journeys(self):
        """For every row, the number of journeys of its forward's saved activations before it in its program."""
        lent = (self.peer >= 0) & np.isin(self.kind, [CODE[kind] for kind in SWAPS])
        there = self.schedule.rank_of != self.home[self._stage, self._replica]
        return journeys(self.kind, self.stage, self.microbatch, np.maximum(self.version, 0), lent, there)

    @cached_property
    def _whole(self):
        """The weights that computing on a stage needs: the gathered copy if it is sharded, else its weights."""
        weights = self._at_rest("weights")
        if "UNSHARD" not in self.parts_of_kind:
            return weights
        gathered = self.number("whole", self.stage, self._copy, self._gathered)
        return np.where(self._sharded[self.stage], gathered, weights)

    def _window(self, part) -> np.ndarray:
        """The weight gradients that a REDUCE_GRAD takes: of all copies of its stage on its rank, in its window."""
        s, version, values = self.schedule, self.version[part], [np.zeros(0, dtype=np.int32)]
        for stage, replica in self.copies(self.stage[part]):
            if s.place[stage, replica] == s.rank_of[part]:
                mine = np.flatnonzero(self.owner == replica).astype(np.int32)
                if version >= 0:
                    mine = mine[mine // s.windows[stage] == version]
                values.append(self.number("weight_gradient", stage, mine))
        return np.concatenate(values)

    def copies(self, stage: int) -> list[tuple[int, int]]:
        """The (stage, replica) places whose weight gradients are one sum: replicas, and tied stages."""
        group = next((group for group in self.schedule.tied if stage in group), (stage,))
        return sorted(place for place in self.schedule.place if place[0] in group)

    def _count_before(self, kind: str) -> np.ndarray:
        """For every row, how many actions of this kind on its stage are before it in its program."""
        rows, count = self.schedule.rows, np.zeros(len(self.schedule.rows), dtype=np.int32)
        for at in self.parts_of_kind.get(kind, ()):
            after = slice(at + 1, self.schedule.starts[self.schedule.rank_of[at] + 1])
            count[after] += rows[after, 1] == rows[at, 1]
        return count

    @cached_property
    def _updates(self):
        """The number of updates that the weights of each row have had before it in its program."""
        return self._count_before("OPT")

    @cached_property
    def _latest(self):
        """The version of the weights that each row uses: the one it states, else the latest in its rank's program."""
        return np.where(self.version >= 0, self.version, self._updates)

    @cached_property
    def _sharded(self):
        """One flag per stage: are its weights gathered before use?"""
        return np.isin(np.arange(self.schedule.stages), self.stage[self.parts_of_kind.get("UNSHARD", [])])

    @cached_property
    def _gathered(self):
        """The gathered copy that each row uses, as a number that grows with each gather and each free.

            0UNSHARD 0F0 0RESHARD 0F1 0UNSHARD 0B0 0RESHARD
                1     1      1     2      3     3      3

        UNSHARD makes the odd copies. No action makes an even one, here that of 0F1: the weights have been freed.
        """
        before = self._count_before("UNSHARD") + self._count_before("RESHARD")
        return np.minimum(before + (self.kind == CODE["UNSHARD"]), self.shape["whole"][-1] - 1)

    def _give_first_weights(self):
        stage, replica = np.array(list(self.schedule.place)).T
        self.given[self.number("weights", stage, self._copies[stage, replica], 0)] = True

    def _take_room(self):
        """An action that waits for a SWAP_OUT takes the `room` that it makes. An action that still lacks memory takes a
        value that no action makes."""
        outs = self.action_of[self.parts_of_kind.get("SWAP_OUT", np.zeros(0, dtype=np.int64))]
        takers = np.flatnonzero((self.waits_for >= 0) | (self.lacks > 0))
        number = np.where(self.lacks > 0, len(outs), np.searchsorted(outs, self.waits_for))
        self.takes = self.takes.longer(takers, self.number("room", number[takers]))

    @cached_property
    def action_of(self) -> np.ndarray:
        """The action that each row belongs to."""
        return np.searchsorted(self.first_row, np.arange(len(self.kind)), side="right") - 1

    @cached_property
    def maker(self) -> np.ndarray:
        """The action that makes each value; -1 if none does."""
        maker = np.full(self.size, -1)
        maker[self.makes.values] = self.makes.owners
        return maker

    def action(self, number: int) -> Action:
        """Action `number` as an `Action`; a fused pair is one."""
        rank = self.rank[number]
        return self.schedule.program[rank][number - self.program[rank]]
