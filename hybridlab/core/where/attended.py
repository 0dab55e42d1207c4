"""The positions that a position attends to: itself and those before it, in its own document.

Several documents may be packed into one row, so that no padding is needed. No position attends to another document, so
each document is treated separately. The keys of a position are then a span, from the beginning of its document.

Source: Llama Team 2024, arXiv:2407.21783, section 3.2 (a mask between documents). Relatives: `core.what.shape.Shape`,
whose documents these are; `modes.parts.ring_attention`, where spans say which parts of a sequence need not meet.
"""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=16)
def looks(context: int, documents: tuple[int, ...] = (), causal: bool = True) -> np.ndarray:
    """The span of positions that each position attends to, (context, 2); neither column ever decreases.

    documents  the lengths of the documents, in order; none: the row is one document
    causal     whether a position sees no later position

    >>> looks(5, documents=(2, 3)).tolist()
    [[0, 1], [0, 2], [2, 3], [2, 4], [2, 5]]
    """
    lengths = np.array(documents or (context,))
    ends = lengths.cumsum()
    last = np.arange(1, context + 1) if causal else np.repeat(ends, lengths)
    return np.stack((np.repeat(ends - lengths, lengths), last), axis=1)


def seen(looks_Q2: np.ndarray, keys_S: np.ndarray) -> np.ndarray:
    """Whether each query sees each key, (Q, S): queries are given by their spans, keys by position; numpy or torch.

    >>> seen(looks(3), np.arange(3)).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return (looks_Q2[:, :1] <= keys_S) & (keys_S < looks_Q2[:, 1:])
