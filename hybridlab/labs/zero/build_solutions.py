"""Solutions of the programs that are built and fixed in notebook 22."""

from hybridlab.labs.exercises.solution import Cell, Solution

ONE = Cell("""\
class MyZeRO1:
    def __init__(self, comm, parameters, rate):
        self.comm, self.weights = comm, list(parameters)
        self.shard = torch.nn.Parameter(self.flat(self.weights).chunk(comm.size)[comm.rank].clone())
        self.adam = torch.optim.Adam([self.shard], lr=rate)

    def flat(self, tensors):
        whole = torch.cat([one.detach().flatten() for one in tensors])
        return torch.nn.functional.pad(whole, (0, -len(whole) % self.comm.size))

    def step(self):
        gradient = self.flat([weight.grad for weight in self.weights])
        self.shard.grad = self.comm.reduce_scatter(gradient) / self.comm.size
        self.adam.step()
        whole = self.comm.all_gather(self.shard.detach())
        with torch.no_grad():
            start = 0
            for weight in self.weights:
                weight.copy_(whole[start : start + weight.numel()].view_as(weight))
                start += weight.numel()

labs.answer("zero_fsdp.one", MyZeRO1)""")
PLAIN = Cell("""\
class MyZeRO1:
    def __init__(self, comm, parameters, rate):
        self.comm, self.weights = comm, list(parameters)
        self.adam = torch.optim.Adam(self.weights, lr=rate)

    def step(self):
        for weight in self.weights:
            padded = torch.nn.functional.pad(weight.grad.flatten(), (0, -weight.numel() % self.comm.size))
            whole = self.comm.all_gather(self.comm.reduce_scatter(padded) / self.comm.size)
            weight.grad = whole[: weight.numel()].view_as(weight)
        self.adam.step()

labs.answer("zero_fsdp.one", MyZeRO1)""")
UNIT = Cell("""\
class MyUnit(torch.nn.Module):
    def __init__(self, comm, module):
        super().__init__()
        self.comm, self.module, self.weights = comm, module, list(module.parameters())
        self.flat = self.joined(self.weights)
        self.shard = torch.nn.Parameter(self.flat.chunk(comm.size)[comm.rank].clone())
        start = 0
        for weight in self.weights:
            weight.data = self.flat[start : start + weight.numel()].view_as(weight)
            start += weight.numel()
            weight.register_post_accumulate_grad_hook(self.made)
        self.free()

    def joined(self, tensors):
        whole = torch.cat([one.detach().flatten() for one in tensors])
        return torch.nn.functional.pad(whole, (0, -len(whole) % self.comm.size))

    def gather(self, *_):
        self.flat.untyped_storage().resize_(self.flat.nbytes)
        self.flat.copy_(self.comm.all_gather(self.shard.detach()))

    def free(self):
        self.flat.untyped_storage().resize_(0)

    def forward(self, x):
        self.gather()
        y = self.module(x)
        self.free()
        self.left = len(self.weights)
        y.register_hook(self.gather)
        return y

    def made(self, weight):
        self.left -= 1
        if self.left == 0:
            gradient = self.joined([one.grad for one in self.weights])
            self.shard.grad = self.comm.reduce_scatter(gradient) / self.comm.size
            for one in self.weights:
                one.grad = None
            self.free()

labs.answer("zero_fsdp.unit", MyUnit)""")
PATIENT = Cell("""\
def mended(comm, model, steps, rate):
    def flat(tensors):
        joined = torch.cat([one.detach().flatten() for one in tensors])
        return torch.nn.functional.pad(joined, (0, -len(joined) % comm.size))

    weights = list(model.parameters())
    shard = torch.nn.Parameter(flat(weights).chunk(comm.size)[comm.rank].clone())
    sgd = torch.optim.SGD([shard], lr=rate, momentum=0.9)
    for microbatches in steps:
        model.zero_grad()
        shard.grad = torch.zeros_like(shard)
        for x, target in microbatches:
            (model(x) - target).square().mean().backward()
            gradient = flat([weight.grad for weight in weights])
            shard.grad += comm.reduce_scatter(gradient) / comm.size / len(microbatches)
        sgd.step()
        torch.nn.utils.vector_to_parameters(comm.all_gather(shard.detach()), weights)

labs.answer("zero_fsdp.clinic", ("d", mended))""")
ZERO, LOOP = "        model.zero_grad()\n", "        for x, target in microbatches:\n"
SCATTER = """\
            gradient = flat([weight.grad for weight in weights])
            shard.grad += comm.reduce_scatter(gradient) / comm.size / len(microbatches)
"""
MENDED = PATIENT.but(ZERO, "").but(LOOP, f"{LOOP}    {ZERO}")
ONCE = PATIENT.but(SCATTER, SCATTER.replace("            ", "        "))  # one reduce-scatter after the last backward
SGD = "    sgd = torch.optim.SGD([shard], lr=rate, momentum=0.9)\n"
STEP = "    for microbatches in steps:\n"
GATHER = "        torch.nn.utils.vector_to_parameters(comm.all_gather(shard.detach()), weights)\n"
COLUMNS = Cell("""\
def my_columns(comm, x):
    x = x / comm.all_reduce(x.square().sum()).sqrt()
    for _ in range(5):
        gram = comm.all_reduce(x @ x.mT)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x

labs.answer("zero_fsdp.muon", my_columns)""")
NORM, GRAM, SQUARE = "comm.all_reduce(x.square().sum()).sqrt()", "comm.all_reduce(x @ x.mT)", "gram @ gram) @ x"
GATHERED = COLUMNS.but("def my_columns(comm, x):\n", "def my_columns(comm, x):\n    x = comm.all_gather(x, dim=1)\n")
GATHERED = (
    GATHERED.but(NORM, "x.norm()").but(GRAM, "x @ x.mT").but("return x\n", "return x.chunk(comm.size, 1)[comm.rank]\n")
)
IN_PARTS = GATHERED.but(
    "comm.all_gather(x, dim=1)",
    "torch.cat([comm.all_reduce(x * (comm.rank == rank)) for rank in range(comm.size)], 1)",
)
PADDED = "torch.cat([x if rank == comm.rank else 0 * x for rank in range(comm.size)], 1)"
ONE_SUM = Cell("""\
def my_columns(comm, x):
    gram = comm.all_reduce(x @ x.mT)
    x, gram = x / gram.trace().sqrt(), gram / gram.trace()
    for _ in range(5):
        factor = 3.4445 * torch.eye(len(x), dtype=x.dtype) - 4.7750 * gram + 2.0315 * gram @ gram
        x, gram = factor @ x, factor @ gram @ factor
    return x

labs.answer("zero_fsdp.muon", my_columns)""")
APART = "self.joined(self.weights).chunk(comm.size)[comm.rank]"
NO_PAD = "(0, -len(whole) % self.comm.size)", "(0, 0)"

