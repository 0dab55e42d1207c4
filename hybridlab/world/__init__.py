"""Real processes and the messages between them: the floor that turns `hl.ranks(4)` into four running ranks.

Read in this order: `launch` (the kernel's side), `gang` (the processes of a pool), `zygote` (the warm parent of all
ranks), `rank` (the life of one rank), `comm` (the one door to the network), `frames` and `home` (the wire home),
`placement` (which backend and device each gets).
How every fault gets its name: `ledger` and `journal` (what each rank says it does), `compare` (what does not fit),
`supervise` (who is stuck, and where), `faults` (who failed first).
Built on the door: `typed` (messages that gradients flow back through), `ring` (an all-reduce by hand). Where somebody
else starts the ranks: `torchrun`.
Importing this package, or `launch`, leaves torch unloaded: only ranks need it.
"""
