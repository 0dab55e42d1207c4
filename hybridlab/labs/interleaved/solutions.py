"""Solutions of notebook 13."""

import hybridlab as hl
from hybridlab.labs.exercises.solution import Cell, Solution

USUAL = hl.schedule("interleaved", ranks=2, microbatches=4, chunks=2).to_csv()
RANK_0, RANK_1 = USUAL.strip().splitlines()
SHORTER = "0F0,0F1,2F0,2F1,2B0,0F2,2B1,0F3,0B0,2F2,0B1,2F3,2B2,2B3,0B2,0B3"

ENGINE = Cell("""\
def my_chunks(comm, stages, program, data):
    p, m, count = comm.size, len(data), comm.size * len(stages)
    kept, sent = {}, []
    for kind, k, s in program[comm.rank]:
        first, last, forward = s == 0, s == count - 1, k * count
        backward = m * count + forward
        if kind == "F":
            x, target = data[k]
            if not first:
                x = comm.recv(torch.empty_like(x), (s - 1) % p, tag=forward + s).requires_grad_()
            y = stages[s](x)
            if last:
                y = toy.loss(y, target) / m
            else:
                sent.append(comm.isend(y.detach(), (s + 1) % p, tag=forward + s + 1))
            kept[k, s] = x, y
        else:
            x, y = kept.pop((k, s))
            y.backward(None if last else comm.recv(torch.empty_like(y), (s + 1) % p, tag=backward + s))
            if not first:
                sent.append(comm.isend(x.grad, (s - 1) % p, tag=backward + s - 1))
    for message in sent:
        message.wait()

labs.answer("interleaved.engine", my_chunks)""")

PIECES = Cell("""\
def my_piece(scores, targets, first):
    here = (targets >= first) & (targets < first + scores.shape[1])
    column = (targets - first).clamp(0, scores.shape[1] - 1)
    target = scores.gather(1, column[:, None])[:, 0] * here
    return scores.logsumexp(1), target

def my_join(lse, target):
    return lse.logsumexp(0) - target.sum(0)

labs.answer("interleaved.pieces", (my_piece, my_join))""")

