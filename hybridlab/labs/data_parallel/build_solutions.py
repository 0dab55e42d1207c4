"""Solutions of the programs that are built and fixed in notebook 21: data parallelism in buckets."""

from hybridlab.labs.exercises.solution import Cell, Solution

DDP = Cell("""\
class MyDDP:
    def __init__(self, comm, model, bucket_bytes):
        self.comm, self.buckets, room = comm, [], 0
        for weight in reversed([one for one in model.parameters() if one.requires_grad]):
            if not self.buckets or weight.nbytes > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(weight)
            room -= weight.nbytes
            weight.register_post_accumulate_grad_hook(self.made)
        self.ready, self.sent = set(), []

    def made(self, weight):
        self.ready.add(weight)
        while len(self.sent) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.sent)]):
            self.send()

    def send(self):
        bucket = self.buckets[len(self.sent)]
        flat = torch.cat([(torch.zeros_like(one) if one.grad is None else one.grad).flatten() for one in bucket])
        self.sent.append(self.comm.iall_reduce(flat))

    def finish(self):
        while len(self.sent) < len(self.buckets):
            self.send()
        for bucket, message in zip(self.buckets, self.sent):
            pieces = (message.wait() / self.comm.size).split([one.numel() for one in bucket])
            for weight, piece in zip(bucket, pieces):
                weight.grad = piece.view_as(weight)
        self.ready, self.sent = set(), []

labs.answer("data_parallel.ddp", MyDDP)""")
AS_LONG = "while len(self.sent) < len(self.buckets) and"
AS_FULL = DDP.but(
    """\
        while len(self.sent) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.sent)]):
            self.send()
""",
    """\
        for bucket in self.buckets:
            if any(one is weight for one in bucket) and self.ready.issuperset(bucket):
                self.send(bucket)
""",
)
AS_FULL = (
    AS_FULL.but("def send(self):\n        bucket = self.buckets[len(self.sent)]\n", "def send(self, bucket):\n")
    .but("self.sent.append(self", "self.sent.append((bucket, self")
    .but("_reduce(flat))", "_reduce(flat)))")
    .but("in zip(self.buckets, self.sent)", "in self.sent")
    .but(
        "        while len(self.sent) < len(self.buckets):\n            self.send()\n",
        "        for bucket in self.buckets:\n"
        "            if all(bucket is not its for its, _ in self.sent):\n"
        "                self.send(bucket)\n",
    )
)
FREE = "        self.ready, self.sent = set(), []\n\nlabs"

PATIENT = Cell("""\
def mended(comm):
    torch.manual_seed(comm.rank)
    layer = torch.nn.Linear(4, 1, bias=False)
    x, targets = torch.randn(8, 4), torch.randn(8, 1)
    weights = [layer.weight[0].tolist()]
    for _ in range(3):
        layer.zero_grad()
        (layer(x) - targets).square().mean().backward()
        comm.all_reduce(layer.weight.grad)
        layer.weight.data -= 0.1 * layer.weight.grad / comm.size
        weights.append(layer.weight[0].tolist())
    return x.tolist(), targets.tolist(), weights

labs.answer("data_parallel.mended", mended)""")
BEFORE = "    weights = ["
MENDED = PATIENT.but(BEFORE, "    comm.broadcast(layer.weight.data)\n    weights = [")
OUTER = Cell("""\
def my_outer_step(comm, old, now, speed, rate, momentum):
    move = comm.all_reduce(old - now) / comm.size
    speed = momentum * speed + move
    return old - rate * (move + momentum * speed), speed

labs.answer("data_parallel.outer", my_outer_step)""")
SEEDS = PATIENT.but("manual_seed(comm.rank)", "manual_seed(0)")

