"""1F1B in plain PyTorch, one stage per process: torchrun --nproc-per-node=4 one_f_one_b.py [microbatches]"""

import os
import sys
from collections import deque

import torch
import torch.distributed as dist
from torch import nn

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
rank, size, m = dist.get_rank(), dist.get_world_size(), int((sys.argv[1:] or [8])[0])
device, shape = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else "cpu", (4, 16)
first, last, before, after = rank == 0, rank == size - 1, rank - 1, rank + 1


def talk(peer, send=None, receive=False):
    """Send to a neighbour, receive from it, or both in one call: two that both send first would wait for each other."""
    if not 0 <= peer < size:
        return None
    room = torch.empty(shape, device=device)
    calls = [dist.P2POp(dist.isend, send, peer)] if send is not None else []
    calls += [dist.P2POp(dist.irecv, room, peer)] * receive
    for message in dist.batch_isend_irecv(calls):
        message.wait()
    return room


def forward(k, x):
    x = data[k][0] if first else x.requires_grad_()
    y = stage(x)
    kept.append((x, ((y - data[k][1]) ** 2).mean() / m if last else y))
    return y.detach()


def backward(gradient):
    x, y = kept.popleft()
    y.backward(gradient)  # None on the last rank: there y is the loss
    losses.append(y.detach())
    return x.grad


torch.manual_seed(rank)  # each process makes its own stage
stage = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh()).to(device)
optimizer, kept, warm_up = torch.optim.SGD(stage.parameters(), lr=0.1), deque(), min(size - 1 - rank, m)
chance = torch.Generator().manual_seed(0)  # and all make the same microbatches
data = [tuple(torch.rand(2, *shape, generator=chance).to(device)) for _ in range(m)]
for step in range(3):
    losses = []
    for k in range(warm_up):
        talk(after, send=forward(k, talk(before, receive=True)))
    x = talk(before, receive=True) if warm_up < m else None
    for k in range(warm_up, m):
        gradient = talk(after, send=forward(k, x), receive=True)
        x = talk(before, send=backward(gradient), receive=k < m - 1)
    for _ in range(warm_up):
        talk(before, send=backward(talk(after, receive=True)))
    optimizer.step()
    optimizer.zero_grad()
    if last:
        print(f"step {step}: loss {sum(losses).item():.6f}", flush=True)
dist.destroy_process_group()
