"""Programs: small graphs of operators, to be shared out over a mesh.

Dims   B sequences, T positions, D width, F hidden units, H heads, K features of a head, S positions attended to

T and S of self-attention are one dim of the model with two names: a rule for T does not cut S. Every program ends in a
loss, the sum of its output times t; what t is does not matter here, as long as it is the same everywhere.
"""

from hybridlab.core.operators import Graph, Operator

LOSS = Operator("loss", "BTD,BTD->", ("down", "t"))


def mlp(batch: int = 4, positions: int = 4, width: int = 8, hidden: int = 8) -> Graph:
    """Two layers with a GELU between them: up with A, down with W.

    >>> mlp().dims, [operator.name for operator in mlp().operators]
    ('BTDF', ['up', 'gelu', 'down', 'loss'])
    """
    sizes = {"B": batch, "T": positions, "D": width, "F": hidden}
    given = {"x": "BTD", "A": "FD", "W": "DF", "t": "BTD"}
    return Graph((*_two_layers("x"), LOSS), sizes, given, frozenset("xAW"))


def block(
    batch: int = 4, positions: int = 4, width: int = 8, hidden: int = 8, heads: int = 4, of_head: int = 4
) -> Graph:
    """Norm, attention with weights Q, K, V, O, a residual sum, and the two layers of `mlp`.

    >>> "".join(sorted(block().given)), block().dims
    ('AKOQVWtx', 'BTDHKSF')
    """
    sizes = {"B": batch, "T": positions, "D": width, "F": hidden, "H": heads, "K": of_head, "S": positions}
    given = {"x": "BTD", "Q": "HKD", "K": "HKD", "V": "HKD", "O": "DHK", "A": "FD", "W": "DF", "t": "BTD"}
    operators = (
        Operator("norm", "BTD->BTD", ("x",), "norm", whole="D"),
        Operator("queries", "BTD,HKD->BTHK", ("norm", "Q")),
        Operator("keys", "BSD,HKD->BSHK", ("norm", "K")),
        Operator("values", "BSD,HKD->BSHK", ("norm", "V")),
        Operator("attention", "BTHK,BSHK,BSHK->BTHK", ("queries", "keys", "values"), "attention", whole="SK"),
        Operator("out", "BTHK,DHK->BTD", ("attention", "O")),
        Operator("sum", "BTD,BTD->BTD", ("out", "x"), "add"),
        *_two_layers("sum"),
        LOSS,
    )
    return Graph(operators, sizes, given, frozenset("xQKVOAW"))


def _two_layers(of):
    return (
        Operator("up", "BTD,FD->BTF", (of, "A")),
        Operator("gelu", "BTF->BTF", ("up",), "gelu"),
        Operator("down", "BTF,DF->BTD", ("gelu", "W")),
    )
