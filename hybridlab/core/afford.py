"""The limits of this machine: the bytes and seconds of a request, checked in one place before any work begins.

Code that knows the cost of a piece of work reports it here, as a lower bound; a request beyond this machine raises an
error in one sentence, with the largest size that would fit.
"""

import math
import os

ACTION = 1000, 5e-6  # lower bounds for one action of a schedule: bytes, and seconds to make, check and simulate it
LONGEST = 30 * 24 * 3600.0  # largest allowed lower bound on the seconds of a request
DAY = 24 * 3600.0
Units = tuple[tuple[float, str], ...]  # from the largest down
BYTES: Units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1.0, "bytes"))
SECONDS: Units = ((365 * DAY, "years"), (DAY, "days"), (3600.0, "hours"), (1.0, "s"))


def memory() -> tuple[int, int] | None:
    """(free, all) bytes of memory; None if the system does not report them."""
    try:
        with open("/proc/meminfo", encoding="utf-8") as file:
            lines = dict(line.split(":") for line in file)
    except OSError:
        return None
    free, whole = (1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    return free, whole


def refuse(what: str, size: float = 0, seconds: float = 0, longest: float = LONGEST, **numbers: int) -> None:
    """Raise ValueError if a request needs more memory than is free here, or more than `longest` seconds.

    numbers  the sizes on which the need depends, by name; the message gives the largest value of each that would fit

    >>> refuse("1e+30 actions", size=1e33, microbatches=10**29)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: 1e+30 actions take 1e+21 TB at least, and ... free here: give microbatches=... or fewer
    """
    free = (memory() or (math.inf, 0))[0]
    for need, room, units, has in ((size, free, BYTES, "are free here"), (seconds, longest, SECONDS, "is the limit")):
        if need > room:
            advice = " or ".join(f"{name}={_fewer(n, room / need)}" for name, n in numbers.items())
            told = f"{what} take {in_words(need, units)} at least, and {in_words(room, units)} {has}"
            raise ValueError(f"{told}: give {advice} or fewer" if advice else f"{told}: ask for less")


def refuse_actions(count: int, longest: float = LONGEST, **numbers: int) -> None:
    """Raise ValueError for a schedule with more actions than this machine can hold, or make in `longest` seconds."""
    size, seconds = ACTION
    most = max(numbers, key=numbers.__getitem__)
    refuse(f"{count:.3g} actions", size * count, seconds * count, longest, **{most: numbers[most]})


def in_words(amount: float, units: Units = BYTES) -> str:
    """An amount with a suitable unit.

    >>> in_words(3.2e9), in_words(7200, SECONDS)
    ('3.2 GB', '2 hours')
    """
    size, unit = next((one for one in units if amount >= one[0]), units[-1])
    return f"{amount / size:.3g} {unit}"


def cores() -> int:
    """Cores that this process may use, which can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fewer(number: int, share: float) -> int:
    """A round number that is at most this fraction of a number, and at least 1."""
    most = max(1, int(number * share * 0.9))
    unit = 10 ** max(0, len(str(most)) - 2)
    return most // unit * unit
