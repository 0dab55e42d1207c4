"""The exercises of notebook 41, choosing. As in `labs.exercises.all_tasks`, the package computes every number."""

from dataclasses import replace
from functools import cache, partial

from hybridlab.core.dry import DryRun
from hybridlab.core.what import catalog
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.predict.bytes.activations import FULL, RECOMPUTE
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.performance import step, throughput
from hybridlab.predict.plans.plan import Plan, check_plan, named

A100 = catalog.machine("a100")
DEVICES, BATCH, NODE = 64, 128, 4  # choosing.node: 161B, but in nodes of 4
SCENARIO = {"model": "gpt-18.4b", "devices": 32, "batch": 256}  # choosing.scenario
LONGEST, MOST = 12.8, 40e9  # seconds of a step, bytes on a device
FORWARD = {1: 5.0, 2: 8.2, 4: 14.6, 8: 27.6, 16: 54.0}  # choosing.microbatch: ms of a forward, by sequences in it
ASK = 'Answer with dict(p=…, t=…, d=…, b=…), and any of v, recompute="full", zero, sequence, scatter.'

DRY_MESH, DRY_ROOM = Mesh(dp=4, pp=4, tp=8), 40e9  # choosing.fits: the mesh, and bytes on a device
DRY_SHAPE = replace(catalog.model("gpt3-175b").shape, layers=16)
DRY = {"microbatches": 4, "batch": 128, "model": DRY_SHAPE, "memory": DRY_ROOM}
SWITCHES = ("zero", "sequence", "scatter")

task = partial(Task, notebook="41_choosing")


