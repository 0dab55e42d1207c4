"""The runs of a student's data parallelism, and the verdict on each: gradients, buckets, starts of all-reduces."""

from itertools import starmap
from typing import NamedTuple

from hybridlab.labs.exercises.words import so_many

ALL_AT_ONCE = 1 << 20  # bytes: more than the net has


class Case(NamedTuple):
    """One run; `twist` names a special feature of its net."""

    ranks: int
    bucket_bytes: int
    twist: str = ""

    def __str__(self) -> str:
        return f"{self.ranks} ranks, bucket_bytes = {self.bucket_bytes}{TWISTS[self.twist]}"


TWISTS = {
    "": "",
    "tied": ", one weight in two layers",
    "frozen": ", a frozen weight (requires_grad=False)",
    "unused": ", a layer that no rank uses",
    "turned": ", the last layer used first",
    "unused on rank 1": ", a layer that rank 1 does not use",  # its bucket is full only on rank 0
}
CASES = tuple(
    starmap(
        Case,
        (
            (2, 2048),
            (3, 2048),
            (2, 1),
            (2, ALL_AT_ONCE),
            (2, 2048, "tied"),
            (2, 2048, "frozen"),
            (2, 1088, "turned"),  # a layer fills a bucket exactly
            (2, 1100, "unused"),
            (2, 1100, "unused on rank 1"),
        ),
    )
)


class Did(NamedTuple):
    """The result of one step on one rank.

    missing  weights without a gradient;  own  whether all gradients are still those of the rank's own rows
    gap      the largest difference from one device, and the weight that has it
    ratio    the norm of all gradients over that of one device
    sums     bytes of each all-reduce;  wanted  the same for the right buckets;  others  other operations
    early    all-reduces that had started when the last gradient was made;  open  those of them that had not been waited
             for
    begun    all-reduces that had started when the backward ended;  full  buckets that were full then, with all before
             them
    """

    missing: list[str]
    own: bool
    gap: tuple[float, str]
    ratio: float
    sums: list[int]
    wanted: list[int]
    others: list[str]
    early: int
    open: int
    begun: int
    full: int


ABOUT = {  # {words of a reply: the hint about the mistake that it reports}
    "Which state of the first step was not reset": "Compare __init__ with finish(): all counters, marks and lists that "
    "a backward fills must be empty after finish(), as they were in the beginning.",
    "has no gradient for": "Which weights are in no bucket, or in a bucket that was never sent? finish() must send "
    "the buckets that the hooks have not sent, with zeros for a weight that has no gradient.",
    "gradients of its own rows": "The sum is in the flat tensor that torch.cat made, which is a copy. In finish(), "
    "cut it into pieces, and copy each piece into its weight.grad.",
    "A bucket is full on rank 0": "Ranks may fill their buckets in different orders, but must send them in the same "
    "order. Send bucket 0 first, then 1, …: a full bucket waits for all before it.",
    "times too large": "A sum over the ranks becomes their mean by one division, in finish().",
    "times too small": "Look for two divisions by comm.size.",
    "buckets of at most": "Fill from the last weight of model.parameters() to the first, and begin a new bucket "
    "when the next weight would make it larger than bucket_bytes. A tied weight is one weight.",
    "no all-reduce began": "Your all-reduces begin in finish(). The hook of a weight, "
    "register_post_accumulate_grad_hook, is called during the backward: start the all-reduce of a full bucket there.",
    "waited for finish()": "A bucket may be full while one before it is not. As soon as that one is full, both can "
    "start: while the next bucket is full, start its all-reduce.",
    "waits during the backward": "comm.iall_reduce returns at once with a message. Keep it, and call its wait() in "
    "finish().",
}
NEAR = 1e-6  # tolerance for gradients of about 0.01: another order of additions is not a mistake


def judge(case, homes) -> str:
    """The first mistake that is found on a rank, in the first step or the second; empty if there is none."""
    for number, step in enumerate(zip(*homes)):
        for look in (_gradients, _buckets, _overlap):
            for rank, did in enumerate(starmap(Did, step)):
                if told := look(case, rank, did):
                    more = "Which state of the first step was not reset?"
                    return f"In the second step {told} {more}" if number else told
    return ""


def _gradients(case, rank, did) -> str:
    far, name = did.gap
    if did.missing:
        return f"rank {rank} has no gradient for {did.missing[0]}, but one device has one."
    if far <= NEAR:
        return ""
    if did.own:
        return f"rank {rank} still has the gradients of its own rows: the sum was not written to weight.grad."
    if abs(did.ratio - case.ranks) < 1e-3:
        return f"the gradients are {case.ranks} times too large: the mean over the ranks is their sum / comm.size."
    if abs(did.ratio - 1 / case.ranks) < 1e-3:
        return f"the gradients are {case.ranks} times too small: one division by comm.size is enough."
    order = " A bucket is full on rank 0 and not on rank 1: do all ranks send their buckets in the same order?"
    more = order * case.twist.endswith("rank 1")
    return f"on rank {rank} the gradient of {name} differs from that of one device by up to {far:.2g}.{more}"


def _buckets(case, rank, did) -> str:
    if did.others:
        return f"rank {rank} called {did.others[0]}: an all-reduce for each bucket is enough."
    if did.sums == did.wanted:
        return ""
    wanted = f"buckets of at most {case.bucket_bytes} are {_sizes(did.wanted)}"
    return f"rank {rank} all-reduced {_sizes(did.sums)}; {wanted}."


def _sizes(sizes) -> str:
    """
    >>> _sizes([64, 1024]), _sizes([])
    ('64 + 1024 bytes', 'nothing')
    """
    return f"{' + '.join(map(str, sizes))} bytes" if sizes else "nothing"


def _overlap(case, rank, did) -> str:
    if len(did.wanted) < 2 or case.twist.startswith("unused"):
        return _late(rank, did)
    if not did.early and case.twist != "turned":
        return f"right gradients, but on rank {rank} no all-reduce began before the last gradient: nothing is hidden."
    if did.early and not did.open:
        told = f"right gradients, but rank {rank} waits during the backward"
        return f"{told}: start each all-reduce there, and wait in finish()."
    return _late(rank, did)


def _late(rank, did) -> str:
    late = did.full - did.begun
    if late <= 0:
        return ""
    told = f"right gradients, but on rank {rank} {so_many(late, 'full bucket')} waited for finish()"
    return f"{told}: one hook may have to start several all-reduces."
