"""The interface of a mode: one way to divide training among ranks, implemented in one file.

A mode says what it refuses; what it cuts, as tables {dim: axis} of parameters, of the batch, and of what travels (see
`core.where.rules`); how it fits the model; what it sends, and for what purpose; what its user may choose. Every method
has a default that changes nothing, so a file holds what is particular about its mode and no more.

The tables determine boxes, shares, reductions, receive buffers, and the ranks that sum the loss. The *purpose* stands
in the ledger beside every operation that a mode makes through the door it is given. A proof compares bytes purpose by
purpose: what a mode sends and does not say is an error.

`registry` lists the modes; CONTRIBUTING.md says how to add one. A `job` is what is trained and how
(`training.job.Job`): job.mesh, job.model, job["zero"] (what was chosen), job.layout.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.layout import Layout
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import Rules
from hybridlab.predict.bytes.transfer import Transfer, transfer


class Option(NamedTuple):
    """One thing that the user of a mode may choose, in Python by its name, on the command line by a flag.

    usual   its value where nobody gives one;  help  one line;  kind  of value: bool is a flag that is there or not; a
            function makes the value of what was typed or given
    choices  the only legal ones, if they can be listed;  least  of a number, which then is finite
    beside  the option, or the axis of several ranks, without which it means nothing
    """

    usual: Any
    help: str
    kind: type = bool
    choices: tuple = ()
    least: float | None = None
    beside: str = ""

    def read(self, value):
        """The meaning of a value from the command line or from Python."""
        return value if isinstance(self.kind, type) else self.kind(value)


class Mode:
    """One way to be parallel.

    name     in sentences;  axis  of the mesh along which it works, or "";  purpose  of what it sends
    core     whether what it sends is sent by attention's core, between queries and keys
    options  {name: Option};  copied  letters that its rules may leave shorter than the axis
    factors  {name: choices}: its rows in the table of combinations that are all proved equal (tests/equality.py)
    """

    name, axis, purpose, copied, core = "", "", "", "", False
    options: dict[str, Option] = {}
    factors: dict[str, tuple] = {}

    def __repr__(self):
        return f"<mode {self.name}>"

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes that it is about: `axis`, unless a mode has several."""
        return (self.axis,) if self.axis else ()

    def takes_part(self, mesh: Mesh, chosen: dict) -> bool:
        """Whether a job on this mesh, with these choices, uses the mode."""
        return any(mesh[axis] > 1 for axis in self.axes)

    def completed(self, mesh: Mesh, chosen: dict, dtype: str) -> dict:
        """The options that its user left out and that follow from the others, and from the dtype of the computation."""
        return {}

    def said(self, job) -> str:
        """The mode's part in the description of a job: the options that are on, in words."""
        return ", ".join(name for name, option in self.options.items() if option.kind is bool and job[name])

    def title(self, job) -> str:
        """The name of its bytes in a report."""
        return f"inside stages, along {' and '.join(self.axes)}"

    # what it changes before anything runs

    def refuse(self, job):
        """Nothing, if the job can be shared out this way.

        raises  ValueError in one sentence that says what to change
        """

    def meant(self, name: str, chunks: int | None, mesh: Mesh, chosen: dict, layers: int) -> tuple[str, int | None]:
        """The schedule that a name means, and its number of chunks, for a model with this number of layers."""
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
        """{letter: in which order the batch lies along it before it is cut}, where that is not the usual one."""
        return {}

    def between(self, job) -> Rules:
        """{letter: axis}: how what travels between layers is cut, where the batch is cut differently."""
        return self.data(job)

    def stream(self, job) -> Rules:
        """{letter: axis}: how what travels between stages is cut."""
        return self.between(job)

    def placed(self, layout: Layout, job) -> Layout:
        """The layout with the mode's changes to every record, in addition to its rules."""
        return layout

    # what it changes on a rank

    def fit(self, module, comm, job):
        """Turn the whole model, whose parameters are this rank's boxes, into its part of the model, in place; what it
        does not hold is on torch's meta device."""

    def around(self, stage, comm, job):
        """A stage as its neighbours reach it."""
        return stage

    def loss(self, comm, job, whole):
        """The loss of this rank's output; `whole` is the model's own."""
        return whole

    def repeats(self, job, layer: int, other: "Mode") -> bool:
        """Whether, because of this mode, a backward sends once more what the forward of a layer sent for the other."""
        return False

    def exchange(self, comm, job):
        """What is called for a SEND between layers whose tokens are exchanged: it takes the action and the tensors, and
        returns a message for each."""

    # what it sends

    def sends(self, job, layer: int, when: str, here: dict[str, int]) -> Iterator[tuple[str, float]]:
        """(operation, bytes) that one microbatch costs in one layer.

        when  "forward", "backward", or "again": in the backward too, for what is done a second time
        here  {letter: its length on all ranks together that differ only along this axis}

        Bytes are those of the full tensor, as one rank's ledger has them; where ranks differ, their mean. An "isend"
        goes from each rank to the next one, round the axis.
        """
        return iter(())

    def sends_around(self, job, stage: int, when: str, here: dict[str, int]) -> Iterator[tuple[str, float]]:
        """(operation, bytes) that one microbatch costs at the ends of a stage, as in `sends`."""
        return iter(())

    def transfers(self, job) -> Iterator[Transfer]:
        """All that a step sends for this mode: what `sends` says, for every action of the schedule that does it."""
        for group, program in self.playing(job):  # the first rank speaks for all
            for op, size in self._of_program(job, program, job.lengths(group[0], self.axis)).items():
                together = [group] if op != "isend" else list(zip(group, group[1:] + group[:1]))
                for ranks in together:
                    yield transfer(job.mesh, "activations", op, ranks, size * job.accumulate)

    def playing(self, job) -> Iterator[tuple[tuple[int, ...], list]]:
        """(ranks that differ along its axes only, the program that they all play)."""
        mesh = job.mesh
        for line in sorted({mesh.line(rank) for rank in range(mesh.size)}):
            for rank, program in zip(line, job.schedule.program):
                group = mesh.group(rank, self.axes)
                if group[0] == rank:
                    yield group, program

    def _of_program(self, job, program, here) -> Counter:
        """{operation: bytes} of one play of a rank's program."""
        sizes = Counter()
        for (stage, when), times in done(program).items():
            found = [one for layer in job.bounds[stage] for one in self._in_layer(job, layer, when, here)]
            for op, size in [*found, *self.sends_around(job, stage, when, here)]:
                sizes[op] += times * size
        return +sizes

    def _in_layer(self, job, layer, when, here) -> Iterator[tuple[str, float]]:
        return (one for phase in self.phases_of(job, layer, when) for one in self.sends(job, layer, phase, here))

    def phases_of(self, job, layer: int, when: str) -> tuple[str, ...]:
        """What a layer does in one phase of its stage: in the backward the forward too, where it is done again."""
        repeated = when == "backward" and any(mode.repeats(job, layer, self) for mode in job.modes)
        return (when, "forward") if repeated else (when,)


def done(program) -> Counter:
    """{(stage, when): how often a program does it}; see `phases`."""
    kinds = Counter((part.kind, part.stage) for action in program for part in action.each)
    times = Counter()
    for (kind, stage), number in kinds.items():
        for when in phases(kind, stage):
            times[stage, when] += number
    return times


def phases(kind: str, stage: int) -> tuple[str, ...]:
    """Which of "forward", "backward" and "again" an action does. Both halves of a backward do again what they need; in
    the first stage, where nothing entered, the weight half does all.

    >>> phases("B", 1), phases("I", 0), phases("W", 0)
    (('backward', 'again'), (), ('backward', 'again'))
    """
    if kind in ("F", "C", "R"):
        return ("forward",)
    whole = "W" if stage == 0 else "I"
    return ("backward", "again") if kind in ("B", whole) else ("again",) if kind == "W" else ()
