"""One submission, checked again in this process: `python -m hybridlab.labs.exercises.regrade`, which reads its input.

`labs.exercises.grade` starts it for each file, alone, in the sandbox that `confined` makes. It prints a line of JSON
for every answer: [task, right, the reply]. Output of the answers is discarded, and a crash ends only this process. Its
ranks cannot look into it.
"""

import ctypes
import json
import os
import sys

PR_SET_DUMPABLE = 4


def main():
    """Check every answer of a submission, and print a line for each as soon as it is checked."""
    if sys.platform == "linux":  # otherwise a rank could write verdicts to the files that this process has open
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    submission = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    from hybridlab.labs.exercises.all_tasks import TASKS
    from hybridlab.labs.exercises.student import seed_of

    seed = seed_of(submission["student"])
    for name, written in submission["answers"].items():
        if name in TASKS:
            print(json.dumps([name, *_checked(TASKS[name].of(seed), written)]), file=out, flush=True)


def _checked(task, written) -> tuple[bool | None, str]:
    """The verdict on a written answer; None for one that cannot be repeated."""
    from hybridlab.labs.exercises.plain import plain
    from hybridlab.labs.exercises.written import read

    try:
        answer = plain(read(written))
    except Exception as error:
        return None, str(error).split("\n")[0][:200]
    try:
        right, sentence = task.check(answer)
        return bool(right), sentence
    except Exception as error:  # if an answer breaks its check, it is not right
        return False, f"the check ended with {type(error).__name__}: {str(error)[:200]}"


if __name__ == "__main__":
    os.environ["HYBRIDLAB_PROGRESS"] = "off"
    main()
