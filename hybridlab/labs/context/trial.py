"""A student's join of two parts, and a student's ring on real ranks: numbers, words, and the order of the operations.

The verdict of a rank is a sentence that continues "Rank 0"; it is empty if all is right.
"""

from hybridlab.labs.trials.against import SMALL, anywhere, gap, words_beside
from hybridlab.labs.trials.watched import Watched, unwaited

# --- two parts of a softmax ---------------------------------------------------------------------------------------


def meet(q_NQH, k_NSH, v_NSH, same: bool = False):
    """(attention output of the queries over these keys, the logarithm of the sum of exponentials), head by head.

    same  queries and keys are of the same positions: a query sees no later key
    """
    import torch

    from hybridlab.modes.parts.ring_attention import part_of_attention

    Q = q_NQH.shape[1]
    seen_QS = torch.ones(Q, Q, dtype=torch.bool).tril() if same else None
    out, lse = part_of_attention(q_NQH[None, :, None], k_NSH[None], v_NSH[None], seen_QS)
    return out[0, :, 0], lse[0, :, 0]


def try_joined(comm, answer, case) -> str:
    """Try the student's join of two parts: answer(out, lse, other_out, other_lse), with scores as large as
    `case.scale`."""
    import torch

    parts = _parts(case)
    kept = [[x.clone() for x in part] for part in parts]
    both = answer(*parts[0], *parts[1])
    if not isinstance(both, tuple | list) or len(both) != 2:
        return f"gave {repr(both)[:40]}; return two tensors, the out and the lse of the two parts combined."
    if any(not torch.equal(x, y) for part, its in zip(parts, kept) for x, y in zip(part, its)):
        return "changed what it was given; make new tensors."
    return _of_joined(*both, *meet(*_attention(case)), parts)


def _attention(case):
    """Queries, keys and values."""
    import torch

    draw = torch.Generator().manual_seed(0)
    return case.scale**0.5 * torch.randn(3, 2, case.length, 4, dtype=torch.float64, generator=draw)


def _parts(case) -> list:
    """The attention of the queries over the first keys, and over the others."""
    q, k, v = _attention(case)
    return [meet(q, k[:, some], v[:, some]) for some in (slice(0, case.first), slice(case.first, None))]


def _of_joined(out, lse, right_out, right_lse, parts) -> str:
    import torch

    for name, mine, right in (("out", out, right_out), ("lse", lse, right_lse)):
        if not isinstance(mine, torch.Tensor) or mine.shape != right.shape:
            shape = tuple(mine.shape) if isinstance(mine, torch.Tensor) else repr(mine)[:30]
            return f"gave {shape} as {name}; it has shape {tuple(right.shape)}, as in each part."
        if not mine.isfinite().all():
            return f"gave inf or nan in {name}: exp of a large number overflows. Subtract before you take exp."
    (out_1, lse_1), (out_2, lse_2) = parts
    if gap(lse, right_lse) > SMALL:
        if gap(lse, lse_1 + lse_2) < SMALL:
            return "added the two lse: sums of exponentials are added, and lse is the logarithm of a sum."
        return "gave a different lse from that of all keys at once: log(exp(lse₁) + exp(lse₂))."
    if gap(out, right_out) < SMALL:
        return ""
    if gap(out, out_1 + out_2) < SMALL:
        return "has the right lse, but added the two out as they are: each was divided by its own sum."
    if gap(out, (out_1 + out_2) / 2) < SMALL:
        return "has the right lse, but weighs both parts alike: a part with the larger sum counts for more."
    return "has the right lse, but a different out: the weight of each part is exp(lseᵢ - lse)."


# --- the ring -----------------------------------------------------------------------------------------------------


