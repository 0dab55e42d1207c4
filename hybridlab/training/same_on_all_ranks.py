"""The comparison of ranks before the first step: mesh, layout, and everything that each rank creates separately."""

import torch

from hybridlab.core.where.mesh import Mesh

SAMPLE = 4096  # maximum elements of a tensor that are compared


def refuse_another_mesh(here: Mesh, mesh: Mesh):
    """Raise an error if the ranks belong to another mesh: each would then execute the wrong program."""
    several = lambda one: [(axis, length) for axis, length in one.axes.items() if length > 1]
    if several(here) != several(mesh):
        raise ValueError(f"these ranks belong to {here}, but the job is for {mesh}: open hl.ranks({mesh})")


def refuse_other_layouts(comm, layout):
    """Compare fingerprints before the first step: ranks with different layouts would add unrelated tensors.

    raises  ValueError naming a rank whose layout differs from this one's
    """
    mine = torch.frombuffer(bytearray(layout.fingerprint.encode()), dtype=torch.uint8)
    for rank, other in enumerate(comm.all_gather(mine[None])):
        if not torch.equal(other, mine):
            raise ValueError(f"rank {rank} has a different layout from rank {comm.rank}: give all ranks the same job")


def refuse_others(comm, named: dict, what: str, said: str):
    """Compare tensors that all ranks create themselves, before the first step.

    raises  ValueError naming a rank and a tensor that differs there
    """
    sums = torch.stack([_sum_of_bits(x.detach()) for x in named.values()])
    for rank, other in enumerate(comm.all_gather(sums[None])):
        for name, one, its in zip(named, sums, other):
            if one != its:
                raise ValueError(
                    f"rank {rank} {said} {name} than rank {comm.rank}: the {what} depends on the rank or on a random "
                    "number: derive it from the seed and the step"
                )


def _sum_of_bits(x):
    """A checksum that differs for nearly all other tensors; of a large tensor it uses a sample of elements."""
    some = x.reshape(-1)[:: max(1, x.numel() // SAMPLE)]
    bits = some.contiguous().view(torch.uint8).to(torch.int64)
    return (bits * (torch.arange(len(bits), device=bits.device) % 8191 + 1)).sum()
