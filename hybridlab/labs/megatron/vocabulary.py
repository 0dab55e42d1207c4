"""A student's cross-entropy over a sharded vocabulary, run on a rank: its mistake in a sentence, or ""."""

import torch
from torch.nn import functional

from hybridlab.labs.megatron.layers import near

POSITIONS, VOCABULARY = 24, 512
NUMBERS = 8  # the most numbers sent for a position: three are needed; a gathered position has many more
CLOSE = 1e-4  # float32


def drawn(shift: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits of all tokens, targets) of all positions; each shard contains targets, and its first and last token are
    among them.

    >>> logits, targets = drawn()
    >>> logits.shape, targets.min().item(), targets.max().item()
    (torch.Size([24, 512]), 0, 511)
    """
    draw = torch.Generator().manual_seed(32)
    logits = 3 * torch.randn(POSITIONS, VOCABULARY, generator=draw) + shift
    edges = [place for quarter in range(0, VOCABULARY, VOCABULARY // 4) for place in (quarter, quarter + 127)]
    targets = torch.randint(0, VOCABULARY, (POSITIONS,), generator=draw)
    targets[: len(edges)] = torch.tensor(edges)
    return logits, targets


def try_loss(comm, answer, case) -> str:
    """loss and gradient of a function (this rank's logits, targets, comm), against one process."""
    logits, targets = drawn(case.shift)
    part = lambda tensor: tensor.chunk(comm.size, dim=1)[comm.rank]
    start = len(comm.ledger)
    made = answer(part(logits).clone(), targets.clone(), comm)
    rows = comm.ledger.rows()[start:]
    if not isinstance(made, list | tuple) or len(made) != 2 or not all(isinstance(one, torch.Tensor) for one in made):
        return "did not return two tensors: the loss of each position, and the gradient with respect to its logits."
    whole = logits.double().requires_grad_()
    right = functional.cross_entropy(whole, targets, reduction="none")
    right.sum().backward()
    return (
        _moved(rows)
        or _loss(made[0], right.detach(), logits.double(), targets, comm)
        or _gradient(made[1], part(whole.grad), targets, comm)
    )


def _moved(rows) -> str:
    sent, most = sum(row["bytes"] for row in rows), NUMBERS * POSITIONS * 4
    if sent <= most:
        return ""
    op = max(rows, key=lambda row: row["bytes"])["op"]
    return f"sent {sent:,} bytes, most of them in {op}: logits were sent. A few numbers for each position are enough."


def _loss(found, right, logits, targets, comm) -> str:
    if found.shape != right.shape:
        return f"returned losses of shape {tuple(found.shape)}; there are {len(right)} positions."
    if bool((found == -torch.inf).any()):
        return 'returned -inf as a loss: exp of every logit is 0. Was more subtracted than the maximum, op="max"?'
    if not bool(torch.isfinite(found).all()):
        return f"returned {found[~torch.isfinite(found)][0].item()} as a loss: exp of a large logit is too large."
    if near(found.double(), right, CLOSE):
        return ""
    told = f"has losses that differ from one process by up to {(found - right).abs().max():.2g}."
    for shifted in (logits - logits.amax(1, keepdim=True), logits):
        same = (why for why, wrong in _mistakes(shifted, targets, comm) if near(found.double(), wrong, CLOSE))
        told = next(same, told)
    return told


def _mistakes(logits, targets, comm):
    """(the mistake, the losses that result from it)."""
    parts = logits.chunk(comm.size, dim=1)
    length = parts[0].shape[1]
    whole, mine = logits.logsumexp(1), parts[comm.rank].logsumexp(1)
    target = logits.gather(1, targets[:, None])[:, 0]
    here = targets // length == comm.rank
    rows = [(targets - rank * length).clamp(0, length - 1) for rank in range(comm.size)]
    every = sum(part.gather(1, row[:, None])[:, 0] for part, row in zip(parts, rows))
    own = torch.stack([part.amax(1) for part in parts])
    total = sum((part - most[:, None]).exp().sum(1) for part, most in zip(parts, own))
    unlike = total.log() - target + own.gather(0, (targets // length)[None])[0]
    yield "added only the exponentials of its own shard: the sum is over all ranks.", mine - target
    yield "has the logit of a target only where its own shard has it: other ranks need it too.", whole - target * here
    yield "added a logit for targets that are in other shards: only one rank has each of them.", whole - every
    local = "subtracted the largest logit of its own shard only: the sums of the ranks then have other scales."
    yield local, unlike
    yield local, total.log() + own[comm.rank] - target
    yield local, total.log() - target


def _gradient(found, right, targets, comm) -> str:
    if found.shape != right.shape:
        return f"returned a gradient of {tuple(found.shape)}; its logits are {tuple(right.shape)}."
    if near(found.double(), right, CLOSE):
        return ""
    if near(len(right) * found.double(), right, CLOSE):
        told = f"has right losses, but a gradient {len(right)} times too small"
        return f"{told}: the question asks for the gradient of their sum."
    here = targets // right.shape[1] == comm.rank
    wrong = (found - right).abs().amax(1) > CLOSE
    if not bool((wrong & here).any()):
        return "has right losses, but a wrong gradient where the target is in another shard: softmax alone there."
    if not bool((wrong & ~here).any()):
        return "has right losses, but a wrong gradient where the target is in its own shard: softmax minus 1 there."
    return f"has right losses, but a gradient that differs by up to {(found - right).abs().max():.2g}."
