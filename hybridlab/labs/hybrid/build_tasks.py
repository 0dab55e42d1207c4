"""The code that students write in notebook 40: the groups of a grid of ranks, and one training step that uses them."""

from functools import partial

from hybridlab.labs.exercises.task import Task
from hybridlab.labs.hybrid.trial import Grid, explained, judge
from hybridlab.labs.trials.cases import OnCases

task = partial(Task, notebook="40_hybrid")


TASKS: dict[str, Task] = {
    "hybrid.step": task(
        "Write `my_groups(p, d, t, rank)`: it returns three lists of ranks: the tensor group, the data group and the "
        "pipeline of a rank. The part varies fastest, then the copy, and the stage slowest. Then write `my_step(comm, "
        "grid, weights, batch)`, one training step on that grid, with all three kinds of communication. It returns the "
        "gradients of this rank's shards. Your code is tested with p = d = t = 2, then on other grids.",
        OnCases(
            "hybrid.rank:try_step",
            judge,
            (Grid(2, 2, 2), Grid(1, 2, 3), Grid(3, 2, 1), Grid(2, 1, 4)),
            "All groups are right, and every gradient is that of one process, on four grids.",
            names=("my_groups", "my_step"),
            explain=explained,
        ),
        (
            "stage = rank // (d * t), copy = rank // t % d, part = rank % t. In a group one of the three varies. In "
            "the step: after B, the ranks of a tensor group hold partial sums of y; after the backward, partial sums "
            "of x.grad.",
            "Every rank opens the groups of all ranks, in the same order, each group as a tuple: "
            "comm.open(*sorted(…)). Then comm.all_reduce(z.detach().clone(), tensor) makes y. The last stage makes gy "
            "= 2 * (y - target) / rows; the others receive it from the next stage.",
            "Forward: x received if stage > 0, x.requires_grad_(), z = torch.tanh(x @ A.T) @ B.T, y = all-reduce over "
            "tensor, send y. Backward: z.backward(gy), all-reduce x.grad over tensor, send it to the stage before, "
            "all-reduce A.grad and B.grad over data.",
        ),
        objective="Build the groups of a grid from rank numbers, and run a step with all three kinds of groups.",
        difficulty=3,
        minutes=15,
    ),
}
