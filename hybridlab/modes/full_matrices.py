"""Full matrices, for an optimizer that updates matrices and not single elements.

SGD and AdamW update each element from its own gradient, so any shard will do. Muon orthogonalizes the full matrix of a
momentum: each element of the update depends on all elements. So

  zero=0       every replica computes every update
  zero=1, 2, 3 a matrix has one owner. Matrices are dealt among the sharers, the largest first, and a pack's pieces end
               between matrices (`Param.whole`); all other weights are in flat packs as usual
  tp, x        each rank has a part of the momentum. `gather`: the parts are gathered, each rank computes the update of
               the full matrix and keeps its part. `gram`: each rank computes its part from Gram matrices, which are
               all-reduced; only for a matrix that is cut once. `blockwise`: each part is updated as if it were a matrix
  ep           every expert has its own matrices: nothing to do

`blockwise` needs no messages, but it is another optimizer, whose result depends on the cuts. Its reference is one
device that updates the same blocks, and a checkpoint resumes only under the same cuts.

Bytes: dealing costs what ZeRO costs, plus the padding to the longest piece. A gather of Ψ elements over t ranks sends
Ψ(t-1)/t; a Gram matrix of side n, five times, 10 n²(t-1)/t, and the norm.

Source: Jordan et al. 2024 (Muon); Liu et al. 2025, arXiv:2502.16982 (ZeRO 1, learning rate); the names in Megatron-Core
are "duplicated", "distributed" and "blockwise". Relatives: `modes.parts.newton_schulz`, `training.muon`, `modes.zero`,
notebook 22.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from hybridlab.core.where.layout import Cut, Layout, Param
from hybridlab.core.where.matrices import is_hidden_matrix
from hybridlab.modes.mode import Mode, Option
from hybridlab.modes.parts.newton_schulz import STEPS, newton_schulz
from hybridlab.predict.bytes.transfer import Transfer, transfer

BLOCKWISE = "blockwise"
WAYS = ("gather", "gram", BLOCKWISE)
LENGTH = 0.2  # root mean square of an update, in units of the learning rate


class FullMatrices(Mode):
    """The runtime part of this mode: the parameters that are not divided among owners, and the messages of their
    updates."""

    name, purpose = "full matrices", "matrices"
    options = {
        "muon": Option(
            "gather",
            "with optimizer muon, for a matrix that is sharded inside a stage: 'gather' collects it, 'gram' "
            "all-reduces its Gram matrices, and 'blockwise' updates each shard separately, as a different optimizer",
            str,
            WAYS,
        )
    }

    def takes_part(self, mesh, chosen):
        return chosen.get("optimizer") == "muon"

    def title(self, job):
        titles = "gathers of momentum", "all-reduces of Gram matrices", "messages of blocks"
        return titles[WAYS.index(job["muon"])]

    def said(self, job):
        return "muon" + ("", " by Gram matrices", " in blocks")[WAYS.index(job["muon"])]

    def refuse(self, job):
        if not any(_updates(param, job) for param in job.records):
            raise ValueError(
                "optimizer='muon' finds no hidden matrix in this model: name the dimensions of its weights, such as "
                "dims={'0.weight': 'F D'}, or choose adamw"
            )
        if job["offload"] and job.mesh.inside:
            raise ValueError(
                "offload=True keeps the momentum in host memory, but ranks inside a stage gather it on their devices: "
                "leave out offload, or choose adamw"
            )

    def placed(self, layout, job):
        return layout.with_params(lambda param: {"whole": True} if _updates(param, job) else {})

    def fit(self, module, comm, job):
        comm.open(*sorted({group for param in job.layout.params if param.whole for group in _groups(param, job.mesh)}))

    def transfers(self, job) -> Iterator[Transfer]:
        for param in job.layout.params if job["muon"] != BLOCKWISE else ():
            if param.whole and _cuts(param):
                for rank in range(job.mesh.size):
                    if job.layout.box(param.name, rank) is not None and job.layout.owns(param.name, rank):
                        yield from self._of_rank(job, param, rank)

    def _of_rank(self, job, param, rank) -> Iterator[Transfer]:
        """The transfers of one matrix whose first rank is this one."""
        lengths = [span.stop - span.start for span in job.layout.box(param.name, rank)]
        for axes, cut in _cuts(param).items():
            group = job.mesh.group(rank, tuple(axes.split("+")))
            if by_gram(param, job["muon"]):
                side = lengths[_other(param, cut)]
                numbers, op = math.prod(lengths[:-2]) * (1 + STEPS * side**2), "all_reduce"
            else:
                longest = max(high - low for low, high in cut.spans)
                lengths[cut.dim] = longest
                numbers, op = len(group) * math.prod(lengths), "all_gather"
                lengths[cut.dim] = param.shape[cut.dim]
            if group[0] == rank:
                yield transfer(job.mesh, "matrices", op, group, numbers * job.widths.master)


def of_muon(job) -> list[str]:
    """The names of the parameters that Muon updates, in model order."""
    return [param.name for param in job.records if _updates(param, job)] if job.optimizer == "muon" else []


def _updates(param: Param, job) -> bool:
    return param.name not in job.frozen and is_hidden_matrix(param, job.model.scores)


def update_of(job, name: str, comm=None) -> Callable:
    """Muon's update of a matrix: the function from its momentum to the orthogonal matrix, times a factor.

    The factor makes the root mean square of the update 0.2, as in a usual update of AdamW.

    comm  the communicator of a rank that has a part of the matrix, flat or in its shape; None: it has the full one

    All ranks with parts of one matrix must call it at the same time. A rank that does not own the matrix between steps
    has an empty part.
    """
    factor = LENGTH * math.sqrt(max(job.whole.get_parameter(name).shape[-2:]))
    if comm is None:
        turn = partial(in_blocks, param=job.layout[name]) if job["muon"] == BLOCKWISE else newton_schulz
        return lambda momentum: factor * turn(momentum)
    layout, comm = job.layout, comm.for_purpose(MODE.purpose)
    if not layout.owns(name, comm.rank):
        return lambda empty: empty
    shape = [span.stop - span.start for span in layout.box(name, comm.rank)]
    turned = by_gram_matrices if by_gram(layout[name], job["muon"]) else gathered
    if job["muon"] == BLOCKWISE:
        turned = lambda part, *about: newton_schulz(part)
    return lambda part: factor * turned(part.view(shape), layout[name], layout, comm).reshape(part.shape)


def blocks_of(job) -> str:
    """The cuts whose blocks are updated as if they were matrices, such as "tp=2"; "" if full matrices are."""
    if job.optimizer != "muon" or job["muon"] != BLOCKWISE:
        return ""
    axes = {axis for param in job.layout.params if param.whole for joined in _cuts(param) for axis in joined.split("+")}
    return ", ".join(f"{axis}={job.mesh[axis]}" for axis in job.mesh.axes if axis in axes)


def in_blocks(momentum, param: Param):
    """The orthogonal matrices of all blocks of a matrix: the result of all ranks together, if each updates its part."""
    made, spans = momentum.clone(), {cut.dim: sorted(set(cut.spans)) for cut in _cuts(param).values()}
    parts = ([slice(*span) for span in spans.get(dim, [(None,)])] for dim in range(momentum.dim()))
    for box in product(*parts):
        made[box] = newton_schulz(momentum[box])
    return made


def gathered(part, param: Param, layout: Layout, comm):
    """This rank's part of the orthogonal matrix: all ranks gather the matrix, and compute the same."""
    for axes, cut in _cuts(param).items():
        part = _joined(part, axes, cut, comm)
    box = layout.box(param.name, comm.rank)
    kept = {cut.dim for cut in _cuts(param).values()}
    return newton_schulz(part)[tuple(span if dim in kept else slice(None) for dim, span in enumerate(box))]


