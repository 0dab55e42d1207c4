"""Usual: the assumptions about a machine: programs of its generation, and the fraction of its peak that GEMMs reach.

A published run names its software and its kernels; a plan for a machine does not. For three GPUs and for TPUs, enough
runs are published to know both. All other GPUs use the numbers of the one with the nearest peak among these three.

Relatives: `predict.plans.trust`, the errors of predictions with these numbers; `predict.plans.measured`, numbers that
are measured on a machine.
"""

import math
from pathlib import Path
from typing import NamedTuple

from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.machines import machine_of
from hybridlab.predict.plans.given import saves_scores
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import FITTED, Fit
from hybridlab.predict.plans.software import Software, told

ROUNDED = 1e-9  # a share this much above 1 is 1


class Usual(NamedTuple):
    """The assumptions about a machine: software by name, whether attention is fused, and the fitted numbers."""

    software: str
    fused: bool
    fit: Fit

    def fuses(self, given: dict) -> bool:
        """Whether attention is fused in plans with these fields, if `fused` is not one of them."""
        return self.fused and not saves_scores(given)


TPU = "tpu-v5p"
_HOPPER = Usual("megatron-2024", True, FITTED._replace(multiply=0.556))  # compared with predictor.json
USUAL = {
    "a100": Usual("megatron-2021", False, FITTED),  # SC'21's own machine, on whose table 1 the numbers were fitted
    "h100": _HOPPER,
    "b200": _HOPPER,  # published only in 8 and 4 bits, which give no share for 16
    TPU: Usual("xla-2024", True, FITTED._replace(multiply=0.773)),  # of three generations, compared with the same file
}


def family(machine: Machine) -> str:
    """The machine in `USUAL` of the same kind with the nearest peak.

    >>> [family(catalog.machine(name)) for name in ("v100", "h200", "gb300", "tpu-v6e")]
    ['a100', 'h100', 'b200', 'tpu-v5p']
    """
    if (machine.like or machine.name).startswith("tpu"):
        return TPU
    return min(USUAL.keys() - {TPU}, key=lambda name: abs(math.log(catalog.machine(name).peak / machine.peak)))


def usual(machine: str | Path | Machine) -> Usual:
    """The assumptions about a machine: a name in the catalog, a file, or a `Machine`.

    >>> usual("h200").software
    'megatron-2024'
    """
    return USUAL[family(machine_of(machine))]


def fit_of(machine: Machine, runs: Software) -> Fit:
    """The fitted numbers of a machine with a program. If the machine's share is known, matmuls reach it.

    >>> from dataclasses import replace
    >>> from hybridlab.predict.plans.software import SOFTWARE
    >>> for runs in map(SOFTWARE.get, ("megatron-2021", "megatron-2024")):
    ...     round(fit_of(replace(catalog.machine("h200"), share=0.63), runs).multiply * runs.library, 3)
    0.63
    0.63
    """
    known = usual(machine).fit
    return known._replace(multiply=machine.share / runs.library) if machine.share else known


def refuse_fit(fit: Fit, runs: Software) -> Fit:
    """The fit itself, if a machine can reach its fractions with this program.

    raises  ValueError for a fraction that is not between 0 and 1, or a launch that takes no possible time

    >>> refuse_fit(Fit(multiply=2.24), Software())
    Traceback (most recent call last):
    ValueError: GEMMs at 224% of the peak are not possible: correct the plan, the batch or the machine of the fit, \
or choose software that hides more
    """
    for what, share in (("GEMMs", fit.multiply * runs.library), ("memory-bound kernels", fit.memory)):
        if not 0 < share <= 1 + ROUNDED:
            raise ValueError(
                f"{what} at {_percent(share)} of the peak are not possible: correct the plan, the batch or the machine "
                "of the fit, or choose software that hides more"
            )
    if not 0 <= fit.launch < math.inf:
        raise ValueError(f"launch={fit.launch} is not a time: give seconds, 0 or more")
    return fit


def _percent(share: float) -> str:
    """A share in whole percents, unless it is less than one or more than all.

    >>> _percent(0.7249), _percent(0.00412), _percent(1.004)
    ('72%', '0.412%', '100.4%')
    """
    return f"{share:.0%}" if 0.01 <= share <= 1 else f"{100 * share:.4g}%"


def assumptions(context: int, software: Software, plan: Plan, fit: Fit) -> str:
    """The assumptions of a prediction in a sentence, and the arguments that change them.

    >>> print(assumptions(2048, Software(), Plan(), FITTED).partition(";")[0])
    Assumed: 2,048 tokens in a sequence, megatron-2021 in bf16, unfused attention, AdamW, GEMMs at 72% of the peak
    >>> "Muon, 1 further token predicted by a block on the last stage" in assumptions(
    ...     2048, Software(), Plan(optimizer=1, further=1), FITTED
    ... )
    True
    """
    many = f", {plan.further} further token{'s' * (plan.further > 1)} predicted by a block on the last stage"
    return (
        f"Assumed: {context:,} tokens in a sequence, {told(software)}, {'fused' if plan.fused else 'unfused'} "
        f"attention, {('AdamW', 'Muon')[plan.optimizer]}{many * (plan.further > 0)}, "
        f"GEMMs at {_percent(fit.multiply * software.library)} of the peak; change context, software, precision, fused "
        "or optimizer, or calibrate (fit, --took)"
    )
