"""Notebook 12, 1F1B: what ranks hold, and a written order against ranks that take whatever comes (`orders`).

Its exercises are in `tasks`; those in which the student builds the interpreter, in `build_tasks` and `blocking`. Their
solutions are in `solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "ahead": "orders",
    "both": "orders",
    "buffers": "orders",
    "growth": "orders",
    "memory": "orders",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
