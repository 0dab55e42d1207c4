"""Random steps with swaps: of a schedule some forwards are recomputed, others swapped, once or more, at any places."""

import random

import hybridlab as hl

NAMES = ("gpipe", "1f1b", "interleaved", "zb_h1", "chimera", "zb_v", "pipedream")
OF_ONE = ("F", "SWAP_OUT", "SWAP_IN")


def chain(blocks: int) -> hl.Schedule:
    """One rank, one microbatch: forward through all blocks, and back."""
    up = [f"{i}F0" for i in range(blocks)] + [f"{i}B0" for i in reversed(range(blocks))]
    return hl.Schedule.from_csv(",".join(up), name="chain")


def step(rng: random.Random) -> hl.Schedule:
    """A random valid step, half of them a chain."""
    if rng.random() < 0.5:
        found = chain(rng.randint(2, 8))
    else:
        try:
            sizes = dict(ranks=rng.choice((1, 2, 3, 4)), microbatches=rng.choice((2, 4, 6)), dp=rng.choice((1, 1, 2)))
            found = hl.schedule(rng.choice(NAMES), **sizes)
        except ValueError:  # not for every size
            return step(rng)
    if rng.random() < 0.4:
        found = hl.recomputed(found, {stage for stage in range(found.stages) if rng.random() < 0.3})
    return found.with_programs([_with_swaps(list(program), rng) for program in found.program])


def _with_swaps(program, rng):
    for forward in [action for action in program if action.kind == "F" and rng.random() < 0.7]:
        for _ in range(rng.choice((1, 1, 1, 2))):
            own = [i for i, one in enumerate(program) if one.kind in OF_ONE and one[1:5] == forward[1:5]]
            back = next(i for i, one in enumerate(program) if one.kind in ("B", "I") and one[1:5] == forward[1:5])
            out, home = sorted(rng.randint(own[-1] + 1, back) for _ in range(2))
            if rng.random() < 0.5:
                out = own[-1] + 1
            program.insert(home, forward._replace(kind="SWAP_IN"))
            program.insert(out, forward._replace(kind="SWAP_OUT"))
    return program


def costs(rng: random.Random, stages: int) -> hl.Costs:
    """Random durations, of some things none."""
    each = lambda *given: tuple(rng.choice(given) for _ in range(stages))
    swap, beside = each(0, 1, 2, 5, 9), dict(latency=rng.choice((0, 0.25, 1)), reduce=rng.choice((0, 1, 3)))
    return hl.Costs(
        F=each(0, 1, 2, 4), I=each(0, 1, 3), W=each(0, 1, 2), swap=swap, post=rng.choice((0, 0.25)), **beside
    )


def room(rng: random.Random, schedule: hl.Schedule) -> hl.Room:
    """A random room, which may be too small. Tensors between stages count on a single rank only."""
    keeps = tuple(rng.choice((1, 2, 3)) for _ in range(schedule.stages))
    boundary = rng.choice((0, 0.25)) if schedule.ranks == 1 else 0
    return hl.Room(rng.randint(2, 12), keeps, boundary)
