"""Notebook 22, ZeRO and FSDP: memory and bytes counted on real ranks (`on_ranks`), the memory and traffic of a rank by
formula (`plan`), also on two `levels`; its `pictures`.

Students build ZeRO 1, a unit of FSDP, and Newton–Schulz on shards. `trial` and `columns_trial` have the cases in which
these are run, and judge them. `flat_muon` runs Muon on flat shards, which is a mistake. `clinic` has a program to be
fixed: its symptoms, its cause, its check (the cases: `clinic_case`). `rank` is the program of one rank in all of these.

Its exercises are in `tasks` and `build_tasks`, their solutions in `solutions` and `build_solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {"pictures": "ZeroExplorer counted stages", "plan": "Plan carried kept"},
    "clinic flat_muon levels on_ranks plan",
)
