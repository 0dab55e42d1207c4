"""Solutions of notebook 10."""

from hybridlab.labs.exercises.solution import Cell, Solution

ENGINE = Cell("""\
def my_naive(comm, stage, x, target):
    before, after = comm.rank - 1, comm.rank + 1
    first, last = comm.rank == 0, after == comm.size
    if not first:
        x = comm.recv(torch.empty_like(x), before).requires_grad_()
    y = stage(x)
    if last:
        toy.loss(y, target).backward()
    else:
        comm.send(y.detach(), after)
        y.backward(comm.recv(torch.empty_like(y), after))
    if not first:
        comm.send(x.grad, before)

labs.answer("naive.engine", my_naive)""")

MENDED = ENGINE.but("my_naive", "mended").but('("naive.engine", mended)', '("naive.clinic", ("b", mended))')

SOLUTIONS: dict[str, Solution] = {
    "naive.engine": Solution(
        ENGINE,
        "One tensor crosses each cut forward, and the gradient of that same tensor comes back.",
        (
            (ENGINE.but(".requires_grad_()", ""), "autograd kept no x.grad, since the x that arrived was not marked"),
            (ENGINE.but("comm.send(x.grad, before)", "pass"), "rank 2 has finished"),
            (ENGINE.but("comm.send(x.grad, before)", "comm.send(x.detach(), before)"), "different gradients"),
            (ENGINE.but("toy.loss(y, target).backward()", "y.sum().backward()"), "different gradients"),
            (ENGINE.but("comm.send(y.detach(), after)", "comm.send(x.detach(), after)"), "different gradients"),
            (ENGINE.but("before, after = comm.rank - 1", "before, after = 0"), "deadlock: rank 0 waits in recv"),
            (ENGINE.but("y = stage(x)", "y = stage(stage(x))"), "did F0 F1"),
            (ENGINE.but("if last:", "if comm.rank == 2:"), "Right on 3 ranks"),
            (
                Cell('def my_naive(comm, stage, x, target):\n    pass\n\nlabs.answer("naive.engine", my_naive)'),
                "did nothing; its list says F0 B0",
            ),
            (0.5, "your function itself"),
        ),
    ),
    "naive.utilisation": Solution(
        'labs.answer("naive.utilisation", 1 / $ranks)',
        "The GPUs take turns and share the work equally, so each works 1/N of the time.",
        ((0.75, "idle fraction"), (25, "between 0 and 1"), (0.5, "Too large")),
        also=(0.25, "0.25"),
    ),
    "naive.slots": Solution(
        'labs.answer("naive.slots", $microbatches + $stages - 1)',
        "The last stage starts p-1 slots late and then needs one slot for each microbatch.",
        ((9, "naive order"), (3, "others start later"), (6, "Too large")),
        also=(5.0, "5"),
    ),
    "naive.speedup": Solution(
        'labs.answer("naive.speedup", 1)',
        "No two GPUs work at the same time; only the memory is divided.",
        ((4, "only one works at a time"), (0.25, "takes the same time"), (2, "Too large")),
        also=(1.0, "1"),
    ),
    "naive.clinic": Solution(
        MENDED,
        "The received gradient is that of y. The rank before needs the gradient of x.",
        (
            (MENDED.but("y.backward(comm", "y.backward(2 * comm"), "the cause. But: Rank 0 has different gradients"),
            (
                MENDED.but(
                    "y.backward(comm.recv(torch.empty_like(y), after))",
                    "g = comm.recv(torch.empty_like(y), after); y.backward(g)",
                ).but("comm.send(x.grad, before)", "comm.send(x.grad if last else g, before)"),
                "That is the cause. But: Rank 0 has different gradients",
            ),
            (MENDED.but('"b"', '"a"'), "they would fail"),
            (MENDED.but('"b"', '"c"'), "rank 2 would be wrong too"),
            (("b", 1), "Now fix it"),
            (("d", len), "one of a, b, c"),
            ("b", "Answer with the letter of the cause"),
        ),
        also=(MENDED.but('"b"', '"(b)"'),),
    ),
    "naive.balance": Solution(
        'labs.answer("naive.balance", [4, 2, 2])',
        "Four layers of 10 ms, then two layers of 20 ms, then two more: every stage takes 40 ms, a third of the total.",
        (
            ([3, 3, 2], "30 50 40 ms: stage 1 is the slowest. 40 ms are possible"),
            ([5, 2, 1], "60 40 20 ms: stage 0"),
            ([4, 2, 3], "hold 9 layers; the model has 8"),
            ([4, 4], "three stages"),
            ([8, 0, 0], "at least one layer"),
            ([4.5, 1.5, 2], "whole numbers"),
        ),
        also=((4, 2, 2), [4.0, 2.0, 2.0]),
    ),
    "naive.bottleneck": Solution(
        'labs.answer("naive.bottleneck", 40)',
        "With 30 ms on each of the first two stages, three layers of 20 ms are left for two: one stage gets 40.",
        ((30, "That is the mean"), (20, "Too small"), (50, "Too large")),
        also=(40.0,),
    ),
}
