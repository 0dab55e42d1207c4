"""The lengths of exchanged parts that ranks announce, as text, and the pair of ranks that do not match.

A backend does not check lengths: if a rank sends parts with lengths other than those that another rank expects, numbers
arrive in wrong places, or the process aborts. Written in `comm`, compared in `explain.compare`; torch is not needed
here.
"""

import functools
from itertools import permutations
from typing import NamedTuple

MOST = 60  # characters, which no post truncates; for longer texts only a hash is announced
PRIMES = 1_000_003, 998_244_353, (1 << 61) - 1


class Exchanged(NamedTuple):
    """How a rank exchanges parts with its group.

    sent      the length, along the dim that is cut, of its part for each rank
    received  the length, along the dim that is joined, of the part that it expects from each
    joining   its own length along the dim that is joined, if it differs; else None
    """

    sent: tuple[int, ...]
    received: tuple[int, ...]
    joining: int | None


def told(lengths) -> str:
    """Lengths as a short text.

    >>> told([3, 4]), told([4, 4, 4])
    ('3,4', '4×3')
    """
    alike = len(set(lengths)) == 1
    text = f"{lengths[0]}×{len(lengths)}" if alike else ",".join(map(str, lengths))
    return text if len(text) <= MOST else f"#{hash(tuple(lengths)):x}"  # a hash of numbers, equal in every process


def exchanged(sent, received, joining: int | None, place: int, leaving, coming) -> str:
    """The lengths that a rank announces for an exchange; `place` is this rank's place in the group.

    leaving, coming  numbers of elements, rank by rank: if the list of lengths would be too long, their sums are
                     announced

    >>> exchanged([1, 2], [1, 5], None, 0, [4, 8], [4, 20])
    '1,2>1,5>'
    """
    text = f"{told(sent)}>{told(received)}>{'' if joining is None else joining}"
    if len(text) <= MOST and "#" not in text:
        return text
    out = sum(_mixed(place, other, length) for other, length in enumerate(leaving))
    back = sum(_mixed(other, place, length) for other, length in enumerate(coming))
    return f"#{out % PRIMES[2]}>{back % PRIMES[2]}"


def unfitting(said: dict[int, str], size: int) -> tuple[int, int, str] | None:
    """(the place of a sender, the place of a receiver, the mismatch) in a group; perhaps not all ranks have announced
    their lengths yet.

    >>> unfitting({0: "1,2>1,5>", 1: "4,2>2,2>"}, size=2)
    (1, 0, 'sends 4 and 5 are expected')
    """
    if any(text.startswith("#") for text in said.values()):
        return _unfitting_sums(said, size)
    every = {place: _read(text) for place, text in said.items()}
    for one, other in permutations(every, 2):
        sender, receiver = every[one], every[other]
        sends, joins, expects = sender.sent[other], sender.joining, receiver.received[one]
        if joins is None and sends != expects:
            return one, other, f"sends {sends} and {expects} are expected"
        if joins is not None and (sends, joins) != (receiver.sent[other], expects):
            return one, other, f"sends {sends} by {joins} and {receiver.sent[other]} by {expects} are expected"
    return None


def _unfitting_sums(said, size):
    pairs = [text.removeprefix("#").split(">")[:2] for text in said.values() if text.startswith("#")]
    out, back = (sum(int(pair[which]) for pair in pairs) % PRIMES[2] for which in (0, 1))
    if len(pairs) == len(said) == size and out != back:
        return 0, 1, "and the others send other numbers of elements than are expected"
    return None


@functools.lru_cache(256)
def _read(text: str) -> Exchanged:
    sent, received, joining = text.split(">")
    return Exchanged(_lengths(sent), _lengths(received), int(joining) if joining else None)


def _lengths(text: str) -> tuple[int, ...]:
    one, times, number = text.partition("×")
    return (int(one),) * int(number) if times else tuple(map(int, text.split(",")))


def _mixed(sender: int, receiver: int, length: int) -> int:
    """A number that identifies sender, receiver and length."""
    return (sender * PRIMES[0] + receiver + 1) * PRIMES[1] * (length + 1) ** 3
