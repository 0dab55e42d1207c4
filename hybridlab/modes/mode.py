"""The interface of a mode: one way to divide training among ranks, implemented in one file.

A mode defines: the jobs that it refuses; its shardings, as tables {dim: axis} for parameters, for the batch, and for
tensors between layers and stages (see `core.where.rules`); the changes to the model; its messages and their purpose;
and its options. Every method has a default that changes nothing, so a file contains only the code specific to its mode.

The tables determine boxes, shards, reductions, receive buffers, and the ranks that sum the loss. The ledger records the
*purpose* of every operation of a mode. `hl.check` compares the bytes of each purpose: a message that the mode sends and
does not list in `sends` is an error.

`registry` lists the modes; CONTRIBUTING.md explains how to add one. A `job` describes a training run
(`training.job.Job`): job.mesh, job.model, job["zero"] (a chosen option), job.layout.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.layout import Layout
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import Rules
from hybridlab.predict.bytes.transfer import Transfer, transfer
from hybridlab.scheduling.norms import repeated


class Option(NamedTuple):
    """An option of a mode. In Python it is an argument, on the command line a flag.

    usual   its default;  help  one line
    kind    the type of the value: bool is a flag without a value; a function converts the given text or value
    choices  the only legal values, if they can be listed;  least  the minimum of a number, which then must be finite
    `beside`  the option, or the axis with several ranks, without which it has no effect; "tp or cp": either will do;
            "sums=local": the option with this value
    """

    usual: Any
    help: str
    kind: type = bool
    choices: tuple = ()
    least: float | None = None
    beside: str = ""

    def read(self, value):
        """The value of the option, from a value given on the command line or in Python."""
        return value if isinstance(self.kind, type) else self.kind(value)


class Mode:
    """One way to be parallel.

    name     its name in sentences;  axis  the axis of the mesh along which it works, or ""
    purpose  the purpose of its messages in the ledger
    core     whether its messages belong to the core of attention, between queries and keys
    options  {name: Option};  copied  letters of dims that may be shorter than the axis that cuts them
    leading  letters of dims that have their axes for themselves in a parameter (see `core.where.rules`)
    factors  {name: choices}: its rows in the table of combinations (tests/equality.py), all of which are proved equal
    """

    name, axis, purpose, copied, leading, core = "", "", "", "", "", False
    options: dict[str, Option] = {}
    factors: dict[str, tuple] = {}

    def __repr__(self):
        return f"<mode {self.name}>"

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes of the mode: `axis`, unless the mode has several."""
        return (self.axis,) if self.axis else ()

    def takes_part(self, mesh: Mesh, chosen: dict) -> bool:
        """Whether a job on this mesh, with these options, uses the mode."""
        return any(mesh[axis] > 1 for axis in self.axes)

    def completed(self, mesh: Mesh, chosen: dict, dtype: str) -> dict:
        """The options that were not given but follow from other options, or from the dtype of the computation."""
        return {}

    def said(self, job) -> str:
        """The mode's part in the description of a job: its active options, in words."""
        return ", ".join(name for name, option in self.options.items() if option.kind is bool and job[name])

    def met(self, job) -> tuple[str, ...]:
        """The axes along which the ranks of one message differ: the mode's own axes, unless a job adds others."""
        return self.axes

    def title(self, job) -> str:
        """The name of the mode's bytes in a report."""
        return f"inside stages, along {' and '.join(self.axes)}"

    # before anything runs

    def refuse(self, job):
        """Raise an error if this mode cannot parallelize the job.

        raises  ValueError with one sentence that says what to change
        """

    def meant(self, name: str, chunks: int | None, mesh: Mesh, chosen: dict, layers: int) -> tuple[str, int | None]:
        """The schedule for a given name, and its number of chunks, for a model with this number of layers."""
        return name, chunks

    def scheduled(self, schedule: Schedule, chosen: dict, active: int) -> Schedule:
        """The schedule with the mode's own actions; at most `active` stages have their weights gathered at a time."""
        return schedule

    def rules(self, job) -> Rules:
        """{letter: axis}: how parameters are cut."""
        return {}

    def data(self, job) -> Rules:
        """{letter: axis}: how the batch is cut."""
        return {}

    def order(self, job) -> dict[str, list[int]]:
        """{letter: the order of the batch along this dim before it is cut}, for dims in an unusual order."""
        return {}

    def between(self, job) -> Rules:
        """{letter: axis}: how tensors between layers are cut, where this differs from the batch."""
        return self.data(job)

    def joined(self, job, layer: int) -> str:
        """The letters of the dims that a layer unshards: all ranks have the same output."""
        return ""

    def stream(self, job) -> Rules:
        """{letter: axis}: how tensors between stages are cut."""
        return self.between(job)

    def placed(self, layout: Layout, job) -> Layout:
        """The layout after the mode's rules and its changes to individual records have been applied."""
        return layout

    # on a rank

    def fit(self, module, comm, job):
        """Turn the full model into this rank's part of it, in place. Its parameters are this rank's boxes already;
        parameters that this rank does not hold are on torch's meta device."""

    def around(self, stage, comm, job):
        """A stage, wrapped for the exchange with its neighbours."""
        return stage

    def loss(self, comm, job, whole):
        """The loss of this rank's output; `whole` is the model's own loss function."""
        return whole

    def repeats(self, job, layer: int, other: "Mode") -> bool:
        """Whether this mode makes the backward repeat the messages that another mode sent in a layer's forward."""
        return False

    def exchange(self, comm, job):
        """The function that runs a SEND between layers that exchange tokens: it takes the action and the tensors, and
        returns a handle to wait on for each tensor."""

    # its messages

    def sends(self, job, layer: int, when: str, here: dict[str, int]) -> Iterator[tuple[str, float]]:
        """(operation, bytes) of each operation of one microbatch in one layer.

        when  "forward", "backward", or "again": the part of a backward that repeats the forward
        here  {letter: its length on all ranks together that differ only along the axes of `met`}

        Bytes are those of the full tensor, as in a rank's ledger; where ranks differ, their mean. An "isend" goes from
        each rank to the next one along the axis, in a ring.
        """
        return iter(())

    def sends_around(self, job, stage: int, when: str, here: dict[str, int]) -> Iterator[tuple[str, float]]:
        """(operation, bytes) of one microbatch at the ends of a stage, as in `sends`."""
        return iter(())

    def transfers(self, job) -> Iterator[Transfer]:
        """All transfers of a step for this mode: those that `sends` lists, for each action of the schedule."""
        for group, program in self.playing(job):  # the first rank represents all
            for op, size in self._of_program(job, program, job.lengths(group[0], self.met(job))).items():
                for ranks in self.together(job, op, group):
                    yield transfer(job.mesh, "activations", op, ranks, size * job.accumulate)

    def again(self, job) -> Iterator[Transfer]:
        """The transfers of this mode in the forwards that are repeated if the gradients have to be clipped after
        all."""
        once = job.with_(schedule=repeated(job.schedule), accumulate=1)
        return (one for one in self.transfers(once) if one.what == "activations")

    def seldom(self, job) -> Iterator[Transfer]:
        """The transfers of this mode that do not occur in every step, over all steps of a job."""
        return iter(())

    def together(self, job, op: str, group: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The ranks that do an operation of `sends` together, of a group along the mode's axes: all of them, or for a
        message each rank and the next one."""
        return around(group) if op == "isend" else [group]

    def playing(self, job) -> Iterator[tuple[tuple[int, ...], list]]:
        """Yield (ranks that differ only along the axes in `met`, the program that they all execute)."""
        mesh = job.mesh
        for line in sorted({mesh.line(rank) for rank in range(mesh.size)}):
            for rank, program in zip(line, job.schedule.program):
                group = mesh.group(rank, self.met(job))
                if group[0] == rank:
                    yield group, program

    def _of_program(self, job, program, here) -> Counter:
        """{operation: bytes} of one run of a rank's program."""
        sizes = Counter()
        for (stage, when), times in done(program).items():
            found = [one for layer in job.bounds[stage] for one in self._in_layer(job, layer, when, here)]
            for op, size in [*found, *self.sends_around(job, stage, when, here)]:
                sizes[op] += times * size
        return +sizes

    def _in_layer(self, job, layer, when, here) -> Iterator[tuple[str, float]]:
        here = here | job.model.here(layer)
        return (one for phase in self.phases_of(job, layer, when) for one in self.sends(job, layer, phase, here))

    def phases_of(self, job, layer: int, when: str) -> tuple[str, ...]:
        """The phases of a layer within one phase of its stage: a backward with recomputation includes the forward."""
        repeated = when == "backward" and any(mode.repeats(job, layer, self) for mode in job.modes)
        return (when, "forward") if repeated else (when,)


def around(ring: tuple[int, ...]) -> list[tuple[int, int]]:
    """(sender, receiver) of each hop of a ring.

    >>> around((0, 2, 4))
    [(0, 2), (2, 4), (4, 0)]
    """
    return list(zip(ring, ring[1:] + ring[:1]))


def done(program) -> Counter:
    """{(stage, phase): the number of times that a program executes it}; see `phases`."""
    kinds = Counter((part.kind, part.stage) for action in program for part in action.each)
    times = Counter()
    for (kind, stage), number in kinds.items():
        for when in phases(kind, stage):
            times[stage, when] += number
    return times


def phases(kind: str, stage: int) -> tuple[str, ...]:
    """The phases of an action: which of "forward", "backward" and "again". Both halves of a split backward recompute
    what they need; in the first stage, which receives no activations, only the weight half does.

    >>> phases("B", 1), phases("I", 0), phases("W", 0)
    (('backward', 'again'), (), ('backward', 'again'))
    """
    if kind in ("F", "C", "R"):
        return ("forward",)
    whole = "W" if stage == 0 else "I"
    return ("backward", "again") if kind in ("B", whole) else ("again",) if kind == "W" else ()
