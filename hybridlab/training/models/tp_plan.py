"""Which matrices a tensor-parallel plan of Hugging Face cuts, as the names of dims that modes know.

The plan (`_tp_plan`) says "colwise" of a matrix that is cut by its outputs, "rowwise" of one that is cut by its inputs.
A module with a pair of both is cut. Other kinds gather inside a layer or cut experts: their module stays whole.

Source: transformers 5, `integrations.tensor_parallel`. Relatives: `huggingface`, which asks; `core.where.rules`.
"""

import math

from torch import nn

CUT = {"colwise": 0, "rowwise": 1}  # the dim of a weight that is cut
ALONGSIDE = "replicated_with_grad_allreduce"  # what every rank has of a module that is cut: its gradient is a summand


def dims_of(module: nn.Module) -> tuple[dict[str, str], dict[str, int], list[str]]:
    """What tensor parallelism may cut: ({parameter: the names of its dims}, {letter: how many}, kinds left whole).

    Of attention whole groups are cut, each a head of keys with the queries that ask it: N. Of other modules hidden
    units: F. Where widths differ, F is their greatest common divisor, and each has groups of its own size.
    """
    styles, config = styles_of(module), module.config
    cut, left = {}, set()
    for parent in dict.fromkeys(name.rpartition(".")[0] for name in styles):
        own = {name: style for name, style in styles.items() if name.rpartition(".")[0] == parent}
        cuts = {name: CUT[style] for name, style in own.items() if style in CUT}
        if set(cuts.values()) == {0, 1} and set(own.values()) <= {*CUT, ALONGSIDE}:
            heads = any(hasattr(module.get_submodule(parent), one) for one in ("head_dim", "head_size"))
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
    """{module or parameter that the tensor-parallel plan names: how it is cut}, in model order."""
    plan = module._tp_plan or {}
    names = [name for name, _ in (*module.named_modules(), *module.named_parameters())]
    starred = {name: ".".join("*" if part.isdigit() else part for part in name.split(".")) for name in names}
    return {name: plan[star] for name, star in starred.items() if star in plan}
