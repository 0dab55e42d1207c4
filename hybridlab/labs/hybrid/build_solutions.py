"""The solution of what students build in notebook 40, and its mutants."""

from hybridlab.labs.exercises.solution import Cell, Solution

STEP = Cell("""\
def my_groups(p, d, t, rank):
    stage, copy, part = rank // (d * t), rank // t % d, rank % t
    tensor = [(stage * d + copy) * t + k for k in range(t)]
    data = [(stage * d + k) * t + part for k in range(d)]
    pipeline = [(k * d + copy) * t + part for k in range(p)]
    return tensor, data, pipeline


def my_step(comm, grid, weights, batch):
    (p, d, t), (A, B), (x, target, rows) = grid, weights, batch
    every = (my_groups(p, d, t, rank) for rank in range(comm.size))
    comm.open(*sorted({tuple(group) for three in every for group in three}))
    tensor, data, pipeline = map(tuple, my_groups(p, d, t, comm.rank))
    stage = pipeline.index(comm.rank)
    if stage > 0:
        x = comm.recv(torch.empty_like(x), source=pipeline[stage - 1])
    x.requires_grad_()
    z = torch.tanh(x @ A.T) @ B.T
    y = comm.all_reduce(z.detach().clone(), tensor)
    if stage == p - 1:
        gy = 2 * (y - target) / rows
    else:
        comm.send(y, pipeline[stage + 1])
        gy = comm.recv(torch.empty_like(y), source=pipeline[stage + 1])
    z.backward(gy)
    comm.all_reduce(x.grad, tensor)
    if stage > 0:
        comm.send(x.grad, pipeline[stage - 1])
    for w in (A, B):
        comm.all_reduce(w.grad, data)
    return A.grad, B.grad

labs.answer("hybrid.step", (my_groups, my_step))""")
TORCH = (
    STEP.but(
        """\
    every = (my_groups(p, d, t, rank) for rank in range(comm.size))
    comm.open(*sorted({tuple(group) for three in every for group in three}))
    tensor, data, pipeline = map(tuple, my_groups(p, d, t, comm.rank))
""",
        """\
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (p, d, t), mesh_dim_names=("pp", "dp", "tp"))
    tensor, data, _ = (mesh[axis].get_group() for axis in ("tp", "dp", "pp"))
    pipeline = torch.distributed.get_process_group_ranks(mesh["pp"].get_group())
""",
    )
    .but(
        "y = comm.all_reduce(z.detach().clone(), tensor)",
        "y = z.detach().clone()\n    torch.distributed.all_reduce(y, group=tensor)",
    )
    .but("    comm.all_reduce(x.grad, tensor)", "    torch.distributed.all_reduce(x.grad, group=tensor)")
    .but("        comm.all_reduce(w.grad, data)", "        torch.distributed.all_reduce(w.grad, group=data)")
)
LISTS = STEP.but(
    "sorted({tuple(group) for three in every for group in three})", "sorted(sum(map(list, every), []))"
).but("= map(tuple, my_groups(p, d, t, comm.rank))", "= my_groups(p, d, t, comm.rank)")
MEAN = STEP.but("comm.all_reduce(w.grad, data)", "comm.all_reduce(w.grad, data).div_(d)")

BUILD_SOLUTIONS: dict[str, Solution] = {
    "hybrid.step": Solution(
        STEP,
        "A tensor group all-reduces in the layer, a pipeline sends between layers, and a data group all-reduces at the "
        "end.",
        (
            (STEP.but("range(d)]", "range(t)]").but("+ k) * t + part for k", "+ k) * d + part for k"), "Right on"),
            (STEP.but("rank // t % d, rank % t", "rank % d, rank // d % t"), "the tensor group of rank 1"),
            (STEP.but("comm.all_reduce(w.grad, data)", "pass"), "own rows"),
            (MEAN, "1/2 of the right ones"),
            (STEP.but("(y - target) / rows", "(y - target) / len(x)"),
             "the gradients are 2 times the right ones: divide by rows, the rows of all copies"),
            (STEP.but("comm.all_reduce(x.grad, tensor)", "x.grad"), "only a partial sum"),
            (STEP.but("comm.all_reduce(z.detach().clone(), tensor)", "z.detach().clone()"), "the sum over the tensor"),
            (STEP.but("comm.all_reduce(z.detach().clone(), tensor)", "comm.all_reduce(z.detach().clone(), data)"),
             "the sum over the tensor"),
            (STEP.but("comm.all_reduce(w.grad, data)", "comm.all_reduce(w.grad)"), "the right axis"),
            (STEP.but("2 * (y - target)", "(y - target)"), "Or is the 2 of the square's derivative missing?"),
            (STEP.but("    x.requires_grad_()\n", ""), "this is None"),
            (
                STEP.but("    x.requires_grad_()\n", "").but("(x.grad, tensor)", "(x.grad.clone(), tensor)"),
                "x needs x.requires_grad_() before the forward",
            ),
            (STEP.but("        comm.send(x.grad, pipeline[stage - 1])\n", "        pass\n"), "rank 0 waits in recv"),
            (STEP.but("return A.grad, B.grad", "return A.grad"), "two tensors"),
            ((1, 2), "Answer with (my_groups, my_step)"),
        ),
        also=(TORCH, LISTS),
    ),
}  # fmt: skip
