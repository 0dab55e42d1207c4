"""The memory of one plan, under the same assumptions about a machine as in a search.

Relatives: `predict.plans.footprint`, the formulas; `predict.plans.usual`, the assumptions; `predict.plans.planner`.
"""

from pathlib import Path
from typing import Any

from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.equal_parts import refuse_idle
from hybridlab.predict.plans.footprint import Footprint, footprint
from hybridlab.predict.plans.given import unequal
from hybridlab.predict.plans.plan import arguments, check_plan, named
from hybridlab.predict.plans.ranges import refuse_numbers, refuse_sizes
from hybridlab.predict.plans.software import Software, programs
from hybridlab.predict.plans.usual import usual
from hybridlab.signatures import spelled


@spelled(arguments)
def memory(
    model: str | Shape,
    batch: int,
    software: str | Software | None = None,
    precision: str = "bf16",
    machine: str | Path | Machine = "a100",
    **sizes: Any,
) -> Footprint:
    """Bytes on the device that needs the most memory while a model trains with one plan.

    model  a name in the catalog, or a Shape;  batch  sequences in the global batch
    software   the program: a name in SOFTWARE, or its terms; it determines the bytes of gradients; None: the machine's
               usual one, see `plans.usual`
    precision  of matmuls with weights: "bf16", "fp8", "fp4"; it determines the bytes of their saved inputs
    machine    a name in the catalog, a TOML file, or a Machine; it determines the usual software, and whether attention
               is fused if `fused` is not given

    {arguments}

    For a plan that `hl.plan` finds for this machine, it is the same number. It is the largest amount that a program
    allocates; CUDA's context, NCCL's buffers and gaps between tensors need additional memory. `fits` of the result
    leaves 5 % of a device for them.

    raises  ValueError if the catalog lacks the model or the machine, or the plan is not valid, or there is no such
            software

    >>> import hybridlab as hl
    >>> print(f"{hl.memory('gpt3-175b', batch=96, p=12, t=8, recompute='full').total / 1e9:.0f} GB")
    36 GB
    >>> found = hl.memory("llama3-70b", batch=256, machine="h100", p=4, t=8, d=4, zero=1, sequence=True)
    >>> print(f"{found.total / 1e9:.0f} GB", found.fits("h100"))
    43 GB True
    """
    shape, sizes = catalog.shape_of(model), {name: size for name, size in sizes.items() if size is not None}
    refuse_numbers(batch=batch)
    refuse_sizes(sizes)
    assumed = usual(machine)
    plan = named({"uneven": unequal(shape, sizes), "fused": assumed.fuses(sizes)} | sizes)
    runs = programs(software or assumed.software, precision)
    refuse_idle(plan, shape)
    return Footprint(*map(float, footprint(shape, check_plan(plan, shape, batch), batch, runs)))
