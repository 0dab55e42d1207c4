"""A student's dispatch, run on real ranks: its output, every gradient, and the words sent.

The verdict of a rank is a sentence that continues "Rank 0"; it is empty if all is right.
"""

from hybridlab.labs.experts.on_ranks import COUNT, WEIGHT, gradients, home, right, rows_of
from hybridlab.labs.trials.against import SMALL, anywhere, gap


def try_dispatch(comm, answer, case) -> str:
    """Try the student's function on this rank: answer(comm, x, chosen, weights, experts, owned)."""
    mine, start = home(comm, case), len(comm.ledger)
    y = answer(comm, mine.x, mine.chosen, mine.weights, _Checked(mine.experts), case.owned)
    sent = sum(comm.ledger.bytes[start:])
    wanted = right(comm, case)
    told = _of_y(y, wanted["y"], wanted["y without weights"], case.chosen) or _of_messages(
        sent, case, comm.coordinates["ep"]
    )
    if anywhere(comm, told):  # a backward is run by all ranks or by none
        return told
    told = "" if y.requires_grad else "has the right y, but no gradient can flow back through it: use typed.all_to_all."
    if anywhere(comm, told):
        return told
    y.backward(mine.by_y)
    return _of_gradients(gradients(mine), wanted)


class _Checked:
    """A rank's experts, which look at the counts that they are given before they compute."""

    def __init__(self, experts):
        self._experts, self.up, self.down = experts, experts.up, experts.down

    def __call__(self, x, counts):
        if len(counts) != len(self.up.weight):
            raise ValueError(
                f"experts(x, counts) got {len(counts)} counts for {len(self.up.weight)} experts: give one count for "
                "each"
            )
        if sum(counts) != len(x):
            raise ValueError(
                f"experts(x, counts) got {len(x)} rows, but counts that add up to {sum(counts)}: make them equal"
            )
        return self._experts(x, counts)


def _of_y(y, wanted, unweighted, chosen: int) -> str:
    """The mistake in the output; `unweighted` is the sum of this many experts' results."""
    import torch

    if not isinstance(y, torch.Tensor):
        return f"returned {repr(y)[:40]}; return y, a row for each of its tokens."
    if y.shape != wanted.shape:
        return f"returned a tensor of shape {tuple(y.shape)}; its tokens make {tuple(wanted.shape)}."
    if gap(y.detach(), wanted) < SMALL:
        return ""
    for name, wrong in (("sum", unweighted), ("mean", unweighted / chosen)):
        if gap(y.detach(), wrong) < SMALL:
            return f"returned y as a {name} without the weights: give weights to combine."
    if sorted(map(_key, y.detach())) == sorted(map(_key, wanted)):
        return "has the right rows in another order: which token does each row belong to?"
    return (
        "returned a different y from that of one device. Rows arrive rank by rank: are they in the order of the "
        "experts when these compute, and back in the order of their arrival before they return?"
    )


def _key(row):
    return [round(number, 9) for number in row.tolist()]


def _of_messages(sent, case, here) -> str:
    """The mistake in the messages, if y is right: counts are sent, and each row once to its expert and once back."""
    there, back = (rows_moved * case.width * WEIGHT for rows_moved in rows_of(case, here))
    counts = case.experts * len(case.tokens) * COUNT
    if sent > there + back + counts:
        return (
            f"has the right y, but sent {sent:,} bytes: {there:,} there and {back:,} back are its "
            f"rows, and all counts are {counts:,}."
        )
    return ""


def _of_gradients(found, wanted) -> str:
    """The mistake in the gradients, if y is right."""

    for name, gradient in found.items():
        if gradient is None:
            return f"has the right y, but no gradient came to {name}: which step breaks the autograd graph?"
        if gap(gradient, wanted[name]) > SMALL:
            return f"has the right y, but a different gradient of {name} than one device."
    return ""
