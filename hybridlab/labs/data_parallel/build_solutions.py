"""Solutions of what is built in notebook 21: data parallelism in buckets."""

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

SOLUTIONS: dict[str, Solution] = {
    "data_parallel.ddp": Solution(
        DDP,
        "A hook starts the next bucket as soon as it and all before it are full, so all ranks sum in one order.",
        (
            (DDP.but("weight.grad = piece", "weight.new = piece"), "no sum has come back"),
            (DDP.but(" / self.comm.size", ""), "2 times too large"),
            (DDP.but(" / self.comm.size", " / self.comm.size**2"), "2 times too small"),
            (DDP.but(" / self.comm.size", " / 2"), "But 3 ranks, bucket_bytes = 2048: on rank"),
            (DDP.but("reversed(", "list("), "rank 0 summed 1088 + 1088 + 1088 + 1088 bytes; buckets of at most 2048"),
            (DDP.but("room -= weight.nbytes", "room -= weight.numel()"), "buckets of at most 2048 are"),
            (DDP.but("(self.made)", "(lambda one: None)"), "the backward hides nothing"),
            (
                DDP.but("self.comm.iall_reduce(flat)", "self.comm.all_reduce(flat)").but("message.wait()", "message"),
                "wait in finish()",
            ),
            (DDP.but(FREE, "\nlabs"), "what has the first step left behind?"),
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
            (AS_FULL, "do all ranks sum in one order?"),
            (3, "what you have written itself"),
        ),
    ),
}
