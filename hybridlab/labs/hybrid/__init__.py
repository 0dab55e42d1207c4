"""Notebook 40, all modes at once: the grid of ranks, curves, a mutant (`grid`); bytes along each axis (`traffic`).

Its exercises are in `tasks`, their solutions in `solutions`. What students build, a step on a grid of ranks, is in
`build_tasks` and `build_solutions`; `trial` has its grids and the verdict, `rank` what one rank does. `in_torch`:
layers that PyTorch shards.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "SHAPE": "grid",
    "curves": "grid",
    "explorer": "grid",
    "forget_the_tensor_sum": "grid",
    "job": "grid",
    "picture": "grid",
    "proof": "grid",
    "furthest": "in_torch",
    "two_layers": "in_torch",
    "between_nodes": "traffic",
    "by_axis": "traffic",
    "counted": "traffic",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
