"""The flow of values through a schedule: the law, applied to every action, in numbers.

Everything that asks about order, memory or messages reads a `Flow`: play, validation, lowering, simulation, timelines.
"""

from functools import cached_property

import numpy as np

from hybridlab.core.action import CODE, DOWN, KINDS, MESSAGES
from hybridlab.core.law import makes, takes
from hybridlab.core.lists import Lists
from hybridlab.core.schedule import Schedule

MADE_ON_ARRIVAL = {"activation": 2, "gradient": 0}  # which end of its edge a travelling value arrives at
VERSIONED = {"saved": "saved tensors", "input": "input", "kept": "kept tensors"}  # and what they are called


class Flow:
    """The law applied to one schedule: which values every action takes and makes, as numbered values.

    takes, makes    `Lists` of value numbers, one list per action (a fused pair is one action)
    rank            the rank of each action;  program: each rank's first action (ranks + 1)
    given           flags: values that need no maker (the first weights)
    meeting         the meeting that each action must attend, or -1 (see `meetings`)

    >>> from hybridlab.core.schedule import actions
    >>> toy = Schedule.of("toy", [np.concatenate([actions("F", 0, [0]), actions("B", 0, [0])])], {(0, 0): 0}, 1)
    >>> flow = Flow(toy)
    >>> [flow.describe(value) for value in flow.makes[0]]
    ['activation of stage 0 for microbatch 0', 'saved tensors of 0F0', 'input of 0F0']
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
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
        self._lay_out_values()
        self.takes, self.makes = self._lists(takes), self._lists(makes)
        self.given = np.zeros(self.size, dtype=bool)
        self._give_first_weights()
        self.meeting = self._meetings()

    def _lay_out_values(self):
        """Give every possible value a number: one block of numbers per name, addressed by mixed radix."""
        s = self.schedule
        self.edges = np.array(s.edges)
        versions = 2 + int(max(self.version.max(initial=0), self._updates.max(initial=0)))
        copies = 2 + 2 * len(self.parts_of_kind.get("UNSHARD", ()))
        edge = (len(self.edges), 3, len(s.replica_of))
        saved = (s.stages, len(s.replica_of), versions)
        self.shape = {
            "activation": edge, "gradient": edge, **dict.fromkeys(VERSIONED, saved),
            "weight_gradient": (s.stages, len(s.replica_of)),
            **dict.fromkeys(("summed", "weights"), (s.stages, s.replicas, versions)),
            "whole": (s.stages, s.replicas, copies),
        }  # fmt: skip
        sizes = [int(np.prod(shape)) for shape in self.shape.values()]
        ends = np.cumsum(sizes)
        self.block = dict(zip(self.shape, (ends - sizes).tolist()))
        self.size = int(ends[-1])
        self.dtype = np.int32 if self.size < 2**31 else np.int64  # half the memory is nearly twice the speed
        self.home = np.full((s.stages + 1, s.replicas), -1)
        for (stage, replica), rank in s.place.items():
            self.home[stage, replica] = rank
        self.home[-1] = self.home[-2]  # the edge behind the model ends where it starts
        self.owner = np.array(s.replica_of)
        # a row that states none, or an impossible one, must not reach into another block
        self._microbatch = np.clip(self.microbatch, 0, len(s.replica_of) - 1)
        self._replica = np.clip(self.replica, 0, s.replicas - 1)

    def _number(self, name, *where):
        """The number of a value, from its place in the block of its name."""
        number = np.asarray(where[0], self.dtype)
        for size, at in zip(self.shape[name][1:], where[1:]):
            number = number * size + np.asarray(at, self.dtype)
        return number + self.block[name]

    def _lists(self, side) -> Lists:
        """What all actions take, or make: `side` is `law.takes` or `law.makes`."""
        lists = []
        for kind, parts in self.parts_of_kind.items():
            lists.append((parts, [found for term in side(kind) for found in self._values(term, kind, parts)]))
        return Lists.gathered(lists, self.first_row, len(self.kind), self.dtype)

    def _values(self, term: str, kind: str, parts: np.ndarray):
        """Yield (count, values) for one term of the law over all parts of one kind.

        count   how many values each part has: an array, or 1 for all;  values  all of them, part after part
        """
        on_wire, name, mark = term[0] == "^", term.strip("^<>~*+"), term[-1]
        if mark == "*":
            windows = [self._window(part) for part in parts]
            yield np.array([len(window) for window in windows]), np.concatenate(windows)
        elif mark in "<>~":
            yield from self._travelling(name, mark, on_wire, kind, parts)
        elif name == "whole":
            yield 1, self._whole[parts]
        else:
            yield 1, self._at_rest(name)[parts] + (mark == "+")  # the next version is the next number

    def _travelling(self, name, mark, on_wire, kind, parts):
        stage, microbatch, into = self.stage[parts], self._microbatch[parts], mark == "<"
        if mark == "~":
            upstream = kind in DOWN
            yield 1, self._on_edge(name, self._message_edge(parts, upstream), not upstream, microbatch, on_wire)
            return
        if into:
            some = np.flatnonzero(stage > 0)
            yield stage > 0, self._on_edge(name, stage[some] - 1, into, microbatch[some])
        else:
            yield 1, self._on_edge(name, stage, into, microbatch)
        for number, skip in enumerate(self.schedule.skips, start=self.schedule.stages):
            on_it = stage == skip[into]
            yield on_it, self._on_edge(name, np.full(on_it.sum(), number), into, microbatch[on_it])

    def _at_rest(self, name) -> np.ndarray:
        """For every row, the number of the value of this name that it means: one that belongs to a stage."""
        if name == "weights":
            return self._number(name, self.stage, self._replica, self._latest)
        if name == "summed":
            return self._number(name, self.stage, self._replica, np.maximum(self.version, 0))
        if name == "weight_gradient":
            return self._number(name, self.stage, self._microbatch)
        return self._saved + self.block[name]

    @cached_property
    def _saved(self):
        """Where each row's values of the `VERSIONED` names stand in their blocks, which are alike."""
        where = self.stage, self._microbatch, np.maximum(self.version, 0)
        return self._number("saved", *where) - self.block["saved"]

    @cached_property
    def _whole(self):
        """What computing on a stage needs: its gathered copy, where it is sharded, else its weights as they are."""
        weights = self._at_rest("weights")
        if "UNSHARD" not in self.parts_of_kind:
            return weights
        gathered = self._number("whole", self.stage, self._replica, self._gathered)
        return np.where(self._sharded[self.stage], gathered, weights)

    def _on_edge(self, name, edge, at_its_end, microbatch, on_wire=False):
        """Where a travelling value is: 0 at the edge's beginning, 1 on the wire, 2 at its end; one place if unsent."""
        where = 0
        if self.lowered:
            where = self._travels[edge, self.owner[microbatch]] * np.int32(1 if on_wire else 2 * at_its_end)
        value = self._number(name, edge, where, microbatch)
        if name == "gradient":  # behind the model the gradient is the activation
            back = self.block["gradient"] - self.block["activation"]
            np.subtract(value, back, out=value, where=edge == self.schedule.stages - 1)
        return value

    @cached_property
    def _travels(self):
        """travels[edge, replica]: does the edge lead to another rank?"""
        begin, end = self.edges.T
        return self.home[begin] != self.home[end]

    def _message_edge(self, parts, upstream):
        stage, peer = self.stage[parts], self.peer[parts]
        edge = np.where(upstream, stage, stage - 1)
        for number, (begin, end) in enumerate(self.edges[self.schedule.stages :], start=self.schedule.stages):
            edge[(peer == (end if upstream else begin)) & (stage == (begin if upstream else end))] = number
        return np.clip(edge, 0, None)

    def _window(self, part) -> np.ndarray:
        """The weight gradients that one REDUCE_GRAD takes: of all copies of its stage on its rank, in its window."""
        s, version, values = self.schedule, self.version[part], [np.zeros(0, dtype=np.int32)]
        for stage, replica in self.copies(self.stage[part]):
            if s.place[stage, replica] == s.rank_of[part]:
                mine = np.flatnonzero(self.owner == replica).astype(np.int32)
                if version >= 0:
                    mine = mine[mine // s.window == version]
                values.append(self._number("weight_gradient", stage, mine))
        return np.concatenate(values)

    def copies(self, stage: int) -> list[tuple[int, int]]:
        """The (stage, replica) places whose weight gradients are one sum: replicas, and tied stages."""
        group = next((group for group in self.schedule.tied if stage in group), (stage,))
        return sorted(place for place in self.schedule.place if place[0] in group)

    def _count_before(self, kind: str) -> np.ndarray:
        """For every row, how many actions of this kind on its stage and replica stand before it in its program."""
        rows, count = self.schedule.rows, np.zeros(len(self.schedule.rows), dtype=np.int32)
        for at in self.parts_of_kind.get(kind, ()):
            after = slice(at + 1, self.schedule.starts[self.schedule.rank_of[at] + 1])
            count[after] += (rows[after, 1] == rows[at, 1]) & (rows[after, 3] == rows[at, 3])
        return count

    @cached_property
    def _updates(self):
        """How often the weights that each row finds have been updated in its program."""
        return self._count_before("OPT")

    @cached_property
    def _latest(self):
        """The version of the weights that each row finds: the one it states, else the latest in its own program."""
        return np.where(self.version >= 0, self.version, self._updates)

    @cached_property
    def _sharded(self):
        """One flag per stage: are its weights gathered before use?"""
        return np.isin(np.arange(self.schedule.stages), self.stage[self.parts_of_kind.get("UNSHARD", [])])

    @cached_property
    def _gathered(self):
        """Which gathered copy each row finds: odd while one is open, even (never made) when it has been let go."""
        opens = self.schedule.rows[:, 0] == CODE["UNSHARD"]
        found = self._count_before("UNSHARD") + self._count_before("RESHARD") + opens
        return np.minimum(found, self.shape["whole"][-1] - 1)

    def _give_first_weights(self):
        stage, replica = np.array(list(self.schedule.place)).T
        self.given[self._number("weights", stage, replica, 0)] = True

    def _meetings(self):
        """Which actions end together: every rank that holds a copy of a stage joins its REDUCE_GRAD."""
        meeting, numbers, self._attendance = np.full(self.actions, -1), {}, []
        for part in self.parts_of_kind.get("REDUCE_GRAD", []):
            copies = self.copies(self.stage[part])
            if len({self.schedule.place[copy] for copy in copies}) > 1:
                key = (copies[0], int(self.version[part]))
                if key not in numbers:
                    numbers[key] = len(numbers)
                    self._attendance.append(len(copies))
                meeting[self.action_of[part]] = numbers[key]
        return meeting

    def attendance(self, meeting: int) -> int:
        """How many actions a meeting waits for: one for each copy of the stage."""
        return self._attendance[meeting]

    @property
    def meetings(self) -> int:
        """How many meetings there are."""
        return len(self._attendance)

    @cached_property
    def action_of(self) -> np.ndarray:
        """The action that each row belongs to."""
        return np.searchsorted(self.first_row, np.arange(len(self.kind)), side="right") - 1

    @cached_property
    def maker(self) -> np.ndarray:
        """The action that makes each value; -1 where none does."""
        maker = np.full(self.size, -1)
        maker[self.makes.values] = self.makes.owners
        return maker

    def action(self, number: int):
        """Action `number` as an `Action`, fused pairs whole."""
        rank = self.rank[number]
        return self.schedule.program[rank][number - self.program[rank]]

    def named(self, name: str) -> slice:
        """The value numbers of one name."""
        return slice(self.block[name], self.block[name] + int(np.prod(self.shape[name])))

    def lives(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(made, freed): for every action, how many values of one name it makes, and is the last to take."""
        block = self.named(name)
        made = (self.makes.values >= block.start) & (self.makes.values < block.stop)
        taken = (self.takes.values >= block.start) & (self.takes.values < block.stop)
        last = np.zeros(self.size, dtype=np.int64)
        np.maximum.at(last, self.takes.values[taken], self.takes.owners[taken])
        freed = last[np.unique(self.takes.values[taken])]
        return tuple(np.bincount(one, minlength=self.actions) for one in (self.makes.owners[made], freed))

    def held(self, name: str) -> list[np.ndarray]:
        """For every rank, how many values of one name it holds while it does each of its actions.

        A value is there from its maker on (a given one from the start) until the last action that takes it, or, if none
        does, to the end. An action makes before it frees; only an update writes new weights over those it takes.
        """
        made, freed = self.lives(name)
        given = np.zeros(self.schedule.ranks, dtype=np.int64)
        block = self.named(name)
        for value in np.flatnonzero(self.given[block]) + block.start:
            stage, replica, _ = self._where(name, value)
            given[self.schedule.place[stage, replica]] += 1
        during = np.maximum(made - freed, 0) if name == "weights" else made
        return [
            given[rank] + np.cumsum((made - freed)[a:b]) - (made - freed)[a:b] + during[a:b]
            for rank, (a, b) in enumerate(zip(self.program, self.program[1:]))
        ]

    def _where(self, name, value) -> list[int]:
        return [int(i) for i in np.unravel_index(value - self.block[name], self.shape[name])]

    def edge_of(self, value):
        """The edge on which a travelling value (an activation or a gradient) lives; also for arrays of values."""
        edges, sides, microbatches = self.shape["activation"]
        return value // (sides * microbatches) % edges

    def unsent(self, value):
        """The number that a travelling value has where the same program's messages are not written out."""
        _, sides, microbatches = self.shape["activation"]
        return value - value // microbatches % sides * microbatches

    def on_every_edge(self, numbers) -> np.ndarray:
        """One number per edge → one for each travelling value of one name, in their order."""
        _, sides, microbatches = self.shape["activation"]
        return np.repeat(numbers, sides * microbatches)

    def describe(self, value: int) -> str:
        """One value in words."""
        name = next(name for name in reversed(self.block) if self.block[name] <= value)
        where = self._where(name, value)
        if name in ("activation", "gradient"):
            edge, side, microbatch = where
            begin, end = self.edges[edge]
            on = " (on the wire)" if side == 1 else " (arrived)" if side == MADE_ON_ARRIVAL[name] and side else ""
            source = begin if name == "activation" else end
            return f"{name} of stage {source} for microbatch {microbatch}{on}"
        if name in VERSIONED:
            stage, microbatch, version = where
            return f"{VERSIONED[name]} of {stage}F{microbatch}" + (f"#{version}" if version else "")
        if name == "weight_gradient":
            return f"weight gradient of stage {where[0]} for microbatch {where[1]}"
        stage, replica, version = where
        copy = f" (replica {replica})" if replica else ""
        return f"{name} of stage {stage}{copy}" + (f", version {version}" if version else "")
