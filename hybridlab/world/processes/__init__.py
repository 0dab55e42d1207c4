"""The processes of ranks: their start, their input, and their end.

In the kernel: `launch` (a pool of ranks), `gang` (its running processes), `parcel` (a function packed for them).
`zygote` is the warm parent of all ranks, and `handle` is the kernel's connection to it. `rank` is the life of one rank,
and `home` and `frames` are its connection to the kernel. `strays` finds processes that a rank leaves running, `gone`
notices that the kernel has ended, and `namespaces` uses Linux namespaces.

If another program starts the ranks, `torchrun` takes over.
"""
