"""Notebook 32, experts: a published model in numbers (`sizes`); which experts real tokens choose in training (`loads`);
a layer of experts on real ranks, compared with one device and timed (`on_ranks`); the cost of one hot expert
(`uneven`); `pictures` of loads and of the route of the tokens; `places` of experts: folded ones, copies; copies on real
ranks, timed (`lending`).

Its exercises are in `tasks` and `build_tasks`, their solutions in `solutions` and `build_solutions`; `trial` and
`lend_trial` run the code of students; `clinic` has the broken program.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "sizes": "DEEP FIRST PUBLISHED weights",
        "loads": "trained",
        "on_ranks": "SCORES counts counted beside stepped drops",
        "uneven": "factor capacities",
        "pictures": "bars hot way busiest",
        "places": "node traded moved copies",
        "lending": "stepped_with_loans",
    },
    "clinic",
)
