"""The reference models: plain torch modules without code for parallelism.

The machinery uses a model as a `model`; `gallery` finds one by name. `huggingface` reads one from the plans that its
class carries (`planned_layers`: its layers; `tp_plan`: which matrices are cut), `traced` cuts one by its graph. A
user's model is tested before it is divided: `reading` sees whether ranks can have parts of it, `examination` runs it,
`left_behind` looks at what a forward leaves, `plain` compares it with what its owner runs; `theirs` makes `batches` of
datasets and loaders of PyTorch. `graph` says which layers feed which, `trees` handles tuples of tensors. Transformers:
`transformer` is made of `gpt`, or of its relatives `modern`, `parallel`, `multi_token`; `latent`, `rotary` and
`experts` (`parts` cuts these in three) are their pieces. Image nets: `conv`, `resnet`, `inception` and `unet`, which
share `layered`. `draws` draws by place; `counting` is a layer with a tally, such as `batch_norm`. `sampling` has a
model write.
"""
