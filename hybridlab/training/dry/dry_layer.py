"""One layer of a job: the messages of its forward and backward, from the ledger of a dry run.

The layer forms a stage by itself, so it has its own packs of gradients and pipeline messages: each rank has five stages
of one layer, and the middle one is neither the first nor the last of the model. Every module with weights notes when
its forward or its backward begins and ends; a message between two notes belongs to the place between them.
"""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from torch import nn

from hybridlab.core.layer import ATTENTION, Layer, Travel
from hybridlab.core.operations import RECEIVES
from hybridlab.core.what.shape import Shape
from hybridlab.signatures import spelled
from hybridlab.training import asked
from hybridlab.training.check import UNCOUNTED
from hybridlab.training.dry.alive import Alive
from hybridlab.training.dry.counted import CountedWork
from hybridlab.training.dry.dry_run import AS_ON_GPUS
from hybridlab.training.dry.known import Known
from hybridlab.training.dry.one_rank import Dry
from hybridlab.training.fused_attention import fused_attention
from hybridlab.training.job import Job
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gallery import model_of
from hybridlab.training.models.transformer import Transformer
from hybridlab.world.talk.dry import META, DryComm

STAGES = 5  # stages of one layer on every rank: with fewer, ZeRO 3 would keep the middle one gathered for its backward
PARTS = {"q": "q·k·v", "k": "q·k·v", "v": "q·k·v", "gate": "up"}  # modules that read the same input
NORMS = {"attention_norm": "norm", "mlp_norm": "norm"}
OF_WEIGHTS = ("sums", "shares")  # purposes
ALONE = {"schedule": "looped_bfs", "chunks": STAGES, "microbatches": 1, "accumulate": 1}


class Mark(NamedTuple):
    """From this row of the ledger, messages belong to this phase ("": to none) and place."""

    row: int
    phase: str
    place: float


class Notes:
    """The notes about one stage while its rank runs a step.

    stage   the index of the stage
    ledger  of the rank
    parts   the names of the stage's parts, in the order in which their forwards began
    """

    def __init__(self, ledger, stage: int):
        self.ledger, self.stage, self.parts, self.marks, self.phase = ledger, stage, [], [], ""

    def note(self, place: float, phase: str | None = None):
        """Note that messages now belong to this place, and to this phase."""
        self.phase = self.phase if phase is None else phase
        self.marks.append(Mark(len(self.ledger), self.phase, place))

    def listen(self, module: nn.Module):
        """Note the start and the end of each part of a stage, in both directions."""
        for name, part in module.named_modules():
            if next(part.parameters(recurse=False), None) is not None:
                self._listen(name.rpartition(".")[2], part)

    def _listen(self, name, part):
        number = []  # the place from the forward: a recomputation has the same

        def begun(*_):
            if self.phase == "forward":
                number.append(self._numbered(NORMS.get(name) or PARTS.get(name, name)))
            self.note(number[-1])

        part.register_forward_pre_hook(begun, prepend=True)
        part.register_forward_hook(lambda *_: self.note(number[-1] + 0.5))
        part.register_full_backward_pre_hook(lambda *_: self.note(number[-1]))
        part.register_full_backward_hook(lambda *_: self.note(number[-1] - 0.5))

    def _numbered(self, name) -> int:
        if self.parts[-1:] != [name]:
            self.parts.append(name)
        return len(self.parts) - 1

    @contextmanager
    def within(self, phase: str):
        """Within this context, messages carry the weights or gradients of this phase; "" stands for those of another
        stage.
        """
        before = self.phase
        self.note(0, phase)
        yield
        self.note(0, before)

    def places(self) -> list[tuple[str, float]]:
        """(phase, place) of every row of the ledger."""
        found = [("", 0.0)] * len(self.ledger)
        for mark in self.marks:
            found[mark.row :] = [(mark.phase, mark.place)] * (len(self.ledger) - mark.row)
        return found


class NotedWork(CountedWork):
    """The work of a rank's stages, which notes the actions of one of them."""

    notes: Notes

    def bind(self, action, part):
        call, phase = super().bind(action, part), {"F": "forward", "B": "backward"}.get(part.kind, "")

        def noted(arrived):
            mine = phase if part.stage == self.notes.stage else ""
            self.notes.note(-0.5 if mine == "forward" else len(self.notes.parts) - 0.5, mine)
            return call(arrived)

        return noted

    def reduce(self, comm, action):
        return self._of_weights("reduce", super().reduce, comm, action)

    def unshard(self, comm, action):
        return self._of_weights("gather", super().unshard, comm, action)

    def _of_weights(self, phase, start, comm, action):
        within = partial(self.notes.within, phase if action.stage == self.notes.stage else "")
        with within():
            return Awaited(start(comm, action), within)


