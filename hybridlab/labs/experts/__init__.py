"""Notebook 32, experts: a published model in numbers (`sizes`); which experts real tokens choose in training (`loads`);
a layer of experts on real ranks, beside one device and timed (`on_ranks`); what one hot expert costs (`uneven`);
`pictures` of loads and of the way of the tokens.

Its exercises are in `tasks`, their solutions in `solutions`; what a student writes is tried in `trial`; the broken
program is `clinic`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "DEEP": "sizes",
    "FIRST": "sizes",
    "PUBLISHED": "sizes",
    "weights": "sizes",
    "trained": "loads",
    "SCORES": "on_ranks",
    "counts": "on_ranks",
    "counted": "on_ranks",
    "beside": "on_ranks",
    "stepped": "on_ranks",
    "drops": "on_ranks",
    "factor": "uneven",
    "capacities": "uneven",
    "bars": "pictures",
    "hot": "pictures",
    "way": "pictures",
    "busiest": "pictures",
}
_MODULES = {"clinic": "clinic"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
