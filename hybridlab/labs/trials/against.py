"""A student's program on real ranks compared with one device: its result, its backward, every word sent.

The verdict of a rank is a sentence that continues "Rank 0". Ranks settle each step before the next: words are checked
after the numbers are right on all ranks, and a backward is run by all ranks or by none.
"""

from functools import wraps

from hybridlab.predict.bytes.collectives import cost

SMALL, WORD = 1e-12, 8  # relative tolerance; bytes of a number: all are in double precision
SENT, RECEIVED = ("send", "isend"), ("recv", "irecv")  # messages between two ranks


class Off(Exception):
    """The mistake on this rank; if it is empty, the mistake is on another rank."""


def against_one_device(trial):
    """The trial for `OnCases`, made from `trial(run, answer, case)`; it stops at the first mistake."""

    @wraps(trial)
    def tried(comm, answer, case) -> str:
        try:
            trial(Run(comm), answer, case)
        except Off as off:
            return str(off)
        return ""

    return tried


class Run:
    """A student's program on one rank. `near` is [(a known wrong result, the reply to it)]."""

    def __init__(self, comm):
        self.comm, self.since = comm, len(comm.ledger)

    def begin(self):
        """Count the words that are sent from now on."""
        self.since = len(self.comm.ledger)

    def settle(self, told: str = ""):
        """Continue if no rank has found a mistake."""
        if anywhere(self.comm, told):
            raise Off(told)
        self.since = len(self.comm.ledger)

    def result(self, y, right, name: str, near=(), otherwise="", words: int | None = None, fewer=""):
        """Continue if y is this rank's part of `name`, the words sent are right, and y has a backward."""
        sent = words_of(self.comm.ledger, self.since)
        self.settle(_off(y, right, name, near, otherwise))
        has = "they have" if _many(name) else "it has"
        told = f"has the right {name}, but {has} no backward: use typed collectives, which autograd follows."
        told = "" if y.requires_grad else told
        if words is not None and sent != words:
            told = f"has the right {name}, but sent {sent:,} words forward; {words:,} are needed."
            told += fewer if sent < words else ""
        self.settle(told)

    def backward(self, y, gradient, name: str, leaves: dict, words: int | None = None):
        """Continue if each leaf has its gradient: {its name: (leaf, right, near, otherwise)}."""
        y.backward(gradient)
        sent, self.until = words_of(self.comm.ledger, self.since), len(self.comm.ledger)
        for its, (leaf, right, near, otherwise) in leaves.items():
            told = _of_gradient(leaf.grad, right, its, otherwise)
            if anywhere(self.comm, told):
                known = [*near, *_added(self.comm, right, its)]
                raise Off(told and f"has the right {name}, but {_near(leaf.grad, right, known, told)}")
        if words is not None and sent != words:
            raise Off(f"has the right gradients, but sent {sent:,} words in the backward instead of {words:,}.")


def _off(y, right, name, near, otherwise) -> str:
    import torch

    if not isinstance(y, torch.Tensor):
        return f"returned {repr(y)[:40]}; return this rank's part of {name}, a tensor."
    if y.shape != right.shape:
        return f"returned a tensor of shape {tuple(y.shape)}; its part of {name} has {tuple(right.shape)}."
    if y.dtype != right.dtype:
        kinds = [str(one.dtype).removeprefix("torch.") for one in (y, right)]
        return f"returned {name} in {kinds[0]}; its inputs are in {kinds[1]}: begin a sum with 0, or x.new_zeros(…)."
    return _near(y.detach(), right, near, f"returned {_other(name)} than one device: {otherwise}")


def _many(name: str) -> bool:
    """
    >>> _many("lent rows"), _many("Z")
    (True, False)
    """
    return name.endswith("s")


def _other(name: str) -> str:
    return f"other {name}" if _many(name) else f"another {name}"


def _of_gradient(found, right, its, otherwise) -> str:
    if found is None:
        return f"{its} got no gradient: use typed collectives, which autograd follows."
    return "" if gap(found, right) < SMALL else f"a different gradient of {its} from that of one device: {otherwise}"


def _added(comm, right, its: str):
    """(a gradient that was summed one time too many, the reply to it); all ranks call it together."""
    import torch

    axes = {axis: length for axis, length in comm.mesh.axes.items() if length > 1}
    for length in set(axes.values()):
        told = f"a gradient of {its} that is {length} times too large"
        yield length * right, f"{told}: along an axis of {length} ranks it is added one time too many."
    for axis in axes:
        shapes = comm.all_gather(torch.tensor([right.shape], device=comm.device), axis)
        if (shapes == shapes[0]).all():
            told = f"a gradient of {its} that is added along {axis}, where each rank has a different part."
            yield comm.all_reduce(right.clone(), axis), told


def _near(found, right, near, otherwise) -> str:
    if gap(found, right) < SMALL:
        return ""
    return next((told for other, told in near if gap(found, other) < SMALL), otherwise)


def dense(shape, seed: int):
    """A matrix of random numbers, the same on every rank."""
    import torch

    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gap(mine, right) -> float:
    """The largest difference of two tensors, over the largest entry of the right one; inf for another shape."""
    if mine is None or mine.shape != right.shape:
        return float("inf")
    return float((mine - right).abs().max() / right.abs().max()) if right.numel() else 0.0


def words_of(ledger, since: int = 0) -> int:
    """The words that this rank has sent from row `since` of its ledger on."""
    rows = list(zip(ledger.op, ledger.group, ledger.bytes))[since:]
    messages = sum(size for op, _, size in rows if op in SENT)
    return round(messages / WORD) + words_beside(ledger, since)[0]


def words_beside(ledger, since: int = 0) -> tuple[int, str]:
    """The words that this rank has sent in collectives, and the first of these; a barrier sends none."""
    rows = list(zip(ledger.op, ledger.group, ledger.bytes))[since:]
    beside = [(op, group, size) for op, group, size in rows if size and op not in (*SENT, *RECEIVED)]
    return round(sum(cost(*row).bytes for row in beside) / WORD), next((op for op, *_ in beside), "")


def anywhere(comm, told: str) -> bool:
    """Whether any rank has found something."""
    import torch

    return bool(comm.all_reduce(torch.tensor([float(bool(told))], device=comm.device)).item())
