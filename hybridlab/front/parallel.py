"""The parallel parts of a model: copies and shards of weights, sharded layers, ring attention, the dispatch of tokens
to experts, parallel matmuls.
"""

from hybridlab.modes.data_parallel import Replicated
from hybridlab.modes.parts import dispatch, token_order
from hybridlab.modes.parts.apart import Apart
from hybridlab.modes.parts.ring_attention import Ring
from hybridlab.modes.parts.sharded import Sharded
from hybridlab.modes.parts.vocabulary_parallel import _CrossEntropy as CrossEntropy
from hybridlab.modes.products import matmul
from hybridlab.modes.products.channel_splits import SplitConv
from hybridlab.modes.products.grid_layer import GridChain, Product
from hybridlab.modes.tensor_parallel import RowParallel

__all__ = [
    "Apart",
    "CrossEntropy",
    "GridChain",
    "Product",
    "Replicated",
    "Ring",
    "RowParallel",
    "Sharded",
    "SplitConv",
    "dispatch",
    "matmul",
    "token_order",
]
