"""Notebook 50, the capstone: the assignment, and a plan for it from first numbers to real ranks (`given`).

Its exercises are in `tasks`, their solutions in `solutions`; `rubric` says how a person grades the page.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {"given": "BASELINE GIVEN agreement beside_the_dry_run bills chosen defended foreseen_bytes played pipeline plans"},
    "rubric",
)
