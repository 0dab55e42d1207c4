"""A student's halo exchange, layer of a strip and split of channels, run on real ranks and compared with one device.

The verdict of a rank is a sentence that continues "Rank 0"; it is empty if all is right.
"""

from hybridlab.core.where.spans import wanted
from hybridlab.labs.trials.against import SMALL, against_one_device, words_beside
from hybridlab.labs.trials.watched import Watched, unwaited


def strip(x, span):
    """The rows of a span of the full picture."""
    return x[:, :, span[0] : span[1]]


# --- rows there and back ------------------------------------------------------------------------------------------


@against_one_device
def try_halo(run, answer, case):
    """The student's functions on this rank: fetch(comm, x, have, want) and fold(comm, g, have, want)."""
    have, want = case.have, wanted(case.have, case.conv.sight)[1]
    run.settle(_fetched(run.comm, answer[0], case, have, want))  # the way back is tested when all ranks have their rows
    run.settle(_folded(run.comm, answer[1], case, have, want))


def _picture(case):
    from hybridlab.labs.convolution.on_ranks import inputs

    return inputs(case.conv)[0]


def _fetched(comm, fetch, case, have, want) -> str:
    start, seen = len(comm.ledger), []
    found = fetch(Watched(comm, seen), strip(_picture(case), have[comm.rank]).clone(), have, want)
    X = _picture(case)
    told = _of_rows(found, X, have[comm.rank], want[comm.rank])
    sent = _of_messages(comm.ledger, start, comm.rank, have, want, X[:, :, :1].numel())
    return told or sent or _of_waits(seen)


def _folded(comm, fold, case, have, want) -> str:
    start, seen = len(comm.ledger), []
    summand = lambda rank: strip(_picture(case), want[rank]) * (rank + 1)
    found = fold(Watched(comm, seen), summand(comm.rank), have, want)
    each = _picture(case)[:, :, :1].numel()
    told = _of_sums(found, [summand(rank) for rank in range(comm.size)], have[comm.rank], want, comm.rank)
    return told or _of_messages(comm.ledger, start, comm.rank, want, have, each, " back") or _of_waits(seen, " back")


def _of_rows(found, X, here, sees) -> str:
    """The mistake in the rows that a rank has fetched."""
    right = strip(X, sees)
    if told := _of_shape(found, right, "my_fetch", f"rows {sees[0]} to {sees[1]} have"):
        return told
    for row in range(*sees):
        if not _same(found[:, :, row - sees[0]], X[:, :, row]):
            whose = "its own" if here[0] <= row < here[1] else "another rank's"
            return f"has row {row}, {whose}, wrong: where does it belong in rows {sees[0]} to {sees[1]}?"
    return ""


def _of_sums(found, G, here, want, me) -> str:
    """The mistake in the gradients of this rank's rows, which include the partial sums of other ranks."""
    summand, count = G[0], {}
    right = summand.new_zeros(*summand.shape[:2], here[1] - here[0], summand.shape[3])
    for summand, (low, high) in zip(G, want):
        for row in range(max(low, here[0]), min(high, here[1])):
            right[:, :, row - here[0]] += summand[:, :, row - low]
            count[row] = count.get(row, 0) + 1
    if told := _of_shape(found, right, "my_fold", f"its own rows {here[0]} to {here[1]} have"):
        return told
    for row in range(*here):
        if not _same(found[:, :, row - here[0]], right[:, :, row - here[0]]):
            users, low, high = count.get(row, 0), *want[me]
            if low <= row < high and _same(found[:, :, row - here[0]], G[me][:, :, row - low]):
                return f"has only its own partial sum for row {row}, but {users} ranks have used this row."
            told = f"{users} ranks have used it, so add their partial sums."
            if users == 1:
                told = f"one rank has used it; where does its piece belong in rows {here[0]} to {here[1]}?"
            return f"has a wrong gradient for row {row}: {told}"
    return ""


def _of_shape(found, right, name, told) -> str:
    import torch

    if not isinstance(found, torch.Tensor):
        return f"got {repr(found)[:40]} from {name}; return a tensor."
    if found.shape != right.shape:
        return f"got a tensor of shape {tuple(found.shape)} from {name}; {told} {tuple(right.shape)}."
    return ""


