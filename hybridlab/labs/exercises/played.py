"""A game submitted as an answer: its schedule."""


def played(answer) -> tuple[object, str]:
    """(the schedule, "") for a finished game, ("", the reason) for an unfinished one; any other answer is returned
    unchanged.

    >>> played("0F0,0B0")
    ('0F0,0B0', '')
    """
    if getattr(answer, "finished", None) is False:
        return "", "The game is not finished: choose until no action is left, then submit it."
    return (answer.schedule if hasattr(answer, "finished") else answer), ""
