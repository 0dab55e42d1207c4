"""Notebook 30, tensor parallelism: f and g on real ranks (`on_ranks`; in pictures: `f_and_g`), two matrices cut in any
way (`pair`), sizes of a large model (`sizes`) and the choice of t for one (`design`), the hunt for wrong gradients
(`hunt`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`; those in which students build something, in
`build_tasks` and `build_solutions`. What they build is tried in `layers` (two sharded layers), `latents` (attention
from latents), `vocabulary` (a sharded loss) and `clinic` (a bug).
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "counted": "on_ranks",
    "f": "on_ranks",
    "foreseen": "on_ranks",
    "forget_the_sum_of_f": "on_ranks",
    "g": "on_ranks",
    "left_behind": "on_ranks",
    "narrowed": "on_ranks",
    "shares": "on_ranks",
    "there_and_back": "f_and_g",
    "tried": "on_ranks",
}
_MODULES = {
    "clinic": "clinic",
    "hunt": "hunt",
    "latents": "latents",
    "layers": "layers",
    "pair": "pair",
    "pictures": "pictures",
    "sizes": "sizes",
}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
