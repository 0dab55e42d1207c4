"""The exercises of notebook 22 with code: ZeRO 1, an FSDP unit, FSDP2, Muon, a broken ZeRO."""

from functools import partial

from hybridlab.labs.exercises.task import Number, Task
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.clinic import Clinic
from hybridlab.labs.zero import clinic, clinic_case, columns_trial, trial
from hybridlab.labs.zero.trial import ONE_CASES, UNIT_CASES

task = partial(Task, notebook="22_zero_fsdp")

PLAYS, BLOCKS = 4, 4  # microbatches in zero_fsdp.accumulate; blocks in zero_fsdp.root

TASKS: dict[str, Task] = {
    "zero_fsdp.one": task(
        "Write `MyZeRO1(comm, parameters, rate)`, an Adam with sharded state. Every rank has all weights, and after "
        "`loss.backward()` the gradients of its own rows. After `step()` every rank must have the weights that one "
        "device gets from `torch.optim.Adam` with the mean gradient. A rank keeps Adam's averages for its shard only. "
        "The shards are the flat weights, padded with zeros and cut into `comm.size` equal pieces. Your code is tested "
        "on 4 ranks for three steps; then on other numbers of ranks, also with padding.",
        OnCases(
            "zero.rank:play_one",
            trial.judge_one,
            ONE_CASES,
            "Every rank has the weights of one device, keeps Adam's state for its shard only, and sends the bytes of "
            "one all-reduce.",
        ),
        (
            "An all-reduce is a reduce-scatter and an all-gather. What do you do between the two, and with which "
            "numbers?",
            "In step(): flatten and pad the gradient; get the rank's piece with comm.reduce_scatter, and divide it by "
            "comm.size; take an Adam step on the shard; get all shards with comm.all_gather; copy them into the "
            "weights.",
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
        "Write `MyUnit(comm, module)`, one unit of FSDP. Between steps a rank holds only `unit.shard`, a "
        "`torch.nn.Parameter`: its piece of the flat, padded weights. `unit(x)` gathers the weights, calls the module "
        "and frees them. When the gradient of the output arrives, gather them again. When all gradients are complete, "
        "`unit.shard.grad` must be this rank's piece of the mean gradient, and weights and gradients must be freed. "
        "Your code is tested on 2 ranks for two steps, then on other numbers of ranks, with padding.",
        OnCases(
            "zero.rank:play_unit",
            trial.judge_unit,
            UNIT_CASES,
            "Outputs and gradients are those of the module, a rank holds only its shard between forward and backward, "
            "and there are two gathers and a reduce-scatter.",
        ),
        (
            "One flat buffer holds all weights, and each weight.data is a view of it. To free it, resize its storage "
            "to 0. To gather, allocate the storage again and fill it. The views then have their numbers again.",
            "gather: self.flat.untyped_storage().resize_(self.flat.nbytes), then copy_ the result of "
            "comm.all_gather(shard). free: resize_(0). In forward: gather, module, free, and y.register_hook(…) to "
            "gather again.",
            "A hook on every weight counts: self.left -= 1. After the last one: flatten and pad the gradient; "
            "self.shard.grad = comm.reduce_scatter(…) / comm.size; every weight.grad = None; free.",
        ),
        about=trial.ABOUT_UNIT,
        objective="Write a unit of FSDP: gather, use, free, and reduce-scatter.",
        difficulty=3,
        minutes=15,
    ),
    "zero_fsdp.root": task(
        f"A model has {BLOCKS} blocks and a head. `fully_shard(block)` is called for each block, then "
        f"`fully_shard(model)` for the root, which contains the head; all with defaults. So there are {BLOCKS + 1} "
        "units. How many of them are gathered a second time, for the backward?",
        Number(
            lambda: BLOCKS,
            slips=[
                (BLOCKS + 1, "That is FULL_SHARD for all of them. What does None mean for the root?"),
                (BLOCKS - 1, "FSDP2 cannot tell which block is the last one; the user has to say so."),
                (0, "None is SHARD_GRAD_OP. Read what reshard_after_forward=None means."),
                (2 * BLOCKS + 1, "That counts all gathers of a step. Count only the second gathers."),
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
        f"A step has {PLAYS} microbatches. FSDP gathers every unit for each forward and each backward, and "
        "reduce-scatters after each backward. Plain data parallelism all-reduces once, after the last backward. "
        "By what factor does FSDP increase the number of bytes sent?",
        Number(
            lambda: 3 * PLAYS / 2,
            slips=[
                (1.5, "That is the factor for one microbatch."),
                (3 * PLAYS, "That is in units of Ψ(p-1)/p. How many of these does plain data parallelism send?"),
                ((2 * PLAYS + 1) / 2, "That is with one reduce-scatter in a step. What must a rank then keep?"),
            ],
        ),
        (
            "Each microbatch needs two gathers and a reduce-scatter.",
            "Plain data parallelism sends two thirds of these three, once.",
            f"3 · {PLAYS} / 2.",
        ),
        objective="Compute the traffic of accumulation with sharded weights.",
        difficulty=2,
        minutes=3,
    ),
    "zero_fsdp.muon": task(
        "Write `my_columns(comm, x)`: `x` is this rank's block of columns, and all blocks together are the full "
        "matrix. Compute `newton_schulz` of the full matrix, and return this rank's columns of the result. Do not "
        "gather the matrix: no rank may hold it in full. Use only one collective, `comm.all_reduce(tensor)`. It adds "
        "the tensors of all ranks in place and returns the sum; it also works for a tensor with one number. Your code "
        f"is tested on {columns_trial.CASES[0]}, then with other sizes. The operations that you call are checked too.",
        OnCases(
            columns_trial.try_columns,
            first_found,
            columns_trial.CASES,
            "Every rank has its columns of the matrix of one device, and no rank ever held the full matrix.",
        ),
        (
            "Which lines of newton_schulz combine different columns, and which change each column alone?",
            "The norm and the Gram matrix are sums over columns. Each rank can compute its part of such a sum.",
            "comm.all_reduce(x.square().sum()).sqrt() is the norm, and comm.all_reduce(x @ x.mT) the Gram matrix.",
        ),
        objective="Orthogonalize a sharded matrix without gathering it.",
        difficulty=2,
        minutes=8,
    ),
    "zero_fsdp.clinic": task(
        "What is wrong with `broken`? (a) The sum over the ranks is not divided by their number. (b) The sum over the "
        "microbatches is not divided by their number. (c) The shards are gathered before they are updated. (d) The "
        "gradient of a microbatch is reduce-scattered again with that of every later microbatch. Answer with the "
        "letter and the fixed function. Your code is tested on 2 ranks with 3 microbatches, then with other numbers of "
        "ranks and microbatches.",
        Clinic(
            clinic.CAUSES,
            OnCases(
                "zero.rank:play_program",
                clinic.judge,
                clinic_case.CASES,
                "Every rank has the weights of one device, with one microbatch and with several.",
            ),
        ),
        (
            "With one microbatch the program is right, so the parts that run once in a step are right. With two and "
            "four microbatches the factors are near 3/2 and 5/2.",
            "backward() adds to weight.grad. Which gradients are in weight.grad when the second microbatch is "
            "reduce-scattered? How often is the first of four microbatches counted, and how often the last?",
            "Call model.zero_grad() after each reduce-scatter: shard.grad has its part of the sum, and the full "
            "gradient is not needed any more.",
        ),
        objective="Find a gradient that is counted more than once.",
        difficulty=2,
        minutes=5,
    ),
}
