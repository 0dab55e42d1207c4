"""Meanings: one line for each field of a plan, for the help of `hl.plan`, `hl.memory` and others.

Read next: `predict.plans.plan`, which has the fields.
"""

MEANINGS = {  # the fields as arguments; for an index in a list, its name in `plan.NAMED`
    "p": "stages of the pipeline",
    "t": "ranks of tensor parallelism",
    "d": "data-parallel copies",
    "b": "sequences in a microbatch",
    "v": "chunks of layers on each rank",
    "recompute": "activations that are computed twice: 'none', 'selective' or 'full'",
    "zero": "ZeRO's stage, 0 to 3: what the copies shard between steps",
    "sequence": "sequence parallelism, with t",
    "scatter": "each rank along t sends only its shard to the next stage, which gathers the shards",
    "x": "ranks that shard the width: with t, AxoNN's grid",
    "z": "copies that shard the weights in ZeRO's stage 3; 0: all",
    "cp": "ranks that shard the sequence",
    "attend": "method of attention with cp: 'gather', 'ring', 'ulysses' or 'usp'",
    "ulysses": "neighbouring ranks that exchange heads with usp",
    "zigzag": "balanced causal attention along cp",
    "ep": "ranks that shard the experts, b sequences on each",
    "dispatch": "method of sending tokens to experts with ep: 'all_to_all' or 'all_gather'",
    "fold": "whole experts are distributed over t and cp too",
    "uneven": "stages may differ by one block, if p·v does not divide the layers",
    "n": "token slices of a row, of equal cost, without cp, sequence and scatter",
    "skew": "Zipf's exponent of the popularity of experts; 0: equal",
    "fused": "attention is one kernel, which stores no scores",
    "redone": "the fraction of the layers that `recompute` applies to",
    "offload": "the fraction of the layers whose saved activations are stored on the host",
    "spread_head": "the head is sharded over the stages: vocabulary parallelism, without v and sequence",
    "two_levels": "with z: all copies shard the optimizer's state",
    "secondary": "neighbours that have a second copy of the weights, only with ZeRO's stage 3; 0: none",
    "further": "further tokens predicted at each position: multi-token prediction, on the last stage",
    "optimizer": "'adamw' or 'muon', which determines the state of each weight",
    "sync_every": "local steps: steps between two sums over the copies; 0: gradients are summed in every step",
}