SOLUTIONS: dict[str, Solution] = {
    "interleaved.engine": Solution(
        ENGINE,
        "A rank now has several stages, so saved tensors and messages are named by microbatch and stage.",
        (
            (ENGINE.but("kept[k, s]", "kept[k]").but("kept.pop((k, s))", "kept.pop(k)"), "same number: save by (k, s)"),
            (ENGINE.but("        message.wait()", "        pass"), "without a wait() for"),
            (
                ENGINE.but("kept[k, s]", "kept[k]").but("kept.pop((k, s))", "kept[k]").but("like(y)", "like(x)"),
                "stage 1's backward got the tensors of another stage of the same microbatch: save by (k, s)",
            ),
            (ENGINE.but("s == count - 1", "comm.rank == p - 1"), "deadlock: rank 0 waits in recv"),
            (ENGINE.but("first, last, forward = s == 0", "first, last, forward = comm.rank == 0"), "another tag"),
            (ENGINE.but("forward + s", "forward").but("backward + s", "backward"), "another tag"),
            (ENGINE.but("stages[s](x)", "next(iter(stages.values()))(x)"), "did 0F0 0F1 0F2"),
            (ENGINE.but(" / m", ""), "4 times too large"),
            (
                ENGINE.but("comm.size * len(stages)", "4"),
                "Right on 2 ranks with the lists of interleaved, m = 4, v = 2",
            ),
            (ENGINE.but("(s - 1) % p", "comm.rank - 1").but("(s + 1) % p", "comm.rank + 1"), "there is no rank -1"),
            (7, "your function itself"),
        ),
    ),
    "interleaved.bubbles": Solution(
        'labs.answer("interleaved.bubbles", [3 / 19, 3 / 16])',
        "idle / ideal halves to (1/2)(3/8) = 3/16; three parts idle to sixteen of work are 3/19 of the total.",
        (
            ([3 / 16, 3 / 19], "The two are swapped"),
            ([3 / 11, 3 / 8], "without interleaving"),
            ([3 / 22, 3 / 16], "does not simply halve"),
            ([0.9, 3 / 16], "idle / total is too large"),
            ([3 / 19, 0.01], "idle / ideal is too small"),
            (0.158, "two numbers"),
            ([0.158], "two numbers"),
            ([15.8, 18.75], "idle / total is too large"),
        ),
        also=((0.158, 0.1875), ["0.158", "0.1875"], [0.16, 0.19]),
    ),
    "interleaved.memory": Solution(
        'labs.answer("interleaved.memory", $ranks * (1 + ($ranks - 1) / ($ranks * $chunks)))',
        "In its warm-up rank 0 passes p microbatches through all chunks but the last, then does 2(p-1) more forwards.",
        ((23, "counts chunks"), (6, "That is 1F1B"), (23 / 18, "the factor"), (9, "Too large")),
        also=(23 / 3, "7.667"),
    ),
    "interleaved.warmup": Solution(
        f'''mine = """
{SHORTER}
{RANK_1}
""".strip()

labs.answer("interleaved.warmup", mine)''',
        "With free messages no time is lost; each forward of the longer warm-up hides a message, but costs memory.",
        (
            (USUAL, "warms up with 4 forwards before its first pair; make it 3"),
            (f"{RANK_0}\n{RANK_1.replace('1F1,3F0', '3F0,1F1')}", "Leave the line of rank 1"),
            (f"{SHORTER.replace('2B1,0F3', '0F3,2B1')}\n{RANK_1}", "one forward, one backward"),
            (f"{SHORTER.replace('0F0,0F1', '0F1,0F0')}x\n{RANK_1}", "is not an action"),
            (
                f"{SHORTER.replace('2F0,2F1,2B0,0F2', '0F2,2F0,2B0,2F1')}\n{RANK_1}",
                "Rank 0 now does 0F2 instead of 2F0: keep the order of its forwards",
            ),
            (f"{SHORTER.replace('0F0,0F1', '0F1,0F0')}\n{RANK_1}", "does 0F1 instead of 0F0"),
            (
                f"{SHORTER.replace('0B0,2F2,0B1', '0B1,2F2,0B0')}\n{RANK_1}",
                "does 0B1 instead of 0B0: keep the order of its backwards",
            ),
            (f"{SHORTER[:-4]}\n{RANK_1}", "add 0B3"),
            (SHORTER, "no action makes"),
            ("0F0,0B0\n1F0,1B0", "Keep 2 ranks, 4 stages and 4 microbatches"),
            ("2B0," + SHORTER.replace("2B0,", "") + "\n" + RANK_1, "waits"),
            (16, "Answer with text"),
            ("0F0," * 3000, "The text is too long"),
        ),
        also=(f"{SHORTER}\n{RANK_1}", hl.Schedule.from_csv(f"{SHORTER}\n{RANK_1}")),
    ),
    "interleaved.published": Solution(
        'labs.answer("interleaved.published", [7 / 48, 7 / 96])',
        "0.127 is idle / total and 0.073 is idle / ideal; by idle / ideal it is 7/48 before and half of it after.",
        (
            ([0.127, 0.073], "That is the published pair"),
            ([7 / 96, 7 / 48], "The two are swapped"),
            ([7 / 48, 7 / 103], "not by the same definition"),
            ([12.7, 7.3], "between 0 and 1"),
            ([0.5, 0.25], "take one of the two formulas"),
            (1.74, "two numbers"),
        ),
        also=([7 / 55, 7 / 103], (0.127, 0.068), (0.146, 0.073)),
    ),
    "interleaved.design": Solution(
        'labs.answer("interleaved.design", 4)',
        "Three chunks hold 5 shares, too much; four hold 4.75 and are fast enough; six send too many messages.",
        (
            (Cell('labs.answer("interleaved.design", 2)'), "too slow, and too much"),
            (1, "With v = 1 a step takes 403.2 units and rank 0 holds 7 rank shares: too slow, and too much memory"),
            (2, "too slow, and too much"),
            (3, "the time is fine, but a rank may hold 4.8 shares at most"),
            (6, "a step may take 355 units at most"),
            (5, "cannot be cut into 5 equal chunks"),
            (2.5, "one whole number"),
            (0, "cannot be cut into 0 equal chunks"),
            (10**12, "equal chunks"),
        ),
        also=(4.0, "4"),
    ),
    "interleaved.pieces": Solution(
        PIECES,
        "Sums over the vocabulary are sums of the pieces' sums; logarithms keep them small.",
        (
            (PIECES.but("[:, 0] * here", "[:, 0]"), "also for targets that belong to other pieces"),
            (PIECES.but("(targets - first).clamp", "targets.clamp"), "another target score"),
            (PIECES.but("scores.logsumexp(1), target", "scores.exp().sum(1), target"), "return its logarithm"),
            (PIECES.but("scores.logsumexp(1), target", "scores.exp().sum(1).log(), target"), "subtracts the largest"),
            (PIECES.but("scores.logsumexp(1), target", "scores.logsumexp(0), target"), "both have (6,)"),
            (PIECES.but("scores.logsumexp(1), target", "2 * scores.logsumexp(1), target"), "returned a different lse"),
            (PIECES.but("return scores.logsumexp(1), target", "return target"), "return lse, target"),
            (PIECES.but("lse.logsumexp(0)", "lse.sum(0)"), "added the logarithms"),
            (PIECES.but("lse.logsumexp(0)", "lse.exp().sum(0).log()"), "combine logarithms"),
            (PIECES.but(" - target.sum(0)", ""), "still to be subtracted"),
            (PIECES.but("lse.logsumexp(0) - target.sum(0)", "target.sum(0) - lse.logsumexp(0)"), "the wrong sign"),
            (PIECES.but(" - target.sum(0)", " + target.sum(0)"), "added the target's score"),
            (PIECES.but("target.sum(0)", "target.amax(0)"), "took the largest of the pieces' target scores"),
            (PIECES.but("target.sum(0)", "target.mean(0)"), "a different loss from that of one device"),
            (PIECES.but("return lse.logsumexp(0) - target.sum(0)", "return 1.0"), "a loss for each of the 6 positions"),
            (PIECES.but("scores.logsumexp(1), target", "scores.detach().logsumexp(1), target"), "returned lse without"),
            (PIECES.but("scores.logsumexp(1), target", "scores.logsumexp(1), target.detach()"), "target without"),
            (PIECES.but("def my_piece", "@torch.no_grad()\ndef my_piece"), "returned lse without its history"),
            (PIECES.but("def my_join", "@torch.no_grad()\ndef my_join"), "returned the right loss, but without"),
            (3, "the functions themselves"),
        ),
    ),
}
