"""Real processes and the messages between them: the floor that turns `hl.ranks(4)` into four running ranks.

Five rooms, the lowest first. `devices` says where ranks compute; `talk` sends every message, an all-reduce too;
`explain` gives every fault its name; `processes` starts ranks and ends them; `cells` runs the cells of a notebook on
the ranks.
Read in this order: `processes.launch` (the kernel's side), `processes.gang` (the processes of a pool),
`processes.zygote` (the warm parent of all ranks), `processes.rank` (the life of one rank), `talk.comm` (the one door to
the network), `talk.ledger` and `talk.journal` (what each rank says it does), `explain.compare` (what does not fit),
`explain.supervise` (who is stuck, and where), `explain.faults` (who failed first).
Importing this package, or `launch`, leaves torch unloaded: only ranks need it.
"""

import os

WORLD = os.path.dirname(__file__) + os.sep  # the code of this floor: what it says, it says for a caller outside