SOLUTIONS: dict[str, Solution] = {
    "data_parallel.ddp": Solution(
        DDP,
        "A hook starts the next bucket as soon as it and all before it are full, so all ranks send in one order.",
        (
            (DDP.but("weight.grad = piece", "weight.new = piece"), "was not written to"),
            (DDP.but(" / self.comm.size", ""), "2 times too large"),
            (DDP.but(" / self.comm.size", " / self.comm.size**2"), "2 times too small"),
            (DDP.but(" / self.comm.size", " / 2"), "On 3 ranks, bucket_bytes = 2048: on rank"),
            (DDP.but("reversed(", "list("), "rank 0 all-reduced 1088 + 1088 + 1088 + 1088 bytes; buckets"),
            (DDP.but("room -= weight.nbytes", "room -= weight.numel()"), "buckets of at most 2048 are"),
            (
                DDP.but("not self.buckets or weight.nbytes > room", "weight.nbytes >= room"),
                "rank 0 all-reduced 64 + 1024 + 64 + 1024 + 64 + 1024 + 64 + 1024 bytes; buckets of at most 1088 are",
            ),
            (DDP.but(AS_LONG, AS_LONG.replace("while", "if")), "waited for finish()"),
            (DDP.but("(self.made)", "(lambda one: None)"), "nothing is hidden"),
            (
                DDP.but("self.comm.iall_reduce(flat)", "self.comm.all_reduce(flat)").but("message.wait()", "message"),
                "wait in finish()",
            ),
            (DDP.but(FREE, "\nlabs"), "Which state of the first step was not reset?"),
            (
                DDP.but("model.parameters()", "[w for layer in model.layers for w in layer.parameters()]"),
                "one weight in two layers: ",
            ),
            (DDP.but(" if one.requires_grad", ""), "a frozen weight (requires_grad=False): all 2 ranks failed"),
            (
                DDP.but("(torch.zeros_like(one) if one.grad is None else one.grad)", "one.grad"),
                "a layer that no rank uses: all 2 ranks failed",
            ),
            (
                DDP.but("while len(self.sent) < len(self.buckets):\n            self.send()", "pass"),
                "a layer that no rank uses: ",
            ),
            (AS_FULL, "in the same order?"),
            (3, "your function itself"),
        ),
    ),
    "data_parallel.tokens": Solution(
        'labs.answer("data_parallel.tokens", (2 * 2 / 25e9) / (4 / 312e12))',
        "The all-reduce takes 2gΨ/W, the backward 4ΨK/C: the size of the model cancels, and K = gC/2W.",
        (
            (6240, "nearly twice"),
            (8320, "the forward too"),
            (24960, "the backward has 4"),
            (100, "small"),
            (1e6, "large"),
        ),
        also=(12480, 12500),
    ),
    "data_parallel.reducer": Solution(
        'labs.answer("data_parallel.reducer", 1)',
        "Until it knows the order of the gradients DDP has one bucket without a limit; then it rebuilds.",
        (
            (16, "limit of 25 MiB"),
            (2, "find_unused_parameters"),
            (197, "always uses buckets"),
            (14, "the limits of the first backward"),
            (15, "the limits of the first backward"),
            (8, "Too large"),
        ),
        also=(1.0,),
    ),
    "data_parallel.cause": Solution(
        'labs.answer("data_parallel.cause", "c")',
        "Equal changes keep a difference forever, and the difference was there before the first step.",
        (
            ("a", "changes of the two ranks would differ"),
            ("b", "their weights would stay equal"),
            ("d", "would not differ at all"),
            ("e", "one letter"),
        ),
        also=("(c)", "C"),
    ),
    "data_parallel.mended": Solution(
        MENDED,
        "Each rank may draw its own rows from its seed, but its first weights must equal those of all others.",
        (
            (PATIENT, "before the first step the weights of the ranks still differ by up to"),
            (SEEDS, "all ranks see the same rows"),
            (MENDED.but(" / comm.size", ""), "one device that sees all rows gets different weights"),
            (MENDED.but("        comm.all_reduce(layer.weight.grad)\n", ""), "one device that sees all rows"),
            (MENDED.but("x.tolist(), targets.tolist(), weights", "weights"), "return x, targets and weights"),
            (MENDED.but("manual_seed(comm.rank)", "manual_seed(comm.rank // 2)"), "all ranks see the same rows"),
            ("broadcast", "your function itself"),
        ),
        also=(SEEDS.but("    x, targets", "    torch.manual_seed(7 + comm.rank)\n    x, targets"),),
    ),
    "data_parallel.outer": Solution(
        OUTER,
        "The mean of the changes is used like a gradient; since all copies use the same mean, they stay equal.",
        (
            (OUTER.but("comm.all_reduce(old - now) / comm.size", "old - now"), "used its own change"),
            (OUTER.but(" / comm.size", ""), "the sum of the changes"),
            (OUTER.but("old - now", "now - old"), "the weights went back"),
            (OUTER.but("    speed = momentum * speed + move", "    speed = move"), "the momentum was forgotten"),
            (OUTER.but("(move + momentum * speed)", "speed"), "without Nesterov"),
            (
                OUTER.but("momentum * speed), speed", "momentum * speed), momentum * speed"),
                "momentum that you return",
            ),
            (OUTER.but(" / comm.size", " / 2"), "On 3 ranks"),
            (OUTER.but("rate * (", "0.7 * ("), "rate = 1, momentum = 0"),
            (OUTER.but(", speed\n\nlabs", "\n\nlabs"), "return the new weights and the new momentum"),
            (OUTER.but("    speed =", "    comm.all_reduce(speed.clone())\n    speed ="), "one for each weight"),
            ("old - now", "your function itself"),
        ),
        also=(OUTER.but("comm.all_reduce(old - now) / comm.size", "old - comm.all_reduce(now.clone()) / comm.size"),),
    ),
}