@cache
def fastest_ways(node: int) -> int:
    """The t that is fastest for 161B on 64 devices in nodes of this size: one copy, p = 64/t, b = 1, 128 sequences.

    >>> [fastest_ways(node) for node in (4, 8)]
    [4, 8]
    """
    shape, kind = catalog.model("gpt-161b").shape, replace(A100, node=node)

    def rate(t):
        one = Plan(p=DEVICES // t, t=t, b=1, recompute=FULL, scatter=True)
        return float(throughput(shape, one, BATCH, kind))

    return max((2, 4, 8, 16, 32), key=rate)


def _whole(sizes: dict) -> bool:
    """Whether the sizes of a plan are integers, and its switches true or false."""
    numbers = [sizes.get(name, 1) for name in ("p", "t", "d", "b", "v", "zero")]
    switches = [sizes.get(name, False) for name in ("sequence", "scatter")]
    return all(type(one) is int for one in numbers) and all(type(one) is bool for one in switches)


def bill(one: Plan) -> tuple[float, float]:
    """(seconds of a step, bytes on a device) of a plan in the scenario.

    raises  ValueError in one sentence when it is not legal, or not for this number of devices
    """
    shape, batch = catalog.model(SCENARIO["model"]).shape, SCENARIO["batch"]
    if one.devices != SCENARIO["devices"]:
        raise ValueError(f"p·t·d = {one.devices}, but there are {SCENARIO['devices']} devices: make them equal")
    if one.zero not in range(4):
        raise ValueError(f"zero={one.zero} is not a stage of ZeRO: choose 0, 1, 2 or 3")
    check_plan(one, shape, batch)
    return float(step(shape, one, batch, A100).total), float(footprint(shape, one, batch).total)


def _scenario(answer) -> Verdict:
    """A plan as a dictionary: within the time and the memory."""
    if isinstance(answer, Plan):
        answer = answer._asdict()
    if not isinstance(answer, dict) or not answer:
        return False, ASK
    try:
        one = named({"recompute": "none"} | answer)
        if not _whole(answer) or one.recompute not in range(len(RECOMPUTE)):
            return False, ASK
        seconds, bytes_ = bill(one)
    except (ValueError, TypeError) as error:
        return False, f"{error}."
    told = f"{one}: {seconds:.1f} s a step, {bytes_ / 1e9:.0f} GB"
    if bytes_ > MOST and seconds > LONGEST:
        return False, f"{told}: too slow, and too large."
    if bytes_ > MOST:
        return False, f"{told}: fast enough, but it needs more than {MOST / 1e9:.0f} GB."
    if seconds > LONGEST:
        return False, f"{told}: it fits, but it takes longer than {LONGEST} s."
    return True, f"{told}. It meets both limits."


@cache
def dry(**switches) -> DryRun:
    """The dry run of choosing.fits, with some switches."""
    from hybridlab.training.dry.dry_run import dry_run  # here, because it loads torch

    return dry_run(DRY_MESH, **DRY, **switches)


def _fits(answer) -> Verdict:
    """One switch, with which rank 0 finds room."""
    ask = f"Answer with one switch, such as dict(scatter=True): one of {', '.join(SWITCHES)}."
    if not isinstance(answer, dict) or len(answer) != 1 or not set(answer) <= set(SWITCHES):
        return False, ask
    ((name, value),) = answer.items()
    if type(value) is not (int if name == "zero" else bool) or not value:
        return False, ask
    try:
        one = dry(**answer)
    except ValueError as error:
        return False, f"{error}."
    return one.fits, f"Rank 0 holds {one.peak_bytes / 1e9:.1f} GB at most. It {one.verdict}."


def _microbatch(stages, sequences):
    p, each = stages, sequences
    seconds = {b: (each // b + p - 1) * 3 * forward for b, forward in FORWARD.items()}
    best = min(seconds, key=seconds.get)
    table = ", ".join(f"{forward:g} ms for b = {b}" for b, forward in FORWARD.items())
    return task(
        f"A pipeline has p = {p} stages, and each copy has {each} sequences in a step. With b sequences in a "
        f"microbatch, a stage's forward takes {table}; a backward takes twice as long. Which b makes the step "
        "shortest?",
        Number(
            lambda: best,
            slips=[
                (16, "With this b a sequence is cheapest, but few microbatches make a large bubble."),
                (1, "This b has the smallest bubble, but every sequence is expensive."),
            ],
        ),
        (
            "The step is (m + p - 1) · (tF(b) + tB(b)), where m is the number of sequences of a copy, divided by b.",
            f"With b = 1: ({each} + {p - 1}) · 15 ms = {seconds[1] / 1e3:.3f} s. Do the same for the others.",
            f"It is shortest with {seconds[best] / 1e3:.3f} s.",
        ),
        objective="Find the microbatch size that balances expensive sequences and a large bubble.",
        difficulty=2,
        minutes=5,
    )


TASKS: dict[str, Task] = {
    "choosing.node": task(
        f"161B runs on {DEVICES} devices as in figure 13 (one copy, p = {DEVICES}/t, b = 1, {BATCH} sequences), but "
        f"in nodes of {NODE}; in all other respects, the devices are A100s. For which t is a step fastest?",
        Number(
            lambda: fastest_ways(NODE),
            slips=[
                (8, "That is the answer for nodes of 8. Now a group of 8 spans two nodes."),
                (2, "That is inside the node, but 32 stages have a large bubble."),
                (16, "Such a group spans four nodes, and its all-reduces cross between them."),
                (32, "Such a group spans eight nodes, and its all-reduces cross between them."),
            ],
        ),
        (
            "While t stays inside the node, a larger t shortens the pipeline. What changes when a group spans "
            "several nodes?",
            "dataclasses.replace(machine('a100'), node=4) is this machine, and hl.plan takes it instead of a name; "
            "fix b=1, v=1 and the slides' limits.",
            "The largest group inside one node is fastest here too.",
        ),
        objective="Say where tensor parallelism should stop.",
        difficulty=1,
        minutes=4,
    ),
    "choosing.fits": task(
        f"The model has sixteen blocks of GPT-3's width. It runs with d = {DRY_MESH['dp']}, p = {DRY_MESH['pp']}, t = "
        f"{DRY_MESH['tp']} and four microbatches of eight sequences. A device has {DRY_ROOM / 1e9:.0f} GB, and rank 0 "
        "does not fit. Turn on one switch so that it does: zero=1, zero=2, sequence=True or scatter=True.",
        _fits,
        (
            "Which part is the largest when rank 0 holds the most? Look at .peak of choosing.dry().",
            "ZeRO 1 shards the optimizer's state over four copies. Sequence parallelism divides the saved "
            "activations of norms and residuals among eight ranks. Scatter makes messages smaller.",
            "Activations are the largest part: four large microbatches are held at once.",
        ),
        objective="Find by dry runs which part must shrink.",
        difficulty=2,
        minutes=6,
    ),
    "choosing.microbatch": varying(_microbatch, stages=(8, 4, 16), sequences=(64, 128, 256)),
    "choosing.scenario": task(
        f"Train 18.4B on {SCENARIO['devices']} A100s, with {SCENARIO['batch']} sequences in a step. Another program "
        f"uses half of every device, so you have {MOST / 1e9:.0f} GB, and a step may take at most {LONGEST} s. Find a "
        "plan: p, t, d, b, and any of v, recompute, zero, sequence, scatter.",
        _scenario,
        (
            "16 bytes for each of 18.4 billion weights are 295 GB. Which ranks share them? With ZeRO, copies share "
            "them too.",
            'Full recomputation makes a step a third longer, "selective" only a little. Even "selective" drops the '
            "largest part of the activations.",
            'ZeRO 3, recompute="selective", b = 1, and nearly all devices as copies.',
        ),
        objective="Choose a plan within a time limit and a memory limit.",
        difficulty=3,
        minutes=10,
    ),
}
