"""Exercises of notebook 14, on backwards in halves: `zero_bubble.*`."""

from functools import partial

import hybridlab as hl
from hybridlab.labs.engine.case import Case
from hybridlab.labs.exercises.played import played
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.typed_schedule import typed
from hybridlab.labs.trials.cases import OnCases
from hybridlab.labs.zero_bubble import stepping
from hybridlab.labs.zero_bubble.halves import beside
from hybridlab.labs.zero_bubble.trial import ABOUT, Shapes, first_wrong, wrong

RANKS, MICROBATCHES = 4, 8
SHAPES = Shapes(((4, 16, 12), (1, 3, 5), (7, 9, 2)))  # no square: a transposed matrix shows by its shape
NORMS = tuple(
    stepping.Squares(*one)
    for one in (
        ((0.2, 0.3, 0.9, 0.1), 1.0),
        ((0.2, 0.3, 0.1, 0.1), 1.0),
        ((5.0, 0.1, 2.0), 2.0),
        ((0.5, 0.75), 1.0),
        ((0.5, 2.5, 0.5), 2.0),  # the squares are more than clip, and less than its square
        ((0.3, 0.1), 0.5),  # the squares are less than clip, and more than its square
    )
)
RUNS = tuple(Case(*run) for run in (("zb_h1", 3, 6), ("1f1b", 3, 4), ("zb_h1", 2, 5), ("zb_h1", 4, 8)))

task = partial(Task, notebook="14_zero_bubble")


def _zero_bubble_idle(costs):
    t = hl.simulate(hl.schedule("zb_h1", ranks=RANKS, microbatches=MICROBATCHES), costs)
    return t.length - max(t.busy)


def _dualpipe_length(fused):
    plan = hl.schedule("dualpipe", ranks=RANKS, microbatches=MICROBATCHES)
    return hl.simulate(plan, hl.Costs(fused=fused)).length


def _longest_pair():
    """How long a fused pair may take so that DualPipe is as fast as ZB-V: found by bisection."""
    half = hl.Costs(F=0.5, I=0.5, W=0.5)  # two chunks per rank
    target = hl.simulate(hl.schedule("zb_v", ranks=RANKS, microbatches=MICROBATCHES), half).length
    low, high = 0.0, 3.0
    for _ in range(20):
        middle = round((low + high) / 2, 9)
        low, high = (middle, high) if _dualpipe_length(middle) <= target else (low, middle)
    return low


def _moved(answer) -> Verdict:
    """A typed order of F, I and W on four ranks: under 30 units, four activations at most."""
    answer, problem = played(answer)
    mine, problem = (None, problem) if problem else typed(answer)
    if problem:
        return False, problem
    if (mine.ranks, mine.stages, len(mine.replica_of)) != (RANKS, RANKS, MICROBATCHES):
        return False, f"Keep {RANKS} ranks, {RANKS} stages and {MICROBATCHES} microbatches."
    t, target = hl.simulate(mine), _target()
    held = max(t.peak_live)
    if held > RANKS:
        rank = t.peak_live.index(held)
        return False, f"{t.length:g} units, but rank {rank} holds {held} activations until W; {RANKS} are allowed."
    start = _beside()
    if t.length >= start:
        return False, f"Valid, and it takes {t.length:g} units. Make it shorter than {start:g}; {target:g} is possible."
    if t.length > target:
        return True, f"{t.length:g} units, {held} activations at most. Can you reach {target:g}?"
    return True, f"{t.length:g} units, {held} activations at most: as short as ZB-H1, and no order is shorter."


def _target():
    return hl.simulate(hl.schedule("zb_h1", ranks=RANKS, microbatches=MICROBATCHES)).length


def _beside():
    """The length with every W right after its I: 1F1B, split."""
    return hl.simulate(beside(hl.schedule("1f1b", ranks=RANKS, microbatches=MICROBATCHES))).length


def _h1(I, W):
    p = RANKS
    return task(
        f"ZB-H1 runs on {p} ranks with {MICROBATCHES} microbatches and F = 1, I = {I}, W = {W}. How long is a rank "
        "idle, from "
        "start to end?",
        Number(
            lambda: _zero_bubble_idle(hl.Costs(F=1, I=I, W=W)),
            "units",
            slips=[
                (p - 1, f"That holds for equal costs. Here I is {_against_one(I)} and W {_against_one(W)}."),
                ((p - 1) * (1 + I + W), "That is 1F1B: (p-1)(F+I+W)."),
                ((p - 1) * (1 + I), "That is (p-1)(F+I): W has not been moved into the idle time."),
            ],
        ),
        ("The idle time is (p-1)(F+I-W): W fills a part of it.", "p-1 is 3, and F is 1.", f"3 times (1 + {I} - {W})."),
        objective="Say how much idle time the weight halves can fill.",
        difficulty=1,
        minutes=3,
    )


