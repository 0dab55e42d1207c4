"""Notebook 22, ZeRO and FSDP: memory and bytes counted on real ranks (`on_ranks`), what a rank keeps and sends
(`plan`); its `pictures`.

What students build there, ZeRO 1 and a unit of FSDP, is run in the cases of `trial`, which judges it; `clinic` is a
program to be mended: its symptoms, its cause, its check (its cases: `clinic_case`). `rank` is what one rank does in
all of these.

Its exercises are in `tasks` (what is built: `build_tasks`), their solutions in `solutions` (`build_solutions`).
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(
    __name__, {"pictures": "ZeroExplorer counted stages", "plan": "Plan carried kept"}, "clinic on_ranks plan"
)