def _of_messages(ledger, start, me, have, want, each, way="") -> str:
    """The mistake in this rank's messages: it must send exactly the rows that others need, one message to each."""
    from hybridlab.core.where.spans import overlap

    spans = [overlap(have[me], one) for rank, one in enumerate(want) if rank != me]
    needed = [high - low for low, high in spans if high > low]
    sent = [size // 8 for op, size in list(zip(ledger.op, ledger.bytes))[start:] if op in ("isend", "send")]
    beside, op = words_beside(ledger, start)
    if beside:
        return f"is right, but sent {beside:,} words{way} in {op}; only messages to ranks that need rows are needed."
    if sum(sent) != each * sum(needed):
        return f"is right, but sent {sum(sent):,} words{way}; {each * sum(needed):,} are needed."
    if len(sent) != len(needed):
        return f"sent {len(sent)} messages{way}, some of them empty; only {len(needed)} ranks need rows from it."
    return ""


def _of_waits(seen, way="") -> str:
    what = unwaited(seen)
    return (
        f"is right, but never waited for all that it began to {what}{way}: keep each handle, and wait." if what else ""
    )


def _same(one, other) -> bool:
    return bool((one - other).abs().max() < SMALL)


# --- the layer of a strip -----------------------------------------------------------------------------------------


@against_one_device
def try_layer(run, answer, case):
    """The student's layer on this rank: answer(comm, x, w, b, have, want, sees, stride)."""
    from hybridlab.labs.convolution.on_ranks import alone, inputs

    comm, conv = run.comm, case.conv
    made, want = wanted(case.have, conv.sight)
    sees = tuple(conv.sight.seen(one) for one in made)
    here, mine = case.have[comm.rank], made[comm.rank]
    x, w, b = (one.clone().requires_grad_() for one in (strip(inputs(conv)[0], here), *inputs(conv)[1:3]))
    run.begin()
    y = answer(comm, x, w, b, case.have, want, sees, conv.stride)
    values, gradients = alone(conv)
    right = strip(values["Y"], mine)
    run.result(y, right, "Y", otherwise=_rows_off(y, right))
    own = "that of its strip alone: all ranks have used it, each for its own pixels."
    leaves = {"X": (x, strip(gradients["X"], here), (), "gradients of the halo must return to their rank.")}
    leaves |= {name: (leaf, gradients[name], (), own) for name, leaf in (("W", w), ("b", b))}
    run.backward(y, strip(gradients["Y"], mine), "Y", leaves)


def _rows_off(y, right) -> str:
    """The rows of outputs that are wrong, in words."""
    if getattr(y, "shape", None) != right.shape:
        return ""
    wrong = [str(row) for row in range(y.shape[2]) if not _same(y.detach()[:, :, row], right[:, :, row])]
    listed = ", ".join(wrong[:4]) + " …" * (len(wrong) > 4)
    told = f"{len(wrong)} of its {y.shape[2]} rows of outputs wrong: {listed}"
    return f"{told}. What do they see, a neighbour's rows or padding?"


# --- channels and filters -----------------------------------------------------------------------------------------


@against_one_device
def try_split(run, answer, case):
    """The student's convolution on this rank: answer(comm, x, w, convolve), channels cut along c, filters along f."""
    from functools import partial

    from torch.nn import functional

    from hybridlab.labs.convolution.on_ranks import alone, inputs
    from hybridlab.modes.products.channel_splits import here
    from hybridlab.predict.bytes.convolution import sent

    comm, conv = run.comm, case.conv
    leaves = {name: here(comm, whole, name).clone().requires_grad_() for name, whole in zip("XW", inputs(conv))}
    convolve = partial(functional.conv2d, stride=conv.stride, padding=conv.padding)
    run.begin()
    y = answer(comm, *leaves.values(), convolve)
    values, gradients = alone(conv)
    whole = values["Y"] - values["b"][:, None, None]
    foreseen = sent(conv, comm.mesh, comm.rank)["channels"].forward
    run.result(y, here(comm, whole, "Y"), "Y", (), "which sum runs over an axis that is cut?", foreseen)
    told = "each rank uses the gathered channels for its own filters. What type is that?"
    leaves = {name: (leaf, here(comm, gradients[name], name), (), told) for name, leaf in leaves.items()}
    run.backward(y, here(comm, gradients["Y"], "Y"), "Y", leaves)