def _against_one(cost):
    return "longer" if cost > 1 else "shorter"


def _clipped(ranks, microbatches):
    p, m = ranks, microbatches
    return task(
        f"ZB-H2 runs on {p} ranks with {m} microbatches and F = I = W = 1. Every step ends with clipping by the global "
        "gradient norm, so no rank continues before all have finished. What fraction of the ranks' total time is idle "
        "(idle / total)?",
        Number(
            lambda: hl.simulate(hl.schedule("zb_h2", ranks=p, microbatches=m)).bubble_fraction,
            slips=[
                ((p - 1) / (3 * m), "That is idle / ideal. The question is idle / total."),
                ((p - 1) / (m + p - 1), "That is 1F1B."),
            ],
        ),
        (
            "bubble_span is 0, but the clipping waits for the last rank, which started (p-1)F late.",
            f"A rank works for {m} times 3 units, and waits for {p - 1}.",
            f"{p - 1} divided by ({3 * m} + {p - 1}).",
        ),
        objective="Compute the part of a bubble that one definition does not count.",
        difficulty=2,
        minutes=3,
    )


def _merged(answer) -> Verdict:
    """The verdict on the action of torch's runtime for an I followed by its W."""
    given = str(answer).strip().upper()
    if given in ("1B3", "B"):
        return (
            True,
            "1B3: if W directly follows I, PyTorch does the full backward in one walk, which costs less than two.",
        )
    if given in ("1I3 1W3", "1I3,1W3", "1I3, 1W3", "1I3", "1W3", "IW"):
        return (
            False,
            "It does not leave the two unchanged. Read the loop: which action does it append, and which does it pop?",
        )
    return False, 'Answer with text as PyTorch prints an action: stage, letter, microbatch, as in "0F2".'


