"""Single matmuls, layers or operator graphs, sharded and executed. These are not modes.

`matmul` has parallel matmuls (Cannon, SUMMA, 2.5D and 3D); `steps` has the messages of Cannon and SUMMA, step by step;
`grid_layer` has AxoNN's linear layer; `channel_splits` has a convolution whose channels are cut. `operators` computes
single operators, `layouts` executes a graph of them under any strategy, and `layout_proof` compares it with one device.
"""
