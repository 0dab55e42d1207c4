"""The exercises of notebook 40, hybrid. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import lru_cache, partial
from itertools import product

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.exercises.plain import integer
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.words import in_words, so_many
from hybridlab.labs.hybrid import build_tasks, moving
from hybridlab.labs.hybrid.lost import EACH, PIPELINES, STAGES, length
from hybridlab.labs.hybrid.traffic import between_nodes
from hybridlab.labs.trials.trial import Function, Gave
from hybridlab.predict.bytes import of_cuts
from hybridlab.predict.bytes.memory import model_states
from hybridlab.predict.bytes.traffic import traffic
from hybridlab.scheduling.registry import schedule

CUBE = Mesh(pp=2, dp=2, tp=2)  # hybrid.groups: tensor fastest, pipeline slowest
BOUNDARY, PARTS = 1 * 2048 * 12288 * 2, 8  # hybrid.scatter: b·s·h in half precision; t
TRIED = ((2, 2, 2), (1, 4, 2), (2, 2, 4), (3, 1, 4), (2, 8, 1))  # hybrid.builder: p, t, d
DESIGN = {"shape": Shape(layers=8, width=64, heads=8, context=64), "microbatches": 4, "batch": 64}
RANKS, PER_NODE, CAP = 16, 4, 640_000  # hybrid.design: bytes of weights, gradients and Adam's state on a rank
BEST = Mesh(dp=2, pp=4, tp=2), 2
LONG = 50  # hybrid.lost: units
CUT_FOR, SEQUENCES = 12, (32, 128)  # hybrid.cuts: devices, and the two batches

task = partial(Task, notebook="40_hybrid")


def factorisations(ranks: int) -> int:
    """The number of ways to write ranks as p · t · d.

    >>> factorisations(8)
    10
    """
    ways = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return sum(p * t * d == ranks for p, t, d in product(ways, repeat=3))


def _groups(answer) -> set | None:
    """Groups as a set of sets of ranks, or None."""
    try:
        return {frozenset(map(integer, group)) for group in answer}
    except (TypeError, ValueError):
        return None


def _three_axes(answer) -> Verdict:
    """{"tp": groups, "dp": groups, "pp": groups} of the cube."""
    if not isinstance(answer, dict) or set(answer) != {"tp", "dp", "pp"}:
        return False, 'Answer with {"tp": [[0, 1], …], "dp": […], "pp": […]}.'
    given = {axis: _groups(groups) for axis, groups in answer.items()}
    right = {axis: _groups(CUBE.groups(axis)) for axis in given}
    if given == right:
        return True, "Ranks that are 1 apart differ in their part, 2 apart in their copy, 4 apart in their stage."
    if given == {**right, "tp": right["pp"], "pp": right["tp"]}:
        return False, "That is the order with the pipeline fastest and the tensor axis slowest."
    wrong = next(axis for axis in ("tp", "dp", "pp") if given[axis] != right[axis])
    if given[wrong] and sorted(rank for group in given[wrong] for rank in group) != list(range(CUBE.size)):
        return False, f"Along {wrong} every rank 0 to {CUBE.size - 1} is in exactly one group."
    mixed_up = next((axis for axis in right if axis != wrong and right[axis] == given[wrong]), None)
    told = f"Your groups for {wrong} are those of {mixed_up}." if mixed_up else f"The groups along {wrong} are wrong."
    return False, told


def crossing(parts: int) -> float:
    """Bytes that one microbatch sends over one cut, forward and backward, if each rank sends the full tensor."""
    return sum(size for _, size in traffic(schedule("1f1b", ranks=2, microbatches=1), parts * BOUNDARY).values())


def _builder(gave: list[Gave]) -> Verdict:
    """The verdict on a function (p, t, d) that builds the data groups."""
    for (p, t, d), call in zip(TRIED, gave):
        if call.raised:
            return False, f"With p={p}, t={t}, d={d} it ends with {call.raised.partition(':')[0]}."
        groups, right = _groups(call.value), Mesh(pp=p, dp=d, tp=t).groups("dp")
        if groups != _groups(right) or len(call.value) != len(right):
            return False, f"With p={p}, t={t}, d={d} {_misbuilt(call.value, groups, right)}."
    return True, (
        f"The step from copy to copy is t. Right for {len(TRIED)} meshes, including those where t and d differ."
    )


def _misbuilt(value, groups: set | None, right: list) -> str:
    """The mistake in data groups, in words: their number, or the first group that is not there."""
    if groups is not None and len(value) != len(right):
        return f"it builds {so_many(len(value), 'group')}; one for each stage and part makes {len(right)}"
    missing = next((group for group in right if frozenset(group) not in (groups or ())), right[0])
    return f"it builds {_shown(value)}; one data group is {list(missing)}"


def _shown(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


@lru_cache(maxsize=32)
def bill(mesh: Mesh, zero: int) -> tuple[int, float]:
    """(most bytes that a rank stores between steps, bytes of a step that leave a node) of a design.

    raises  ValueError in one sentence for a layout that does not fit
    """
    from hybridlab.training.make_job import job_of  # here, because it loads torch

    job = job_of(mesh, zero=zero, **DESIGN)
    fullest = max(sum(model_states(job.layout, rank).values()) for rank in range(mesh.size))
    return fullest, sum(between_nodes(job, PER_NODE).values())


def _design(answer) -> Verdict:
    """{"mesh": Mesh, "zero": stage}: under the cap, and with the fewest bytes between nodes."""
    mesh, zero = (answer.get("mesh"), answer.get("zero")) if isinstance(answer, dict) else (None, None)
    if not isinstance(mesh, Mesh) or isinstance(zero, bool) or zero not in (0, 1, 2):
        return False, "Answer with dict(mesh=hl.Mesh(…), zero=…), zero from 0 to 2."
    if mesh.size != RANKS:
        return False, f"{mesh} has {mesh.size} ranks; there are {RANKS}."
    try:
        fullest, out = bill(mesh, zero)
    except ValueError as error:
        return False, f"{error}."
    least = bill(*BEST)[1]
    if fullest > CAP:
        return False, (
            f"A rank stores {fullest:,} bytes between steps; {CAP:,} are allowed. Between nodes: {out:,.0f} bytes."
        )
    if out > least:
        return False, f"It fits, {fullest:,} bytes. But {out:,.0f} bytes cross nodes; {least:,.0f} are possible."
    return True, f"{fullest:,} bytes between steps, {out:,.0f} bytes between nodes: no grid that fits sends less."


def _worst(answer) -> Verdict:
    """Two ranks with whose loss a step takes more than LONG units."""
    try:
        one, other = sorted(set(map(integer, answer)))
    except (TypeError, ValueError):
        return False, "Answer with a list of two ranks, such as [0, 1]."
    ranks = range(PIPELINES * STAGES)
    if one not in ranks or other not in ranks:
        return False, f"The ranks are {ranks[0]} to {ranks[-1]}."
    if (found := length("1f1b", [one, other])) <= LONG:
        return False, f"Without ranks {one} and {other} a step takes {found:g} units. Other pairs make it longer."
    return True, (
        f"{found:g} units: ranks {one} and {other} are in the same stage, so its last copy has the work of all "
        f"{in_words(PIPELINES)}."
    )


def _cuts(answer) -> Verdict:
    """{sequences: (p, t, d)} with the fewest bytes for both batches."""
    if not isinstance(answer, dict) or set(answer) != set(SEQUENCES):
        return False, "Answer with {32: (p, t, d), 128: (p, t, d)}."
    sent = {}
    for batch, sizes in answer.items():
        try:
            p, t, d = map(integer, sizes)
        except (TypeError, ValueError):
            return False, "Answer with {32: (p, t, d), 128: (p, t, d)}."
        if p not in of_cuts.STAGES or t not in of_cuts.PARTS or d not in of_cuts.COPIES:
            return False, f"The picture has no cut p={p}, t={t}, d={d}."
        one, best = of_cuts.Cut(p, t, d, batch), of_cuts.fewest(CUT_FOR, batch)
        if one.devices != CUT_FOR:
            return False, f"p={p}, t={t}, d={d} is a cut for {one.devices} devices; there are {CUT_FOR}."
        if one.sent > best.sent:
            return False, (
                f"With {batch} sequences, p={p}, t={t}, d={d} sends {one.sent / 1e9:.2f} GB; {best.sent / 1e9:.2f} GB "
                "are possible."
            )
        sent[batch] = f"{one.sent / 1e9:.2f} GB"
    return True, (
        f"{' and '.join(sent.values())}. Messages between stages grow with the batch, gradients do not: with a larger "
        "batch, fewer stages and more copies send less."
    )


def _count(gpus):
    exponent = gpus.bit_length() - 1
    return task(
        f"In how many ways can you choose p, t and d for {gpus} GPUs, so that p · t · d = {gpus}?",
        Number(
            lambda: factorisations(gpus),
            "ways",
            slips=[
                (
                    exponent + 1,
                    f"That is the number of divisors of {gpus}, or of choices if you do not tell p, t and d apart.",
                ),
                (
                    6 * factorisations(gpus),
                    "That counts the orders of the axes too. How many grids are there in a fixed order?",
                ),
                (gpus, "Every factor is a power of two. In how many ways can its exponent be split into three?"),
            ],
        ),
        (
            f"{gpus} = 2{'⁰¹²³⁴⁵⁶⁷⁸⁹'[exponent]}: {in_words(exponent)} twos are distributed over three axes.",
            f"{in_words(exponent).capitalize()} stars and two bars: {exponent + 2} over 2.",
            f"{exponent + 2} · {exponent + 1} / 2.",
        ),
        objective="Count the grids that a planner must consider.",
        difficulty=1,
        minutes=2,
    )


TASKS: dict[str, Task] = {
    **build_tasks.TASKS,
    **moving.TASKS,
    "hybrid.groups": task(
        "There are eight ranks, with p = t = d = 2. The tensor axis varies fastest, then data, and the pipeline "
        "slowest. Which ranks form the groups along each axis?",
        _three_axes,
        (
            "Write down rank = 4·(stage) + 2·(copy) + (part), and vary one of the three.",
            "Along tp the ranks are neighbours: [0, 1], [2, 3], … Along pp they are 4 apart.",
            "Along pp: [0, 4], [1, 5], [2, 6], [3, 7]. Along dp the ranks are 2 apart: [0, 2] is one group.",
        ),
        objective="Name the groups of a grid of ranks.",
        difficulty=1,
        minutes=4,
    ),
    "hybrid.cuts": task(
        f"Cut the six layers of the picture for {CUT_FOR} devices. For which p, t and d does the blue device send the "
        "fewest bytes with a batch of 32 sequences, and for which with 128?",
        _cuts,
        (
            "Which knife causes the largest messages? Leave it out, and compare the other two.",
            "With t = 1, six stages and two copies are possible, or three stages and four copies.",
            "Set p = 6, d = 2, and then p = 3, d = 4; read the last row of the table for both batches.",
        ),
        objective="Find the cut whose busiest device sends the fewest bytes, for a small and a large batch.",
        difficulty=1,
        minutes=3,
    ),
    "hybrid.count": varying(_count, gpus=(64, 32, 128, 256)),
    "hybrid.scatter": task(
        f"Two consecutive stages run on different nodes. t = {PARTS}; a boundary tensor takes {BOUNDARY / 1e6:.2f} MB "
        "(b = 1, s = 2048, h = 12288, two bytes per number). With scatter/gather, how many MB do the two nodes send to "
        "each other for one microbatch, forward and backward together?",
        Number(
            lambda: crossing(1) / 1e6,
            "MB",
            slips=[
                (crossing(PARTS) / 1e6, "That is without scatter/gather: all eight ranks send the same tensor."),
                (BOUNDARY / 1e6, "That is the activation. Its gradient comes back."),
                (2 * BOUNDARY / PARTS / 1e6, "That is what one rank sends. There are eight."),
            ],
        ),
        (
            "Each of the t ranks sends 1/t of the tensor.",
            "All parts together are one tensor; and there is one for each direction.",
            f"Twice {BOUNDARY / 1e6:.2f} MB.",
        ),
        objective="Count the bytes that scatter/gather saves between nodes.",
        difficulty=2,
        minutes=4,
    ),
    "hybrid.lost": task(
        f"{in_words(PIPELINES).capitalize()} pipelines of {in_words(STAGES)} ranks run 1F1B with {EACH} microbatches "
        f"each, numbered as above. With all ranks, a step takes {3 * (EACH + STAGES - 1)} units. Two ranks are lost, "
        f"and their work is rerouted. Name two whose loss makes the step longer than {LONG} units; most other pairs "
        "do not.",
        _worst,
        (
            "The step waits for the rank that has the most work.",
            "A lost rank's microbatches go to the same stage of the other pipelines. When is only one of these left?",
            f"Take two ranks whose numbers differ by {STAGES} or {2 * STAGES}.",
        ),
        objective="Find the losses that rerouting cannot spread.",
        difficulty=2,
        minutes=4,
    ),
    "hybrid.builder": task(
        "`data_groups(p, t, d)` builds the data groups for ranks in the order pipeline, data, tensor (fastest). It "
        "passed its test with p = t = d = 2. Find the mistake and fix it.",
        Function(TRIED, _builder, "Hand in the function itself: labs.answer(…, data_groups)."),
        (
            "Try p = 1, t = 4, d = 2 on paper. Which ranks hold part 0?",
            "From one copy to the next the number grows by t. In the test t and d are both 2.",
            "The three arguments of range: first, first + d * t, and the step from copy to copy, which is not d.",
        ),
        objective="Find a mistake that a test with equal numbers does not detect.",
        difficulty=2,
        minutes=6,
    ),
    "hybrid.design": task(
        f"Use {RANKS} ranks in nodes of {PER_NODE}, with the model and batch above. Choose dp, pp, tp, the order of "
        f"the axes and ZeRO's stage (0, 1, 2). No rank may store more than {CAP:,} bytes between steps; the bytes "
        "sent between nodes must be as few as possible. The cell below the answer shows both numbers.",
        _design,
        (
            "Tensor groups communicate most: keep them in a node, with tp last. Then compare the bytes of messages "
            "between stages with those of gradients.",
            "Use half of a node for a tensor group, the other half for the next stage, and shard gradients too.",
            "Two copies as the slowest axis, then four stages, then two tensor ranks; ZeRO stage 2.",
        ),
        objective="Choose a grid, its order and a stage of ZeRO, by memory and by traffic.",
        difficulty=3,
        minutes=12,
    ),
}
