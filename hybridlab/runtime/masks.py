"""Attention masks on the device, each created once.

A mask is made on the host. Copying it blocks the device's stream, and without this cache, that would happen in every
layer of every forward.

Shape suffixes   Q, S positions of queries and of keys; T both
"""

import functools

import numpy as np
import torch

from hybridlab.core.where.attended import looks, seen
from hybridlab.core.where.chunks import Chunks

made_once = functools.lru_cache(maxsize=64)


@made_once
def between(chunks: Chunks, mine: int, other: int, device: torch.device) -> torch.Tensor | None:
    """The mask of the keys of another chunk that each query of one chunk sees, (Q, S); None if it sees all keys."""
    seen_QS = chunks.seen(mine, other)
    return None if seen_QS is None else torch.from_numpy(seen_QS).to(device)


@made_once
def of_all(chunks: Chunks, rank: int, device: torch.device) -> torch.Tensor:
    """The mask of the keys of the full sequence, rank after rank, that each query of this rank sees, (Q, S)."""
    looks_Q2 = chunks.looks[chunks.positions(rank)]
    return torch.from_numpy(seen(looks_Q2, np.array(chunks.order))).to(device)


@made_once
def of_row(length: int, documents: tuple[int, ...], causal: bool, device: torch.device) -> torch.Tensor:
    """The mask of the keys of a row of documents that each query sees, (T, T)."""
    return torch.from_numpy(seen(looks(length, documents, causal), np.arange(length))).to(device)


@made_once
def begins(documents: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """For each position of a row, the first position of its document, (T,)."""
    return torch.from_numpy(looks(sum(documents), documents)[:, 0].copy()).to(device)
