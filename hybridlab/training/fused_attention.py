"""Attention on torch's meta device: it saves the same tensors as on a real device.

By default, torch decomposes attention on that device, and saves all scores. On a GPU it does so in float64 only, for
which CUDA has no fused kernel.
"""

from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.nn import functional

FUSED = {"cpu": ("float64", "float32", "bfloat16"), "cuda": ("float32", "bfloat16")}  # by kind of device, the dtypes
fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


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


class NarrowValues(torch.autograd.Function):
    """The same if values are narrower than queries: kernels of GPUs do that in one operation too."""

    @staticmethod
    def forward(ctx, q, k, v):
        out, sums = q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(q.shape[:-1])
        ctx.save_for_backward(q, k, v, out, sums)
        return out

    @staticmethod
    def backward(ctx, by_out):
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors[:3])


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if v.shape[-1] != q.shape[-1]:
        return NarrowValues.apply(q, k, v)
    return fused(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
