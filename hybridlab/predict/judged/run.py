"""Define a run: one row of a published table, with the inputs of a prediction and the measurement.

Relatives: `predict.papers.published` (the tables), `predict.plans.performance`, `predict.judged.scores`.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

from hybridlab.core.what.catalog import machine
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.performance import Step, step
from hybridlab.predict.plans.plan import NAMED, Plan
from hybridlab.predict.plans.planner import Planned, plan
from hybridlab.predict.plans.rates import FITTED, Fit
from hybridlab.predict.plans.software import PRECISIONS, SOFTWARE, Software
from hybridlab.predict.plans.trust import kind_of


class Run(NamedTuple):
    """A published run.

    source  the name of its table;  model, machine, software  names;  seconds  the seconds of a step, as measured
    precision  the precision of matmuls with weights: a name in PRECISIONS;  note  its place in the source
    """

    source: str
    model: str
    machine: str
    software: str
    shape: Shape
    plan: Plan
    batch: int
    seconds: float
    precision: str = "bf16"
    note: str = ""

    @property
    def kind(self) -> str:
        """The kind of run: with experts, with narrow matmuls, with a sharded context, or none of these (dense)."""
        return kind_of(self.shape, self.plan, self.programs)

    @property
    def programs(self) -> Software:
        """The software, in the run's precision."""
        return SOFTWARE[self.software]._replace(precision=PRECISIONS.index(self.precision))

    @property
    def tokens(self) -> float:
        """Tokens of one device in a second, as measured."""
        return self.batch * self.shape.context / self.plan.devices / self.seconds

    def step(self, fit: Fit = FITTED, **changes: Any) -> Step:
        """The predicted step, term by term; `changes` are fields of the software."""
        kind = machine(self.machine)
        found = step(self.shape, self.plan, self.batch, kind, fit, self.programs._replace(**changes))
        return Step(*map(float, found))

    def error(self, fit: Fit = FITTED, **changes: Any) -> float:
        """Predicted speed over measured speed, minus one."""
        return self.seconds / self.step(fit, **changes).total - 1

    def called(self, fit: Fit | None = None) -> float:
        """The error of the public call's prediction, without a memory limit: `planned` shows which rows do not fit."""
        return self.seconds / self.planned(fit, math.inf).best.step.total - 1

    @property
    def fits(self) -> bool:
        """Whether the run fits into the memory that a plan may use, by the public call."""
        return self.planned(memory=math.inf).best.memory.fits(self.machine)

    def planned(self, fit: Fit | None = None, memory: float | None = None) -> Planned:
        """The answer of `plan` for this model, machine and software, with every field of the plan fixed.

        fit  None: the planner's own;  memory  bytes of a device; None: those of the machine

        raises  ValueError where the planner has no such plan, or it does not fit
        """
        fields = self.plan._asdict() | {name: names[getattr(self.plan, name)] for name, names in NAMED.items()}
        del fields["uneven"]  # the planner sees whether p·v divides the layers
        kind = machine(self.machine) if memory is None else replace(machine(self.machine), memory=memory)
        given = {"fit": fit, "software": self.software, "precision": self.precision}
        return plan(self.shape, kind, self.plan.devices, self.batch, **given, **fields)

    def __str__(self) -> str:
        return f"{self.model}, {self.plan.devices} × {self.machine}, {self.precision}, {self.plan}"
