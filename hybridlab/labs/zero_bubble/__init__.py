"""Notebook 14, zero-bubble pipelines: backwards in halves, run and sabotaged (`halves`); rates that a paper has
`printed`; its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`. What students build there, an engine `without_autograd`,
is judged by `trial`; `rank` is what one rank does.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "UNIT": "halves",
    "beside": "halves",
    "held": "halves",
    "in_shares": "halves",
    "interleaved_rates": "printed",
    "keep_copies_apart": "halves",
    "lose_a_weight_half": "halves",
    "rates": "printed",
    "repeated": "halves",
    "run": "halves",
    "plane": "pictures",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
