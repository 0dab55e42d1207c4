"""Imported: a Hugging Face config as a shape, with a sentence for every setting that a shape cannot express.

`FAMILIES` lists the model types. Most differ from Llama in a few settings, which are in their code and not in their
config: these are the fields of a `Family`.

Relatives: `core.what.shape`, `core.what.catalog`, `predict.plans.planner`.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from hybridlab.core.files import content, is_folder
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape


class Family(NamedTuple):
    """The settings of a model type that its config does not contain.

    experts   the field with the width of an expert; "": the blocks have no experts
    tied      the head uses the embedding's weights, unless the config says otherwise
    gated     the MLP has three matrices, one of them a gate; else two
    parallel  attention and MLP of a block both take the block's input
    shared    a block has one more expert, of the same width, through which every token passes
    """

    experts: str = ""
    tied: bool = False
    gated: bool = True
    parallel: bool = False
    shared: bool = False


FAMILIES = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "phi3", "granite", "olmo2", "glm4"), Family()),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "smollm3"), Family(tied=True)),
    **dict.fromkeys(("mixtral", "gpt_oss", "granitemoe"), Family(experts="intermediate_size")),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "glm4_moe"), Family(experts="moe_intermediate_size")),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), Family(experts="moe_intermediate_size")),
    "llama4_text": Family(experts="intermediate_size", shared=True),
    "nemotron": Family(gated=False),
    "starcoder2": Family(gated=False, tied=True),
    "falcon": Family(gated=False, tied=True, parallel=True),
    "gpt_neox": Family(gated=False, parallel=True),
}
KNOWN = ("gpt2", *FAMILIES)
SIZES = ("n_layer", "n_embd", "n_head", "n_positions", "n_ctx", "n_inner", "vocab_size", "hidden_size", "head_dim")
SIZES += ("num_attention_heads", "num_key_value_heads", "num_hidden_layers", "intermediate_size", "v_head_dim")
SIZES += ("max_position_embeddings", "qk_nope_head_dim", "qk_rope_head_dim", "num_local_experts", "num_experts")
SIZES += ("num_kv_heads", "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok", "decoder_sparse_step")
SIZES += ("interleave_moe_layer_step", "intermediate_size_mlp")
OR_NONE = ("sliding_window", "num_nextn_predict_layers", "n_shared_experts", "first_k_dense_replace", "q_lora_rank")
OR_NONE += ("kv_lora_rank", "shared_expert_intermediate_size", "ffn_hidden_size")  # 0 says that there is none
LISTS = ("mlp_only_layers", "moe_layer_freq")  # which layers have experts
# These are about the vocabulary, groups of experts to choose from, a kernel, or another length or window: no weights.
NO_WEIGHTS = ("n_group", "topk_group", "ep_size", "pretraining_tp", "max_window_layers", "layer_types")
NO_WEIGHTS += ("type_vocab_size", "chunk_size_feed_forward", "qk_head_dim", "num_experts_per_group")
NO_WEIGHTS += ("no_rope_layers", "no_rope_layer_interval", "experts_per_token")
OF_WEIGHTS = re.compile(r"size|dim|rank|layer|expert|head|inner|^n_|^num_")  # parts of such names
MOST = 1e7  # bytes of a config


class Imported(NamedTuple):
    """A shape, and notes on the parts of the config that it leaves out."""

    shape: Shape
    notes: tuple[str, ...]


def imported(config: dict | str | Path, context: int | None = None) -> Imported:
    """The shape that a config describes, with its maximum sequence length or a different one.

    context  positions in a sequence; None: the longest that the config allows
    config   a dict as in config.json, its text, or a path to the file or its folder

    raises  ValueError for an unknown family, or a missing size, which the error names

    >>> own = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}
    >>> f"{imported(own | {'vocab_size': 50257}).shape.parameters / 1e6:.0f} million weights"
    '124 million weights'
    """
    said = _read(config)
    family = said.get("model_type")
    if family not in KNOWN:
        raise ValueError(
            f"model_type={family!r} is not known: choose one of {', '.join(KNOWN)}, or write a Shape by hand"
        )
    shape, notes = _gpt2(said, context) if family == "gpt2" else _modern(said, FAMILIES[family], context)
    return Imported(shape, notes + _unread(said))


def _read(config) -> dict:
    """A config as a dict, with integer sizes."""
    if not isinstance(config, dict | str | Path):
        raise ValueError(f"the config is a {type(config).__name__}: give a dict, a string or the path of a config.json")
    said = config if isinstance(config, dict) else _parsed(str(config))
    said = said["text_config"] if isinstance(said.get("text_config"), dict) else said  # next to a model of images
    for name in (*SIZES, *OR_NONE):
        size = said.get(name)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < (name in SIZES)):
            raise ValueError(
                f"{name}={size!r} in the config is not valid: give a whole number, {int(name in SIZES)} or more"
            )
    for name in LISTS:
        told = said.get(name)
        if told is not None and not (isinstance(told, int) or isinstance(told, list) and all(map(_whole, told))):
            raise ValueError(f"{name}={told!r} in the config is not valid: give a list of whole numbers")
    return said


def _whole(number) -> bool:
    return isinstance(number, int)


def _unread(said: dict) -> tuple[str, ...]:
    """Notes for unread fields that probably change the number of weights."""
    known = (*SIZES, *OR_NONE, *LISTS, *NO_WEIGHTS)
    return tuple(
        f"{name}={value!r} is not read here"
        for name, value in said.items()
        if name not in known and OF_WEIGHTS.search(name) and not isinstance(value, bool | str | float | dict) and value
    )


def _parsed(text: str) -> dict:
    """JSON text, or a file of it, as a dict."""
    what = "the config"
    if not text.lstrip().startswith("{"):
        path = Path(text)
        path = path / "config.json" if is_folder(path) else path
        text, what = content(path, what, MOST).decode("utf-8-sig", errors="replace"), str(path)
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{what} is not JSON: give the config.json that comes with a model's weights") from None
    if not isinstance(said, dict):
        raise ValueError(f"{what} is a {type(said).__name__}: give an object of names and sizes, {{...}}")
    return said


def _size(said: dict, *names: str) -> int:
    for name in names:
        if said.get(name) is not None:
            return said[name]
    raise ValueError(f"the config lacks {names[0]}: add it")


def _gpt2(said: dict, context: int | None) -> Imported:
    layers, width, heads = (_size(said, name) for name in ("n_layer", "n_embd", "n_head"))
    length, tied = context or _size(said, "n_positions", "n_ctx"), bool(said.get("tie_word_embeddings", True))
    shape = Shape(layers, width, heads, length, _size(said, "vocab_size"), tied=tied, inner=said.get("n_inner"))
    return Imported(shape, ())


def _modern(said: dict, family: Family, context: int | None) -> Imported:
    width, heads = _size(said, "hidden_size"), _size(said, "num_attention_heads")
    more, notes = _experts(said, family) if family.experts else _mlp(said, family)
    per_head = said.get("head_dim")
    if said.get("kv_lora_rank"):
        per_head, found, left_out = _latents(said)
        more |= found
        notes += left_out
    elif (
        kv_heads := said.get("num_key_value_heads") or said.get("num_kv_heads") or (1 if said.get("multi_query") else 0)
    ):
        more["kv_heads"] = kv_heads
    if per_head and per_head * heads != width:
        more["per_head"] = per_head
    if said.get("sliding_window") and said.get("use_sliding_window", True):
        notes.append(f"a window of {said['sliding_window']} positions: attention is counted over all of them")
    if said.get("num_nextn_predict_layers"):
        further = said["num_nextn_predict_layers"]
        notes.append(f"{further} more layers that predict further tokens are counted with further={further} only")
    more["context"] = context or _size(said, "max_position_embeddings")
    more["vocabulary"] = _size(said, "vocab_size")
    more["tied"] = bool(said.get("tie_word_embeddings", family.tied))
    shape = Shape(_size(said, "num_hidden_layers"), width, heads, style="llama", parallel=family.parallel, **more)
    return Imported(shape, tuple(notes))


def _mlp(said: dict, family: Family) -> tuple[dict[str, Any], list[str]]:
    """The width of the MLP. Two matrices count as three of two thirds of the width: both kinds have equally many
    weights.
    """
    wide = said.get("ffn_hidden_size") or said.get("intermediate_size") or 4 * _size(said, "hidden_size")
    if family.gated:
        return {"inner": _size(said, "intermediate_size")}, []
    inner = round(2 * wide / 3)
    return {"inner": inner}, [f"the MLP has two matrices of width {wide}: counted as three of {inner}, without biases"]


def _latents(said: dict) -> tuple[int, dict[str, int], list[str]]:
    """(the width of a head, sizes of latents, notes)."""
    per_head, keys = _size(said, "v_head_dim"), _size(said, "qk_nope_head_dim")
    sizes = {"latent": said["kv_lora_rank"], "rotary": _size(said, "qk_rope_head_dim")}
    sizes["query_latent"] = said.get("q_lora_rank") or 0
    notes = [f"the keys of a head are {keys} wide, its values {per_head}: counted as {per_head}"] * (keys != per_head)
    return per_head, sizes, notes


def _experts(said: dict, family: Family) -> tuple[dict[str, Any], list[str]]:
    """Sizes of experts and of layers that have none, and notes."""
    experts, inner = _size(said, "num_local_experts", "num_experts", "n_routed_experts"), _size(said, family.experts)
    more: dict[str, Any] = {"inner": inner, "experts": experts, "chosen": _size(said, "num_experts_per_tok")}
    alike = said.get("n_shared_experts") or int(family.shared)
    width = said.get("shared_expert_intermediate_size") or alike * inner
    more["shared"] = width // inner
    if said.get("scoring_func") == "sigmoid":
        balance = "bias" if said.get("topk_method") == "noaux_tc" else "none"  # called so in DeepSeek's code
        more["routing"] = Routing(scores="sigmoid", balance=balance)
    notes = [f"the shared expert is {width} wide: counted as {more['shared'] * inner}"] * (width % inner > 0)
    if plain := _plain(said):
        more |= {"plain": plain, "plain_inner": _size(said, "intermediate_size_mlp", "intermediate_size")}
    return more, notes


def _plain(said: dict) -> tuple[int, ...]:
    """The layers that have one MLP where the others have experts, by the rules of the models' code."""
    layers, alone = range(_size(said, "num_hidden_layers")), said.get("mlp_only_layers") or []
    first, step, every = (said.get(name) for name in ("first_k_dense_replace", "decoder_sparse_step", "moe_layer_freq"))
    step = step or said.get("interleave_moe_layer_step")
    chosen = every if isinstance(every, list) else [layer % (every or 1) == 0 for layer in layers]
    if len(chosen) != len(layers):
        raise ValueError(f"moe_layer_freq has {len(chosen)} entries for {len(layers)} layers: give one for each")
    return tuple(
        layer
        for layer in layers
        if layer in alone or layer < (first or 0) or (layer + 1) % (step or 1) or not chosen[layer]
    )
