"""The exercises of notebook 21 in which students build, look up and fix: data parallelism in buckets."""

from functools import partial

from hybridlab.labs.data_parallel import clinic, far_apart, trial
from hybridlab.labs.exercises.task import Number, Task
from hybridlab.labs.trials.cases import OnCases

task = partial(Task, notebook="21_data_parallel")

FIRST = ": are these the limits of the first backward?"
RATE, LINK, BYTES = 312e12, 25e9, 2  # operations and bytes per second, bytes of a gradient: in data_parallel.tokens


def _tokens(operations: float = 4, times: float = 2) -> float:
    """Tokens on a GPU whose backward takes as long as an all-reduce among many ranks; the model's size cancels."""
    return (times * BYTES / LINK) / (operations / RATE)


TASKS: dict[str, Task] = {
    "data_parallel.tokens": task(
        f"A GPU does {RATE / 1e12:.0f} · 10¹² operations per second, and its backward takes 4 operations for each "
        f"weight and token. A gradient takes {BYTES} bytes, a link carries {LINK / 1e9:.0f} GB/s, and there are many "
        "ranks; neglect α. How many tokens does a GPU need, so that its backward takes as long as the all-reduce?",
        Number(
            _tokens,
            "tokens",
            slips=[
                (_tokens(times=1), "With many ranks, each of them sends nearly twice the bytes of the tensor."),
                (_tokens(operations=6), "That counts the forward too. Can it hide an all-reduce of gradients?"),
                (_tokens(operations=2), "2 operations are the forward; the backward has 4."),
            ],
        ),
        (
            "Write both times for a model of Ψ weights and K tokens. Does the answer depend on Ψ?",
            "Set 4 · Ψ · K / operations per second equal to 2 · Ψ · bytes / bytes per second.",
            "K = 2 · 2 / 25e9 · 312e12 / 4.",
        ),
        objective="Say how much work on a GPU hides the all-reduce of its gradients.",
        difficulty=2,
        minutes=4,
    ),
    "data_parallel.ddp": task(
        "Write `MyDDP(comm, model, bucket_bytes)`. From `loss.backward()` to `ddp.finish()` it all-reduces the "
        "gradients in buckets; after `finish()` every `weight.grad` is the mean over the ranks. Fill buckets from the "
        "last weight of `model.parameters()` to the first: a weight that would make a bucket larger than "
        "`bucket_bytes` begins the next one. The all-reduce of a bucket starts during the backward, as soon as this "
        "bucket and all before it are full. Your code is tested on 2 ranks with 2048 bytes for two steps; then on 3 "
        "ranks, with other buckets, and with weights that are tied, frozen or unused.",
        OnCases(
            "data_parallel.rank:play",
            trial.judge,
            trial.CASES,
            "The gradients are those of one device, with one all-reduce per bucket, started during the backward; also "
            "with tied, frozen and unused weights, and in a second step.",
        ),
        (
            "You need three parts: lists of weights (the buckets); a hook that records which weights are ready and "
            "sends the next buckets as long as they are full; and finish(), which sends the remaining buckets, waits, "
            "divides and copies back.",
            "Keep self.ready, a set, and self.sent, a list of messages: bucket number len(self.sent) is next, on "
            "every rank. A weight without a gradient counts as zeros. Which of these must be empty when a second step "
            "begins?",
            "In the hook: self.ready.add(weight); while len(self.sent) < len(self.buckets) and "
            "self.ready.issuperset(self.buckets[len(self.sent)]): self.send(). And send() appends "
            "comm.iall_reduce(torch.cat([…])) to self.sent.",
        ),
        about=trial.ABOUT,
        objective="Write data parallelism whose buckets are all-reduced during the backward.",
        difficulty=3,
        minutes=15,
    ),
    "data_parallel.reducer": task(
        "A model of 345 MB is trained with PyTorch's DDP and its defaults. Read how DDP sets up its buckets "
        "(torch/nn/parallel/distributed.py, `compute_bucket_size_limits`). How many all-reduces are there in its very "
        "first backward?",
        Number(
            lambda: 1,
            slips=[
                *((buckets, f"That is 345 MB in buckets of 25 MiB{FIRST}") for buckets in (14, 15)),
                (16, "That is with a limit of 25 MiB. Which limit holds before the buckets are rebuilt?"),
                (2, "A small bucket and the rest? Read how find_unused_parameters=False changes the limits."),
                (197, "That is one for each gradient; DDP always uses buckets."),
            ],
        ),
        (
            "There are limits for the first backward, and others for later ones. find_unused_parameters is False.",
            "bucket_size_limits = [sys.maxsize]: which gradients fit into one bucket of that size?",
            "All of them: the first backward finds the order of the gradients, and overlaps nothing.",
        ),
        objective="Look up in PyTorch's source when DDP builds its buckets.",
        difficulty=2,
        minutes=5,
    ),
    "data_parallel.cause": task(
        "What is wrong with the program? (a) The gradients are not summed. (b) The sum is not divided by the number of "
        "ranks. (c) The ranks begin with different weights. (d) Both ranks have the same rows. Answer with a letter.",
        clinic.CAUSE,
        (
            "With which of the four mistakes would the changes be equal, but not the weights?",
            "Every step changes both ranks by the same amount, so the difference stays. When did it begin?",
            "torch.manual_seed(comm.rank) affects the rows. Which other numbers does it affect?",
        ),
        objective="Find from the symptoms why ranks disagree.",
        difficulty=1,
        minutes=3,
    ),
    "data_parallel.mended": task(
        "Fix the program, so that all ranks train one model, each with its own rows. Return the same three things. "
        "Your code is tested on 2 ranks, then on 3.",
        OnCases(
            clinic.play,
            clinic.judge,
            (clinic.Case(2), clinic.Case(3)),
            "All ranks hold the weights that one device gets from all rows, after every step.",
        ),
        (
            "All ranks need the weights of one rank before the first step.",
            "Which collective copies the tensor of rank 0 to all ranks? DDP calls it in its constructor.",
            "Call comm.broadcast(layer.weight.data) before the line with weights = […].",
        ),
        objective="Fix a program whose ranks begin with different weights.",
        difficulty=1,
        minutes=4,
    ),
    "data_parallel.outer": task(
        "Write `my_outer_step(comm, old, now, speed, rate, momentum)`. `old` has the weights after the last outer "
        "step, equal on all ranks; `now` has the weights of this copy; `speed` is the momentum of the outer step, "
        "zeros at first. Return the new weights and the new momentum. Your code is tested for three rounds on 2 ranks, "
        "then on 3, and as local SGD (rate 1, momentum 0).",
        OnCases(
            far_apart.play,
            far_apart.judge,
            far_apart.CASES,
            "After every round, the weights equal those of one process that has the changes of all copies, with one "
            "all-reduce per round.",
        ),
        (
            "Which difference, old - now or now - old, has the sign of a gradient? All copies must use the same "
            "gradient.",
            "move = the mean over the ranks of old - now. A gradient's momentum is speed = momentum * speed + move.",
            "move = comm.all_reduce(old - now) / comm.size; speed = momentum * speed + move; return old - rate * (move "
            "+ momentum * speed), speed.",
        ),
        objective="Write the outer step of DiLoCo.",
        difficulty=2,
        minutes=8,
    ),
}
