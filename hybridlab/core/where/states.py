"""Define the states of a tensor along each axis of a mesh, and the moves from one state to another.

Along one axis a tensor is varying, V (each rank has its part of one dim), invariant, I (the same everywhere, and used
in the same way everywhere), replicated, R (the same, for work that differs from rank to rank), or partial, P (partial
sums). `hybridlab.world.talk.typed` says what that means for gradients, and executes the conversions.

A *state* says this for every axis, in the order of the mesh: ("V:B", "I") is cut along its dim B by the first axis, and
the same along the second. The state of a tensor follows from one fact: which dim of an operator an axis cuts.

Source: the types are those of meta-pytorch/spmd_types; that they follow from named dims, Shazeer et al. 2018,
arXiv:1811.02084, section 3. Relatives: `core.what.operators`; `predict.bytes.arrows`, the cheapest path between two
states.
"""

from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import Rules

State = tuple[str, ...]

CONJUGATE = {
    "R": "P",
    "P": "R",
    "I": "I",
    "V": "V",
    "W": "S",
    "S": "W",
}  # the type of a tensor → the type of its gradient; W and S: windows, and partial sums for them

SPOKEN = {  # the collective that performs a conversion; all others send nothing
    "P->I": "all_reduce",
    "P->R": "all_reduce",
    "V->I": "all_gather",
    "V->R": "all_gather",
    "P->V": "reduce_scatter",
    "V->V": "all_to_all",
}


def conjugate(arrow: str) -> str:
    """The conversion in the backward of `arrow`: from the state of the output's gradient to that of the input's.

    >>> conjugate("I->R"), conjugate("V->R"), conjugate("R->V")
    ('P->I', 'P->V', 'V->P')
    """
    before, after = arrow.split("->")
    return f"{CONJUGATE[after]}->{CONJUGATE[before]}"


def spoken(arrow: str) -> str:
    """The collective that performs a conversion, or "" if nothing is sent.

    >>> [spoken(arrow) for arrow in ("I->R", "P->I", "V->R", "P->V", "I->V")]
    ['', 'all_reduce', 'all_gather', 'reduce_scatter', '']
    """
    return SPOKEN.get(arrow, "")


def cut(dim: str) -> str:
    """A tensor that an axis cuts along a dim.

    >>> cut("F"), dim_of(cut("F")), dim_of("I")
    ('V:F', 'F', '')
    """
    return f"V:{dim}"


def dim_of(one: str) -> str:
    """The dim that is cut, or "" where none is."""
    return one[2:]


def used(dims: str, choice: tuple[str, ...]) -> State:
    """The state in which an operator needs a tensor with these dims; `choice` has the dim that each axis cuts, or "".

    >>> used("BTD", ("B", "F")), used("FD", ("B", "F")), used("FD", ("B", ""))
    (('V:B', 'R'), ('R', 'V:F'), ('R', 'I'))
    """
    return tuple("I" if not dim else cut(dim) if dim in dims else "R" for dim in choice)


def made(dims: str, choice: tuple[str, ...]) -> State:
    """The state of an operator's result: if a cut dim is not in the result, each rank has a partial sum.

    >>> made("BTF", ("B", "D"))
    ('V:B', 'P')
    """
    return tuple("P" if one == "R" else one for one in used(dims, choice))


def at_rest(state: State) -> State:
    """The state of a tensor between its uses: cut as its users, or its maker, cut it; else the same everywhere.

    >>> at_rest(("V:F", "R")), at_rest(("P", "I"))
    (('V:F', 'I'), ('I', 'I'))
    """
    return tuple(one if dim_of(one) else "I" for one in state)


def cutters(state: State, mesh: Mesh) -> Rules:
    """The axes that cut each dim of a tensor in this state, as rules.

    >>> cutters(("V:B", "I", "V:B"), Mesh(x=2, y=2, z=2))
    {'B': 'x+z'}
    """
    found: Rules = {}
    for axis, one in zip(mesh.axes, state):
        if dim := dim_of(one):
            found[dim] = f"{found[dim]}+{axis}" if dim in found else axis
    return found


def renamed(state: State, dims: str, called: str) -> State:
    """The same state with other names for the dims, position by position.

    >>> renamed(("V:T", "I"), "BTD", "BSD")
    ('V:S', 'I')
    """
    names = dict(zip(dims, called))
    return tuple(cut(names[dim_of(one)]) if dim_of(one) else one for one in state)
