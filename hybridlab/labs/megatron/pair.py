"""Notebook 30: two matrices with a GELU between them, cut over ranks in any of four ways, and the costs.

The cut of the matrices determines the type of every tensor between them (`world.talk.typed`), and the types determine
where ranks must communicate (`predict.bytes.arrows`). The result is one list of steps: it is drawn, counted, and
executed by real ranks.
"""

from typing import NamedTuple

from hybridlab.core.what.operators import Graph, Operator
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import Cut, Layout, Param, even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.states import conjugate, spoken
from hybridlab.predict.bytes.arrows import arrows
from hybridlab.predict.bytes.collectives import cost

A, B = "blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight"  # torch keeps a matrix as its transpose
ATTENTION = {letter: f"blocks.0.attention.{word}.weight" for letter, word in zip("QKVO", ("q", "k", "v", "out"))}
WAYS = ("column → row", "row → column", "column → column", "row → row")
PAIR = (  # dims: M rows of x, I inputs, F hidden units, O outputs
    Operator("A", "MI,FI->MF", ("x", A)),
    Operator("gelu", "MF->MF", ("A",), "gelu"),
    Operator("B", "MF,OF->MO", ("gelu", B)),
)


class Step(NamedTuple):
    """One step of the pair, and the width of its input.

    what   a matmul with A or B, "gelu", or an arrow of `world.talk.typed`
    width  of the full input tensor
    """

    what: str
    width: int

    @property
    def moves(self) -> bool:
        """Whether ranks may have to communicate here."""
        return "->" in self.what


def layout_of(shape: Shape, ranks: int, way: str = WAYS[0]) -> Layout:
    """The layout of A and B. "column → row" is Megatron's: its records are those that the mode itself makes.

    >>> layout_of(Shape(), 2, "row → column")[A].shard["tp"]
    Cut(dim=1, spans=((0, 16), (16, 32)))
    """
    from hybridlab.modes.tensor_parallel import place  # here: torch is not needed to ask an exercise

    h = shape.width
    whole = {A: (4 * h, h), B: (h, 4 * h)}
    params = tuple(Param(name, lengths, pack=number) for number, (name, lengths) in enumerate(whole.items()))
    if way == WAYS[0] and ranks > 1:  # for one rank the mode cuts nothing
        return Layout(Mesh(tp=ranks), params).with_params(lambda param: place(param, shape, ranks)).validate()
    dims = {name: 0 if word == "column" else 1 for name, word in zip(whole, way.split(" → "))}
    cut = lambda param: {"shard": {"tp": Cut(dims[param.name], even(param.shape[dims[param.name]], ranks))}}
    return Layout(Mesh(tp=ranks), params).with_params(cut).validate()


def attention_layout(shape: Shape, ranks: int) -> Layout:
    """The layout of the four matrices of attention: cut by heads, as the mode itself cuts them."""
    from hybridlab.modes.tensor_parallel import place

    h, keys = shape.width, shape.key_heads * shape.head_width
    lengths = {"Q": (h, h), "K": (keys, h), "V": (keys, h), "O": (h, h)}
    params = tuple(Param(ATTENTION[letter], its, pack=i) for i, (letter, its) in enumerate(lengths.items()))
    return Layout(Mesh(tp=ranks), params).with_params(lambda param: place(param, shape, ranks)).validate()


def steps_of(layout: Layout) -> list[Step]:
    """All steps between x and Z, in order; x and Z are the same on every rank.

    A matmul with columns needs the full input, and computes some columns. A matmul with rows needs some columns, and
    computes a partial sum of the full output. GELU needs true values, not partial sums.

    >>> [step.what for step in steps_of(layout_of(Shape(), 2))]
    ['I->R', 'A', 'gelu', 'B', 'P->I']
    >>> [step.what for step in steps_of(layout_of(Shape(), 2, "row → column"))]
    ['I->V', 'A', 'P->I', 'gelu', 'I->R', 'B', 'V->I']
    """
    first, second = (one.operands[1][layout[one.takes[1]].shard["tp"].dim] for one in PAIR[::2])  # the dims cut
    strategy = {"A": (first,), "gelu": ("F" if "F" in (first, second) else "",), "B": (second,)}
    (f, i), (o, _) = layout[A].shape, layout[B].shape
    sizes = {"M": 1, "I": i, "F": f, "O": o}
    graph = Graph(PAIR, sizes, {"x": "MI", A: "FI", B: "OF"}, frozenset({"x", A, B}), frozenset({"x", "B"}))
    moves = {arrow.value: arrow.moves for arrow in arrows(graph, strategy, layout.mesh)}
    steps = []
    for operator in PAIR:
        width = sizes[operator.operands[0][1]]
        steps += [Step(move.arrow, width) for move in moves[operator.takes[0]]]
        steps.append(Step(operator.name, width))
    return [*steps, *(Step(move.arrow, o) for move in moves["B"])]


