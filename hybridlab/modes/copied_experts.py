"""Copies of popular experts: other ranks compute some of their tokens, so that loads are even and no token is dropped.

All ranks wait for the one with the most tokens. If an expert has more tokens than a rank should have, no placement is
good; so copies share its tokens. Here an expert keeps one owner, as the layout says, and a copy is a *loan* for one
microbatch: its weights come from the owner, its gradient returns there (`parts.lent_experts`). So this mode changes no
record, and works with every mode that allows an all-to-all of tokens.

  expert_copies={0: (1, 2), 5: 3}    ranks 1 and 2 have a copy of expert 0, rank 3 one of expert 5
  --expert-copies 0@1,0@2,5@3        the same

Ranks are counted along ep, or along all axes over which experts are distributed (`fold`), in the order of the mesh. The
copies are the same in all layers and steps; a good choice follows from the loads (`predict.bytes.copied_experts.lent`).

  one layer and microbatch, average of a rank, for L loans on p ranks    numbers, w weights in an expert
  forward                                                                L·w/p: weights to the copies
  backward                                                               L·w/p: gradients to the owners

Tokens cost the same as without copies, but each rank gathers counts of E + L slots.

Source: DeepSeek-AI 2025, EPLB, github.com/deepseek-ai/EPLB, where copies stay for many steps; loans for one step, He et
al. 2022, FasterMoE, PPoPP. Relatives: `expert_parallel`; `predict.bytes.copied_experts`, bounds; notebook 32.
"""

import math
from collections.abc import Iterator, Sequence

from hybridlab.core.what.seams import Dispatches
from hybridlab.modes import expert_parallel
from hybridlab.modes.mode import Mode, Option
from hybridlab.modes.parts.lent_experts import lend, number_of, slots_of


def read(copies: dict[int, int | tuple[int, ...]] | str) -> dict[int, tuple[int, ...]]:
    """Copies of experts in one form, {expert: ranks}, from a value that the user gives.

    raises  a ValueError that says which values are valid

    >>> read({5: 3, 0: (1, 2)}), read("0@1,0@2,5@3")
    ({0: (1, 2), 5: (3,)}, {0: (1, 2), 5: (3,)})
    """
    try:
        if isinstance(copies, str):
            pairs = [tuple(map(int, one.split("@", 1))) for one in copies.split(",")]
        else:
            several = lambda ranks: ranks if isinstance(ranks, Sequence) else (ranks,)
            pairs = [(int(expert), int(rank)) for expert, ranks in copies.items() for rank in several(ranks)]
        experts = sorted({expert for expert, _ in pairs})
        return {expert: tuple(sorted(rank for one, rank in pairs if one == expert)) for expert in experts}
    except (ValueError, TypeError):
        raise ValueError(
            f"{copies!r} does not list copies of experts: give {{expert: ranks}}, or as text EXPERT@RANK, such as "
            "0@1,0@2"
        ) from None


class CopiedExperts(Mode):
    """The runtime part of this mode."""

    name, purpose = "copies of experts", "loans"
    options = {
        "expert_copies": Option(
            None,
            "with ep or fold: ranks that also compute an expert, {expert: ranks}; on the command line 0@1,0@2",
            read,
            beside="ep or fold",
        ),
    }

    def takes_part(self, mesh, chosen):
        return bool(chosen["expert_copies"])

    def met(self, job):
        return expert_parallel.MODE.met(job)

    def title(self, job):
        return f"loans of experts, along {'+'.join(self.met(job))}"

    def said(self, job):
        number = number_of(job)
        return f"{number} {'copies' if number > 1 else 'copy'} of experts"

    def refuse(self, job):
        if job.schedule.exchanges:
            raise ValueError(
                f"{job.schedule.name} sends tokens between stages, to the owners of experts: leave out expert_copies, "
                "or choose a schedule of whole blocks"
            )
        if job["dispatch"] != "all_to_all":
            raise ValueError(
                f"dispatch={job['dispatch']!r} takes all tokens to all ranks, but copies share tokens: leave "
                "expert_copies out, or choose all_to_all"
            )
        if job.division.slots:
            raise ValueError(
                "a capacity drops the tokens that copies would compute: leave out capacity or expert_copies"
            )
        slots = slots_of(job)
        for expert, ranks in job["expert_copies"].items():
            if not 0 <= expert < len(slots.owner):
                raise ValueError(f"there is no expert {expert}: give copies of experts 0 to {len(slots.owner) - 1}")
            for rank in ranks:
                if not 0 <= rank < len(slots.owned):
                    raise ValueError(
                        f"rank {rank} cannot have a copy of expert {expert}: choose ranks 0 to {len(slots.owned) - 1}"
                    )
                if rank == slots.owner[expert] or ranks.count(rank) > 1:
                    raise ValueError(
                        f"rank {rank} already has expert {expert}: name each rank only once, and not the "
                        "owner of the expert"
                    )

    def fit(self, module, comm, job):
        comm.open(*job.mesh.groups(self.met(job)))
        group = job.mesh.group(comm.rank, self.met(job))
        loans = slots_of(job).loans(group.index(comm.rank))
        for layer in module.modules():
            if isinstance(layer, Dispatches):
                lend(layer.experts, loans, comm, group)

    # its messages

    def sends(self, job, layer, when, here) -> Iterator[tuple[str, float]]:
        """The bytes that a rank sends on average: owners send in a forward, and borrowers in a backward."""
        weights = [weight for one in _lending(job, layer) for weight in one.experts.parameters()]
        if when == "again" or not weights or (when == "backward" and not any(one.requires_grad for one in weights)):
            return
        dims = {id(weight): param.dims.split() for weight, param in zip(job.whole.parameters(), job.records)}
        one = sum(math.prod(here[letter] for letter in dims[id(weight)] if letter != "E") for weight in weights)
        ways = job.mesh.length(job.rules()["E"])
        yield "all_to_all", number_of(job) * one / ways * job.widths.value


def _lending(job, layer: int) -> list:
    return [module for module in job.layers[layer].modules() if isinstance(module, Dispatches)]


MODE = CopiedExperts()
