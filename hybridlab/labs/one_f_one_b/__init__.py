"""Notebook 12, 1F1B: the memory of ranks, slow messages, a written order and a message-driven one (`orders`).

Its exercises are in `tasks`, some answered in `letters`; those in which the student builds the interpreter, in
`build_tasks` and `blocking`. Their solutions are in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(__name__, {"orders": "ahead both buffers growth in_flight memory with_messages"})
