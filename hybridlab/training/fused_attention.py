"""Attention on torch's meta device: it saves the same tensors as on a real device.

By default, torch decomposes attention on that device, and saves all scores. On a GPU it does so in float64 only, for
which CUDA has no fused kernel.
"""

from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.nn import functional

FUSED = {"cpu": ("float64", "float32", "bfloat16"), "cuda": ("float32", "bfloat16")}  # {kind of device: dtypes}


@contextmanager
def fused_attention():
    """A context in which attention is one operation, as on the devices of ranks; also in layers that a backward
    recomputes, where torch switches its own modes off."""
    own, functional.scaled_dot_product_attention = functional.scaled_dot_product_attention, _attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = own


def attention_on(kind: str, dtype: str) -> AbstractContextManager:
    """A context in which attention saves on the meta device the same tensors as on a device of this kind.

    kind   as torch calls it: "cpu", "cuda"
    """
    return fused_attention() if dtype in FUSED.get(kind, ()) else nullcontext()


class Fused(torch.autograd.Function):
    """Attention as one operation: it saves its inputs, its result, and one sum for each query, in float32 or wider.

    torch's own kernel on the meta device saves other sums in torch 2.10, and refuses values that are narrower than
    queries.
    """

    @staticmethod
    def forward(ctx, q, k, v, mask):
        width = v.shape[-1]
        out = torch.empty_like(q) if width == q.shape[-1] else q.new_empty((*q.shape[:-1], width))
        sums = q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
        ctx.save_for_backward(q, k, v, out, sums, mask)
        return out

    @staticmethod
    def backward(ctx, by_out):
        return *(torch.empty_like(x) for x in ctx.saved_tensors[:3]), None


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return Fused.apply(q, k, v, attn_mask)
