"""The registry: every schedule by name, with its description."""

import inspect
import math
import re
from typing import Any

from hybridlab.core.afford import refuse_actions
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.mesh import Mesh
from hybridlab.scheduling.bpipe import bpipe
from hybridlab.scheduling.chimera import chimera
from hybridlab.scheduling.controllable import v_half, v_min
from hybridlab.scheduling.dualpipe import dualpipe, dualpipe_v
from hybridlab.scheduling.gpipe import gpipe
from hybridlab.scheduling.hanayo import hanayo
from hybridlab.scheduling.interleaved import interleaved
from hybridlab.scheduling.looped_bfs import looped_bfs
from hybridlab.scheduling.naive import naive
from hybridlab.scheduling.one_f_one_b import one_f_one_b
from hybridlab.scheduling.pipedream import pipedream, pipedream_2bw
from hybridlab.scheduling.pipeoffload import pipeoffload
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.subgraph import subgraph
from hybridlab.scheduling.token_slices import seq1f1b, terapipe
from hybridlab.scheduling.validate import validate
from hybridlab.scheduling.vocabulary import vocabulary_1f1b
from hybridlab.scheduling.zero_bubble import zb_h1, zb_h2, zb_interleaved, zb_v
from hybridlab.signatures import Argument, spelled

GENERATORS = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "looped_bfs": looped_bfs,
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
    "zb_v": zb_v,
    "zb_interleaved": zb_interleaved,
    "v_half": v_half,
    "v_min": v_min,
    "dualpipe": dualpipe,
    "dualpipe_v": dualpipe_v,
    "chimera": chimera,
    "hanayo": hanayo,
    "subgraph": subgraph,
    "seq1f1b": seq1f1b,
    "terapipe": terapipe,
    "vocabulary_1f1b": vocabulary_1f1b,
    "pipeoffload": pipeoffload,
    "bpipe": bpipe,
    "pipedream": pipedream,
    "pipedream_2bw": pipedream_2bw,
}
_FACT = re.compile(r"^([A-Z][a-z]+): +(.+(?:\n +.+)*)", re.MULTILINE)  # its further lines are indented


OPTIONS = {  # of some of the families
    "chunks": Argument("int | None", None, "stages on each rank (usually 2); for interleaved, looped_bfs and others"),
    "group": Argument(
        "int | None",
        None,
        "microbatches of a chunk in one turn; for interleaved (usually one per rank) and pipeoffload (two thirds)",
    ),
    "offloaded": Argument("int | None", None, "chunks of a rank that go to the host (usually half); for pipeoffload"),
    "waves": Argument("int | None", None, "for hanayo (usually 1): each wave has two stages on every rank"),
    "copies": Argument("tuple[int, ...] | None", None, "ranks of each stage, such as (3, 1); for pipedream"),
    "window": Argument("int | None", None, "microbatches between updates; for pipedream_2bw (usually one per rank)"),
    "vertical_sync": Argument("bool | None", None, "one weight version for a microbatch in all stages; for pipedream"),
    "backward": Argument("str | None", None, "the order of backwards, 'fifo' or 'lifo'; for gpipe"),
    "recompute": Argument("str | None", None, "forwards run twice: 'never', 'except_last' or 'always'; for gpipe"),
    "branches": Argument("int | None", None, "branches between the first stage and the last; for subgraph (usually 2)"),
    "slices": Argument("int | None", None, "token slices of each row (usually 2); for seq1f1b and terapipe"),
    "halves": Argument(
        "bool | None", None, "each backward in two halves, the weights' later; for seq1f1b and vocabulary_1f1b"
    ),
    "shared": Argument("bool | None", None, "the first stage and the last share a rank; for subgraph"),
}


@spelled(lambda: OPTIONS)
def schedule(name: str, ranks: int, microbatches: int, dp: int = 1, **options: Any) -> Schedule:
    """The schedule with this name for one pipeline, or for dp copies of it.

    name          one of `hl.schedules()`
    ranks         p, of one pipeline
    microbatches  m, of one pipeline in one step
    dp            data-parallel copies of the pipeline

    {arguments}

    raises  ValueError for an unknown name or option, or an invalid number

    >>> import hybridlab as hl
    >>> hl.schedule("1f1b", ranks=4, microbatches=8)
    <schedule 1f1b: 4 ranks, 4 stages, 8 microbatches, 64 actions>
    """
    options = {option: value for option, value in options.items() if value is not None}
    allowed = options_of(name)
    numbers = {"ranks": ranks, "microbatches": microbatches, "dp": dp, "chunks": options.get("chunks", 1)}
    for what, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{what}={number!r} is not possible: give a whole number, 1 or more")
    for option in options:
        if option not in allowed:
            takes = f"choose from {', '.join(allowed)}" if allowed else "leave it out"
            raise ValueError(f"schedule {name!r} has no option {option!r}: {takes}")
    numbers |= {option: options[option] for option in ("slices", "waves") if isinstance(options.get(option), int)}
    refuse_actions(2 * math.prod(numbers.values()), **numbers)
    one = GENERATORS[name](ranks, microbatches, **options)
    return validate(one if dp == 1 else replicate(one, Mesh(dp=dp, pp=ranks)))


def options_of(name: str) -> list[str]:
    """The options of the schedule with this name.

    raises  ValueError if there is none

    >>> options_of("interleaved")
    ['chunks', 'group']
    """
    if name not in GENERATORS:
        raise ValueError(f"there is no schedule {name!r}: choose one of {', '.join(GENERATORS)}")
    return list(inspect.signature(GENERATORS[name]).parameters)[2:]


def schedules() -> dict[str, dict[str, str]]:
    """Every schedule's name with its placement, order, constraints, bubble, peak and source.

    >>> import hybridlab as hl
    >>> hl.schedules()["1f1b"]["Peak"]
    'min(p-r, m) activations on rank r'
    """
    return {name: _facts(make) for name, make in GENERATORS.items()}


def _facts(make) -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in _FACT.findall(inspect.getdoc(make) or "")}
