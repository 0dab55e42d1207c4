"""Dealing: each tensor is assigned to one owner, so that the largest sum of an owner is small.

The buffer of a pack has one piece for each owner, all as long as the longest. So the largest sum determines the bytes
that are sent and stored. The rule, largest first, makes it at most 4/3 of the smallest possible one.

Source: Graham 1969, "Bounds on multiprocessing timing anomalies". Relatives: `core.where.layout`, `modes.zero`.
"""


def deal(sizes: dict[str, int], owners: int) -> dict[str, int]:
    """{name: its owner, from 0}. The largest tensor is first, and each goes to the owner that has the least so far.

    sizes  {name: size} of the tensors;  owners  the number of owners

    >>> deal({"q": 1, "k": 1, "up": 4, "v": 1, "out": 1, "down": 4}, owners=2)
    {'up': 0, 'down': 1, 'q': 0, 'k': 1, 'v': 0, 'out': 1}
    """
    held, owner = [0] * owners, {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        owner[name] = held.index(min(held))
        held[owner[name]] += sizes[name]
    return owner
