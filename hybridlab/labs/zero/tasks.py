"""The exercises of notebook 22, ZeRO and FSDP. As in `labs.exercises.all_tasks`, the package computes every number."""

import math
from functools import partial

from hybridlab.labs.exercises.task import Number, Task, Verdict
from hybridlab.labs.trials.trial import Function
from hybridlab.labs.zero import build_tasks, levels
from hybridlab.labs.zero.plan import NODE, Plan, carried, kept, leaving, most, seconds
from hybridlab.show.layouts.memory_bars import size

PAPER = Plan(ranks=64, owners=64, policy="mixed, as printed")
TWO_NODES = Plan(ranks=2 * NODE, owners=2 * NODE)
FITS = 30e9  # bytes between steps in zero_fsdp.hybrid
ROOM, LEAVE, SECONDS = 28e9, 20e9, 0.9  # the targets of zero_fsdp.design
CLOSE = 0.05  # GB: the paper prints one digit after the point
STRATEGIES = ("NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD")

task = partial(Task, notebook="22_zero_fsdp")


def _numbers(answer, count: int) -> list[float] | None:
    """The answer as `count` finite numbers, or None."""
    if not isinstance(answer, list | tuple) or len(answer) != count or any(isinstance(one, bool) for one in answer):
        return None
    try:
        values = [float(one) for one in answer]
    except (TypeError, ValueError, OverflowError):
        return None
    return values if all(map(math.isfinite, values)) else None


def _stages(answer) -> Verdict:
    """The verdict on the GB that one rank keeps under stages 0 to 3, as the paper counts."""
    given = _numbers(answer, 4)
    if given is None:
        return False, "Answer with four numbers in GB: [stage 0, stage 1, stage 2, stage 3]."
    right = [sum(kept(PAPER._replace(stage=stage)).values()) / 1e9 for stage in range(4)]
    if all(abs(a - b) <= CLOSE for a, b in zip(given, right)):
        ours = sum(kept(PAPER._replace(policy="mixed")).values())
        told = ", ".join(f"{one:.3g}" for one in right)
        return True, f"{told} GB. In stage 3 our ranks keep {size(ours)}: only the master copy of the weights' shard."
    if all(abs(a - b) <= CLOSE for a, b in zip(given, right[::-1])):
        return False, "The order is reversed: stage 0, which shards nothing, comes first."
    stage = next(stage for stage, (a, b) in enumerate(zip(given, right)) if abs(a - b) > CLOSE)
    whole = {1: 4, 2: 2}.get(stage, 0)  # bytes of a parameter that a stage does not divide
    if whole and abs(given[stage] - (whole + 16 / 64) * 7.5) <= CLOSE:
        return (
            False,
            f"Stage {stage} divides {16 - whole} of the 16 bytes by 64; you added all 16 bytes / 64 to {whole}.",
        )
    if not stage:
        return False, "Stage 0 shards nothing: a rank keeps all 16 bytes of each parameter."
    if abs(given[stage] - right[0] / 64) <= CLOSE:
        return False, f"Stage {stage} shards only some of the three parts; the others stay unsharded."
    return False, f"Stage {stage} is too {'large' if given[stage] > right[stage] else 'small'}."


def _ratio() -> float:
    """The bytes sent with fully sharded weights, divided by those of plain data parallelism."""
    every = [sum(one.bytes for one in carried(PAPER._replace(stage=stage).layout)) for stage in (3, 0)]
    return every[0] / every[1]


def _names(answer) -> Verdict:
    """The verdict on the strategy of FSDP in each row."""
    if not isinstance(answer, list | tuple) or len(answer) != 4:
        return False, "Answer with four names, one for each row from (a) to (d)."
    given = [str(one).strip().upper().rpartition(".")[2] for one in answer]
    if unknown := [one for one in given if one not in STRATEGIES]:
        return False, f"{unknown[0]} is none of {', '.join(STRATEGIES)}."
    if len(set(given)) < 4:
        return False, "Each name belongs to one row."
    right = ["FULL_SHARD", "NO_SHARD", "HYBRID_SHARD", "SHARD_GRAD_OP"]
    if given == right:
        return True, (
            "In FSDP2: a mesh of one dimension with reshard_after_forward=True; no fully_shard at all; a mesh of two "
            "dimensions; reshard_after_forward=False."
        )
    row = next(i for i in range(4) if given[i] != right[i])
    if {given[0], given[3]} == {"SHARD_GRAD_OP", "FULL_SHARD"} and given[0] == "SHARD_GRAD_OP":
        return False, "The other way round: weights freed after the forward must be gathered again."
    return False, f"Row ({'abcd'[row]}) is another strategy."


