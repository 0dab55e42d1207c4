"""The modes: each file is one kind of parallelism, and `mode` defines the interface of a mode.

`registry` lists them: `pipeline`, `data_parallel`, `local_steps`, `zero` and `on_host` (stages and copies);
`grid_parallel`, `context_parallel`, `expert_parallel`, `copied_experts`, `tensor_parallel` and `spatial_parallel`
(inside a stage); `recomputation` and `out_of_core` (saved activations); `full_matrices` (for an optimizer). Their parts
are in `parts`. The folder `products` has single matmuls and operator graphs that are sharded and executed alone: these
are not modes.
"""
