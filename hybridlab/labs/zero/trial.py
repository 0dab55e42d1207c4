"""The runs of students' programs in notebook 22, and the verdicts: ZeRO 1, and one FSDP unit. No torch here."""

from itertools import pairwise, starmap
from typing import NamedTuple

RATE = 0.01  # of Adam
WIDTH = 4  # bytes of a number
SMALL, ODD = (16, 16, 16), (5, 3, 2)  # widths of a net; the second has a number of weights that few ranks divide
TINY = 1e-6  # makes gradients as small as Adam's eps, 1e-8


class Case(NamedTuple):
    """A net of these widths on `ranks` ranks; its loss is multiplied by `scale`."""

    ranks: int
    widths: tuple[int, ...] = SMALL
    scale: float = 1.0

    def __str__(self) -> str:
        small = ", gradients as small as Adam's eps" if self.scale == TINY else ""
        return f"{self.ranks} ranks, {self.weights} weights{small}"

    @property
    def weights(self) -> int:
        """Ψ, with biases.

        >>> Case(4).weights, Case(4, ODD).weights
        (544, 26)
        """
        return sum(a * b + b for a, b in pairwise(self.widths))

    @property
    def share(self) -> int:
        """Numbers of one rank's shard; the last shard is padded.

        >>> Case(4).share, Case(4, ODD).share
        (136, 7)
        """
        return -(-self.weights // self.ranks)

    @property
    def third(self) -> int:
        """Bytes that a rank sends in a gather, or in a reduce-scatter."""
        return (self.ranks - 1) * self.share * WIDTH


ONE_CASES = tuple(starmap(Case, ((4,), (2, ODD), (3, ODD), (4, ODD), (2, SMALL, TINY))))
UNIT_CASES = tuple(starmap(Case, ((2,), (3, ODD), (4, ODD), (4,))))


class One(NamedTuple):
    """The result of three steps with a student's ZeRO 1 on one rank.

    gap      the largest difference of the rank's weights from one device's;  moved  whether any weight has changed
    first    the weights after the first step: "right", "own" (right in its own shard, and old in others), "copied"
             (every shard near the old first one), or ""
    lost     whether the weights are those of a new Adam in every step
    ops      the operations called;  sent  bytes in a step;  kept  numbers of the optimizer at the end
    """

    gap: float
    moved: bool
    first: str
    lost: bool
    ops: list[str]
    sent: float
    kept: int


class Unit(NamedTuple):
    """The result of one step with a student's FSDP unit on one rank.

    stored                      numbers in the storage of unit.shard, before the forward
    output, x, shard, gradient  differences from the module on one device: of the output, of the gradient of x, of the
                                shard, and of its gradient (nan: there is none, or it has another shape)
    times                       the norm of the shard's gradient over the right one
    between, saved, after       numbers held between forward and backward, numbers held then with those that autograd
                                saved, and numbers held after the backward
    """

    stored: int
    output: float
    x: float
    shard: float
    gradient: float
    times: float
    between: int
    saved: int
    after: int
    ops: list[str]
    sent: float


NEAR_WEIGHTS, NEAR = 1e-5, 1e-6
ABOUT_ONE = {  # {words of a reply: the hint about the mistake that it reports}
    "no weight has changed": "The optimizer has changed the shard, which is a separate tensor. Which call copies all "
    "shards into the weights of the model, and when?",
    "in its own shard only": "Each rank has updated a different piece. Which collective gives every rank all pieces?",
    "lost between steps": "Adam's averages are in the optimizer. Make it once, in __init__, for one shard that stays, "
    "and change the numbers of this shard in each step.",
    "near the first one": "chunk(comm.size) makes a list of pieces, one for each rank. Which of them is comm.rank's?",
    "bytes in a step; ": "Two collectives are enough: a reduce-scatter gives each rank one piece of the gradient, and "
    "after the update an all-gather joins the pieces of the weights.",
    "numbers in addition to the weights": "The optimizer keeps Adam's state, and the memory that your shard refers to: "
    "a view keeps the full buffer. clone() it, and give nothing else to Adam.",
    "equal parts: ": "The number of weights need not be a multiple of comm.size. Add zeros at the end of the flat "
    "tensor before you cut it, and leave them out when you copy back.",
    "the weights are off": "Adam divides by the size of its gradient, which hides a constant factor. Divide by "
    "comm.size nevertheless.",
}
ABOUT_UNIT = {
    "is a view of": "chunk() copies nothing: its pieces are views of the flat buffer, and have its storage. What "
    "happens to the shard when you free that storage, and how large is the storage if you do not?",
    "whose storage was freed": "Some operation uses the weights while they are freed. Gather them before the module is "
    "called, and again in the hook of its output (register_hook), which is called when the backward arrives there.",
    "between forward and backward": "The weights gathered for the forward are still there. After the module has been "
    "called, free the storage of the flat buffer with resize_(0).",
    "after the backward": "After the last gradient, free three things: weight.grad of every weight, the flat gradient, "
    "and the storage of the gathered weights.",
    "times too large": "A reduce-scatter computes sums: divide your piece by comm.size.",
    "two gathers and a reduce-scatter": "An all-reduce gives the full gradient to all ranks, but each rank needs only "
    "its own piece.",
    "is not a tensor of": "A hook on every weight counts down, and the last one makes shard.grad. From which number "
    "does it count down in the second step?",
}
FIRST = {  # {state of the weights after the first step: the mistake}
    "own": "rank {} has the right weights in its own shard only: how does it get the shards of the others?",
    "copied": "on rank {} all shards of the weights are near the first one: which piece does each rank take?",
    "right": "rank {} has the right weights after the first step, but not after three: what must a step keep for the "
    "next one, and what must it replace?",
}
RIGHT_AFTER = "the outputs and gradients are right. But "


def judge_one(case, homes) -> str:
    """The first mistake of a student's ZeRO 1 that is found on a rank; empty if there is none."""
    for look in (_weights, _traffic_of_one, _kept):
        for rank, home in enumerate(homes):
            if told := look(case, rank, One(*home)):
                return told
    return ""


def _weights(case, rank, did) -> str:
    if did.gap <= NEAR_WEIGHTS:
        return ""
    if not did.moved:
        return f"on rank {rank} no weight has changed after three steps."
    if case.scale != 1:
        return (
            "the weights are off. The gradient is the mean over the ranks, not the sum: Adam divides by the gradient's "
            "own size and hides a constant factor, unless gradients are as small as its eps."
        )
    if did.lost:
        return f"Adam's averages are lost between steps: rank {rank} has the weights of a new Adam in every step."
    return (
        FIRST.get(did.first, "").format(rank)
        or f"on rank {rank} the weights differ from those of one device by up to {did.gap:.2g} after three steps."
    )


def _traffic_of_one(case, rank, did) -> str:
    wanted = 2 * case.third
    if did.sent == wanted:
        return ""
    told = f"the weights are right. But rank {rank} sends {did.sent:,.0f} bytes in a step; {wanted:,} are enough"
    if "all_reduce" in did.ops:
        return f"{told}: an all-reduce gives every rank the full sum, but a rank needs only its shard."
    return f"{told}: 2 · {case.share} · 4 · (p-1), for a reduce-scatter and an all-gather of padded flat buffers."


def _kept(case, rank, did) -> str:
    most = 4 * case.share + 8  # a copy of the shard, its gradient, two averages; and counts of steps
    if did.kept <= most:
        return ""
    keeps = f"the optimizer of rank {rank} keeps {did.kept:,} numbers in addition to the weights"
    needs = f"for its shard of {case.share} it needs two averages, a copy and a gradient"
    return f"the weights are right. But {keeps}; {needs}. (A view keeps the full buffer in memory: clone it.)"


def judge_unit(case, homes) -> str:
    """The first mistake of a student's unit that is found on a rank, in either step; empty if there is none."""
    for number, step in enumerate(zip(*homes)):
        for look in (_values, _held, _traffic_of_unit):
            for rank, home in enumerate(step):
                if told := look(case, rank, Unit(*home)):
                    return f"in the second step, after an update of unit.shard, {told}" if number else told
    return ""


def _values(case, rank, did) -> str:
    if did.stored != case.share:
        told = f"unit.shard of rank {rank} has {case.share} numbers, but is a view of a larger buffer"
        return f"{told}, which it keeps in memory or loses with it: clone() the shard."
    if not did.output <= NEAR:
        return f"the output of rank {rank} is not that of the module on its rows."
    if not did.shard <= NEAR:
        return (
            f"unit.shard of rank {rank} is not its {case.share} of {case.weights} weights: flatten, pad and cut them."
        )
    if not did.x <= NEAR:
        return f"the gradient of x on rank {rank} is not that of the module: which weights does its backward use?"
    if did.gradient != did.gradient:
        return f"unit.shard.grad of rank {rank} is not a tensor of {case.share} numbers after the backward."
    if did.gradient > NEAR and abs(did.times - case.ranks) < 1e-3:
        return f"unit.shard.grad is {case.ranks} times too large: the mean over the ranks is their sum / comm.size."
    if not did.gradient <= NEAR:
        return f"unit.shard.grad of rank {rank} is not its shard of the mean gradient: off by up to {did.gradient:.2g}."
    return ""


def _held(case, rank, did) -> str:
    if did.between > 2 * case.share:
        told = f"between forward and backward rank {rank} holds {did.between} numbers"
        return f"{RIGHT_AFTER}{told}; its shard has {case.share}."
    if did.saved > 2 * case.share:
        told = f"autograd has saved the full weights for the backward of rank {rank}"
        return f"{RIGHT_AFTER}{told}: free their storage with untyped_storage().resize_(0)."
    if did.after > 3 * case.share:
        told = f"after the backward rank {rank} holds {did.after} numbers"
        return f"{RIGHT_AFTER}{told}; its shard and the shard's gradient have {case.share} each."
    return ""


def _traffic_of_unit(case, rank, did) -> str:
    wanted = 3 * case.third
    if did.sent == wanted:
        return ""
    told = f"rank {rank} sends {did.sent:,.0f} bytes in a step, with {_counted(did.ops)}"
    return f"{RIGHT_AFTER}{told}; two gathers and a reduce-scatter of the padded buffer send {wanted:,}."


def _counted(ops) -> str:
    """
    >>> _counted(["all_gather", "all_gather", "all_reduce"])
    '2 × all_gather, 1 × all_reduce'
    """
    return ", ".join(f"{ops.count(op)} × {op}" for op in dict.fromkeys(ops))
