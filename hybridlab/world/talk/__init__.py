"""Communication between ranks: every all-reduce, send and receive starts in `comm`.

`comm` is the one door to the network; all other operations are in `door`. `network` carries it, `connections` lets
ranks talk that have not met, and behind the door `dry` nobody else is. `message` is one tensor on its way, `parts` how
a tensor is cut for a collective, `lengths` what is said of uneven parts, `groups` who meets whom. `ledger` writes down
what passed the door, `journal` what a rank is doing now; `overheard` adds what a program sends through torch itself,
`nans` looks for the first number that is none. `clock` tells when a device does it, `offset` how far two machines'
clocks are apart. Built on the door: `typed` (collectives that gradients flow back through), `windows` (what each rank
wants of a dim), `ahead` (the same under way during other work) and `ring` (an all-reduce from messages alone).
"""