class Awaited:
    """Collectives under way; some send once more when they are waited for, and these messages are noted too."""

    def __init__(self, started, within):
        self.when_over, self._wait, self._within = started.when_over, started.wait, within

    def wait(self):
        """Wait until they are over."""
        with self._within():
            self._wait()


class Noted(Dry):
    """The trainer of a rank, with notes about one of its stages."""

    def __init__(self, comm, job: Job, alive: Alive):
        super().__init__(comm, job, alive)
        stage = job.stages_on(comm.rank)[STAGES // 2]
        self.notes = Notes(comm.ledger, stage)
        self.work.notes = self.notes
        self.notes.listen(self.weights.stages[stage])

    def works(self, *about) -> NotedWork:
        return NotedWork(self.alive, *about)

    def update(self):
        """The optimizer step; then, with ZeRO 1 and 2, the updated weights are gathered, pack by pack."""
        ledger, before = self.comm.ledger, len(self.comm.ledger)
        super().update()
        gathers = [row for row in range(before, len(ledger)) if ledger.purpose[row] in OF_WEIGHTS]
        shards = lambda pack: len(self.layout.sharers(self.layout.packs[pack][0], self.comm.rank)) > 1
        for row, pack in zip(gathers, filter(shards, self.weights.pieces) if gathers else (), strict=True):
            mine = self.layout.packs[pack][0] in self.named[self.notes.stage]
            self.notes.marks.append(Mark(row, "publish" if mine else "", 0))


@spelled(asked.of_a_layer, positional=1, **AS_ON_GPUS)
def dry_layer(*, rank: int = 0, **given) -> Layer:
    """One transformer layer of a job on one rank, and its messages, from the ledger of a dry run.

    {arguments}
    rank  the index of the rank in the mesh

    The layer is in the middle of the model and forms a stage by itself. So there is no order of actions and no division
    into stages: no `schedule`, `chunks`, `copies`, `slices`, `slicing`, `cut` and `driven`. `microbatches` and
    `accumulate` only say how many rows of a `batch` one microbatch has. Weights that ZeRO 3 gathers are gathered as
    often as in a breadth-first schedule.

    raises  ValueError for invalid arguments, or a model other than a transformer; TypeError for unknown arguments

    >>> import hybridlab as hl
    >>> print(hl.dry_layer(hl.Mesh(tp=2)))
    one layer on rank 0 (tp=0), ...
    """
    mesh = asked.mesh_of(given)
    mesh.coordinates(rank)
    job = job_of(**_alone(given, mesh))
    with Known(), Alive(META.type) as alive, fused_attention():
        trainer = Noted(DryComm(job.mesh, rank), job, alive)
        trainer.whole_step()
    parts, travels = _with_attention(trainer.notes.parts, _travels(trainer))
    stage = trainer.notes.stage
    weights = sum(weight.nbytes for weight in trainer.named[stage].values())
    return Layer(job.choices, job.mesh, rank, parts, weights, travels)


def _alone(given: dict, mesh) -> dict:
    """The arguments of a job in which each rank has five stages of one layer."""
    usual = asked.arguments()
    of = {name: one.usual for name, one in usual.items()} | given
    model = model_of(of["model"] or of["shape"] or Shape(), of["loss"], of["data"])
    if not isinstance(model, Transformer):
        raise ValueError(
            f"{type(model).__name__} is not a transformer, whose layers are alike: give a Shape, or its name"
        )
    rows = of["batch"] and max(1, of["batch"] // (of["microbatches"] * of["accumulate"]))
    return given | ALONE | {"model": replace(model.shape, layers=STAGES * mesh["pp"]), "batch": rows, "shape": None}


def _travels(trainer: Noted) -> tuple[Travel, ...]:
    """The messages of the layer: equal ones at one place are one entry."""
    count, size = Counter(), Counter()
    for (phase, place), row in zip([*trainer.notes.places()], trainer.comm.ledger.rows()):
        if row["bytes"] and phase and row["purpose"] not in UNCOUNTED and row["op"] not in RECEIVES:
            of_weights = row["purpose"] in OF_WEIGHTS
            phase = "reduce" if of_weights and phase == "backward" else phase
            key = phase, None if of_weights else place, row["op"], row["axis"]
            count[key] += 1
            size[key] += row["bytes"]
    return tuple(Travel(*key, count[key], size[key]) for key in count)


def _with_attention(parts: list[str], travels) -> tuple[tuple[str, ...], tuple[Travel, ...]]:
    """Parts and messages with attention, which has no weights, as a part between its queries and its outputs."""
    if "out" not in parts:
        return tuple(parts), travels
    at = parts.index("out")
    moved = lambda place: place if place is None or place < at - 0.5 else at if place == at - 0.5 else place + 1
    return (*parts[:at], ATTENTION, *parts[at:]), tuple(one._replace(place=moved(one.place)) for one in travels)
