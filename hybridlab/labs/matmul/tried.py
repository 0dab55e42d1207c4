"""A student's parallel product, tried on real ranks: C, both gradients and every word, against one device.

What a rank finds is a sentence that begins behind "Rank 0"; an empty one where all is right.
"""

SMALL = 1e-12
KEEPS = (
    " Fewer, but this product keeps its home blocks too and fetches from them again and again; in Cannon's a rank "
    "passes each block on and keeps none."
)


def try_product(comm, answer, case) -> str:
    """The student's function on this rank: answer(comm, a, b, sizes) with this rank's parts of A and B."""
    from hybridlab.labs.matmul.on_ranks import blocks, words
    from hybridlab.predict.bytes.matmul_by_rank import sent

    (A, B, G), homes = blocks(comm, case.algorithm, case.sizes)
    a_home, b_home, c_home = homes
    a, b = A[a_home].clone().requires_grad_(), B[b_home].clone().requires_grad_()
    grid, place = zip(*((comm.mesh[axis], comm.coordinates[axis]) for axis in "ijl"))
    foreseen = sent(case.algorithm, case.sizes, grid, place)
    start = len(comm.ledger)
    c = answer(comm, a, b, case.sizes)
    forward = words(comm.ledger, start)
    told = _of_forward(c, A[a_home[0]], B[:, b_home[1]], comm.mesh["j"])
    if anywhere(comm, told):  # words count once C is right on all ranks
        return told
    told = _of_words(c, forward, foreseen.forward, case.algorithm)
    if anywhere(comm, told):  # a backward is run by all ranks or by none
        return told
    return _of_gradients(comm, c, G[c_home], (a, (G @ B.T)[a_home]), (b, (A.T @ G)[b_home]), foreseen.backward)


def anywhere(comm, told: str) -> bool:
    """Whether any rank has found something."""
    import torch

    return bool(comm.all_reduce(torch.tensor([float(bool(told))])).item())


def _of_forward(c, A, B, parts) -> str:
    """What is wrong with this rank's part of C; A and B are the rows and columns that make it."""
    import torch

    from hybridlab.labs.matmul.on_ranks import gap

    right = A @ B
    if not isinstance(c, torch.Tensor):
        return f"returned {repr(c)[:40]}; return this rank's part of C, a tensor."
    if c.shape != right.shape:
        return f"returned a tensor of shape {tuple(c.shape)}; its part of C has {tuple(right.shape)}."
    if c.dtype != right.dtype:
        return f"returned C in {_name(c)}; A and B are {_name(right)}: begin the sum with 0, or with a.new_zeros(…)."
    return _of_c(A, B, c.detach(), right, parts) if gap(c.detach(), right) > SMALL else ""


def _name(x) -> str:
    """The name of a tensor's type, as "float32"."""
    return str(x.dtype).removeprefix("torch.")


def _of_words(c, forward: int, foreseen: int, algorithm: str) -> str:
    """What is wrong with what this rank has sent for a right C, or with the way back from it."""
    if forward != foreseen:
        told = f"has the right C, but sent {forward:,} words forward; this algorithm sends {foreseen:,}."
        return told + KEEPS if algorithm == "cannon" and forward < foreseen else told
    if not c.requires_grad:
        return "has the right C, but no gradient can flow back through it: bring parts with typed moves only."
    return ""


def _of_c(A, B, c, right, parts) -> str:
    """What is wrong with a part of C of the right shape; A and B are the rows and columns that make it."""
    from hybridlab.core.where.layout import even
    from hybridlab.labs.matmul.on_ranks import gap

    pieces = [A[:, begin:end] @ B[begin:end] for begin, end in even(A.shape[1], parts)] if parts > 1 else []
    if any(gap(c, piece) < SMALL for piece in pieces):
        return "returned one product; the sum of the products of all steps is its part of C."
    if any(gap(c + piece, right) < SMALL for piece in pieces):
        return "returned C without one part of k: count the products that are added."
    if any(gap(c - piece, right) < SMALL for piece in pieces):
        return "added one part of k too often: count the products that are added."
    return "returned another C than one device: were A's columns and B's rows in each product the same part of k?"


def _of_gradients(comm, c, gradient, *pairs_and_words) -> str:
    """What is wrong with the gradients of a right C, or with what they sent."""
    from hybridlab.labs.matmul.on_ranks import gap, words

    *pairs, foreseen = pairs_and_words
    middle = len(comm.ledger)
    c.backward(gradient)
    for name, (mine, right) in zip("AB", pairs):
        if mine.grad is None:
            return (
                f"has the right C, but no gradient came to {name}: bring it with a typed move, which autograd follows."
            )
        if gap(mine.grad, right) > SMALL:
            return (
                f"has the right C, but another gradient of {name} than one device: each rank has a partial sum of it."
            )
    backward = words(comm.ledger, middle)
    if backward != foreseen:
        return f"has right gradients, but sent {backward:,} words for them; the way back sends {foreseen:,}."
    return ""
