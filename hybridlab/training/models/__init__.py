"""The reference models: plain torch modules without code for parallelism.

Training uses a model through `model`; `gallery` finds one by name. `huggingface` reads a model from the plans of its
class (`planned_layers`: its layers; `tp_plan`: the matrices to shard). `traced` cuts any model by its graph. A user's
model is tested before it is divided: `reading` checks whether ranks can have parts of it, `examination` runs it,
`losses` runs its loss, `calls` watches the calls of layers, `left_behind` checks that a call changes no state,
`borrowed` checks that a layer reads nothing of another one, `asking` that none looks for other processes, `carried`
finds the values that a function reads outside, `copies` makes copies for ranks, `one_row` finds the inputs of modules,
`plain` compares it with its owner's run, and `words` puts torch's errors in words. `traceable` does the same for a
trace.
`theirs` makes `batches` from datasets and loaders of PyTorch. `graph` lists the inputs of each layer, `trees` handles
tuples of tensors. Transformers: `transformer` uses `gpt`, or its relatives `modern`, `parallel`, `multi_token`;
`latent`, `rotary` and `experts` are their components (`parts` splits a block with experts in three; `slices` cuts rows,
`vocabulary_pieces` the head). Image nets: `conv`, `resnet`, `inception` and `unet`, with the common base `layered`.
`draws` draws random numbers by place; `counting` is the base of layers with a tally, such as `batch_norm`. `sampling`
generates text with a model.
"""
