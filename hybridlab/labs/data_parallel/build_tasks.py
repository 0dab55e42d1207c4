"""What students build and mend in notebook 21: data parallelism in buckets."""

from functools import partial

from hybridlab.labs.data_parallel import ddp_case, ddp_check
from hybridlab.labs.exercises.cases import Cases
from hybridlab.labs.exercises.task import Task

task = partial(Task, notebook="21_data_parallel")

BUILD_TASKS: dict[str, Task] = {
    "data_parallel.ddp": task(
        "Write MyDDP(comm, model, bucket_bytes). Between loss.backward() and ddp.finish() it sums the gradients of all "
        "ranks in buckets; after finish() every weight.grad is the mean over the ranks. Fill buckets from the last "
        "weight of model.parameters() to the first: a weight that would make a bucket larger than bucket_bytes begins "
        "the next one. A bucket's sum starts inside the backward, as soon as it and all before it are full. Tried on "
        "2 ranks with 2048 bytes for two steps; then on 3 ranks, with other buckets, and with weights that are tied, "
        "frozen or unused.",
        Cases(
            ddp_check.play,
            ddp_case.CASES,
            ddp_check.judge,
            "The gradients of one device, as many sums as buckets, and sums begin inside the backward; also with tied, "
            "frozen and unused weights, and in a second step.",
        ),
        (
            "Three parts: lists of weights (the buckets), a hook that notes which weights are ready and sends the next "
            "bucket while it is full, and finish(), which sends what is left, waits, divides and copies back.",
            "Keep self.ready, a set, and self.sent, a list of messages: bucket number len(self.sent) goes next, on "
            "every rank. A weight without a gradient counts as zeros. Which of these must a second step find empty?",
            "In the hook: self.ready.add(weight); while len(self.sent) < len(self.buckets) and "
            "self.ready.issuperset(self.buckets[len(self.sent)]): self.send(). And send() appends "
            "comm.iall_reduce(torch.cat([…])) to self.sent.",
        ),
        objective="Write data parallelism with buckets that are summed beside the backward.",
        difficulty=3,
        minutes=15,
    ),
}
