"""Imported: a Hugging Face config as a shape, and a sentence for everything in it that a shape cannot say.

Families: GPT-2; Llama, Mistral, Qwen 2 and 3; Mixtral and Qwen 3 with experts; DeepSeek-V3 and Kimi K2, with latent
attention.

Relatives: `core.what.shape`, `core.what.catalog`, `predict.plans.planner`.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from hybridlab.core.files import content, is_folder
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape

LLAMAS = ("llama", "mistral", "qwen2", "qwen3")
SIZES = ("n_layer", "n_embd", "n_head", "n_positions", "n_ctx", "n_inner", "vocab_size", "hidden_size", "head_dim")
SIZES += ("num_attention_heads", "num_key_value_heads", "num_hidden_layers", "intermediate_size", "kv_lora_rank")
SIZES += ("max_position_embeddings", "sliding_window", "num_nextn_predict_layers", "v_head_dim", "qk_nope_head_dim")
SIZES += ("qk_rope_head_dim", "q_lora_rank", "num_local_experts", "num_experts", "n_routed_experts")
SIZES += ("moe_intermediate_size", "num_experts_per_tok", "n_shared_experts", "first_k_dense_replace")
MOST = 1e7  # bytes of a config
SPARSE = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3", "kimi_k2")


class Imported(NamedTuple):
    """A shape, and what it leaves out."""

    shape: Shape
    notes: tuple[str, ...]


def imported(config: dict | str | Path, context: int | None = None) -> Imported:
    """The shape that a config describes, with sequences of its own longest length or of another one.

    context  positions in a sequence; None: the longest that the config allows
    config   a dict as in config.json, its text, or a path to it, or to the folder that it is in

    raises  ValueError when the family is not known, or a size is missing: with what to give

    >>> own = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}
    >>> f"{imported(own | {'vocab_size': 50257}).shape.parameters / 1e6:.0f} million weights"
    '124 million weights'
    """
    said = _read(config)
    family = said.get("model_type")
    if family == "gpt2":
        return Imported(_gpt2(said, context), ())
    if family not in (*LLAMAS, *SPARSE):
        known = ", ".join(("gpt2", *LLAMAS, *SPARSE))
        raise ValueError(f"model_type={family!r} is not known here: one of {known}, or write a Shape by hand")
    return _modern(said, family, context)


def _read(config) -> dict:
    """A config as a dict, whose sizes are whole numbers."""
    said = config if isinstance(config, dict) else _parsed(str(config))
    for name in SIZES:
        size = said.get(name)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            raise ValueError(f"the config says {name}={size!r}: give a whole number")
    return said


def _parsed(text: str) -> dict:
    """JSON text, or a file of it, as a dict."""
    what = "the config"
    if not text.lstrip().startswith("{"):
        path = Path(text)
        path = path / "config.json" if is_folder(path) else path
        text, what = content(path, what, MOST).decode("utf-8", errors="replace"), str(path)
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{what} is no JSON: give a config.json, as it lies beside a model's weights") from None
    if not isinstance(said, dict):
        raise ValueError(f"{what} is a {type(said).__name__}: give an object of names and sizes, {{...}}")
    return said


def _size(said: dict, *names: str) -> int:
    for name in names:
        if said.get(name) is not None:
            return said[name]
    raise ValueError(f"the config says nothing of {names[0]}: add it")


def _gpt2(said: dict, context: int | None) -> Shape:
    layers, width, heads = (_size(said, name) for name in ("n_layer", "n_embd", "n_head"))
    length = context or _size(said, "n_positions", "n_ctx")
    return Shape(layers, width, heads, length, _size(said, "vocab_size"), tied=True, inner=said.get("n_inner"))


def _modern(said: dict, family: str, context: int | None) -> Imported:
    width, heads = _size(said, "hidden_size"), _size(said, "num_attention_heads")
    more: dict[str, Any] = {"inner": _size(said, "intermediate_size")}
    notes: list[str] = []
    if family in SPARSE:
        more, notes = _experts(said, family)
    per_head = said.get("head_dim")
    if said.get("kv_lora_rank"):
        per_head, found, left_out = _latents(said)
        more |= found
        notes += left_out
    elif said.get("num_key_value_heads"):
        more["kv_heads"] = said["num_key_value_heads"]
    if per_head and per_head * heads != width:
        more["per_head"] = per_head
    if said.get("sliding_window") and said.get("use_sliding_window", True):
        notes.append(f"a window of {said['sliding_window']} positions: attention is counted over all of them")
    if said.get("num_nextn_predict_layers"):
        notes.append(f"{said['num_nextn_predict_layers']} more layers that predict further tokens are not counted")
    more["context"] = context or _size(said, "max_position_embeddings")
    more["vocabulary"] = _size(said, "vocab_size")
    tied = bool(said.get("tie_word_embeddings", False))
    shape = Shape(_size(said, "num_hidden_layers"), width, heads, style="llama", tied=tied, **more)
    return Imported(shape, tuple(notes))


def _latents(said: dict) -> tuple[int, dict[str, int], list[str]]:
    """(the width of a head, sizes of latents, notes)."""
    per_head, keys = _size(said, "v_head_dim"), _size(said, "qk_nope_head_dim")
    sizes = {"latent": said["kv_lora_rank"], "rotary": _size(said, "qk_rope_head_dim")}
    sizes["query_latent"] = said.get("q_lora_rank") or 0
    notes = [f"heads of keys are {keys} wide, those of values {per_head}: counted as {per_head}"] * (keys != per_head)
    return per_head, sizes, notes


def _experts(said: dict, family: str) -> tuple[dict[str, Any], list[str]]:
    own = {"mixtral": "intermediate_size"}.get(family, "moe_intermediate_size")
    experts = _size(said, "num_local_experts", "num_experts", "n_routed_experts")
    more: dict[str, Any] = {"inner": _size(said, own), "experts": experts, "chosen": _size(said, "num_experts_per_tok")}
    more["shared"] = said.get("n_shared_experts") or 0
    if said.get("scoring_func") == "sigmoid":
        balance = "bias" if said.get("topk_method") == "noaux_tc" else "none"  # its name in DeepSeek's code
        more["routing"] = Routing(scores="sigmoid", balance=balance)
    notes = []
    if dense := said.get("first_k_dense_replace") or 0:
        notes.append(f"the first {dense} layers have one MLP of {said.get('intermediate_size')}; counted with experts")
    return more, notes
