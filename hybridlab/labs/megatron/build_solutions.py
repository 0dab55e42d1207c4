"""Solutions of what students build in notebook 30."""

from hybridlab.labs.exercises.solution import Cell, Solution

LAYERS = Cell("""\
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.comm.all_reduce(gradient.clone()), None


class G(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, comm):
        ctx.comm = comm
        return comm.all_reduce(z.clone())

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class MyColumn(torch.nn.Module):
    def __init__(self, linear, comm):
        super().__init__()
        self.comm = comm
        self.weight = torch.nn.Parameter(linear.weight.chunk(comm.size)[comm.rank].clone())
        self.bias = torch.nn.Parameter(linear.bias.chunk(comm.size)[comm.rank].clone())

    def forward(self, x):
        return F.apply(x, self.comm) @ self.weight.T + self.bias


class MyRow(torch.nn.Module):
    def __init__(self, linear, comm):
        super().__init__()
        self.comm = comm
        self.weight = torch.nn.Parameter(linear.weight.chunk(comm.size, dim=1)[comm.rank].clone())
        self.bias = torch.nn.Parameter(linear.bias.clone())

    def forward(self, x):
        return G.apply(x @ self.weight.T, self.comm) + self.bias

labs.answer("megatron.layers", (MyColumn, MyRow))""")
MADE = "        self.comm = comm"
KEPT = "        return gradient, None"
SUMMED = "        return ctx.comm.all_reduce(gradient.clone()), None"
BIAS = "G.apply(x @ self.weight.T, self.comm) + self.bias"
GATHERED = LAYERS.but(
    "@ self.weight.T + self.bias\n\n\nclass",
    """\
@ self.weight.T + self.bias * (self.comm.all_gather(self.bias.detach()).numel() > 0)


class""",
)

LATENT = Cell("""\
def my_attention(x, own, f, g):
    c = f(latents.norm(x @ own.latent.T, own.scale))
    q, k, v = f(x) @ own.q.T, c @ own.k.T, c @ own.v.T
    return g(latents.attend(q, k, v) @ own.out.T)

labs.answer("megatron.latent", my_attention)""")
ON_WEIGHTS = LATENT.but(
    "f(latents.norm(x @ own.latent.T, own.scale))", "latents.norm(f(x) @ f(own.latent).T, f(own.scale))"
)
HABIT = LATENT.but("f(latents.norm(x @ own.latent.T, own.scale))", "latents.norm(f(x) @ own.latent.T, own.scale)")

LOSS = Cell("""\
def my_loss(logits, targets, comm):
    tokens = logits.shape[1]
    first = comm.rank * tokens
    here = (targets >= first) & (targets < first + tokens)
    row = (targets - first).clamp(0, tokens - 1)[:, None]
    most = comm.all_reduce(logits.amax(1), op="max")
    logits = logits - most[:, None]
    target = comm.all_reduce(logits.gather(1, row)[:, 0] * here)
    powers = logits.exp()
    total = comm.all_reduce(powers.sum(1))
    gradient = powers / total[:, None]
    gradient.scatter_add_(1, row, -here[:, None].to(gradient.dtype))
    return total.log() - target, gradient

labs.answer("megatron.loss", my_loss)""")
TARGET = "logits.gather(1, row)[:, 0] * here"
GATHER = Cell("""\
def my_loss(logits, targets, comm):
    scores = comm.all_gather(logits, dim=1).requires_grad_()
    losses = torch.nn.functional.cross_entropy(scores, targets, reduction="none")
    losses.sum().backward()
    return losses.detach(), scores.grad.chunk(comm.size, dim=1)[comm.rank]

labs.answer("megatron.loss", my_loss)""")

CLIP = Cell("""\
def mended(shards, copies, comm, most):
    square = lambda gradients: sum(gradient.square().sum() for gradient in gradients)
    norm = (comm.all_reduce(square(shards)) + square(copies)) ** 0.5
    for gradient in [*shards, *copies]:
        gradient *= min(1.0, most / norm)

labs.answer("megatron.clinic", ("b", mended))""")

WHOLE, OWN = "comm.all_reduce(square(shards)) + square(copies)", "square([*shards, *copies])"
GATHERING = "square([comm.all_gather(gradient) for gradient in shards])"

