"""A student's two layers, tested on real ranks: the output, all gradients and every message, against one device."""

from hybridlab.labs.trials.against import Off, against_one_device

RULES = {"B": "i", "F": "j"}
LEAVES = {"x": ("BTD", ("V:B", "I")), "A": ("FD", ("I", "V:F")), "W": ("DF", ("I", "V:F"))}  # their layouts
OWN = "along j every rank has used only its own hidden units, so it has a partial sum. Which move adds partial sums?"
USED = "each rank along {} has used it for its own {}: which move lets its gradients be summed along {}?"
MISSED = {  # {tensor whose gradient shows that a derived move is missing: the reply}
    name: USED.format(axis, what, axis) for name, axis, what in (("x", "j", "hidden units"), ("A", "i", "sequences"),
                                                                ("W", "i", "sequences"))
}  # fmt: skip


@against_one_device
def try_layers(run, answer, case):
    """The student's function on this rank: answer(comm, x, A, W) with this rank's parts."""
    from hybridlab.core.what.operators import shared
    from hybridlab.modes.products import layouts
    from hybridlab.modes.products.layout_proof import foreseen, numbers

    comm, graph, ways = run.comm, case.graph, run.comm.mesh["j"]
    strategy = shared(graph, RULES, comm.mesh)
    mine = layouts.parts(comm, graph, strategy, numbers(graph))
    cut = lambda whole, name: layouts.part(comm, whole, *LEAVES[name])
    run.begin()
    y = answer(comm, mine["x"], mine["A"], mine["W"])
    forward = slice(run.since, len(comm.ledger))
    wholes = numbers(graph)
    whole = layouts.alone(graph, wholes)
    right = cut(whole.detach(), "x")  # Z has the layout of x
    summed = (ways * right, f"returned {ways} times its part of Z: it was summed although it was not a partial sum.")
    run.result(y, right, "Z", [summed, *_otherwise(mine, wholes, comm)], "Z = gelu(x·Aᵀ)·Wᵀ, added along j.")
    gradient, start = whole.detach().cos(), run.since
    whole.backward(gradient)
    rights = {name: cut(wholes[name].grad, name) for name in LEAVES}
    leaves = {name: (mine[name], its, _times(name, its, comm.mesh), MISSED[name]) for name, its in rights.items()}
    run.backward(y, cut(gradient, "x"), "Z", leaves)
    if told := _of_rows(comm.ledger, foreseen(graph, strategy, comm.mesh), (forward, slice(start, run.until))):
        raise Off(told)


def _otherwise(mine, wholes, comm):
    """(Z with a known mistake, the reply to it)."""
    import torch
    from torch.nn.functional import gelu

    x, ways = mine["x"].detach(), comm.mesh["j"]
    A, W = wholes["A"].detach(), wholes["W"].detach()
    own = gelu(x @ mine["A"].detach().T) @ mine["W"].detach().T
    early = gelu(torch.stack([x @ part.T for part in A.chunk(ways)]).sum(0))
    yield own, f"returned a different Z from that of one device: {OWN}"
    late = "has applied GELU after the second matmul: it comes between the two."
    yield gelu(x @ A.T @ W.T), late
    yield sum(gelu(x @ a.T @ w.T) for a, w in zip(A.chunk(ways), W.chunk(ways, 1))), late
    told = "has summed x·Aᵀ along j, but each rank has other hidden units: x·Aᵀ has no partial sums there."
    yield sum(early @ part.T for part in W.chunk(ways, 1)), told


def _times(name, right, mesh):
    for ways in {mesh["i"], mesh["j"], mesh.size} - {1}:
        told = f"a gradient of {name} that is {ways} times too large: a sum after which all ranks do the same goes to"
        yield ways * right, f'{told}="I".'


def _words(sizes) -> list[int]:
    return [size // 8 for size in sizes]


def _of_rows(ledger, derived, times) -> str:
    """Messages that were sent but are not derived, or are derived but were not sent, in words."""
    sent = sorted(row for part in times for row in zip(ledger.op[part], ledger.axis[part], _words(ledger.bytes[part])))
    right = sorted((one.op, one.axis, int(one.elements)) for one in derived)
    if sent == right:
        return ""
    for op, axis, words in sent:
        if sent.count((op, axis, words)) > right.count((op, axis, words)):
            return f"has all numbers right, but sent an {op} along {axis} of {words} words that nothing needs."
    counts = f"{len(sent)} collectives where {len(right)} are derived"
    return f"has all numbers right, with {counts}: use typed collectives only."
