"""Which parameters are hidden matrices: the optimizers that need full matrices update only these.

The names of a parameter's dims determine it, see `core.where.rules`. An embedding and a head have the vocabulary V or
the positions T among their dims, a router has a dim without a name, and norms, biases and convolutions have fewer or
more than two dims.

Relatives: `modes.full_matrices`, notebook 22.
"""

from hybridlab.core.where.layout import Param

NO_FEATURES = {"V", "T", "E"}


def is_hidden_matrix(param: Param, scores: str = "") -> bool:
    """Whether a parameter is a matrix from features to features; or one for each expert, "E F D".

    scores  the letter of the dim that the loss normalizes over: a head has it

    A dim without a name counts as features if the other dim has a name, unless that is D, the width: a router is ". D".

    >>> [is_hidden_matrix(Param("w", (8,) * len(dims.split()), dims=dims)) for dims in ("NH D", "E F D", "F .")]
    [True, True, True]
    >>> [is_hidden_matrix(Param("w", (8,) * len(dims.split()), dims=dims)) for dims in ("V D", ". D", "D", "F C . .")]
    [False, False, False, False]
    """
    *before, rows, columns = ["", "", *(letters[0] for letters in param.dims.split())]
    both = {rows, columns}
    features = both.isdisjoint({*NO_FEATURES, scores, ""}) and both not in ({"."}, {".", "D"})
    return features and before in (["", ""], ["", "", "E"])
