"""Real processes and the messages between them: the code that turns `hl.ranks(4)` into four running ranks.

It has five folders, the lowest first. `devices` chooses the device of each rank. `talk` sends every message, including
those of an all-reduce. `explain` explains every failure in one sentence. `processes` starts and ends ranks. `cells`
runs the cells of a notebook on the ranks.

Read in this order: `processes.launch` (the kernel's side), `processes.gang` (the processes of a pool),
`processes.zygote` (the warm parent of all ranks), `processes.rank` (the life of one rank), `talk.comm` (the only access
to the network), `talk.ledger` and `talk.journal` (each rank's record of its operations), `explain.compare` (mismatched
operations), `explain.supervise` (the ranks that are stuck, and where), `explain.faults` (the rank that failed first).

Importing this package, or `launch`, does not load torch: only ranks need it.
"""

import os

WORLD = os.path.dirname(__file__) + os.sep  # the code of this folder: errors and ledgers name the caller outside it
