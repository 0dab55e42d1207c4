"""Solutions of notebook 15."""

from hybridlab.labs.exercises.solution import Cell, Solution


def _version(rule: str) -> Cell:
    return Cell(f"""\
def my_version(rank, ranks, microbatch):
    return {rule}

labs.answer("pipedream.delay", my_version)""")


ENGINE = Cell("""\
def my_play(comm, stage, weights, program, data, rate):
    before, after, m = comm.rank - 1, comm.rank + 1, len(data)
    first, last = comm.rank == 0, after == comm.size
    versions, kept, sent = {}, {}, []
    for kind, k in program[comm.rank]:
        if kind == "F":
            x, target = data[k]
            if not first:
                x = comm.recv(torch.empty_like(x), before, tag=k).requires_grad_()
            versions[k] = [w.clone().requires_grad_() for w in weights]
            y = stage(versions[k], x)
            if last:
                y = toy.loss(y, target)
            else:
                sent.append(comm.isend(y.detach(), after, tag=k))
            kept[k] = x, y
        else:
            x, y = kept.pop(k)
            y.backward(None if last else comm.recv(torch.empty_like(y), after, tag=m + k))
            if not first:
                sent.append(comm.isend(x.grad, before, tag=m + k))
            weights = [w - rate * old.grad for w, old in zip(weights, versions.pop(k))]
    for message in sent:
        message.wait()
    return weights

labs.answer("pipedream.engine", my_play)""")
UPDATE = "weights = [w - rate * old.grad for w, old in zip(weights, versions.pop(k))]"
STASH = "versions[k] = [w.clone().requires_grad_() for w in weights]"
NO_STASH = ENGINE.but(STASH, "versions[k] = [w.requires_grad_() for w in weights]")
IN_PLACE = NO_STASH.but(
    UPDATE,
    """\
for w in weights:
                w.data -= rate * w.grad
                w.grad = None""",
)
NOTICED = NO_STASH.but(
    UPDATE,
    """\
with torch.no_grad():
                for w in weights:
                    w -= rate * w.grad
                    w.grad = None""",
)
ONE_GRAD = NO_STASH.but("w - rate * old.grad for", "(w - rate * old.grad).detach() for")
AT_THE_END = ENGINE.but(UPDATE, "last_gradients = [old.grad for old in versions.pop(k)]").but(
    "    return weights", "    return [w - rate * gradient for w, gradient in zip(weights, last_gradients)]"
)