def calls(steps: list[Step], backward: bool = False) -> list[tuple[str, int]]:
    """(collective, width of the full tensor) of every step that sends, in the order of the steps."""
    arrows = [(conjugate(step.what) if backward else step.what, step.width) for step in steps if step.moves]
    return [(spoken(arrow), width) for arrow, width in arrows if spoken(arrow)]


def sent(layout: Layout) -> float:
    """The numbers that each rank sends forward and backward, in units of b·s·h, with rings.

    >>> [sent(layout_of(Shape(), 2, way)) for way in WAYS]
    [2.0, 9.0, 5.5, 5.5]
    """
    ranks, h, steps = layout.mesh["tp"], layout[A].shape[1], steps_of(layout)
    both = [*calls(steps), *calls(steps, backward=True)]
    return sum(cost(op, ranks, width / h).bytes for op, width in both)


# --- on real ranks ------------------------------------------------------------------------------------------------


def run_pair(pool, way: str, shape: Shape) -> list[dict]:
    """The results of the ranks that run the steps: the largest difference from the unsharded pair, and the words sent.

    returns {"gap": relative, over Z and all gradients; "calls": [(collective, width)] forward, then backward}
    """
    return pool.run(_pair_on_rank, layout_of(shape, pool.size, way), shape.context)


def _pair_on_rank(comm, layout, rows):
    import torch

    x, target, weights = drawn(layout, rows)
    boxes = {name: layout.box(name, comm.rank) for name in weights}
    mine = {name: weights[name].detach()[box].clone().requires_grad_() for name, box in boxes.items()}
    its_x = x.detach().clone().requires_grad_()
    z = torch.nn.functional.gelu(x @ weights[A].T) @ weights[B].T
    its_z = _through(comm, steps_of(layout), its_x, mine)
    z.backward(target)
    its_z.backward(target)
    pairs = [(z.detach(), its_z.detach()), (x.grad, its_x.grad)]
    pairs += [(weights[name].grad[box], mine[name].grad) for name, box in boxes.items()]
    sizes = [(row["op"], row["bytes"] // (8 * rows)) for row in comm.ledger.rows()]
    return {"gap": max(gap(a, b) for a, b in pairs), "calls": sizes}


def drawn(layout: Layout, rows: int):
    """(x, the gradient of Z, {name: full matrix}), the same random numbers on every rank."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    draw = lambda *lengths: torch.randn(lengths, generator=numbers, dtype=torch.float64)
    x, target = draw(rows, layout[A].shape[1]).requires_grad_(), draw(rows, layout[B].shape[0])
    return x, target, {name: draw(*layout[name].shape).requires_grad_() for name in (A, B)}


def gap(right, mine) -> float:
    """The largest difference of two tensors, over the largest entry of the right one."""
    return float((right - mine).abs().max() / right.abs().max())


def _through(comm, steps, x, weights):
    import torch

    from hybridlab.world.talk import typed

    moves = {
        "I->R": lambda x: typed.enter(comm, x, "tp"),
        "P->I": lambda x: typed.all_reduce(comm, x, "tp", to="I"),
        "I->V": lambda x: typed.split(comm, x, "tp", 1, of="I"),
        "V->R": lambda x: typed.all_gather(comm, x, "tp", 1, to="R"),
        "V->I": lambda x: typed.all_gather(comm, x, "tp", 1, to="I"),
        "P->V": lambda x: typed.reduce_scatter(comm, x, "tp", 1),
        "A": lambda x: x @ weights[A].T,
        "B": lambda x: x @ weights[B].T,
        "gelu": torch.nn.functional.gelu,
    }
    for step in steps:
        x = moves[step.what](x)
    return x
