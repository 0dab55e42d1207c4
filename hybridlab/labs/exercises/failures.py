"""The order of hints: a hint about the failure comes first.

A reply names the failure in a sentence: a deadlock, a wrong gradient, too many forwards held. After a deadlock a hint
about gradients does not help. So a task may have hints *about* failures, each found by words of the reply. Failures of
ranks have the same sentences in all tasks, and their hints are here. The sentences come from the checks, and from
`world.explain` if ranks fail.
"""

OF_RANKS = {  # {words of a reply: the hint about that failure}
    "waits in send of": "A blocking send returns when the other rank receives its message, but here all ranks that "
    "should receive are in a send themselves. Which of them could receive first? Or start each send with comm.isend, "
    "keep the handle that it returns, and wait for it at the end.",
    "has another tag": "A receive takes only the message with its own tag. Write down, for both ranks, their tags in "
    "order: stage, direction and microbatch together must give a unique tag.",
    "each needs another of them first": "Write the sends and receives of these ranks next to each other, in order. "
    "Which send comes after a receive that depends on it? Start it earlier.",
    "has finished, and": "A rank has finished, and another one still waits for a message from it. Which branch of your "
    "function should have sent it, and why was that branch not taken?",
    "without a wait()": "A message without a wait() may never leave. Keep each handle that comm.isend returns in "
    "a list, and call wait() on all of them at the end of your function.",
    "do not call the same": "A collective needs every rank of its group, in the same order and with the same sizes. "
    "Which condition in your function makes one rank skip a call, or cut its tensor differently?",
    "there is no rank": "It is right for the size in the question, but not for another one. Look for a number that "
    "should be comm.size, and for the last rank's neighbour.",
    "no rank reported anything": "A rank waits for a message that never comes, or a loop does not end. For each "
    "receive, find the line in which another rank sends that message.",
}


def hints_for(task, sentence: str) -> list[str]:
    """The hints of a task for this reply to an answer: those about the mistake, then the task's three.

    >>> from hybridlab.labs.exercises.task import Task
    >>> about = dict(objective="Add.", difficulty=1, minutes=1, notebook="00_start")
    >>> task = Task("?", None, ("One.", "Two.", "Three."), about={"too large": "Divide once."}, **about)
    >>> hints_for(task, "The gradients are too large."), hints_for(task, "rank 2 failed")
    (['Divide once.', 'One.', 'Two.', 'Three.'], ['One.', 'Two.', 'Three.'])
    """
    return [hint for words, hint in (task.about | OF_RANKS).items() if words in sentence] + [*task.hints]