SOLUTIONS: dict[str, Solution] = {
    "pipedream.engine": Solution(
        ENGINE,
        "An update makes new tensors next to those that older microbatches still use, and a version belongs to its "
        "microbatch.",
        (
            (IN_PLACE, "overwrote weights that were still in use: the backward of microbatch"),
            (NOTICED, "modified by an inplace operation"),
            (ONE_GRAD, "used the same tensors for several microbatches: .grad adds up"),
            (ENGINE.but("[w - rate * old.grad", "[old.detach() - rate * old.grad"), "are lost"),
            (ENGINE.but("versions.pop(k)", "versions[k]"), "kept 8 versions at once; 3 are enough for its list"),
            (ENGINE.but("kept.pop(k)", "kept[k]"), "and y, whose history holds it"),
            (ENGINE.but("before, tag=k).requires_grad_()", "before, tag=k)"), "the x that arrived was not marked"),
            (ENGINE.but("w.clone().requires_grad_()", "w.clone()"), "the weights of this version keep no gradient"),
            (ENGINE.but("        message.wait()", "        pass"), "without a wait() for"),
            (ENGINE.but("toy.loss(y, target)", "toy.loss(y, target) / m"), "m times too small"),
            (ENGINE.but(UPDATE, "versions.pop(k)"), "returned the weights with which it began"),
            (AT_THE_END, "weights that are not the replay's"),
            (ENGINE.but("    return weights\n", ""), "returned NoneType"),
            (ENGINE.but("kept.pop(k)", "kept.popitem()[1]").but("versions.pop(k)", "versions.popitem()[1]"), "did F0"),
            (ENGINE.but("== comm.size", "== 3"), "Right on 3 ranks with the lists of 1f1b, m = 8. On 2 ranks"),
            (8, "your function itself"),
        ),
        also=(ENGINE.but(STASH, "versions[k] = [w.detach().requires_grad_() for w in weights]"),),
    ),
    "pipedream.deque": Solution(
        'labs.answer("pipedream.deque", 4)',
        "The loop of initialize_queue copies the weights once for each place, long before the versions differ.",
        ((1, "This code makes all copies in advance"), (3, "one more"), (5, "of the module itself"), (2, "Too small")),
        also=(4, "4"),
    ),
    "pipedream.versions": Solution(
        'labs.answer("pipedream.versions", [6 - r for r in range(6)])',
        "While a microbatch goes from rank r to the end and back, p-r forwards begin there, each with a newer version.",
        (
            ([1, 2, 3, 4, 5, 6], "The order is reversed"),
            ([5, 4, 3, 2, 1, 0], "The version before them"),
            ([6] * 6, "vertical sync"),
            ([6, 5, 4, 3, 2, 2], "rank 5"),
            ([6, 5], "6 numbers"),
        ),
        also=([6, 5, 4, 3, 2, 1], ("6", 5, 4, 3, 2, 1)),
    ),
    "pipedream.delay": Solution(
        _version("max(0, microbatch - (ranks - 1 - rank))"),
        "Of the microbatches before this one, p-1-r are still in flight; the others have made updates.",
        (
            (
                _version("microbatch - (ranks - 1 - rank)"),
                "rank 0 of 4, microbatch 0 it returns -3; the schedule says 0",
            ),
            (_version("microbatch"), "rank 0 of 4, microbatch 1"),
            (_version("str(max(0, microbatch - (ranks - 1 - rank)))"), "it returns '0'; the schedule says 0"),
            (Cell('labs.answer("pipedream.delay", lambda rank: 0)'), "raised TypeError"),
            (0, "your function itself"),
        ),
    ),
    "pipedream.memory": Solution(
        'labs.answer("pipedream.memory", sum($ranks - r for r in range($ranks)) - 2 * $ranks)',
        "Stashing keeps p-r versions on rank r, 2BW two on every rank.",
        (
            (36, "memory of stashing"),
            (16, "memory of 2BW"),
            (6, "first rank alone"),
            (28, "one version on every rank"),
            (48, "p-r"),
        ),
        also=(20, "20"),
    ),
    "pipedream.throughput": Solution(
        'labs.answer("pipedream.throughput", 4 * (4 + 3) / (16 + 3))',
        "With flushes the pipeline fills and drains four times, without them only once.",
        ((1.75, "fills and drains once"), (19 / 16, "without any bubble"), (0.68, "upside down"), (4, "Too large")),
        also=(84 / 57, 1.474),
    ),
    "pipedream.copies": Solution(
        'labs.answer("pipedream.copies", [2, 2, 2, 1])',
        "A stage has one mini-batch in flight for each of its ranks and each later rank, and its copies divide them.",
        (
            ([4, 3, 2, 1], "straight pipeline"),
            ([4, 4, 2, 1], "copies divide them"),
            ([2, 2, 1, 1], "rank 2"),
            ([2, 2, 1], "4 numbers"),
        ),
        also=((2, 2, 2, 1), ("2", 2, 2, 1)),
    ),
    "pipedream.wrong_way": Solution(
        'labs.answer("pipedream.wrong_way", (1.0, -1.0))',
        "The mixed gradient is old b times new b: below zero when their signs differ, while both true ones are above.",
        (((1, 0.9), "same sign"), ((0, 1), "zero"), (-1, "two numbers"), ((1, 0), "zero")),
        also=((1, -1), [-0.5, 2]),
    ),
}
