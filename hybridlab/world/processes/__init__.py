"""The processes: how ranks are started, what they are handed, and how they end.

In the kernel: `launch` (a pool of ranks), `gang` (its living processes), `parcel` (a function packed for them).
`zygote` is the warm parent of all ranks, `rank` the life of one, `home` and `frames` its wire to the kernel.
`placement` says which backend and device each gets, `meet` does it. Where somebody else starts the ranks, `torchrun`
takes over, and `seen` places them by what they find.
"""
