"""The exercises of notebook 23. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import partial
from typing import NamedTuple

from hybridlab.core.what.catalog import MACHINES, model
from hybridlab.core.when.room import Room
from hybridlab.labs.exercises.task import Number, Task, varying
from hybridlab.labs.out_of_core.chains import chain, costs
from hybridlab.labs.out_of_core.links import SHARE, fits, intensity, least_bandwidth
from hybridlab.labs.out_of_core.pictures import pipelines
from hybridlab.labs.out_of_core.planned import CASES, judge
from hybridlab.labs.out_of_core.trial import try_engine
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.trial import Function
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.out_of_core import swapped

task = partial(Task, notebook="23_out_of_core")
CARD = 80e9
SIX, THREE = 6, 3  # blocks of out_of_core.waits, and the room there
NUMBER = 8  # bytes


class On(NamedTuple):
    """A chain of blocks on so many ranks, each with rows of its own."""

    ranks: int
    blocks: int
    width: int
    rows: int

    @property
    def kept(self) -> int:
        """Bytes that a forward of a block keeps: what came in, and what stands before and behind the nonlinearity."""
        return NUMBER * self.rows * self.width * (1 + 4 + 4)

    def __str__(self):
        """
        >>> print(On(1, 6, 8, 16))
        1 rank with 6 blocks
        """
        return f"{self.ranks} rank{'s' * (self.ranks > 1)} with {self.blocks} blocks"


ENGINES = (On(1, 6, 8, 16), On(2, 3, 6, 5), On(1, 2, 4, 3))


def _fits(sequences: int) -> Task:
    one, gpt = fits(sequences, CARD), model("gpt2-1.5b").shape
    empty, half = int(CARD // one.block), fits(2 * sequences, CARD).blocks
    state, block = one.state / 1e9, one.block / 1e9
    return task(
        f"GPT-2 with {gpt.layers} blocks on a card of {CARD / 1e9:.0f} GB. Weights, gradients and Adam's state take "
        f"{state:.1f} GB. What a block keeps of {sequences} sequences takes {block:.2f} GB. How many blocks can keep "
        "theirs on the card?",
        Number(
            lambda: one.blocks,
            "blocks",
            within=1e-6,
            slips=[
                (empty, "That is an empty card: weights, gradients and Adam's state are there too."),
                (one.blocks + 1, "Nearly: the last one does not fit as a whole."),
                (gpt.layers - one.blocks, "Those have to go."),
                (half, "That would be twice as many sequences."),
            ],
        ),
        (
            "What is left of the card when weights, gradients and Adam's state are there?",
            f"{CARD / 1e9:.0f} - {state:.1f} GB are left; divide by what a block keeps, and round down.",
            f"({CARD / 1e9:.0f} - {state:.1f}) / {block:.2f}, rounded down.",
        ),
        objective="Count how much of a model's activations a device can keep.",
        difficulty=1,
        minutes=3,
    )


def waits(swap: float) -> float:
    """When the last forward of out_of_core.waits begins."""
    room = Room(THREE)
    schedule = swapped(chain(SIX), range(SIX - THREE), room)
    timeline = simulate(schedule, costs(swap), room=room)
    last = [str(action) for action in schedule.program[0]].index(f"{SIX - 1}F0")
    return timeline.span(0, last).begin


def _waits(swap: int) -> Task:
    right = waits(swap)
    return task(
        f"{SIX} blocks, room for {THREE}. Blocks 0, 1 and 2 are swapped, each as soon as its forward is over; 3, 4 and "
        f"5 stay. A forward takes 1 unit, a copy {swap}. Copies to the host follow each other. A block takes its room "
        "when its forward begins, and leaves it when its copy is over. When does the forward of block 5 begin?",
        Number(
            lambda: right,
            "units",
            within=1e-6,
            slips=[
                (SIX - 1, "That is without waiting. Who leaves the room that it needs?"),
                (right + 1, "That is when it ends."),
                (right - 1, "A copy begins when its forward is over, not with it."),
                (1 + 2 * swap, "Then block 1 has left, and block 4 takes its room."),
            ],
        ),
        (
            "Three blocks fit. Block 3 needs the room of block 0, block 4 that of block 1. And block 5?",
            "It waits for the copy of block 2. The first copy begins at 1, each other one when the one before is over.",
            f"1 + 3 · {swap}.",
        ),
        objective="Say which action waits for which copy.",
        difficulty=2,
        minutes=4,
    )


def _gpipe(copy: int) -> Task:
    in_core, within = (one.length for one in pipelines(copy=copy).values())
    return task(
        "GPipe with 4 ranks and 8 microbatches holds 8 activations on each rank and takes "
        f"{in_core:g} units, with F = 1 and B = 2. Now each rank has room for 2, everything is swapped, and a copy "
        f"takes {copy}. How many units?",
        Number(
            lambda: within,
            "units",
            within=1e-6,
            slips=[
                (
                    in_core,
                    "Nearly: at the turn the room is full of what leaves, so what the first backward needs comes late.",
                ),
                (in_core + 2 * copy, "Its way out lies beside another action."),
                (
                    in_core + 16 * copy,
                    "Copies lie beside the compute: a copy for each F and B, and an engine for each way.",
                ),
                (41, "That is with everything recomputed."),
            ],
        ),
        (
            f"A copy takes {copy}, an F 1, a B 2. Which engine has more to do than its rank?",
            "None. So only the ends can show: where must a backward wait for a copy?",
            "At the turn: one copy shows.",
        ),
        objective="Predict what it costs a pipeline to hold two activations.",
        difficulty=2,
        minutes=3,
    )


def _moved(billions: float) -> Task:
    gigabytes = 2 * billions
    right = 3 * gigabytes
    return task(
        f"A model of {billions:g} billion weights in half precision: {gigabytes:g} GB. Its weights rest on the host, "
        "and the device has those of the block that is at work. Nothing else is swapped. How many GB does the link "
        "between one device and its host carry in a step of one microbatch, both ways together?",
        Number(
            lambda: right,
            "GB",
            within=1e-6,
            slips=[
                (gigabytes, "That is once. Forward and backward both need the weights, and then there are gradients."),
                (2 * gigabytes, "Count again: weights for the forward, weights for the backward, gradients."),
                (4 * gigabytes, "New weights do not travel by themselves: the next forward copies them in anyway."),
                (8 * gigabytes + right, "The optimizer's state rests on the host, and is used there."),
                (14 * billions, "The optimizer's state rests on the host, and is used there."),
            ],
        ),
        (
            "What does the forward of a block need on the device? And its backward? What does the backward make?",
            "UNSHARD before the forward, UNSHARD before the backward, REDUCE_GRAD behind it.",
            f"3 · {gigabytes:g}.",
        ),
        objective="Count what data parallelism on the hosts moves over the link.",
        difficulty=1,
        minutes=3,
    )


def _free(name: str) -> Task:
    gpt, h100 = model(name).shape, MACHINES["h100"]
    per_byte, right = intensity(gpt), least_bandwidth(gpt, h100.peak) / 1e9
    return task(
        f"A block of {model(name).label} does {per_byte:,.0f} FLOP in its forward for each byte that it keeps. An "
        f"H100 has a peak of {h100.peak / 1e12:g} TFLOP/s and reaches {SHARE:.0%} of it. How many GB/s must the link "
        "carry one way, so that a copy takes no longer than its forward?",
        Number(
            lambda: right,
            "GB/s",
            within=0.02,
            slips=[
                (right / SHARE, f"That is at its peak; it reaches {SHARE:.0%}."),
                (right * SHARE, "The share counts once."),
                (1e3 * right, "That is in MB/s."),
            ],
        ),
        (
            "FLOP/s divided by FLOP for each byte are bytes for each second.",
            f"{SHARE:g} · {h100.peak / 1e12:g}e12 / {per_byte:.0f}, in GB/s.",
            f"About {right:.0f}.",
        ),
        objective="Say which link is quick enough for a block.",
        difficulty=1,
        minutes=3,
    )


TASKS: dict[str, Task] = {
    "out_of_core.fits": varying(_fits, sequences=(8, 16, 20)),
    "out_of_core.waits": varying(_waits, swap=(3, 4, 5)),
    "out_of_core.plan": task(
        'Write my_plan(blocks, room, swap): for each block, first block first, a word: "keep", "swap" or "recompute". '
        "A forward takes 1, a backward 2; swap is what a copy takes, and room the number of blocks that can be kept. "
        "lab.length(plan, room, swap) predicts a step. The plan must fit, take no longer than our own rule needs, "
        f"and swap no more blocks than that. Tried on {CASES[0]}, then on other copies, rooms and chains.",
        Function(tuple(CASES), judge, "Answer with your function itself: my_plan, without calling it."),
        (
            "Which blocks are needed first in the backward? They have no time to travel, and none to be done again.",
            "Keep the last blocks, as many as fit. Of the others, the first ones have the longest time to come back: "
            "swap these, as many as the link can carry, and recompute the rest. How many is that? Let lab.length say.",
            'plans = [["swap"] * n + ["recompute"] * (blocks - room - n) + ["keep"] * room for n in range('
            "blocks - room + 1)]; return the first of the shortest.",
        ),
        objective="Plan what is kept, swapped and recomputed within a room.",
        difficulty=3,
        minutes=10,
    ),
    "out_of_core.engine": task(
        "Write MyEngine(arena, link). pack(block, x) gets a tensor that autograd saves in a forward and returns a "
        "ticket; unpack(block, ticket) returns the tensor in the backward. after_forward(block) is called behind each "
        "forward but the last, before_backward(block) and after_backward(block) around each backward. The arena has "
        "room for two blocks. Everything that is on the device must be told to it; each copy must lie beside the "
        f"compute of a block; gradients must be those in core, to the bit. Tried on {ENGINES[0]}, then on "
        "other chains.",
        OnCases(
            try_engine,
            first_found,
            ENGINES,
            "Gradients to the bit, never more than two blocks, each copy beside a block.",
        ),
        (
            "Room for two: in the forward the block that computes and the one that leaves, in the backward the block "
            "that computes and the one that comes. When is the one that leaves gone?",
            "after_forward(b): wait for the copies of b - 1 and give their room back, then begin those of b. "
            "before_backward(b): wait for what comes for b, then take room for b - 1 and begin to bring it.",
            "Three dictionaries by block: here (tensors on the device), host (tensors there), moving (copies under "
            "way). Before the last backward, block last - 1 may still be leaving: wait for it, then bring it back.",
        ),
        objective="Write the engine that swaps, within a room and beside the compute.",
        difficulty=3,
        minutes=13,
    ),
    "out_of_core.gpipe": _gpipe(copy=1),
    "out_of_core.moved": varying(_moved, billions=(17, 8, 70)),
    "out_of_core.free": _free("gpt3-175b"),
}
