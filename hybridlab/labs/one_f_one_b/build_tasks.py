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
        return True, f"{before - 1} and {before}: the same list; only torch counts the forward of the first pair too."
    if given == right[::-1]:
        return False, "The other way round: one of the two counts the forward of the first pair too."
    if given[0] == given[1]:
        return False, "They differ, though both play the same list: one counts the forward of the first pair too."
    return False, f"The list of rank 1 begins with {before} forwards. Which of them does each source call warm-up?"


PLAYED = (("1f1b", 3, 4), ("naive", 3, 4), ("gpipe", 3, 4), ("1f1b", 2, 5), ("1f1b", 4, 8), ("gpipe", 4, 3))
CAUSES = {
    "a": "Then GPipe's lists would fail too: there more messages are in flight at once than in 1F1B's.",
    "b": "Then all gradients would be too small by the same factor, with every list.",
    "c": "",
}

TASKS: dict[str, Task] = {
    "1f1b.clinic": task(
        "What is wrong with broken? (a) Messages overtake each other. (b) The loss is divided by m once too often. (c) "
        "A backward takes another microbatch's activations than its own. Answer with the letter and the mended "
        "function.",
        Clinic(CAUSES, pipeline("play", PLAYED, "Each backward finds the activations of its own microbatch.")),
        (
            "The last rank is right with every list: how many forwards does it hold at most in 1F1B?",
            "In GPipe all ranks take the latest forward first, so they agree. Do they in 1F1B?",
            "kept is a dictionary: kept[k] = x, y after the forward, kept.pop(k) before the backward.",
        ),
        about=ABOUT,
        objective="Find the mistake that only some schedules show.",
        difficulty=2,
        minutes=5,
    ),
    "1f1b.engine": task(
        "Write the interpreter. Each rank calls my_play(comm, stage, program, data). program[rank] is the list of that "
        'rank: ("F", 2) is the forward of microbatch 2, ("B", 2) its backward. As in GPipe, the loss of the '
        "batch is the mean over its m microbatches. One function plays every list. Tried with the lists of 1F1B on 3 "
        "ranks, m = 4, then with those of naive and GPipe, and on other sizes.",
        pipeline(
            "play",
            PLAYED,
            "One function plays naive, GPipe and 1F1B: the gradients of one device, and autograd keeps no more "
            "forwards at once than the list asks for. (Whether you also let go of x and y themselves, as "
            "kept.pop(k) does and kept[k] does not, was not measured.)",
        ),
        (
            "One loop over program[comm.rank] in place of the two loops of GPipe. What does a forward leave behind for "
            "its backward, and where do you find it again? And is there a send at which a rank has to wait?",
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
        f"Make every send of your interpreter block: comm.send in place of comm.isend. It plays the lists of GPipe and "
        f"of 1F1B on {RANKS} ranks, m = {MICROBATCHES}. One of them ends. Before you hand it in: which, and where does "
        "the other stand still?",
        blocked,
        (
            "Nothing else changes: comm.send(y.detach(), after, tag=k), and the same for the gradient. Then there is "
            "nothing to wait for at the end.",
            "In GPipe all messages of one moment go the same way. In 1F1B a rank sends an activation while the next "
            "rank sends a gradient.",
            "sent.append(comm.isend(…)) becomes comm.send(…), twice; the loop over sent goes.",
        ),
        objective="See two ranks wait for each other, and read which lines they stand at.",
        difficulty=2,
        minutes=4,
    ),
    "1f1b.warmup": task(
        "1F1B on 4 ranks with 8 microbatches. On rank 1: what is num_warmup_microbatches in Megatron-LM's "
        "forward_backward_pipelining_without_interleaving, and warmup_chunks in torch's Schedule1F1B? Answer with two "
        "numbers: (Megatron-LM, torch).",
        _warmups,
        (
            "Both sources compute it in one line from the number of ranks, the rank and m. Megatron-LM counts the "
            "forwards before the first pair of one forward and one backward.",
            "torch counts all forwards before the first backward.",
            "p - r - 1 and p - r, each at most m.",
        ),
        objective="Find the warm-up in the sources of Megatron-LM and of torch.",
        difficulty=2,
        minutes=6,
    ),
}
