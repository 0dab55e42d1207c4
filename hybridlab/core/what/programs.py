"""Programs: small graphs of operators, to be sharded over a mesh.

Dims   B sequences, T positions, D width, F hidden units, H heads, K features of a head, S positions attended to; B
       pictures, C channels, O filters, G filters of the next layer, Y rows, X columns, P and Q those of a smaller
       picture, y and x rows and columns of a kernel, N classes

In self-attention T and S are two names of one dim of the model: a rule for T does not cut S. Every program ends in a
loss, the sum of its output times t. Any t will do, as long as it is the same everywhere.
"""

from hybridlab.core.what.operators import Graph, Operator
from hybridlab.core.where.spans import Look, Sight
from hybridlab.doors import COUNT, doors

LOSS = Operator("loss", "BTD,BTD->", ("down", "t"))


def mlp(batch: int = 4, positions: int = 4, width: int = 8, hidden: int = 8) -> Graph:
    """Two linear layers, up with A and down with W, with a GELU between them.

    batch      samples
    positions  of each sample
    width      of the stream
    hidden     hidden width of the MLP

    >>> mlp().dims, [operator.name for operator in mlp().operators]
    ('BTDF', ['up', 'gelu', 'down', 'loss'])
    """
    sizes = {"B": batch, "T": positions, "D": width, "F": hidden}
    given = {"x": "BTD", "A": "FD", "W": "DF", "t": "BTD"}
    return Graph((*_two_layers("x"), LOSS), sizes, given, frozenset("xAW"))


def classifier(
    batch: int = 4, patches: int = 4, pixels: int = 8, features: int = 8, hidden: int = 8, classes: int = 4
) -> Graph:
    """An image classifier: a convolution computes features of every patch of an image, then two fully connected layers.

    batch     images
    patches   of each image
    pixels    of each patch
    features  of each patch
    hidden    width of the first fully connected layer
    classes   to choose from

    Here P are patches, C the pixels of a patch, E its features, G classes. The weight K is small and is used for every
    patch; A is large and is used once for an image. So data parallelism suits the first part, and sharded weights the
    second (Krizhevsky 2014, *One weird trick for parallelizing convolutional neural networks*, arXiv:1404.5997).

    >>> classifier().dims, [operator.name for operator in classifier().operators]
    ('BPCEFG', ['features', 'bent', 'hidden', 'gelu', 'classes', 'loss'])
    """
    sizes = {"B": batch, "P": patches, "C": pixels, "E": features, "F": hidden, "G": classes}
    given = {"x": "BPC", "K": "EC", "A": "FPE", "W": "GF", "t": "BG"}
    operators = (
        Operator("features", "BPC,EC->BPE", ("x", "K")),
        Operator("bent", "BPE->BPE", ("features",), "gelu"),
        Operator("hidden", "BPE,FPE->BF", ("bent", "A")),
        Operator("gelu", "BF->BF", ("hidden",), "gelu"),
        Operator("classes", "BF,GF->BG", ("gelu", "W")),
        Operator("loss", "BG,BG->", ("classes", "t")),
    )
    return Graph(operators, sizes, given, frozenset("KAW"))


def block(
    batch: int = 4, positions: int = 4, width: int = 8, hidden: int = 8, heads: int = 4, of_head: int = 4
) -> Graph:
    """Norm, attention with weights Q, K, V, O, a residual sum, and the two layers of `mlp`.

    batch      samples
    positions  of each sample
    width      of the stream
    hidden     hidden width of the MLP
    heads      of the attention
    of_head    width of one head

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


def transformer(
    batch: int = 4, positions: int = 4, width: int = 8, hidden: int = 8, heads: int = 4, of_head: int = 2
) -> Graph:
    """A full block of a GPT: each half begins with a norm, with scales M and N, and its output is added to its input.

    batch      samples
    positions  of each sample
    width      of the stream
    hidden     hidden width of the MLP
    heads      of the attention
    of_head    width of one head

    >>> [operator.name for operator in transformer().operators if operator.does in ("norm", "add")]
    ['norm', 'sum', 'second norm', 'end']
    """
    small = block(batch, positions, width, hidden, heads, of_head)
    operators = (
        Operator("norm", "BTD,D->BTD", ("x", "M"), "norm", whole="D"),
        *small.operators[1:7],
        Operator("second norm", "BTD,D->BTD", ("sum", "N"), "norm", whole="D"),
        *_two_layers("second norm"),
        Operator("end", "BTD,BTD->BTD", ("down", "sum"), "add"),
        LOSS._replace(takes=("end", "t")),
    )
    return Graph(operators, small.sizes, small.given | {"M": "D", "N": "D"}, small.learns | {"M", "N"})


def net(
    batch: int = 4,
    channels: int = 4,
    filters: int = 4,
    rows: int = 8,
    columns: int = 8,
    kernel: int = 3,
    classes: int = 4,
) -> Graph:
    """A small convolutional net: two convolutions with weights A and E, a ReLU after each, pooling between them, and a
    head.

    batch          images
    channels       of an image
    filters        of each convolution
    rows, columns  of an image
    kernel         rows and columns of the kernel
    classes        to choose from

    >>> [operator.name for operator in net().operators]
    ['first', 'relu', 'half', 'second', 'relu again', 'head', 'loss']
    """
    same = Sight(kernel, before=(kernel - 1) // 2, after=kernel // 2)
    along = lambda sight, *dims: tuple(Look(of, made, sight) for of, made in dims)
    operators = (
        Operator("first", "BCYX,OCyx->BOYX", ("x", "A"), "convolution", "yx", along(same, "YY", "XX")),
        Operator("relu", "BOYX->BOYX", ("first",), "relu"),
        Operator("half", "BOYX->BOPQ", ("relu",), "largest", looks=along(Sight(2, stride=2), "YP", "XQ")),
        Operator("second", "BOPQ,GOyx->BGPQ", ("half", "E"), "convolution", "yx", along(same, "PP", "QQ")),
        Operator("relu again", "BGPQ->BGPQ", ("second",), "relu"),
        Operator("head", "BGPQ,NGPQ->BN", ("relu again", "W")),
        Operator("loss", "BN,BN->", ("head", "t")),
    )
    sizes = {"B": batch, "C": channels, "O": filters, "G": filters, "Y": rows, "X": columns, "N": classes}
    sizes |= {"P": rows // 2, "Q": columns // 2, "y": kernel, "x": kernel}
    given = {"x": "BCYX", "A": "OCyx", "E": "GOyx", "W": "NGPQ", "t": "BN"}
    return Graph(operators, sizes, given, frozenset("xAEW"))


def _two_layers(of):
    return (
        Operator("up", "BTD,FD->BTF", (of, "A")),
        Operator("gelu", "BTF->BTF", ("up",), "gelu"),
        Operator("down", "BTF,DF->BTD", ("gelu", "W")),
    )


_MODEL = dict(heads=COUNT, of_head=COUNT, width=COUNT, hidden=COUNT, features=COUNT, classes=COUNT)
_DATA = dict(batch=COUNT, positions=COUNT, patches=COUNT, pixels=COUNT, rows=COUNT, columns=COUNT)
_CONVOLUTION = dict(channels=COUNT, filters=COUNT, kernel=COUNT)
mlp, classifier, block, transformer, net = doors(
    mlp, classifier, block, transformer, net, **_MODEL, **_DATA, **_CONVOLUTION
)