def _joined(part, axes, cut: Cut, comm):
    """A tensor that is gathered along the dim of a cut. Ranks with equal spans hold copies."""
    group = comm.mesh.group(comm.rank, tuple(axes.split("+")))
    spans = [cut.spans[comm.mesh.place(rank, axes)] for rank in group]
    sizes = [high - low for low, high in spans]
    parts = comm.all_gather(part, group, cut.dim, sizes).split(sizes, cut.dim)
    whole = part.new_empty([max(map(max, spans)) if dim == cut.dim else n for dim, n in enumerate(part.shape)])
    for (low, _), its, size in zip(spans, parts, sizes):
        whole.narrow(cut.dim, low, size).copy_(its)
    return whole


def by_gram_matrices(part, param: Param, layout: Layout, comm):
    """This rank's part of the orthogonal matrix, from Gram matrices that are summed over all parts."""
    ((axes, cut),) = _cuts(param).items()
    group = comm.mesh.group(comm.rank, tuple(axes.split("+")))
    columns = cut.dim == len(param.shape) - 1
    return newton_schulz(part, lambda partial: comm.all_reduce(partial.contiguous(), group), wide=columns)


def by_gram(param: Param, way: str) -> bool:
    """Whether a matrix is updated from Gram matrices: it is cut once, and no two ranks hold the same part."""
    cuts = list(_cuts(param).values())
    return way == "gram" and len(cuts) == 1 and len(set(cuts[0].spans)) == len(cuts[0].spans)


def _cuts(param: Param) -> dict[str, Cut]:
    """The cuts of a matrix itself, not of the dim of experts before it: each expert has a full matrix."""
    return {axes: cut for axes, cut in param.shard.items() if cut.dim >= len(param.shape) - 2}


def _other(param: Param, cut: Cut) -> int:
    """The dim of a matrix that a cut does not shard."""
    return 2 * len(param.shape) - 3 - cut.dim


def _groups(param: Param, mesh) -> set[tuple[int, ...]]:
    """The groups of ranks that hold parts of one matrix, for each cut."""
    return {mesh.group(rank, tuple(axes.split("+"))) for axes in _cuts(param) for rank in range(mesh.size)}


MODE = FullMatrices()
