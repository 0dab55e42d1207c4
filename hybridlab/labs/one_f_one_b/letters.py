"""Schedules written as letters: one string of F and B for each rank."""


def from_letters(lines: list[str]) -> str:
    """The text of a schedule given as one string of F and B per rank; microbatches are numbered in order.

    >>> from_letters(["FFBB", "FBFB"])
    '0F0,0F1,0B0,0B1\\n1F0,1B0,1F1,1B1'
    """
    numbered = ([f"{kind}{line[:i].count(kind)}" for i, kind in enumerate(line)] for line in lines)
    return "\n".join(",".join(f"{rank}{one}" for one in line) for rank, line in enumerate(numbered))