def _hybrid(answer) -> Verdict:
    """The verdict on the number of owners on two nodes."""
    owners = _numbers([answer], 1)
    ways = [n for n in range(1, TWO_NODES.ranks + 1) if TWO_NODES.ranks % n == 0]
    if owners is None or owners[0] not in ways:
        return False, f"Answer with one of {', '.join(map(str, ways))}."
    plans = {n: TWO_NODES._replace(owners=n) for n in ways}
    own, leave = ({n: of(plan) for n, plan in plans.items()} for of in (_at_rest, lambda one: leaving(one, NODE)))
    best, mine = min((n for n in ways if own[n] <= FITS), key=leave.get), int(owners[0])
    told = f"{size(own[mine])} on each rank, {size(leave[mine])} leave a node"
    if mine == best:
        return True, f"{told}: weights are gathered inside the node, and only the all-reduce of shards crosses."
    if own[mine] > FITS:
        return False, f"{told}: that is more than the memory of a rank."
    return False, f"{told}: it fits, but every gather crosses between the nodes."


def _at_rest(plan):
    return sum(kept(plan).values())


def _design(answer) -> Verdict:
    """The verdict on stage, owners and active units for targets of memory, traffic and time."""
    given = _numbers(answer, 3)
    if given is None or any(one != int(one) for one in given):
        return False, "Answer with three whole numbers: [stage, owners, active]."
    stage, owners, active = map(int, given)
    if stage not in range(4) or owners not in (1, 2, 4, 8) or not 1 <= active <= 36:
        return False, "Stages are 0 to 3, owners 1, 2, 4 or 8, active units 1 to 36."
    plan = TWO_NODES._replace(stage=stage, owners=owners)
    held, leave, lasts = most(plan, active), leaving(plan, NODE), seconds(plan, active)
    told = f"{size(held)} at most, {size(leave)} leave a node, {lasts:.3f} s"
    if held > ROOM:
        return False, f"{told}: too much memory."
    if leave > LEAVE:
        return False, f"{told}: too much traffic between the nodes."
    if lasts > SECONDS:
        return False, f"{told}: too long. What does a rank wait for?"
    return True, f"{told}."