TASKS: dict[str, Task] = {
    "zero_bubble.halves": task(
        "Take one layer, y = tanh(x @ w.T). Write I and W as two functions, without autograd. `my_input_half(gy, y, "
        "w)` takes the gradient `gy` from the next layer and returns `(gx, gz)`: `gx` goes to the layer before, and "
        "`gz` is saved for W. `my_weight_half(gz, x)` returns gw. Both are compared with autograd on several shapes.",
        OnCases(
            "zero_bubble.rank:halve",
            first_wrong,
            (SHAPES,),
            "Both halves agree with autograd for every shape. I does not use x, and W uses neither w nor gy.",
            names=("my_input_half", "my_weight_half"),
        ),
        (
            "Call z = x @ w.T. I backpropagates through tanh, from gy to gz, and then through the GEMM, from gz to gx. "
            "W goes from the same gz to gw. Which shapes fit?",
            "The derivative of tanh at z is 1 - tanh(z)**2, and tanh(z) is y. Then look at the shapes: gx has the "
            "shape of x, and gw that of w.",
            "gz = gy * (1 - y**2); gx is gz times w; gw is the transpose of gz times x.",
        ),
        objective="Write the two halves of a backward as GEMMs.",
        difficulty=2,
        minutes=8,
    ),
    "zero_bubble.engine": task(
        "Write the interpreter for split backwards. Each rank calls `my_play(comm, weights, program, data)`: `weights` "
        "is the list of its stage's matrices, and each layer computes y = tanh(x @ w.T); `program[rank]` has F, I, W "
        "and, in some lists, B. Do not use autograd. Return the list of the gradients of the weights. Your code is "
        "tested with the lists of ZB-H1 for 3 ranks and m = 6, then with the lists of 1F1B, and with other sizes.",
        OnCases(
            "zero_bubble.rank:play",
            wrong,
            RUNS,
            "One function executes F, I, W and B: gradients agree with autograd, each GEMM is part of the right "
            "action, every gradient is sent before the next action, and nothing is held after W.",
        ),
        (
            "Start from the interpreter of notebook 12. For each layer, F must save the tensors that I and W need. "
            "Which tensors must I save "
            "for W?",
            "I goes through the layers from the last to the first: compute gz, save (gz, x), then compute the "
            "gradient for the layer "
            "before. Send the result of the first layer at once. On the last rank the gradient with respect to y is "
            "2 * (y - target) / y.numel() / m.",
            'if kind in "IB": … kept.pop(k) … later[k] = [(gz, x), …], send; if kind in "WB": add gz.T @ x to the '
            "gradient of each layer, for (gz, x) in later.pop(k). Two ifs, so that B does both.",
        ),
        about=ABOUT,
        objective="Write an interpreter that moves weight halves.",
        difficulty=3,
        minutes=15,
    ),
    "zero_bubble.merged": task(
        "`torch.distributed.pipelining` prints actions as stage, letter, microbatch. Before it runs a list, "
        "`_merge_bw` in its `schedules.py` looks at consecutive actions. A list has 1I3 and, right after it, 1W3. What "
        "is at this place of the list afterwards?",
        _merged,
        (
            "If the condition of the if holds, which action is appended to merged_actions, and which is popped?",
            "It appends one action and pops the next: two become one.",
            "I and W of the same stage and microbatch are a full backward. Which letter stands for it?",
        ),
        objective="Say what PyTorch does if W directly follows I.",
        difficulty=1,
        minutes=2,
    ),
    "zero_bubble.h1": varying(_h1, I=(1.2, 1.1, 1.3, 1.4), W=(0.8, 0.9, 0.7, 0.6)),
    "zero_bubble.clipped": varying(_clipped, ranks=(8, 6, 4), microbatches=(24, 16, 20, 32)),
    "zero_bubble.stepping": task(
        "Write the optimizer step of one rank without the barrier: `my_update(comm, squares, clip, step, undo)`. "
        "`squares` is the sum of squares of this rank's gradients, a tensor with one number. `step(factor)` steps "
        "with gradients times `factor`; `undo()` takes the last step back. A rank steps with factor 1 as soon as it "
        "knows the squares of the ranks before it, unless the norm of their gradients and its own already exceeds "
        "`clip`. If the full norm turns out to be larger than `clip`, the factor is `clip / norm`. Your code is "
        f"tested on {NORMS[0]}, then with other squares.",
        OnCases(
            "zero_bubble.stepping:update",
            stepping.first_wrong,
            NORMS,
            "No rank waits before its step, and every rank ends with the same factor, as with the barrier.",
        ),
        (
            "Each rank receives one number from the rank before and sends one on; then one number comes back from the "
            "rank after. Which of them does a rank need before its first step?",
            "so_far is squares plus the number from the rank before. On the last rank it is the total.",
            "If so_far.sqrt() <= clip: step(1). Then receive the total, send it on to the rank before, and if it "
            "clips: undo() if this rank has stepped, and step(clip / norm).",
        ),
        about=stepping.ABOUT,
        objective="Let every rank step before the norm is known, and correct the step afterwards.",
        difficulty=2,
        minutes=10,
    ),
    "zero_bubble.pair": task(
        "DualPipe runs on 4 ranks with 8 microbatches and F = I = W = 1, so F and B one after another take 3. How "
        "long may a fused "
        "pair take at most, if a step must not be longer than that of ZB-V?",
        Number(
            _longest_pair,
            "units",
            within=0.005,
            slips=[(3, "That is F + B: the pair is fused, but saves no time, and ZB-V is shorter.")],
        ),
        (
            "ZB-V has two chunks per rank: simulate it with F = I = W = 0.5. Simulate DualPipe with hl.Costs(fused=…).",
            "Each fused pair in the longest chain saves the same time. Compare the lengths at fused=3 and at fused=2.",
            "Draw a line through these two lengths: it reaches the length of ZB-V at a value between 2.8 and 2.95. "
            "Try values there.",
        ),
        objective="Say how much time fusing must save to be useful.",
        difficulty=2,
        minutes=5,
    ),
    "zero_bubble.puzzle": task(
        "There are 4 ranks and 8 microbatches, and F = I = W = 1. Move the weight halves (W) of backwards into the "
        "idle time. The step must be shorter than 30 units, and no rank may hold more than 4 activations, each counted "
        "from F until W.",
        _moved,
        (
            "Every rank that waits needs the input half (I) of a backward on the last rank. So the last rank should "
            "run I first, and run W when no other action is ready.",
            "Rank r runs W of microbatch i-r right after I of microbatch i, and the remaining W at the end.",
            "The last rank begins 3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3W0,3F4,3I4,3W1 and continues in this way: each W "
            "is that of the third microbatch before.",
        ),
        objective="Fill idle time with weight halves, within a limit of memory.",
        difficulty=3,
        minutes=15,
    ),
}
