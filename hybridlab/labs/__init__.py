"""Exercises: `labs.answer("naive.utilisation", 0.25)` replies at once; `labs.progress()` shows how far you are.

And `labs.machines`: what you measured, beside what was recorded on other machines.

Each name is loaded when it is first used: ranks import modules of this package, and want none of that.
"""

import importlib

_HOME = {
    "answer": "exercises.answer",
    "question": "exercises.answer",
    "progress": "exercises.progress",
    "reset": "exercises.progress",
    "student": "exercises.student",
    "export": "exercises.submission",
    "machines": "by_machine",
}
__all__ = [*_HOME]


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"hybridlab.labs has no {name!r}: it has {', '.join(sorted(_HOME))}")
    value = getattr(importlib.import_module(f"hybridlab.labs.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
