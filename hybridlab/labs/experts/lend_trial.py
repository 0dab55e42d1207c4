"""A student's loans, run on real ranks: the lent weights, the gradients that return, the bytes sent."""

from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.trials.against import WORD, against_one_device, dense


class Lending(NamedTuple):
    """Ranks with one expert each, of some number of weights; some experts are lent to other ranks, {expert: ranks}."""

    size: int
    width: int
    lent: dict

    @property
    def ranks(self) -> Mesh:
        return Mesh(ep=self.size)

    def __str__(self):
        """
        >>> print(Lending(3, 4, {0: (1, 2)}))
        3 ranks, lent={0: (1, 2)}
        """
        return f"{self.size} ranks, lent={self.lent}"


LENDINGS = Lending(3, 4, {0: (1, 2)}), Lending(4, 3, {0: (1, 3), 2: (0,), 3: (0, 1)}), Lending(2, 2, {1: (0,)})


@against_one_device
def try_loans(run, answer, case):
    """The student's function on this rank: answer(comm, weight, lent)."""
    import torch

    here, start = run.comm.coordinates["ep"], len(run.comm.ledger)
    weights, own = dense((case.size, case.width), 0), dense((1, case.width), 1 + here)
    borrowed = [expert for expert in range(case.size) if here in case.lent.get(expert, ())]
    by_copy = lambda expert, rank: dense((1, case.width), 100 + case.size * expert + rank)
    weight = weights[here : here + 1].clone().requires_grad_()
    y = answer(run.comm, weight, case.lent)
    sent = round(sum(run.comm.ledger.bytes[start:]))
    loans = WORD * case.width * len(case.lent.get(here, ()))
    run.result(y, weights[borrowed], "lent rows", (), "a row for each lent expert, in the order of experts.")
    told = f"has the right lent weights, but sent {sent:,} bytes; the weights that it lends have {loans:,}."
    run.settle(told if sent != loans else "")
    returned = sum((by_copy(here, rank) for rank in case.lent.get(here, ())), torch.zeros_like(own))
    of_y = [by_copy(expert, here) for expert in borrowed]
    near = [(own, "the gradients of its copies have not returned.")]
    leaves = {"its expert": (weight, own + returned, near, "it is the sum of the owner's and all returned ones.")}
    run.backward(torch.cat([weight, y]), torch.cat([own, *of_y]), "lent weights", leaves)
