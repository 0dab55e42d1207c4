"""Notebook 30, tensor parallelism: f and g on real ranks (`on_ranks`; in pictures: `f_and_g`), two matrices cut in any
way (`pair`), sizes of a large model (`sizes`) and the choice of t for one (`design`), a matmul that overlaps with its
messages (`in_pieces`), the hunt for wrong gradients (`hunt`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`; those in which students build something are in
`build_tasks` and `build_solutions`. Their programs are run by `layers` (two sharded layers), `latents` (attention from
latents), `vocabulary` (a sharded loss) and `clinic` (a bug).
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "on_ranks": "counted f foreseen forget_the_sum_of_f g left_behind narrowed shares tried",
        "f_and_g": "there_and_back",
    },
    "clinic hunt in_pieces latents layers pair pictures sizes",
)