def try_ring(comm, answer, case) -> str:
    """The student's ring on this rank: answer(comm, q, k, v, meet, joined)."""
    import torch

    from hybridlab.modes.parts.ring_attention import joined

    draw = torch.Generator().manual_seed(1)
    whole = torch.randn(3, case.heads, case.length * comm.size, 4, dtype=torch.float64, generator=draw)
    parts = whole.split(case.length, 2)
    seen = []

    def watched(q, k, v, same=False):
        seen.append(("meet", _source(k, *([part[which] for part in parts] for which in (1, 2))), bool(same)))
        return meet(q, k, v, same)

    q, k, v = parts[comm.rank].clone()
    watching, start = Watched(comm, seen), len(comm.ledger)
    out = answer(watching, q, k, v, watched, joined)
    beside = words_beside(comm.ledger, start)
    right = meet(*whole, same=True)[0][:, comm.rank * case.length : (comm.rank + 1) * case.length]
    told = _of_meetings(seen, comm) or _of_out(out, right)
    if anywhere(comm, told):  # messages count once all ranks are right
        return told
    return _of_others(*beside) or _of_direction(watching.targets, comm) or _of_messages(seen, comm, 2 * k.numel())


def _of_others(words: int, op: str) -> str:
    told = f"has the right result, but sent {words:,} words in {op}: a ring needs only messages from rank to next rank."
    return told if words else ""


def _of_direction(targets: set[int], comm) -> str:
    if comm.size > 2 and targets == {(comm.rank - 1) % comm.size}:
        return "has the right result, but its keys go to the previous rank: send them to the next one."
    return ""


NO_RANK, VALUES = -1, -2  # instead of a rank


def _source(k, keys, values) -> int:
    """The rank to which these keys belong; NO_RANK if there is none, VALUES if they are a rank's values."""
    import torch

    of = lambda every: (rank for rank, its in enumerate(every) if k.shape == its.shape and torch.equal(k, its))
    return next(of(keys), NO_RANK if next(of(values), None) is None else VALUES)


def _of_meetings(seen, comm) -> str:
    """The mistake in the keys that a rank's queries have met."""
    met = [one[1:] for one in seen if one[0] == "meet"]
    sources = [source for source, _ in met]
    if VALUES in sources:
        return "gave meet values instead of keys: meet(q, k, v, same)."
    if NO_RANK in sources:
        return "met keys that no rank has: was a part used before it had arrived, or changed while it was sent?"
    for source, same in met:
        if same != (source == comm.rank):
            told = "its own keys" if source == comm.rank else f"keys of rank {source}"
            return (
                f"met {told} with same={same}: same is True for its own keys, and only for these. (If it was: were "
                "keys overwritten while they were being sent?)"
            )
    if any(sources.count(source) > 1 for source in sources):
        again = next(source for source in sources if sources.count(source) > 1)
        return f"met keys of rank {again} more than once: which rank's keys are here in step i?"
    behind = [source for source in sources if source > comm.rank]
    if behind:
        return (
            f"met keys of rank {behind[0]}, which come after all of its queries: no query may see them. (In which "
            "direction do keys go around the ring?)"
        )
    missing = [source for source in range(comm.rank + 1) if source not in sources]
    if missing:
        return f"never met keys of rank {missing[0]}, which come before its queries."
    return ""


def _of_out(out, right) -> str:
    import torch

    if not isinstance(out, torch.Tensor) or out.shape != right.shape:
        shape = f"a tensor of shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else repr(out)[:40]
        return f"returned {shape}; return the outputs of its queries, of shape {tuple(right.shape)}, without lse."
    if gap(out, right) > SMALL:
        return "met the right keys, but its result differs from that of one device: are all parts joined, out and lse?"
    return ""


def _of_messages(seen, comm, part: int) -> str:
    """The mistake in a rank's messages and their order; `part`: the numbers of keys and values of one rank."""
    total = lambda what, until=None: sum(one[1] for one in seen[:until] if one[0] == what)
    hops = comm.size - 1
    if what := unwaited(seen):
        return f"has the right result, but never waited for all that it began to {what}: keep each handle, and wait."
    for what in ("send", "receive"):
        if total(what) != hops * part:
            return (
                f"has the right result, but did {what} {total(what):,} numbers; {hops} hops of {part:,} are needed: "
                "after the last step no rank needs the keys that are here."
            )
    for place, one in enumerate(seen):
        step = (comm.rank - one[1]) % comm.size if one[0] == "meet" else hops
        if step < hops:
            if min(total("send", place), total("receive", place)) < (step + 1) * part:
                return "has the right result, but computed before it began to send and receive: nothing overlaps."
            if total("waited receive", place) > step * part or total("waited send", place) > step * part:
                return "has the right result, but waited for the next keys before it computed with those it had."
    return ""
