"""A Hugging Face model, built from the plans of its class; this file names no architecture.

Its pipeline plan (`_pp_plan`) lists the children of the base model in sequence, and one of them is a list of blocks.

Source: transformers 5, `PreTrainedModel.post_init`. Relatives: `planned_layers`, which turns these blocks into layers;
`tp_plan`, the matrices to shard; `traced`, for modules without a plan.
"""

import copy
import inspect
import math
import pathlib
from collections.abc import Mapping
from functools import partial

import torch
from torch import nn

from hybridlab.training.data.tokens import Tokens
from hybridlab.training.models.batches import example_of, in_order
from hybridlab.training.models.gpt import token_loss
from hybridlab.training.models.planned_layers import Layers, called, calls_of
from hybridlab.training.models.theirs import batches_of
from hybridlab.training.models.tp_plan import dims_of
from hybridlab.training.models.trees import flat

IGNORED = -100  # torch's cross-entropy ignores this target
EAGER = "eager"  # the name in transformers of attention without fused kernels
TOKENS = 32  # in a row, unless the model's maximum is smaller


def told(given, loss=None, data=None, tokens: int | None = None) -> dict:
    """The arguments of `Model`, by name, for a config, a path of a config, or a model of transformers.

    raises  ValueError for anything else, and for a model without a plan, with random draws, or that
            cannot be cut
    """
    transformers = _transformers()
    whole, example = _whole(given, transformers)
    plan = example.base_model._pp_plan
    kind = type(example).__name__
    blocks = next(
        (name for name in plan or () if isinstance(getattr(example.base_model, name, None), nn.ModuleList)), None
    )
    if blocks is None:
        raise ValueError(
            f"{kind} has no plan (_pp_plan) that lists its layers: cut it at the names of its modules with "
            "hl.Model.traced(model, loss, data, cuts=[…])"
        )
    _refuse_draws(example)
    if getattr(example.config, "output_router_logits", False):
        raise ValueError(
            f"with output_router_logits=True, {kind} adds a loss for the balance of its experts, but its layers do not "
            "compute this loss: give the config output_router_logits=False"
        )
    if data is None:
        longest = getattr(example.config, "max_position_embeddings", None) or TOKENS
        data = Tokens(example.config.vocab_size, tokens or min(TOKENS, longest))
    data = batches_of(data)
    inputs, targets = example_of(data, 2)
    _refuse_misplaced(example, inputs)
    inputs = in_order(inputs)
    if len(flat(inputs)) > 1 and example.config._attn_implementation != EAGER:
        whole, example = _with_masks_always(whole, example)
    if loss is None:
        _refuse_unshifted(flat(inputs)[0], flat(targets)[0])
    dims, sizes, whole_kinds = dims_of(example)
    tail = tuple(list(plan)[list(plan).index(blocks) + 1 :])
    layers = Layers(blocks, tail, calls_of(example, blocks, tail, inputs))
    return {
        "whole": whole,
        "loss": loss or token_loss,
        "data": data,
        "terms": 1 if loss else math.prod(flat(targets)[0].shape[1:]),
        "dims": dims,
        "sizes": sizes,
        "layers": layers,
        "call": called,
        "uncut": f"the plan of {kind} has no pair of colwise and rowwise ({', '.join(whole_kinds)}); leave out tp",
    }


def _refuse_misplaced(module: nn.Module, inputs):
    """Raise an error unless inputs with names come in the order of the forward's arguments."""
    takes = list(inspect.signature(module.forward).parameters)
    if isinstance(inputs, Mapping) and list(inputs) != takes[: len(inputs)]:
        raise ValueError(
            f"data has the inputs {', '.join(inputs)}, but {type(module).__name__} takes {', '.join(takes[:3])}, …: "
            "give the inputs in the order of its arguments"
        )


def _refuse_unshifted(tokens, targets):
    """Raise an error for labels in the form of Hugging Face, whose own loss shifts them by one place."""
    asked = targets != IGNORED
    if targets.shape == tokens.shape and asked.any() and torch.equal(targets[asked], tokens[asked]):
        raise ValueError(
            "the targets equal the inputs: unlike Hugging Face's, this loss does not shift them; give the next token "
            f"of each position, and {IGNORED} where there is none"
        )


def _transformers():
    try:
        import transformers
    except ImportError as error:
        raise ValueError("a Hugging Face model needs the package transformers: pip install transformers") from error
    return transformers


def _whole(given, transformers) -> tuple:
    """(the `whole` of a `Model`, one of its modules for inspection)."""
    if isinstance(given, str | pathlib.Path):
        if not pathlib.Path(given).exists():
            raise ValueError(f"{given} does not exist, and nothing is downloaded: give the path of a config.json")
        given = transformers.AutoConfig.from_pretrained(given, local_files_only=True)
    if isinstance(given, transformers.PreTrainedModel):
        return given, given
    if not isinstance(given, transformers.PreTrainedConfig):
        raise ValueError(
            f"{type(given).__name__} is not a Hugging Face model: give a config, the path of a config.json, or a model"
        )
    whole = partial(drawn, copy.deepcopy(given))
    return whole, whole(0)


def drawn(config, seed: int, attention: str | None = None) -> nn.Module:
    """A language model with weights from torch's generator; experts are drawn one after another, in any dtype.

    attention  its implementation; None: the one that the config names
    """
    from transformers import AutoModelForCausalLM

    try:
        more = {"attn_implementation": attention} if attention else {}
        return AutoModelForCausalLM.from_config(copy.deepcopy(config), experts_implementation=EAGER, **more)
    except ValueError as error:
        told = str(error).splitlines()[0]
        name = type(config).__name__
        raise ValueError(f"{name} describes no language model: give the model itself ({told})") from error


def _with_masks_always(whole, example) -> tuple:
    """(whole, one of its modules), with a mask for attention in every batch. Fused attention omits the mask from a
    batch without padding; but the same tensors must travel from block to block for every microbatch.
    """
    if whole is example:
        raise ValueError(
            f"attention {example.config._attn_implementation!r} drops the mask of a batch without padding, but stages "
            f'must exchange the same tensors for every microbatch: call model.set_attn_implementation("{EAGER}")'
        )
    whole = partial(whole, attention=EAGER)
    return whole, whole(0)


def _refuse_draws(module: nn.Module):
    """Raise an error if some layer has dropout: torch would draw other numbers on every rank."""
    for layer in module.modules():
        chances = {"p": getattr(layer, "p", 0)} if isinstance(layer, nn.Dropout) else vars(layer)
        drops = [name for name, x in chances.items() if (name == "p" or "drop" in name) and isinstance(x, float) and x]
        if drops and layer.training:
            said = {name: x for name, x in module.config.to_dict().items() if "drop" in name and x}
            zero = ", ".join(f"{name}=0.0" for name in said)
            raise ValueError(
                f"{type(layer).__name__} draws dropout from torch's generator, which differs on every rank: give the "
                f"config {zero}"
            )
