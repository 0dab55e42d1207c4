"""Notebook 43, search: the problems that are searched in `sizes`, what strategies cost in `tables`, how often walks
find the best, or leave a valley, in `walks`; `pictures` of a strategy chosen by hand and of a search; chosen
strategies on real ranks in `on_ranks`.

Its exercises are in `tasks`, their solutions in `solutions`; a student's searches are judged in `trial`.
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "sizes": "IMAGES VALLEY SMALL",
        "tables": "choices parts rivals searched steps_apart",
        "walks": "rates leaving slower",
        "pictures": "by_hand replay",
        "on_ranks": "here measured proved once",
    },
)
