"""Notebook 14, zero-bubble pipelines: backwards in halves, run and sabotaged (`halves`); rates from a paper
(`printed`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`. Students build an engine `without_autograd`, which `trial`
judges; `rank` is the program of one rank. They also build an optimizer step without its norm: `stepping`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "halves": "UNIT beside held in_a_row in_shares keep_copies_apart lose_a_weight_half repeated run",
        "printed": "interleaved_rates rates",
        "pictures": "one_at_a_time plane",
    },
)
