"""The processes of ranks: their start, their input, and their end.

In the kernel: `launch` (a pool of ranks), `gang` (its living processes), `parcel` (a function packed for them).
`zygote` is the warm parent of all ranks and `handle` the kernel's hold on it; `rank` is the life of one, `home` and
`frames` its wire to the kernel; `strays` are what it leaves behind, `gone` tells the zygote that its kernel has ended;
`namespaces` is what Linux lets a user have alone.
Where somebody else starts the ranks, `torchrun` takes over.
"""
