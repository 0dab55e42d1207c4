"""Notebook 22, ZeRO and FSDP: memory and bytes counted on real ranks (`on_ranks`), what a rank keeps and sends
(`plan`); its `pictures`.

What students build there, ZeRO 1 and a unit of FSDP, is run in the cases of `trial`, which judges it; `clinic` is a
program to be mended: its symptoms, its cause, its check (its cases: `clinic_case`). `rank` is what one rank does in
all of these.

Its exercises are in `tasks` (what is built: `build_tasks`), their solutions in `solutions` (`build_solutions`).
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "ZeroExplorer": "pictures",
    "counted": "pictures",
    "stages": "pictures",
    "Plan": "plan",
    "carried": "plan",
    "kept": "plan",
}
_MODULES = {"clinic": "clinic", "on_ranks": "on_ranks", "plan": "plan"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