SOLUTIONS: dict[str, Solution] = {
    "megatron.layers": Solution(
        LAYERS,
        "f is where ranks begin to do different work, g is where their partial sums are added, and a bias that all "
        "ranks hold comes after g.",
        (
            (LAYERS.but(BIAS, "G.apply(x @ self.weight.T + self.bias, self.comm)"), "the bias of B 2 times in Z"),
            (LAYERS.but(BIAS, BIAS.removesuffix(" + self.bias")), "no bias of B in Z"),
            (LAYERS.but("comm.all_reduce(z.clone())", "z.view_as(z)"), "a different Z from that of one process"),
            (LAYERS.but("F.apply(x, self.comm) @", "x @"), "only its partial sum of the gradient of x"),
            (LAYERS.but(KEPT, SUMMED), "a gradient of A that is 2 times too large"),
            (
                LAYERS.but(BIAS, "G.apply(x @ self.weight.T + self.bias * (self.comm.rank == 0), self.comm)"),
                "Rank 1 has a different gradient of the bias of B",
            ),
            (
                LAYERS.but(BIAS, "G.apply(x @ self.weight.T, self.comm) + self.bias.detach()"),
                "no gradient for the bias of B",
            ),
            (
                LAYERS.but("linear.bias.clone()", "linear.bias / comm.size").but(
                    BIAS, "G.apply(x @ self.weight.T + self.bias, self.comm)"
                ),
                "Rank 0 holds the bias of B divided by 2; a step then moves it 2 times too far: keep the full bias",
            ),
            (
                LAYERS.but(BIAS, "G.apply(x @ self.weight.T + self.bias / self.comm.size, self.comm)"),
                "a gradient of the bias of B that is 2 times too small: you divided the bias",
            ),
            (LAYERS.but("linear.weight.chunk(comm.size)[comm.rank]", "linear.weight"), "holds all of A"),
            (LAYERS.but("chunk(comm.size, dim=1)", "chunk(comm.size)"), "of B: its shard is (16, 32)"),
            (LAYERS.but("linear.bias.chunk(comm.size)[comm.rank]", "linear.bias"), "holds all of the bias of A"),
            (GATHERED, "all_gather of"),
            (LAYERS.but("dim=1)[comm.rank].clone()", "dim=1)[comm.rank]"), "keeps the full tensor: clone() it"),
            (LAYERS.but(MADE, MADE + "\n        self.linear = linear"), "a parameter linear.weight in MyColumn"),
            (LAYERS.but(MADE, MADE + "\n        self.all = [linear]"), "Does it keep the full layer"),
            (LAYERS.but("chunk(comm.size)", "chunk(2)").but("comm.size, dim=1", "2, dim=1"), "On 4 ranks"),
            (LAYERS.but("(MyColumn, MyRow)", "MyColumn"), "(MyColumn, MyRow)"),
            (2, "(MyColumn, MyRow)"),
        ),
    ),
    "megatron.latent": Solution(
        LATENT,
        "f after the norm adds the gradients of the latent, so all gradients before it are full. So use the plain x "
        "for the latent, and f(x) for the queries. f on the matrix, on the scale and on x is right too.",
        (
            (HABIT, "only its partial sum of the gradient of the matrix that makes the latent"),
            (
                ON_WEIGHTS.but("f(own.scale)", "own.scale"),
                "only its partial sum of the gradient of the scale of its norm",
            ),
            (LATENT.but("norm(x @", "norm(f(x) @"), "a different gradient of x"),
            (LATENT.but("f(x) @ own.q", "x @ own.q"), "the part of the queries is only a partial sum"),
            (ON_WEIGHTS.but("f(x)", "x"), "only its partial sum of the gradient of x"),
            (LATENT.but("return g(", "return ("), "a different Z"),
            (LATENT.but("g(latents.attend(q, k, v) @", "g(g(latents.attend(q, k, v)) @"), "a different Z"),
            (LATENT.but("c @ own.v.T", "c @ own.v.T.detach()"), "no gradient of the matrix of the values"),
            (LATENT.but("return g(latents.attend(q, k, v) @ own.out.T)", "return q"), "all ranks need all of Z"),
            (2, "without parentheses"),
        ),
        also=(ON_WEIGHTS,),
    ),
    "megatron.latent_sums": Solution(
        'labs.answer("megatron.latent_sums", 7168 + 2)',
        "tokens · L > h · L + L: from h + 2 tokens on. That is two sequences; a step has thousands of them.",
        ((7169, "both send the same"), (7168, "Nearly"), (512, "Set the numbers"), ("many", "Answer with a number")),
    ),
    "megatron.loss": Solution(
        LOSS,
        "Three numbers for each position are sums, or a maximum, over ranks; softmax minus target needs no message.",
        (
            (LOSS.but("    logits = logits - most[:, None]\n", ""), "On 2 ranks, large logits: Rank 0 returned"),
            (LOSS.but('comm.all_reduce(logits.amax(1), op="max")', "logits.amax(1)"), "own shard only"),
            (LOSS.but(', op="max")', ")"), "Was more subtracted than the maximum"),
            (
                LOSS.but('comm.all_reduce(logits.amax(1), op="max")', "logits.amax(1)")
                .but("comm.all_reduce(logits.gather", "comm.all_reduce((logits + most[:, None]).gather")
                .but("total.log() - target", "total.log() + most - target"),
                "subtracted the largest logit of its own shard only: the sums of the ranks then have other scales",
            ),
            (
                LOSS.but("powers / total[:, None]", "powers / total[:, None] / len(targets)").but(
                    "-here[:, None].to(gradient.dtype)", "-here[:, None].to(gradient.dtype) / len(targets)"
                ),
                "24 times too small: the question asks for the gradient of their sum",
            ),
            (LOSS.but("comm.all_reduce(powers.sum(1))", "powers.sum(1)"), "only the exponentials of its own shard"),
            (LOSS.but("logits.gather(1, row)[:, 0] * here", "logits.gather(1, row)[:, 0]"), "only one rank has each"),
            (LOSS.but(f"comm.all_reduce({TARGET})", TARGET), "only where"),
            (LOSS.but("-here[:, None].to(gradient.dtype)", "-torch.ones_like(gradient[:, :1])"), "softmax alone"),
            (LOSS.but("    gradient.scatter_add_(1, row, -here[:, None].to(gradient.dtype))\n", ""), "minus 1 there"),
            (LOSS.but("targets < first + tokens", "targets <= first + tokens"), "differ"),
            (LOSS.but("first = comm.rank * tokens", "first = comm.rank * 256"), "On 4 ranks"),
            (GATHER, "most of them in all_gather: logits were sent"),
            (LOSS.but("total.log() - target, gradient", "total.log() - target"), "did not return two tensors"),
            ("loss", "your function itself"),
        ),
        also=(
            LOSS.but(f"    target = comm.all_reduce({TARGET})\n", "").but(
                "total = comm.all_reduce(powers.sum(1))",
                f"total, target = comm.all_reduce(torch.stack([powers.sum(1), {TARGET}]))",
            ),
        ),
    ),
    "megatron.source": Solution(
        'labs.answer("megatron.source", (3, 0))',
        "The maximum, the logit of the target and the sum of exponentials are three calls; backward has the softmax.",
        (
            ((2, 0), "stacks two numbers into one all-reduce"),
            ((3, 1), "Look at backward"),
            ((1, 0), "Count"),
            (3, "two whole numbers"),
        ),
        also=([3, 0], ("3", "0")),
    ),
    "megatron.clinic": Solution(
        CLIP,
        "Only the factor of clipping differs from rank to rank; squares of shards add up over the ranks, and numbers "
        "that all ranks hold count once.",
        (
            (CLIP.but('"b"', '"a"'), "also be wrong without clipping"),
            (CLIP.but('"b"', '"c"'), "the first loss, would differ"),
            (CLIP.but('"b"', '"d"'), "also drift apart without clipping"),
            (CLIP.but("comm.all_reduce(square(shards))", "square(shards)"), "the norm of this rank's gradients"),
            (CLIP.but(WHOLE, f"comm.all_reduce({OWN})"), "its square was counted 2 times"),
            (CLIP.but(f"({WHOLE}) ** 0.5", f"comm.all_reduce({OWN} ** 0.5)"), "norms were added"),
            (CLIP.but("min(1.0, most / norm)", "most / norm"), "small gradients: Rank 0 multiplied"),
            (CLIP.but("in [*shards, *copies]", "in shards"), "one factor for all"),
            (CLIP.but("gradient *= ", "gradient = gradient * "), "left its gradients as they are"),
            (CLIP.but("comm.all_reduce(square(shards))", GATHERING), "need not be sent"),
            (("b", "clip"), "Now fix it"),
            (("e", len), "one of a, b, c, d"),
            ("clip", "Answer with the letter of the cause"),
        ),
    ),
}
