"""A student's two layers, tried on real ranks: the output, all gradients and every message, against one device.

What a rank finds is a sentence that begins behind "Rank 0"; an empty one where all is right.
"""

SMALL = 1e-12
RULES = {"B": "i", "F": "j"}
LEAVES = {"x": ("BTD", ("V:B", "I")), "A": ("FD", ("I", "V:F")), "W": ("DF", ("I", "V:F"))}  # how they lie
MISSED = {  # the moves that the layout derives, by whose gradient tells that one is missing
    "x": "each rank along j has used it for its own hidden units: which move lets its gradients be summed along j?",
    "A": "each rank along i has used it for its own sequences: which move lets its gradients be summed along i?",
    "W": "each rank along i has used it for its own sequences: which move lets its gradients be summed along i?",
}


def try_layers(comm, answer, case) -> str:
    """The student's function on this rank: answer(comm, x, A, W) with this rank's parts."""
    from hybridlab.core.what.operators import shared
    from hybridlab.modes.products import layouts
    from hybridlab.modes.products.layout_proof import foreseen, numbers

    graph = case.graph
    strategy = shared(graph, RULES, comm.mesh)
    wholes = numbers(graph)
    right = layouts.alone(graph, wholes)
    mine = layouts.parts(comm, graph, strategy, wholes)
    start = len(comm.ledger)
    y = answer(comm, mine["x"], mine["A"], mine["W"])
    cut = lambda whole, name: layouts.part(comm, whole, *LEAVES[name])
    forward = slice(start, len(comm.ledger))
    told = _of_output(y, cut(right.detach(), "x"), comm.mesh["j"])  # Z lies as x does
    if _anywhere(comm, told):  # a backward is run by all ranks or by none
        return told
    gradient = right.detach().cos()
    right.backward(gradient)
    start = len(comm.ledger)
    y.backward(cut(gradient, "x"))
    backward = slice(start, len(comm.ledger))
    told = _of_gradients(mine, {name: cut(wholes[name].grad, name) for name in LEAVES})
    return told or _of_rows(comm.ledger, foreseen(graph, strategy, comm.mesh), (forward, backward))


def _anywhere(comm, told: str) -> bool:
    """Whether any rank has found something."""
    import torch

    return bool(comm.all_reduce(torch.tensor([float(bool(told))])).item())


def _words(sizes) -> list[int]:
    return [size // 8 for size in sizes]


def _gap(mine, right) -> float:
    return float((mine - right).abs().max() / right.abs().max())


def _of_output(y, right, ways) -> str:
    """What is wrong with this rank's output."""
    import torch

    if not isinstance(y, torch.Tensor):
        return f"returned {repr(y)[:40]}; return this rank's part of Z, a tensor."
    if y.shape != right.shape:
        return f"returned a tensor of shape {tuple(y.shape)}; its part of Z has {tuple(right.shape)}."
    if _gap(y.detach(), right) > SMALL:
        if _gap(y.detach() / ways, right) < SMALL:
            return f"returned {ways} times its part of Z: it was summed although it was whole."
        return (
            "returned another Z than one device: along j every rank has used its own hidden units only. What is the "
            "product then, and which move makes it whole?"
        )
    if not y.requires_grad:
        return "has the right Z, but no gradient can flow back through it: use typed moves only."
    return ""


def _of_gradients(mine, right) -> str:
    """What is wrong with the gradients of a right output."""
    for name, its in right.items():
        found = mine[name].grad
        if found is None:
            return (
                f"has the right Z, but no gradient came to {name}: bring it with typed moves, which autograd follows."
            )
        if _gap(found, its) > SMALL:
            ratio = float(found.abs().max() / its.abs().max())
            if abs(ratio - round(ratio)) < 1e-9 and round(ratio) > 1:
                return (
                    f"has a gradient of {name} that is {round(ratio)} times too large: a sum after which all ranks do "
                    'the same goes to="I".'
                )
            return f"has the right Z, but another gradient of {name} than one device: {MISSED[name]}"
    return ""


def _of_rows(ledger, derived, times) -> str:
    """What was sent in the forward and the backward and is not derived, or is derived and was not sent."""
    sent = sorted(row for part in times for row in zip(ledger.op[part], ledger.axis[part], _words(ledger.bytes[part])))
    right = sorted((one.op, one.axis, int(one.elements)) for one in derived)
    if sent == right:
        return ""
    for op, axis, words in sent:
        if sent.count((op, axis, words)) > right.count((op, axis, words)):
            return f"has all numbers right, but sent an {op} along {axis} of {words} words that nothing needs."
    return f"has all numbers right, with {len(sent)} collectives where {len(right)} are derived: use typed moves only."
