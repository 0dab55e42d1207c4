"""A schedule: for every rank the list of its actions, in order.

The same object is drawn, simulated and executed. The dependencies of actions are in `hybridlab.core.when.law`.
Internally, the actions are columns of integers, so that a quarter of a million of them take milliseconds; `program`
shows them as `Action`s. `hybridlab.core.when.exchange` writes them as text and files.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from hybridlab.core.when import exchange
from hybridlab.core.when.action import CODE, COMPUTE, KINDS, MESSAGES, SWAPS, Action, each_of
from hybridlab.core.when.lists import seal
from hybridlab.core.when.words import in_lines
from hybridlab.doors import guarded
from hybridlab.signatures import typed

COLUMNS = ("kind", "stage", "microbatch", "replica", "version", "peer")
BESIDE = tuple(kind for kind in KINDS if kind not in COMPUTE)  # kinds that overlap with a rank's compute actions
Place = dict[tuple[int, int], int]


def actions(kind: str, stage: int, microbatches: Sequence[int] | np.ndarray = (-1,), replica: int = 0) -> np.ndarray:
    """A run of actions of one kind on one stage, one row per microbatch, columns as in `COLUMNS`.

    >>> actions("F", 2, range(3))[:, :3].tolist()
    [[0, 2, 0], [0, 2, 1], [0, 2, 2]]
    """
    microbatches = np.asarray(microbatches, dtype=np.int64)
    rows = np.full((len(microbatches), len(COLUMNS)), -1, dtype=np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = CODE[kind], stage, microbatches, replica
    return rows


def alternate(*runs: np.ndarray) -> np.ndarray:
    """Interleave runs of equal length: the first action of each, then the second of each, and so on.

    >>> alternate(actions("F", 0, [1, 2]), actions("B", 0, [0, 1]))[:, 2].tolist()
    [1, 0, 2, 1]
    """
    return np.stack(runs, axis=1).reshape(-1, len(COLUMNS))


@guarded()
@dataclass(frozen=True, eq=False)
class Schedule:
    """For every rank the list of its actions, in order.

    name          as in `hl.schedule("1f1b", …)`
    rows          (actions, 6) integers, columns as in `COLUMNS`, rank after rank
    starts        (ranks + 1): rows starts[r] … starts[r + 1] - 1 are rank r's
    place         place[stage, replica] -> rank; if replicas of a stage are on one rank, they are one copy
    microbatches  m, of one pipeline
    replica_of    replica_of[microbatch] -> the model replica that it runs through; its length is the
                  number of microbatches in the global batch
    chunks        v, the number of stages per rank
    skips         extra edges (from stage, to stage), in addition to the chain
    breaks        edges (stage, next stage) that the chain lacks, because one branch ends and another one begins
    exchanges     edges between two stages of a rank that stand for an all-to-all of tokens with the other ranks along
                  ep; in lowered form each has a SEND and a RECV of this rank
    slices        n: stage s·n + i is stage s of the model on slice i of a row's tokens; 1: on whole rows
    pieces        n: the last n + 1 stages are n pieces of the model's head, and their join; 0: the head is not cut
    window        the number of microbatches of each copy of a stage between two optimizer steps; 0: all of them
    tied          groups of stages that share weights; their gradients are summed
    fused         rows that run together with the next row, as one action
    dp            data-parallel copies of the whole pipeline

    >>> import hybridlab as hl
    >>> one = hl.schedule("gpipe", ranks=2, microbatches=2)
    >>> one.stages, one.program[1][0]
    (2, Action(kind='F', stage=1, microbatch=0, replica=0, version=-1, peer=-1, parts=()))
    >>> print(one)
    rank 0: 0F0 0F1 0B0 0B1
    rank 1: 1F0 1F1 1B0 1B1
    """

    name: str
    rows: np.ndarray
    starts: np.ndarray
    place: Place
    microbatches: int
    replica_of: tuple[int, ...]
    chunks: int = 1
    skips: tuple[tuple[int, int], ...] = ()
    breaks: tuple[tuple[int, int], ...] = ()
    exchanges: tuple[tuple[int, int], ...] = ()
    slices: int = 1
    pieces: int = 0
    window: int = 0
    tied: tuple[tuple[int, ...], ...] = ()
    fused: tuple[int, ...] = ()
    dp: int = 1

    def __post_init__(self) -> None:
        seal(self.rows, self.starts)

    @classmethod
    @typed
    def of(cls, name: str, programs: list, place: Place, microbatches: int, **more: Any) -> "Schedule":
        """A schedule from one list of actions per rank.

        name, place, microbatches  as in the schedule
        programs  a list for each rank, of `Action`s or of rows (see `actions`; for rows, `fused` names the first of
                  each pair, counted among all rows)
        more      further fields of the schedule
        """
        arrays, fused, at = [], list(more.pop("fused", ())), 0
        for program in programs:
            if not isinstance(program, np.ndarray):
                parts = [(part, part is not action.each[-1]) for action in program for part in each_of(action)]
                fused += [at + i for i, (_, joined) in enumerate(parts) if joined]
                program = np.array([part.row for part, _ in parts], dtype=np.int64).reshape(-1, len(COLUMNS))
            arrays.append(program)
            at += len(program)
        more.setdefault("replica_of", (0,) * microbatches)
        starts = np.cumsum([0] + [len(a) for a in arrays])
        return cls(name, np.concatenate(arrays), starts, dict(place), microbatches, fused=tuple(fused), **more)

    @typed
    def with_programs(self, programs: list, **changes: Any) -> "Schedule":
        """The same schedule with other lists of actions.

        programs  a list for each rank, as in `of`
        changes   other fields that change
        """
        facts = ("replica_of", "chunks", "skips", "breaks", "exchanges", "slices", "pieces", "window", "tied", "dp")
        keep = {k: getattr(self, k) for k in facts}
        name, place = changes.pop("name", self.name), changes.pop("place", self.place)
        return Schedule.of(name, programs, place, self.microbatches, **keep | changes)

    def renamed(self, name: str) -> "Schedule":
        """The same schedule under another name."""
        return replace(self, name=name)

    @property
    def ranks(self) -> int:
        """The number of ranks, idle ones included."""
        return len(self.starts) - 1

    @cached_property
    def stages(self) -> int:
        """The number of stages; copies of a stage count once."""
        return 1 + max(stage for stage, _ in self.place)

    @cached_property
    def replicas(self) -> int:
        """The number of model copies."""
        return 1 + max(replica for _, replica in self.place)

    @cached_property
    def copy_of(self) -> Place:
        """copy_of[stage, replica] -> the first replica that has this stage on the same rank, and so shares its
        weights.
        """
        first = {}
        homes = sorted(self.place.items())
        return {(stage, one): first.setdefault((stage, rank), one) for (stage, one), rank in homes}

    @cached_property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """The ranks that hold a copy of each stage, in order."""
        held = [set() for _ in range(self.stages)]
        for (stage, _), rank in self.place.items():
            held[stage].add(rank)
        return tuple(tuple(sorted(ranks)) for ranks in held)

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """For each stage, the number of microbatches, over all its copies, in one optimizer step; 0: all of them."""
        return tuple(self.window * len(ranks) for ranks in self.holders)

    @cached_property
    def lowered(self) -> bool:
        """Whether the messages are written out as SEND and RECV actions."""
        return bool(np.isin(self.rows[:, 0], [CODE[kind] for kind in MESSAGES]).any())

    @cached_property
    def moves(self) -> bool:
        """Whether saved activations move to the host, or to other ranks."""
        return bool(np.isin(self.rows[:, 0], [CODE[kind] for kind in SWAPS]).any())

    @cached_property
    def is_compute(self) -> np.ndarray:
        """One flag per row: whether the action is a compute action."""
        return np.isin(self.rows[:, 0], [CODE[kind] for kind in COMPUTE])

    @cached_property
    def rank_of(self) -> np.ndarray:
        """The rank of each row."""
        return np.repeat(np.arange(self.ranks), np.diff(self.starts))

    @cached_property
    def program(self) -> tuple[tuple[Action, ...], ...]:
        """program[rank]: its actions in order."""
        joined = set(self.fused)
        lists = []
        for start, end in zip(self.starts.tolist(), self.starts[1:].tolist()):
            single, program, row = [Action(KINDS[kind], *its) for kind, *its in self.rows[start:end].tolist()], [], 0
            while row < len(single):
                if start + row in joined:
                    pair = (single[row], single[row + 1])
                    program.append(Action("OVERLAP_F_B", *single[row][1:4], parts=pair))
                else:
                    program.append(single[row])
                row += 2 if start + row in joined else 1
            lists.append(tuple(program))
        return tuple(lists)

    @cached_property
    def computing(self) -> tuple[tuple[Action, ...], ...]:
        """The programs without messages and collectives: the same for a schedule and its lowered form."""
        return tuple(tuple(a for a in program if a.kind not in BESIDE) for program in self.program)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The edges (from stage, to stage) of the stage graph: the chain, whose last edge leads out, then the skips.

        Breaks keep their place, so that edge i leads from stage i; `inside` leaves them out.
        """
        return tuple((i, i + 1) for i in range(self.stages)) + self.skips

    @cached_property
    def inside(self) -> dict[int, tuple[int, int]]:
        """The indices of the edges that carry messages between stages."""
        left_out = {self.edges[self.stages - 1], *self.breaks}
        return {number: edge for number, edge in enumerate(self.edges) if edge not in left_out}

    @typed
    def action(self, row: int) -> Action:
        """The action in one row (one half of a fused pair)."""
        if not 0 <= row < len(self.rows):
            raise ValueError(f"there is no row {row}: choose from 0 to {len(self.rows) - 1}")
        kind, *numbers = self.rows[row].tolist()
        return Action(KINDS[kind], *numbers)

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, as for a schedule that was saved and loaded."""
        if self is other or not isinstance(other, Schedule):
            return self is other
        mine, its = ([getattr(one, field.name) for field in fields(one)] for one in (self, other))
        return all(np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y for x, y in zip(mine, its))

    def __hash__(self) -> int:
        return hash((self.name, self.rows.shape, self.microbatches, self.dp))

    def __repr__(self) -> str:
        m = f"{self.microbatches} microbatch{'es' if self.microbatches != 1 else ''}"
        return f"<schedule {self.name}: {self.ranks} ranks, {self.stages} stages, {m}, {len(self.rows)} actions>"

    def __str__(self) -> str:
        return "\n".join(" ".join([f"rank {r}:", *map(str, actions)]) for r, actions in enumerate(self.program))

    @typed
    def grid(self, mark: int = -1, around: int = 6) -> str:
        """The programs as text, one line per rank; with `mark`, only the actions around this row, which is marked.

        >>> print(Schedule.of("toy", [actions("F", 0, range(3))], {(0, 0): 0}, 3).grid(mark=1))
        rank 0: 0F0 →0F1← 0F2
        """
        return in_lines(self, mark, around)

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """The schedule as text: one line per rank, one cell per action. Lines before them give slices, pieces, and
        edges that are not those of a chain. The text is written to `path` if one is given.
        """
        return exchange.written(exchange.to_text(self), path)

    def to_pytorch(self, path: str | PathLike[str] | None = None) -> str:
        """The text for PyTorch's pipeline runtime. Written to `path` if one is given.

        PyTorch loads a lowered schedule with format="compute_comms". It has a REDUCE_GRAD for every stage:
        without it, PyTorch does not divide the gradients by the number of microbatches.

        raises  ValueError if PyTorch's form cannot express the schedule
        """
        return exchange.written(exchange.to_pytorch(self), path)

    @classmethod
    def from_csv(cls, source: str | PathLike[str], name: str = "typed order") -> "Schedule":
        """The schedule written as text; `hybridlab.core.when.exchange` describes the form.

        source  the text, or the path of a file that holds it
        name    of the schedule

        raises  ValueError that names line and cell, and the valid entries

        >>> Schedule.from_csv("0F0,0B0\\n1F0,1B0").place
        {(0, 0): 0, (1, 0): 1}
        """
        return cls.of(**exchange.from_source(source, name))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the schedule to `path` as JSON, with its name, which the text form lacks."""
        exchange.written(json.dumps(self.to_dict()), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Schedule":
        """The schedule in the file at `path`: JSON as `save` writes it, or any text form.

        raises  ValueError if it is neither
        """
        return cls.of(**exchange.load(path))

    def to_dict(self) -> dict:
        """The schedule as plain values, for JSON: the actions as text, and all other fields."""
        return exchange.to_dict(self)

    @classmethod
    def from_dict(cls, saved: dict) -> "Schedule":
        """The schedule `saved` by `to_dict`.

        raises  ValueError if it is something else, of a later version, or damaged
        """
        return cls.of(**exchange.from_dict(saved))
