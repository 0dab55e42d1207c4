"""The exercises of notebook 23. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import partial
from typing import NamedTuple

from hybridlab.core.what.catalog import MACHINES, model
from hybridlab.core.when.room import Room
from hybridlab.labs.exercises.task import Number, Task, varying
from hybridlab.labs.out_of_core import lent
from hybridlab.labs.out_of_core.chains import chain, costs
from hybridlab.labs.out_of_core.links import SHARE, fits, intensity, least_bandwidth
from hybridlab.labs.out_of_core.pictures import pipelines
from hybridlab.labs.out_of_core.planned import CASES, judge
from hybridlab.labs.out_of_core.trial import try_engine
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.trial import SECONDS, Function
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.out_of_core import swapped

task = partial(Task, notebook="23_out_of_core")
CARD = 80e9
SIX, THREE = 6, 3  # blocks of out_of_core.waits, and those that fit into memory
NUMBER = 8  # bytes


class On(NamedTuple):
    """A chain of blocks on several ranks, each with its own rows."""

    ranks: int
    blocks: int
    width: int
    rows: int

    @property
    def kept(self) -> int:
        """Bytes that a block's forward saves: its input, and the tensors before and after the nonlinearity."""
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
        f"GPT-2 has {gpt.layers} blocks, and a card has {CARD / 1e9:.0f} GB. Weights, gradients and Adam's state take "
        f"{state:.1f} GB. The saved activations of one block take {block:.2f} GB for {sequences} sequences. How many "
        "blocks can keep their activations on the card?",
        Number(
            lambda: one.blocks,
            "blocks",
            within=1e-6,
            slips=[
                (empty, "That is for an empty card: weights, gradients and Adam's state are there too."),
                (one.blocks + 1, "Nearly, but the last of these blocks does not fit completely."),
                (gpt.layers - one.blocks, "That is the number of blocks that do not fit."),
                (half, "That is with twice the number of sequences."),
            ],
        ),
        (
            "How much of the card is free after weights, gradients and Adam's state?",
            f"{CARD / 1e9:.0f} - {state:.1f} GB are free. Divide by the activations of a block, and round down.",
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
        f"A chain has {SIX} blocks, and the device has memory for {THREE}. Blocks 0, 1 and 2 are swapped, each as soon "
        f"as its forward has ended; 3, 4 and 5 stay. A forward takes 1 unit, a copy {swap}. Copies to the host run one "
        "after the other. A block takes memory when its forward begins, and frees it when its copy ends. When does the "
        "forward of block 5 begin?",
        Number(
            lambda: right,
            "units",
            within=1e-6,
            slips=[
                (SIX - 1, "That is without waiting. Which block frees the memory that block 5 needs?"),
                (right + 1, "That is when it ends."),
                (right - 1, "A copy begins when its forward has ended, not with it."),
                (1 + 2 * swap, "At that time the copy of block 1 has ended, and block 4 takes its memory."),
            ],
        ),
        (
            "Three blocks fit. Block 3 needs the memory of block 0, block 4 that of block 1. And block 5?",
            "It waits for the copy of block 2. The first copy begins at 1, and each later one when the previous ends.",
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
        f"{in_core:g} units, with F = 1 and B = 2. Now each rank has memory for 2 activations, everything is swapped, "
        f"and a copy takes {copy}. How many units does the step take?",
        Number(
            lambda: within,
            "units",
            within=1e-6,
            slips=[
                (
                    in_core,
                    "Nearly: after the last forward the memory is full of activations that are still being copied out, "
                    "so the first backward gets its activations late.",
                ),
                (in_core + 2 * copy, "Only the copy to the device is exposed; the other overlaps with another action."),
                (
                    in_core + 16 * copy,
                    "Copies overlap with computation: there is one copy for each F and B, and one engine for each "
                    "direction.",
                ),
                (41, "That is with everything recomputed."),
            ],
        ),
        (
            f"A copy takes {copy}, an F 1, a B 2. Is an engine ever busy for longer than its rank?",
            "It is not. So a copy can be exposed only at a beginning or an end. Where must a backward wait for a copy?",
            "Between the last forward and the first backward, one copy is exposed.",
        ),
        objective="Predict how much longer a pipeline takes if it holds only two activations.",
        difficulty=2,
        minutes=3,
    )


def _moved(billions: float) -> Task:
    gigabytes = 2 * billions
    right = 3 * gigabytes
    return task(
        f"A model has {billions:g} billion weights in half precision, which is {gigabytes:g} GB. They are stored on "
        "the host, and the device has only the weights of the block that it computes. Nothing else is swapped. How "
        "many GB does the link between one device and its host carry in a step of one microbatch, in both directions "
        "together?",
        Number(
            lambda: right,
            "GB",
            within=1e-6,
            slips=[
                (gigabytes, "That is once. Forward and backward both need the weights, and there are also gradients."),
                (2 * gigabytes, "Count again: weights for the forward, weights for the backward, gradients."),
                (4 * gigabytes, "New weights need no separate copy: the next forward copies them in anyway."),
                (8 * gigabytes + right, "The optimizer's state is stored on the host, and is used there."),
                (14 * billions, "The optimizer's state is stored on the host, and is used there."),
            ],
        ),
        (
            "What does the forward of a block need on the device? And its backward? What does the backward produce?",
            "UNSHARD before the forward, UNSHARD before the backward, REDUCE_GRAD after it.",
            f"3 · {gigabytes:g}.",
        ),
        objective="Count the bytes on the link when weights are stored on the host.",
        difficulty=1,
        minutes=3,
    )


def _free(name: str) -> Task:
    gpt, h100 = model(name).shape, MACHINES["h100"]
    per_byte, right = intensity(gpt), least_bandwidth(gpt, h100.peak) / 1e9
    return task(
        f"A block of {model(name).label} does {per_byte:,.0f} FLOP in its forward for each byte that it saves. An "
        f"H100 has a peak of {h100.peak / 1e12:g} TFLOP/s and reaches {100 * SHARE:.0f} % of it. How many GB/s must "
        "the link carry in one direction, so that a copy takes no longer than its forward?",
        Number(
            lambda: right,
            "GB/s",
            within=0.02,
            slips=[
                (right / SHARE, f"That is at its peak; the card reaches {100 * SHARE:.0f} % of it."),
                (right * SHARE, f"Multiply by the factor of {SHARE:g} only once."),
                (1e3 * right, "That is in MB/s."),
            ],
        ),
        (
            "FLOP/s divided by FLOP per byte are bytes per second.",
            f"{SHARE:g} · {h100.peak / 1e12:g}e12 / {per_byte:.0f}, in GB/s.",
            f"About {right:.0f}.",
        ),
        objective="Say which link is fast enough for a block.",
        difficulty=1,
        minutes=3,
    )


TASKS: dict[str, Task] = {
    "out_of_core.fits": varying(_fits, sequences=(8, 16, 20)),
    "out_of_core.waits": varying(_waits, swap=(3, 4, 5)),
    "out_of_core.plan": task(
        'Write `my_plan(blocks, room, swap)`. It returns one word for each block, in order: "keep", "swap" or '
        '"recompute". A forward takes 1 and a backward takes 2. `swap` is the time of a copy, and `room` is the number '
        "of blocks that fit into memory. `lab.length(plan, room, swap)` predicts the length of a step. The plan must "
        "fit. It must take no longer than the best plan of the package, and swap no more blocks than are necessary "
        f"for this length. Your code is tested on {CASES[0]}, then with other times of a copy, memory sizes and "
        f"chains. All {len(CASES)} calls together may take at most {SECONDS:g} s.",
        Function(tuple(CASES), judge, "Answer with your function itself: my_plan, without calling it."),
        (
            "Which blocks are needed first in the backward? There is no time to copy or recompute them.",
            "Keep the last blocks, as many as fit. Of the others, the first ones have the most time to come back: "
            "swap as many of these as the link can carry, and recompute the rest. Find the number with lab.length.",
            'plans = [["swap"] * n + ["recompute"] * (blocks - room - n) + ["keep"] * room for n in range(blocks - '
            "room + 1)]; return the first of the shortest plans.",
        ),
        objective="Plan which blocks to keep, swap and recompute within a memory limit.",
        difficulty=3,
        minutes=10,
    ),
    "out_of_core.engine": task(
        "Write `MyEngine(arena, link)`. `pack(block, x)` gets a tensor that autograd saves in a forward and returns a "
        "ticket; `unpack(block, ticket)` returns the tensor in the backward. `after_forward(block)` is called after "
        "each forward but the last, `before_backward(block)` and `after_backward(block)` before and after each "
        "backward. The arena has memory for two blocks. Take memory from the arena for everything that is on the "
        "device. Each copy must overlap with the computation of a block. The gradients must equal those without "
        f"swapping, to the last bit. Your code is tested on {ENGINES[0]}, then on other chains.",
        OnCases(
            try_engine,
            first_found,
            ENGINES,
            "The gradients are equal to the last bit, the device never holds more than two blocks, and each copy runs "
            "during the computation of a block.",
        ),
        (
            "Two blocks fit: in the forward, the block that is computed and the one that is copied out; in the "
            "backward, the block that is computed and the one that is copied back. When has the copy out ended?",
            "after_forward(b): wait for the copies of b - 1 and give their memory back, then start those of b. "
            "before_backward(b): wait for the copies of b, take memory for b - 1, and start copying it to the device.",
            "Use three dictionaries by block: here (tensors on the device), host (tensors on the host), moving (copies "
            "under way). Before the first backward, block last - 1 may still be on its way out: wait for it, then copy "
            "it back.",
        ),
        objective="Write the engine that swaps within a memory limit, during the computation.",
        difficulty=3,
        minutes=13,
    ),
    "out_of_core.gpipe": _gpipe(copy=1),
    "out_of_core.moved": varying(_moved, billions=(17, 8, 70)),
    "out_of_core.free": _free("gpt3-175b"),
    "out_of_core.loans": task(
        "Write `my_loans(rank, ranks, microbatches)` for 1F1B. Rank x may lend activations to rank p-1-x. Return "
        "a dictionary `{a: b}`: this rank sends the activations of microbatch a away right after the forward of a, and "
        "gets them back right after the backward of microbatch b. It is empty if the rank lends nothing. No rank may "
        "hold more than ⌈(p+2)/2⌉ activations. A forward takes 1, a backward 2, a move 1, and a step must take as "
        "long as in 1F1B, with no more loans than BPipe makes. `lab.lending(my_loans, ranks, microbatches)` predicts a "
        f"step. Your code is tested on {lent.PIPELINES[0][0]} ranks and {lent.PIPELINES[0][1]} microbatches, then on "
        "other pipelines.",
        Function(tuple(lent.CASES), lent.judge, "Answer with your function itself: my_loans, without calling it."),
        (
            "Rank x holds p-x activations. Which ranks hold more than c = ⌈(p+2)/2⌉? Which of their activations are "
            "needed last?",
            "The first c-1 microbatches stay. Each later one leaves after its forward, but the last one has no forward "
            "after it. A backward frees memory: then the next of these microbatches comes back, c-1 backwards before "
            "its own.",
            "If ranks - rank > c: {m: m - c + 1 for m in range(c - 1, microbatches - 1)}. Otherwise no loans: {} is "
            "enough.",
        ),
        objective="Plan loans of activations between ranks, so that all ranks need equal memory.",
        difficulty=3,
        minutes=10,
    ),
}