SOLUTIONS: dict[str, Solution] = {
    "zero_fsdp.one": Solution(
        ONE,
        "The sum arrives in shards, each rank updates its shard, and the gather gives the new weights to all ranks.",
        (
            (ONE.but("        self.adam.step()\n", ""), "no weight has changed"),
            (ONE.but("self.comm.all_gather(self.shard.detach())", "self.flat(self.weights)"), "no weight has changed"),
            (
                ONE.but("self.comm.all_gather(self.shard.detach())", "self.flat(self.weights)")
                .but(
                    "        with torch",
                    "        whole.chunk(self.comm.size)[self.comm.rank].copy_(self.shard)\n        with torch",
                )
                .but("self.shard)", "self.shard.detach())"),
                "own shard only",
            ),
            (
                ONE.but(
                    "self.comm.reduce_scatter(gradient)",
                    "self.comm.all_reduce(gradient).chunk(self.comm.size)[self.comm.rank]",
                ),
                "an all-reduce gives every rank the full sum",
            ),
            (
                ONE.but(
                    "self.comm.reduce_scatter(gradient) / self.comm.size",
                    "gradient.chunk(self.comm.size)[self.comm.rank]",
                ),
                "differ from those of one device",
            ),
            (ONE.but("self.adam.step", "torch.optim.Adam([self.shard], lr=0.01).step"), "lost between steps"),
            (ONE.but("[comm.rank].clone()", "[0].clone()"), "all shards of the weights are near the first one"),
            (ONE.but("grad = self.comm", "grad = self.all = getattr(self, 'all', 0) + self.comm"), "not after three"),
            (ONE.but(" / self.comm.size", ""), "On 2 ranks, 544 weights, gradients as small as Adam's eps: "),
            (ONE.but("        gradient = ", "        self.gradient = gradient = "), "keeps 1,089 numbers"),
            (ONE.but("[comm.rank].clone()", "[comm.rank]"), "A view keeps the full buffer"),
            (PLAIN, "keeps 1,092 numbers"),
            (ONE.but(*NO_PAD), "Right on 4 ranks, 544 weights. On 3 ranks, 26 weights: all 3 ranks failed"),
            (ONE.but("torch.optim.Adam", "torch.optim.AdamW"), "differ from those of one device"),
            (1, "your function itself"),
        ),
    ),
    "zero_fsdp.unit": Solution(
        UNIT,
        "The buffer's storage is freed and allocated again. The weights and autograd's saved tensors are views of it.",
        (
            (
                UNIT.but("        y = self.module(x)\n        self.free()", "        y = self.module(x)"),
                "between forward and backward rank 0 holds 816 numbers",
            ),
            (
                UNIT.but("        y.register_hook(self.gather)\n", ""),
                "the backward reads weights whose storage was freed",
            ),
            (
                UNIT.but("        self.gather()\n        y =", "        y ="),
                "the forward reads weights whose storage was freed",
            ),
            (
                UNIT.but("one.grad = None\n            self.free()", "one.grad = None"),
                "after the backward rank 0 holds 1088",
            ),
            (UNIT.but("[comm.rank].clone()", "[comm.rank]"), "is a view of a larger buffer"),
            (UNIT.but("self.flat.chunk(comm.size)[comm.rank].clone()", APART), "is a view of a larger buffer"),
            (UNIT.but("one.grad = None", "pass"), "after the backward rank 0 holds 1088"),
            (UNIT.but(" / self.comm.size\n            for", "\n            for"), "times too large: the mean"),
            (
                UNIT.but(
                    "self.comm.reduce_scatter(gradient)",
                    "self.comm.all_reduce(gradient).chunk(self.comm.size)[self.comm.rank].clone()",
                ),
                "2 × all_gather, 1 × all_reduce",
            ),
            (UNIT.but("self.shard.grad =", "self.gradient ="), "unit.shard.grad of rank 0 is not a tensor"),
            (UNIT.but(*NO_PAD), "Right on 2 ranks, 544 weights. On 3 ranks, 26 weights: "),
            (
                UNIT.but("self.comm.all_gather(self.shard.detach())", "self.first").but(
                    "        self.free()\n\n    def joined",
                    "        self.first = self.flat.clone()\n        self.free()\n\n    def joined",
                ),
                "holds 816",
            ),
            (
                UNIT.but("        self.left = len(self.weights)\n", "").but(
                    "        self.free()\n\n    def joined",
                    "        self.left = len(self.weights)\n        self.free()\n\n    def joined",
                ),
                "in the second step",
            ),
            ("shard", "your function itself"),
        ),
    ),
    "zero_fsdp.root": Solution(
        'labs.answer("zero_fsdp.root", 4)',
        "reshard_after_forward=None is True for every unit but the root, which the backward needs first.",
        (
            (5, "None mean for the root"),
            (3, "which block is the last one"),
            (0, "SHARD_GRAD_OP"),
            (9, "all gathers"),
            (1, "small"),
        ),
        also=(4.0,),
    ),
    "zero_fsdp.accumulate": Solution(
        'labs.answer("zero_fsdp.accumulate", 3 * 4 / 2)',
        "FSDP sends three thirds for each microbatch, and plain data parallelism sends two thirds once.",
        ((1.5, "one microbatch"), (12, "units of"), (4.5, "one reduce-scatter"), (1, "small"), (99, "large")),
        also=(6,),
    ),
    "zero_fsdp.clinic": Solution(
        MENDED,
        "backward() adds to the old gradient, which the shard already contains: clear the full gradient first.",
        (
            (PATIENT, "the cause. But: rank 0 changes its weights 2.03 times as much"),
            (MENDED.but('"d"', '"a"'), "one microbatch would be wrong too"),
            (MENDED.but('"d"', '"b"'), "with four microbatches four times"),
            (MENDED.but('"d"', '"c"'), "change no weight"),
            (MENDED.but(" / len(microbatches)", ""), "divide by the number of microbatches"),
            (MENDED.but(" / comm.size", ""), "divide by the number of ranks"),
            (MENDED.but("        sgd.step()\n", "").but(GATHER, f"{GATHER}        sgd.step()\n"), "changes no weight"),
            (MENDED.but("shard.grad +=", "shard.grad ="), "times as much in the first step"),
            (
                MENDED.but("comm.reduce_scatter(gradient) / comm.size", "gradient.chunk(comm.size)[comm.rank]"),
                "as much",
            ),
            (
                MENDED.but("comm.reduce_scatter(gradient)", "comm.all_reduce(gradient).chunk(comm.size)[comm.rank]"),
                "calls all_reduce",
            ),
            (MENDED.but(SGD, "").but(STEP, f"{STEP}    {SGD}"), "which state must a step reset"),
            (
                MENDED.but("        shard.grad = torch.zeros_like(shard)\n", "").but(
                    SGD, f"{SGD}    shard.grad = torch.zeros_like(shard)\n"
                ),
                "right weights after one step, but wrong ones after 2",
            ),
            (MENDED.but("-len(joined) % comm.size", "0"), "Right on 2 ranks with 3 microbatches. On 3 ranks"),
            (("d", 1), "Now fix it"),
            (("e", len), "one of a, b, c, d"),
            ("d", "Answer with the letter of the cause"),
        ),
        also=(MENDED.but('"d"', '"(D)"'), ONCE, PATIENT.but(SCATTER, f"{SCATTER}    {ZERO}")),
    ),
    "zero_fsdp.muon": Solution(
        COLUMNS,
        "The norm and the Gram matrix are sums over columns. All other lines change each column alone.",
        (
            (COLUMNS.but(NORM, "x.norm()").but(GRAM, "x @ x.mT"), "its own columns alone"),
            (COLUMNS.but(NORM, "x.norm()"), "by the norm of only its columns"),
            (COLUMNS.but(NORM, "comm.all_reduce(x.norm())"), "the sum of the ranks' norms"),
            (COLUMNS.but(GRAM, "x @ x.mT"), "by the Gram matrix of only its columns"),
            (
                COLUMNS.but(GRAM, "x @ x.mT").but(
                    "(-4.7750 * gram + 2.0315 * gram @ gram)", "comm.all_reduce(-4.7750 * gram + 2.0315 * gram @ gram)"
                ),
                "not the square of the sum",
            ),
            (COLUMNS.but(SQUARE, "(x @ x.mT) @ (x @ x.mT)) @ x"), "squared the Gram matrix of only its columns"),
            (COLUMNS.but(SQUARE, "comm.all_reduce(gram @ gram)) @ x"), "2 times too large"),
            (COLUMNS.but("4.7750", "4.75"), "different columns from those of one device"),
            (GATHERED, "called all_gather"),
            (GATHERED.but("comm.all_gather(x, dim=1)", f"comm.all_reduce({PADDED})"), "that gathers the matrix"),
            (IN_PARTS, "that gathers the matrix"),
            (IN_PARTS.but("    x = torch", f"    x = x / {NORM}\n    x = torch"), "that gathers the matrix"),
            (COLUMNS.but("    return x\n", "    return comm.all_gather(x, dim=1)\n"), "return its columns"),
            (3, "your function itself"),
        ),
        also=(ONE_SUM,),
    ),
}
