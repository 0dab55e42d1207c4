"""Notebook 50, the capstone: what is given, and a plan for it from first numbers to real ranks (`given`).

Its exercises are in `tasks`, their solutions in `solutions`; `rubric` is how the page is read, by a person.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "GIVEN": "given",
    "STAND_IN": "given",
    "agreement": "given",
    "beside_the_dry_run": "given",
    "bills": "given",
    "chosen": "given",
    "defended": "given",
    "foreseen_bytes": "given",
    "played": "given",
    "pipeline": "given",
    "plans": "given",
}
_MODULES = {"rubric": "rubric"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
