"""DualPipe: two directions at once, so that a forward of one can hide the communication of a backward of the other."""

from hybridlab.core.when.action import Action
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.zero_bubble import in_a_v


def dualpipe(ranks: int, microbatches: int) -> Schedule:
    """Two copies of the model, one mirrored; half the microbatches run down the ranks, half up.

    Placement:   replica 0: stage r on rank r; replica 1: stage r on rank p-1-r
    Order:       the eight steps of `_steps`; a fused pair runs F of one direction with B of the other
    Needs:       p even, m even, m ≥ 2p
    Bubble:      idle time (p/2-1)(F&B+B-3W) at F = I = W, B the full backward, F&B the fused pair
    Peak:        p+1 activations on every rank
    Source:      DeepSeek-AI 2024, arXiv:2412.19437; 2 copies of the weights

    raises  ValueError when p or m is not possible
    """
    if ranks % 2:
        raise ValueError(f"ranks={ranks} is odd, and dualpipe pairs the ranks: give {ranks + 1}")
    if microbatches % 2 or microbatches < 2 * ranks:
        raise ValueError(
            f"dualpipe with {ranks} ranks cannot use {microbatches} microbatches: give an even number, {2 * ranks} or "
            "more"
        )
    half, programs = microbatches // 2, []
    for r in range(ranks):
        near = 0 if r < ranks // 2 else 1  # the direction that starts nearer to this rank
        h = min(r, ranks - 1 - r)
        passes = [(h, near, near * half), (ranks - 1 - h, 1 - near, (1 - near) * half)]
        programs.append(_steps(h, ranks // 2, half, passes, enough=half - ranks + h + 1))
    place = {(s, 0): s for s in range(ranks)} | {(s, 1): ranks - 1 - s for s in range(ranks)}
    replica_of = (0,) * half + (1,) * half
    return Schedule.of("dualpipe", programs, place, microbatches, replica_of=replica_of)


def dualpipe_v(ranks: int, microbatches: int) -> Schedule:
    """DualPipe cut in half: one copy of the model in a V, whose two arms serve as the two directions.

    Placement:   stages r and 2p-1-r on rank r
    Order:       the eight steps of `_steps`, the downward arm for one direction, the upward arm for the other
    Needs:       m ≥ 2p
    Bubble:      idle time (p-1)(F&B+B-3W) at F = I = W, per chunk costs
    Peak:        2p+1 chunks on every rank
    Source:      DeepSeek-AI, DualPipeV ("cut-in-half"); on the same ranks one copy of the weights, not two

    raises  ValueError when there are too few microbatches
    """
    if microbatches < 2 * ranks:
        raise ValueError(
            f"dualpipe_v with {ranks} ranks cannot use {microbatches} microbatches: give {2 * ranks} or more"
        )
    programs = []
    for r in range(ranks):
        passes = [(r, 0, 0), (2 * ranks - 1 - r, 0, 0)]
        programs.append(_steps(r, ranks, microbatches, passes, enough=microbatches - 2 * ranks + r + 1))
    return in_a_v("dualpipe_v", programs, ranks, microbatches)


def _steps(h, H, count, passes, enough):
    """The eight steps of one rank, h ranks from its end of H; direction 0 is the near one, 1 the far one.

    passes  the passes of each direction: (stage, replica, first microbatch);  count  microbatches of each direction
    """
    near, far, program, waiting = 0, 1, [], []
    taken = {(kind, way): 0 for kind in "FB" for way in (near, far)}

    def make(kind, way):
        stage, replica, first = passes[way]
        number = "F" if kind == "F" else "B"
        action = Action(kind, stage, first + taken[number, way], replica)
        taken[number, way] += 1
        if kind == "I":
            waiting.append(action._replace(kind="W"))
        return action

    def fused(forward, backward):
        pair = (make("F", forward), make("B", backward))
        return Action("OVERLAP_F_B", *pair[0][1:4], parts=pair)

    program += [make("F", near) for _ in range(2 * (H - h - 1))]  # 1
    for _ in range(h + 1):  # 2
        program += [make("F", near), make("F", far)]
    for _ in range(H - h - 1):  # 3
        program += [make("I", far), waiting.pop(0), make("F", far)]
    for i in range(enough):  # 4
        apart = i == 0 and h == H - 1  # where the directions meet, the first pair has nothing to hide
        program += [make("F", near), make("B", far)] if apart else [fused(near, far)]
        program.append(fused(far, near))
    for _ in range(H - h - 1):  # 5
        program += [make("B", far), fused(far, near)]
    split = 0  # 6: halfway, the backwards are cut in two
    for i in range(h + 1):
        for way in (far, near):
            split = split or (i == (h + 1) // 2 and (h % 2 == 1 or way == near))
            program.append(make("I" if split else "B", way))
    for _ in range(H - h - 1):  # 7
        program += [waiting.pop(0), make("I", near)]
    return program + waiting  # 8
