"""Real processes and the messages between them: the floor that turns `hl.ranks(4)` into four running ranks.

Read in this order: `launch` (the kernel's side), `zygote` (the warm parent of all ranks), `rank` (the life of one
rank), `comm` (the one door to the network), `frames` (the wire home), `placement` (which backend and device each gets).
Importing this package, or `launch`, leaves torch unloaded: only ranks need it.
"""
