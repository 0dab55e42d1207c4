"""Describe sizes for help texts: those of a transformer, of its routing, and of a plan."""

OF_A_TRANSFORMER = {
    "layers": "transformer blocks",
    "width": "width of the residual stream",
    "heads": "attention heads; N must divide the width",
    "kv_heads": "key-value (KV) heads, for grouped-query attention (default: the number of heads)",
    "per_head": "width of one head (default width / heads)",
    "context": "tokens in one sequence",
    "vocabulary": "tokens in the vocabulary",
    "inner": "hidden units of the MLP (default 4 times the width)",
    "experts": "experts in each block",
    "chosen": "experts that one token uses",
    "shared": "experts that every token uses",
    "latent": "multi-head latent attention: width of the latent of keys and values",
    "query_latent": "multi-head latent attention: width of the latent of queries",
    "rotary": "multi-head latent attention: extra rotary (RoPE) features of each head",
}
OF_ROUTING = {
    "scores": "how router outputs become scores: softmax (default) or sigmoid",
    "balance": "how the load of experts is balanced: none (default), loss or bias",
    "pace": "weight of the balancing loss, or step of the bias",
    "capacity": "tokens that one expert accepts, as a multiple of an equal load (default: no limit)",
}
OF_A_PLAN = {
    "p": "pipeline stages",
    "t": "tensor-parallel ranks",
    "d": "data-parallel replicas",
    "b": "sequences in one microbatch",
    "v": "stages on each pipeline rank",
    "x": "ranks of AxoNN's axis x",
    "z": "replicas that shard one copy of the weights, with ZeRO 3",
    "cp": "context-parallel ranks",
    "ep": "expert-parallel ranks",
}
