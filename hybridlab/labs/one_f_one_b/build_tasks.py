"""Exercises of notebook 12 in which the student builds: the interpreter, sends that block, a bug, the relatives."""

from functools import partial

from hybridlab.labs.engine.trial import ABOUT, pipeline
from hybridlab.labs.exercises.pipelines import predicted, several
from hybridlab.labs.exercises.task import Task, Verdict
from hybridlab.labs.one_f_one_b.blocking import MICROBATCHES, RANKS, blocked
from hybridlab.labs.trials.clinic import Clinic

task = partial(Task, notebook="12_1f1b")


def _warmups(answer) -> Verdict:
    """Rank 1's warm-up of four, as Megatron-LM and as torch count it: without and with the first steady forward."""
    program = predicted("1f1b", 4, 8).schedule.program[1]
    before = [action.kind for action in program].index("B")
    given, right = several(answer, 2), [before - 1, before]
    if given is None:
        return False, "Answer with two whole numbers: (Megatron-LM, torch)."
    if given == right:
        return (
            True,
            f"{before - 1} and {before}: the lists are the same, but PyTorch also counts the forward of the first "
            "pair.",
        )
    if given == right[::-1]:
        return False, "The two are swapped: one of the two also counts the forward of the first pair."
    if given[0] == given[1]:
        return False, "They differ, although the list is the same: one also counts the forward of the first pair."
    return False, f"The list of rank 1 begins with {before} forwards. Which of them count as warm-up in each source?"


PLAYED = (("1f1b", 3, 4), ("naive", 3, 4), ("gpipe", 3, 4), ("1f1b", 2, 5), ("1f1b", 4, 8), ("gpipe", 4, 3))
CAUSES = {
    "a": "Then GPipe's lists would fail too: they have more messages in flight at once than 1F1B's.",
    "b": "Then all gradients would be too small by the same factor, with every list.",
    "c": "",
}

TASKS: dict[str, Task] = {
    "1f1b.clinic": task(
        "What is wrong with `broken`? (a) Messages overtake each other. (b) The loss is divided by m one time too "
        "many. (c) A backward uses the activations of another microbatch. Answer with the letter and the fixed "
        "function.",
        Clinic(CAUSES, pipeline("play", PLAYED, "Each backward uses the activations of its microbatch.")),
        (
            "The last rank is right with every list: how many forwards does it hold at most in 1F1B?",
            "In GPipe all ranks take the latest forward first, so they agree. Do they agree in 1F1B?",
            "Make kept a dictionary: kept[k] = x, y after the forward, kept.pop(k) before the backward.",
        ),
        about=ABOUT,
        objective="Find a mistake that appears only with some schedules.",
        difficulty=2,
        minutes=5,
    ),
    "1f1b.engine": task(
        "Write the interpreter. Each rank calls `my_play(comm, stage, program, data)`. `program[rank]` is the list of "
        'that rank: ("F", 2) is the forward of microbatch 2, ("B", 2) its backward. As in GPipe, the loss of the '
        "batch is the mean over its m microbatches. One function executes every list. Your code is tested with the "
        "lists of 1F1B for 3 ranks and m = 4, then with the lists of the naive order and of GPipe, and with other "
        "sizes.",
        pipeline(
            "play",
            PLAYED,
            "One function executes the naive order, GPipe and 1F1B and gives the gradients of one device; autograd "
            "saves no more forwards at once than the list requires. (The check does not measure whether you also free "
            "x and y, as kept.pop(k) does and kept[k] does not.)",
        ),
        (
            "Write one loop over program[comm.rank] instead of the two loops of GPipe. What must a forward save for "
            "its backward, and where? And is there a send at which a rank has to wait?",
            "Two messages between the same two ranks can be in flight at once: give each the tag of its microbatch. "
            "comm.isend returns at once; wait for all messages at the end.",
            'for kind, k in program[comm.rank]: if kind == "F": … kept[k] = x, y; sent.append(comm.isend(y.detach(), '
            "comm.rank + 1, tag=k)); else: x, y = kept.pop(k); …; and after the loop: for message in sent: "
            "message.wait().",
        ),
        about=ABOUT,
        objective="Write one interpreter for every schedule.",
        difficulty=3,
        minutes=15,
    ),
    "1f1b.blocking": task(
        "Make every send of your interpreter block: use `comm.send` instead of `comm.isend`. The check runs it with "
        f"the lists of GPipe and of 1F1B for {RANKS} ranks and m = {MICROBATCHES}. One of the two runs ends, and the "
        "other one hangs. Before you hand in your code, predict which one ends, and where the other one hangs.",
        blocked,
        (
            "Nothing else changes: comm.send(y.detach(), after, tag=k), and the same for the gradient. Then there is "
            "no message to wait for at the end.",
            "In GPipe, all messages that are in flight at the same time go in the same direction. In 1F1B a rank "
            "sends an activation while the next rank sends a gradient.",
            "sent.append(comm.isend(…)) becomes comm.send(…), twice; remove the loop over sent.",
        ),
        objective="See two ranks wait for each other, and read at which lines they hang.",
        difficulty=2,
        minutes=4,
    ),
    "1f1b.warmup": task(
        "1F1B runs on 4 ranks with 8 microbatches. On rank 1, what is `num_warmup_microbatches` in Megatron-LM's "
        "`forward_backward_pipelining_without_interleaving`, and `warmup_chunks` in PyTorch's `Schedule1F1B`? Answer "
        "with two numbers: (Megatron-LM, torch).",
        _warmups,
        (
            "Both sources compute it in one line from the number of ranks, the rank and m. Megatron-LM counts the "
            "forwards before the first pair of one forward and one backward.",
            "PyTorch counts all forwards before the first backward.",
            "p - r - 1 and p - r, each at most m.",
        ),
        objective="Find the warm-up in the sources of Megatron-LM and of PyTorch.",
        difficulty=2,
        minutes=6,
    ),
}
