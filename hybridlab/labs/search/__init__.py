"""Notebook 43, search: the problems that are searched in `sizes`, what strategies cost in `tables`, how often walks
find the best, or leave a valley, in `walks`; `pictures` of a strategy chosen by hand and of a search; chosen
strategies on real ranks in `on_ranks`.

Its exercises are in `tasks`, their solutions in `solutions`; a student's searches are judged in `trial`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "IMAGES": "sizes",
    "VALLEY": "sizes",
    "SMALL": "sizes",
    "choices": "tables",
    "parts": "tables",
    "rivals": "tables",
    "searched": "tables",
    "steps_apart": "tables",
    "rates": "walks",
    "leaving": "walks",
    "slower": "walks",
    "by_hand": "pictures",
    "replay": "pictures",
    "here": "on_ranks",
    "measured": "on_ranks",
    "proved": "on_ranks",
    "once": "on_ranks",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
