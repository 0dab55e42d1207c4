"""Notebook 43, search: the problems that are searched (`sizes`), the cost of strategies (`tables`), the success of
random walks in finding the best strategy or leaving a valley (`walks`), a strategy chosen by hand and a search
(`pictures`), chosen strategies on real ranks (`on_ranks`), Alpa's stages (`stages`).

Its exercises are in `tasks`, their solutions in `solutions`; `trial` judges a student's searches.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "sizes": "IMAGES VALLEY SMALL",
        "tables": "choices parts rivals searched steps_apart",
        "walks": "rates leaving slower",
        "pictures": "by_hand replay",
        "on_ranks": "here measured proved once",
        "stages": "DEVICES WIDTHS inside",
    },
)
