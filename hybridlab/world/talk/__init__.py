"""Communication between ranks: every all-reduce, send and receive starts in `comm`.

`comm` is the only access to the network; all operations except collectives are in its base, `door`. `network` holds
torch's functions. `connections` connects ranks that have not communicated before. `dry` replaces the network by a
single rank. `message` is one tensor in transit; `parts` cuts a tensor for a collective, `lengths` announces uneven
parts, `groups` lists the ranks that meet. `ledger` records each operation, `journal` has the current operation of a
rank; `overheard` adds messages that a program sends through torch itself; `nans` looks for the first nan. `clock` gives
times on a device, `offset` gives the difference between two machines' clocks. Built on top: `typed` (collectives with a
backward), `windows` (the part of a dim that each rank needs), `ahead` (the same, overlapped with other work) and `ring`
(an all-reduce made of messages only).
"""
