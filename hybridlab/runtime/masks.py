"""Attention masks on the device, each created once.

A mask is made on the host. To copy it from there keeps the device's stream, and so it would in every layer of every
forward.

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
    """Which keys of another chunk each query of one chunk sees, (Q, S); None where all see all."""
    seen_QS = chunks.seen(mine, other)
    return None if seen_QS is None else torch.from_numpy(seen_QS).to(device)


@made_once
def of_all(chunks: Chunks, rank: int, device: torch.device) -> torch.Tensor:
    """Which keys of the whole sequence, rank after rank, each query of this rank sees, (Q, S)."""
    looks_Q2 = chunks.looks[chunks.positions(rank)]
    return torch.from_numpy(seen(looks_Q2, np.array(chunks.order))).to(device)


@made_once
def of_row(length: int, documents: tuple[int, ...], causal: bool, device: torch.device) -> torch.Tensor:
    """Which keys of a row of documents each query sees, (T, T)."""
    return torch.from_numpy(seen(looks(length, documents, causal), np.arange(length))).to(device)


@made_once
def begins(documents: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """For each position of a row, where its document begins, (T,)."""
    return torch.from_numpy(looks(sum(documents), documents)[:, 0].copy()).to(device)
