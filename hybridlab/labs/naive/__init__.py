"""Notebook 10, naive pipelines: what crosses each cut and how unequal the stages are (`cuts`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "blocks": "cuts",
    "by_link": "cuts",
    "handed_on": "cuts",
    "imbalance": "cuts",
    "seconds_of_layers": "cuts",
    "shares": "cuts",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
