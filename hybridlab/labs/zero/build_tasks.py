"""What students build, look up and mend in notebook 22: ZeRO 1, one FSDP unit, what FSDP2 does, a broken ZeRO 2."""

from functools import partial

from hybridlab.labs.exercises.task import Number, Task
from hybridlab.labs.trials.cases import OnCases
from hybridlab.labs.trials.clinic import Clinic
from hybridlab.labs.zero import clinic, clinic_case, trial
from hybridlab.labs.zero.trial import ONE_CASES, UNIT_CASES

task = partial(Task, notebook="22_zero_fsdp")

PLAYS, BLOCKS = 4, 4  # microbatches in zero_fsdp.accumulate; blocks in zero_fsdp.root

TASKS: dict[str, Task] = {
    "zero_fsdp.one": task(
        "Write MyZeRO1(comm, parameters, rate): Adam whose state is sharded. Every rank has all weights, and after "
        "loss.backward() the gradients of its own rows. step() makes the weights on every rank those that one device "
        "gets from torch.optim.Adam with the mean gradient. A rank keeps Adam's averages for its shard only: the flat "
        "weights, padded with zeros, cut into comm.size equal pieces. Tried on 4 ranks for three steps; then on "
        "others, also where the number of weights must be padded.",
        OnCases(
            "zero.rank:play_one",
            trial.judge_one,
            ONE_CASES,
            "The weights of one device on every rank, Adam's state for a shard only, and as many bytes as an "
            "all-reduce sends.",
        ),
        (
            "An all-reduce is a reduce-scatter and an all-gather. What do you do between the two, and with which "
            "numbers?",
            "In step(): flat gradient, padded; its shard by comm.reduce_scatter, divided by comm.size; an Adam step on "
            "the own shard; all shards by comm.all_gather; copied into the weights.",
            "In __init__: self.shard = torch.nn.Parameter(padded.chunk(comm.size)[comm.rank].clone()) and self.adam = "
            "torch.optim.Adam([self.shard], lr=rate). In step(): self.shard.grad = "
            "comm.reduce_scatter(gradient) / comm.size, self.adam.step(), comm.all_gather(self.shard.detach()).",
        ),
        about=trial.ABOUT_ONE,
        objective="Write an optimizer whose state is sharded.",
        difficulty=3,
        minutes=12,
    ),
    "zero_fsdp.unit": task(
        "Write MyUnit(comm, module), one unit of FSDP. At rest a rank holds unit.shard only: its piece of the flat, "
        "padded weights, a torch.nn.Parameter. unit(x) gathers the weights, calls the module and frees them. When the "
        "gradient of the output comes, they are gathered again; when all gradients are made, unit.shard.grad is this "
        "rank's piece of the mean gradient, and weights and gradients are freed. Tried on 2 ranks for two steps, then "
        "on others with padding.",
        OnCases(
            "zero.rank:play_unit",
            trial.judge_unit,
            UNIT_CASES,
            "The outputs and gradients of the module; only the shard between forward and backward; two gathers and a "
            "reduce-scatter.",
        ),
        (
            "One flat buffer holds all weights, and each weight.data is a view of it. To free it, take its storage "
            "away; to gather, give the storage back and fill it. The views find their numbers again.",
            "gather: self.flat.untyped_storage().resize_(self.flat.nbytes), then copy_ what comm.all_gather(shard) "
            "returns. free: resize_(0). In forward: gather, module, free, and y.register_hook(…) to gather again.",
            "A hook on every weight counts: self.left -= 1. After the last: flat gradient, padded, "
            "self.shard.grad = comm.reduce_scatter(…) / comm.size; every weight.grad = None; free.",
        ),
        about=trial.ABOUT_UNIT,
        objective="Write a unit of FSDP: gather, use, free, and reduce-scatter.",
        difficulty=3,
        minutes=15,
    ),
    "zero_fsdp.root": task(
        f"A model of {BLOCKS} blocks and a head. fully_shard(block) for each block, then fully_shard(model) for the "
        f"root, which takes the head; all with defaults. So there are {BLOCKS + 1} units. How many of them are "
        "gathered a second time, for the backward?",
        Number(
            lambda: BLOCKS,
            slips=[
                (BLOCKS + 1, "That is FULL_SHARD for all of them. What does None mean for the root?"),
                (BLOCKS - 1, "FSDP2 does not know which block is the last one; its user has to say so."),
                (0, "None is SHARD_GRAD_OP. Read what reshard_after_forward=None means."),
                (2 * BLOCKS + 1, "That counts all gathers of a step. The question is how many are second ones."),
            ],
        ),
        (
            "The docstring of fully_shard says what reshard_after_forward=None means.",
            "None is True for some units and False for others. Which unit is needed first in the backward?",
            "True for all but the root, whose weights stay from the forward to the backward.",
        ),
        objective="Look up which unit FSDP2 keeps for the backward.",
        difficulty=2,
        minutes=4,
    ),
    "zero_fsdp.accumulate": task(
        f"{PLAYS} microbatches in a step. FSDP gathers every unit for each forward and each backward, and "
        "reduce-scatters after each backward. Plain data parallelism all-reduces once, after the last. How many times "
        "as many bytes does FSDP send?",
        Number(
            lambda: 3 * PLAYS / 2,
            slips=[
                (1.5, "That is one microbatch."),
                (3 * PLAYS, "In units of Ψ(p-1)/p. How many of these does plain data parallelism send?"),
                ((2 * PLAYS + 1) / 2, "That is with one reduce-scatter in a step. What must a rank then keep?"),
            ],
        ),
        (
            "For each microbatch: two gathers and a reduce-scatter.",
            "Plain data parallelism sends two thirds of these three, once.",
            f"3 · {PLAYS} over 2.",
        ),
        objective="Say what accumulation costs when weights are sharded.",
        difficulty=2,
        minutes=3,
    ),
    "zero_fsdp.clinic": task(
        "What is wrong with broken? (a) The sum over the ranks is not divided by their number. (b) The sum over the "
        "microbatches is not divided by their number. (c) The shards are gathered before they are updated. (d) The "
        "gradient of a microbatch is reduce-scattered again with every later one. Answer with the letter and the "
        "mended function. Tried on 2 ranks with 3 microbatches, then on others.",
        Clinic(
            clinic.CAUSES,
            OnCases(
                "zero.rank:play_program",
                clinic.judge,
                clinic_case.CASES,
                "The weights of one device on every rank, with one microbatch and with several.",
            ),
        ),
        (
            "One microbatch is right, so whatever happens once in a step is right. The factors of two and four "
            "microbatches are near 3/2 and 5/2.",
            "backward() adds to weight.grad. What does it hold when the second microbatch is reduce-scattered? How "
            "often is the first of four microbatches counted, and how often the last?",
            "model.zero_grad() behind each reduce-scatter: shard.grad has its part of the sum, and nothing else of the "
            "gradient is needed any more.",
        ),
        objective="Find a gradient that is counted more than once.",
        difficulty=2,
        minutes=5,
    ),
}
