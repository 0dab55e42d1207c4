"""Which hint comes first: the one about what has failed.

A reply says in a sentence what is off: a deadlock, a wrong gradient, too many forwards held. Who is told that the
ranks wait for each other has no use for a hint about gradients. So a task may have hints *about* failures, each found
by words of the sentence that tells of it; failures of ranks are told alike in all tasks, and their hints stand here.
The sentences are those of the checks, and of `world.explain` where ranks fail.
"""

OF_RANKS = {  # {words of a reply: the hint about that failure}
    "waits in send of": "A blocking send returns when its message is taken, and here all who should take one stand "
    "in a send themselves. Which of them could receive first? Or begin each send with comm.isend, keep what it "
    "returns, and wait for that at the end.",
    "has another tag": "A receive takes the message with its tag, and no other one. Write down, for both ranks, "
    "which tags they use in which order: stage, direction and microbatch together must give a tag of their own.",
    "each needs another of them first": "Write the sends and receives of these ranks side by side, in their order. "
    "Which send stands below a receive that can only come after it? Begin it earlier.",
    "has finished, and": "A rank has come to its end, and another one still waits for a message from it. In which "
    "branch of your function should it have been sent, and why was that branch not taken there?",
    "do not call the same": "A collective needs every rank of its group, in the same order and with the same sizes. "
    "Which condition in your function lets one rank leave a call out, or cut its tensor otherwise?",
    "there is no rank": "It is right on the size that the question names, and not on another one. Look for a number "
    "that should be comm.size, and for the last rank's neighbour.",
    "no rank gave a sign": "A rank waits for something that never comes, or a loop does not end. For each receive, "
    "name the line in which another rank sends that message.",
}


def hints_for(task, sentence: str) -> list[str]:
    """The hints of a task for an answer that was told this: those about what failed, then its three.

    >>> from hybridlab.labs.exercises.task import Task
    >>> about = dict(objective="Add.", difficulty=1, minutes=1, notebook="00_start")
    >>> task = Task("?", None, ("One.", "Two.", "Three."), about={"too large": "Divide once."}, **about)
    >>> hints_for(task, "The gradients are too large."), hints_for(task, "rank 2 failed")
    (['Divide once.', 'One.', 'Two.', 'Three.'], ['One.', 'Two.', 'Three.'])
    """
    return [hint for words, hint in (task.about | OF_RANKS).items() if words in sentence] + [*task.hints]
