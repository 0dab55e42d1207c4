"""The matrices that a tensor-parallel plan of Hugging Face shards, as the names of dims that modes use.

In the plan (`_tp_plan`), "colwise" is a matrix sharded by its outputs, "rowwise" one sharded by its inputs. A module
with a pair of both is sharded. Other kinds gather inside a layer, shard experts, or shard a parameter of the module
itself, such as attention's sinks: their module stays unsharded.

Source: transformers 5, `integrations.tensor_parallel`. Relatives: `huggingface`, which uses it; `core.where.rules`.
"""

import math

from torch import nn

CUT = {"colwise": 0, "rowwise": 1}  # the dim of a weight that is sharded
ALONGSIDE = "replicated_with_grad_allreduce"  # a full weight in a sharded module: its gradient is a partial sum


def dims_of(module: nn.Module) -> tuple[dict[str, str], dict[str, int], list[str]]:
    """The matrices to shard: ({parameter: the names of its dims}, {letter: length}, kinds that stay unsharded).

    In attention, full groups are distributed; a group is a KV head with the query heads that use it: N. In other
    modules, hidden units: F. If widths differ, F is their greatest common divisor, and the size of a group depends on
    the module.
    """
    styles, config, modules = styles_of(module), module.config, dict(module.named_modules())
    cut, left = {}, set()
    for parent in dict.fromkeys(name.rpartition(".")[0] for name in styles):
        own = {name: style for name, style in styles.items() if name.rpartition(".")[0] == parent}
        cuts = {name: CUT[style] for name, style in own.items() if style in CUT}
        if set(cuts.values()) == {0, 1} and set(own.values()) <= {*CUT, ALONGSIDE} and cuts.keys() <= modules.keys():
            heads = any(hasattr(modules[parent], one) for one in ("head_dim", "head_size"))
            cut |= {name: ("N" if heads else "F", dim) for name, dim in cuts.items()}
        else:
            left |= {style for style in own.values() if style != ALONGSIDE}
    width = lambda name: module.get_submodule(name).weight.shape[cut[name][1]]
    groups = {
        "N": getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", 1),
        "F": math.gcd(*(width(name) for name, (letter, _) in cut.items() if letter == "F")),
    }
    dims = {}
    for name, (letter, dim) in cut.items():
        letters = letter if width(name) == groups[letter] else f"{letter}H"
        dims[f"{name}.weight"] = f"{letters} ." if dim == 0 else f". {letters}"
        if dim == 0 and module.get_submodule(name).bias is not None:
            dims[f"{name}.bias"] = letters
    return dims, {letter: groups[letter] for letter, _ in cut.values()}, sorted(left)


def styles_of(module: nn.Module) -> dict[str, str]:
    """{module or parameter in the tensor-parallel plan: how it is sharded}, in model order."""
    plan = module._tp_plan or {}
    names = [name for name, _ in (*module.named_modules(), *module.named_parameters())]
    starred = {name: ".".join("*" if part.isdigit() else part for part in name.split(".")) for name in names}
    return {name: plan[star] for name, star in starred.items() if star in plan}