TASKS: dict[str, Task] = {
    **build_tasks.TASKS,
    "zero_fsdp.stages": task(
        "A model has 7.5 billion parameters on 64 ranks, in mixed precision with Adam: 2 bytes for a weight, 2 for its "
        "gradient, 12 for the optimizer state. How many GB does a rank keep under the stages 0, 1, 2 and 3?",
        _stages,
        (
            "The sharded part is divided by 64; the rest is not. Stage 1 shards 12 of the 16 bytes.",
            "Stage 1: 4 + 12/64 bytes for each parameter. Stage 2: 2 + 14/64. Stage 3: 16/64.",
            "Multiply by 7.5: stage 0 is 16 · 7.5 = 120 GB, stage 1 is 4.1875 · 7.5, and so on.",
        ),
        objective="Say how much memory each stage of ZeRO needs on a rank.",
        difficulty=1,
        minutes=4,
    ),
    "zero_fsdp.ratio": task(
        "Weights are fully sharded, and every unit is gathered for its forward and again for its backward. By what "
        "factor does this increase the number of bytes sent in a step, compared with plain data parallelism?",
        Number(
            _ratio,
            slips=[
                (1, "That is stage 1 or 2: a reduce-scatter and one gather are an all-reduce, taken apart."),
                (2, "Two gathers and a reduce-scatter are three thirds. How many of these thirds is an all-reduce?"),
                (3, "Three times the model, but plain data parallelism sends it twice."),
            ],
        ),
        (
            "A gather and a reduce-scatter send the same bytes: Ψ(p-1)/p. An all-reduce is one of each.",
            "How many gathers are there for each unit, and how many reduce-scatters?",
            "Two gathers and one reduce-scatter, divided by two.",
        ),
        objective="Compute the traffic of fully sharded weights.",
        difficulty=1,
        minutes=2,
    ),
    "zero_fsdp.names": task(
        "Which FSDP strategy corresponds to which row? (a) Weights are sharded between steps, and gathered for a "
        "forward and again for a backward. (b) They are never sharded. (c) As (a), but every group of neighbours has a "
        "full set of shards. (d) They are sharded between steps, and stay gathered from the first forward to the "
        "backward. Answer with four names.",
        _names,
        (
            "FULL_SHARD is the lecture's fully sharded, NO_SHARD is its replicated.",
            "In (d) only gradients and optimizer state are sharded during the step: the name says so.",
            "(b) is NO_SHARD, (c) is HYBRID_SHARD, (d) is SHARD_GRAD_OP.",
        ),
        objective="Distinguish the strategies of FSDP by the state that they shard, and when.",
        difficulty=2,
        minutes=4,
    ),
    "zero_fsdp.hybrid": task(
        f"A model of 7.5B parameters is trained in mixed precision with stage 3 on two nodes of {NODE} ranks each. "
        f"Between steps, a rank may hold at most {FITS / 1e9:.0f} GB. Rings are in rank order. Among how many "
        "neighbours do you shard, so that the fewest bytes leave a node in a step?",
        _hybrid,
        (
            "14 bytes for each parameter, divided by the owners, must fit. Which rings cross between the nodes?",
            "With 1 owner nothing is sharded: 16 · 7.5 = 120 GB. With F > 1 owners: 14 · 7.5 / F, so 52.5 GB with 2. "
            "With which F that fits do the rings stay inside a node?",
            "If the owners are the ranks of one node, no gather leaves the node.",
        ),
        objective="Choose the number of ranks for sharding by memory and traffic.",
        difficulty=2,
        minutes=5,
    ),
    "zero_fsdp.stretch": task(
        "Write `my_stretch(rank, length, inside, groups)`: on two levels, the range (first, end) of the flat vector "
        "that a rank updates. `length`, the number of its entries, is a multiple of `inside · groups`. Ranks 0 to "
        "`inside - 1` are the first group. Inside each group, the first rank has the first part of the sum, and so on; "
        "then, across the groups, the ranks that hold the same part reduce-scatter it, in rank order.",
        Function(levels.CASES, levels.judged, "Answer with your function itself: my_stretch, without parentheses."),
        (
            "Two reduce-scatters follow one another. What does the first one leave on this rank?",
            "Its part begins at rank % inside · length / inside. Among how many groups is it divided? And which of "
            "its shards belongs to group rank // inside?",
            "size = length // (inside * groups); first = (rank % inside * groups + rank // inside) * size.",
        ),
        objective="Say which shard a rank updates if the optimizer's state is sharded on two levels.",
        difficulty=2,
        minutes=6,
    ),
    "zero_fsdp.design": task(
        "On the same two nodes a unit takes 8 ms forward and 16 ms backward. Choose `[stage, owners, active]` so that "
        f"no rank ever holds more than {ROOM / 1e9:.0f} GB of weights, gradients and optimizer state, at most "
        f"{LEAVE / 1e9:.0f} GB leave a node, and a step takes at most {SECONDS} s.",
        _design,
        (
            "Memory determines the stage, traffic the owners, and time the number of units that are prefetched.",
            "Stage 3 among the ranks of a node. With one active unit every gather stalls the rank.",
            "[3, 4, active]: 1 is too long, 6 is too much memory. A small number is enough.",
        ),
        objective="Meet limits of memory, traffic and time with one plan.",
        difficulty=3,
        minutes=12,
    ),
}
