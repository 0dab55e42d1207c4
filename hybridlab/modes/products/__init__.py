"""Single matmuls, layers or operator graphs, sharded and executed. These are not modes.

`matmul` has parallel matmuls (Cannon, SUMMA, 2.5D and 3D), `steps` the messages of Cannon and SUMMA, step by step,
`grid_layer` AxoNN's linear layer, `channel_splits` a convolution with its channels cut. `operators` computes single
operators, `layouts` a graph of them under any strategy, and `layout_proof` compares that with one device.
"""
