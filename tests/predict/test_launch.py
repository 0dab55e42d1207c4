"""From a config to a plan, from a plan to lines: families, refusals; every flag is one of the program's."""

import argparse
import json
import math
import re
import shlex
from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.what.catalog import model
from hybridlab.predict.bytes.context import USP
from hybridlab.predict.launch.imported import imported
from hybridlab.predict.launch.lines import megatron, slurm, torchtitan
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.predict.plans.planner import plan

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 32768,
    "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip
QWEN = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960,
    "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}


@pytest.mark.parametrize(
    "config, name", [(LLAMA, "llama3-70b"), (MIXTRAL, "mixtral-8x7b"), (QWEN, "qwen3-30b-a3b"), (GPT2, "gpt2-1.5b")]
)
def test_a_config_is_the_catalogs_model(config, name):
    assert imported(config) == (model(name).shape, ())


def test_what_a_shape_cannot_say_is_said():
    shape, notes = imported(DEEPSEEK, context=4096)
    assert (shape.layers, shape.experts, shape.chosen, shape.shared, shape.context) == (61, 256, 8, 1, 4096)
    assert shape == model("deepseek-v3").shape
    assert notes == ("1 more layers that predict further tokens are counted with further=1 only",)


QWEN2_MOE = {  # Qwen1.5-MoE-A2.7B, as published
    "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 5632,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
    "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": False,
    "use_sliding_window": False, "sliding_window": 32768,
}  # fmt: skip


@pytest.mark.parametrize(
    "config, published",
    [
        (QWEN2_MOE, 14.316e9),
        (
            QWEN2_MOE
            | {"hidden_size": 3584, "moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480}
            | {"num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28, "num_attention_heads": 28}
            | {"num_key_value_heads": 4},  # Qwen2-57B-A14B
            57.41e9,
        ),
        (GPT2 | {"n_layer": 12, "n_embd": 768, "n_head": 12, "tie_word_embeddings": False}, 163.0e6),
    ],
)
def test_all_weights_are_counted(config, published):
    shape, notes = imported(config)
    assert shape.parameters == pytest.approx(published, rel=0.003) and notes == ()


def dense(kind, layers, width, heads, kv_heads, inner, vocabulary, **more):
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    sizes |= {"num_key_value_heads": kv_heads, "intermediate_size": inner, "vocab_size": vocabulary}
    return {"model_type": kind, "max_position_embeddings": 4096} | sizes | more


PUBLISHED = {  # sizes from each model's config.json, and the number of weights that its model page prints
    "Gemma 2 9B": (dense("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256), 9.2417e9),
    "Gemma 3 1B": (dense("gemma3_text", 26, 1152, 4, 1, 6912, 262144, head_dim=256), 0.99989e9),
    "OLMo 2 7B": (dense("olmo2", 32, 4096, 32, 32, 11008, 100352), 7.2986e9),
    "Phi-3 mini": (dense("phi3", 32, 3072, 32, 32, 8192, 32064), 3.8211e9),
    "StarCoder 2 3B": (dense("starcoder2", 30, 3072, 24, 2, 12288, 49152), 3.0304e9),
    "Granite 3.1 8B": (dense("granite", 40, 4096, 32, 8, 12800, 49155, tie_word_embeddings=True), 8.1708e9),
    "Granite 3.1 3B": (
        dense("granitemoe", 32, 1536, 24, 8, 512, 49155, tie_word_embeddings=True)
        | {"num_local_experts": 40, "num_experts_per_tok": 8},
        3.2988e9,
    ),
    "SmolLM3 3B": (dense("smollm3", 36, 2048, 16, 4, 11008, 128256), 3.0751e9),
    "Minitron 4B": (dense("nemotron", 32, 3072, 24, 8, 9216, 256000, head_dim=128), 4.19e9),
    "GPT-OSS 20B": (
        dense("gpt_oss", 24, 2880, 64, 8, 2880, 201088, head_dim=64)
        | {"num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4},
        20.9148e9,
    ),
    "Falcon 7B": (dense("falcon", 32, 4544, 71, None, None, 65024, multi_query=True), 6.9217e9),
    "GPT-NeoX 20B": (dense("gpt_neox", 44, 6144, 64, 64, 24576, 50432), 20.5546e9),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_family_has_its_published_weights_and_a_plan(name):
    config, published = PUBLISHED[name]
    shape, notes = imported(config)
    assert shape.parameters == pytest.approx(published, rel=0.0005)
    assert [note.split(":")[0] for note in notes if "not read" in note] == []
    assert plan(shape, "h100", gpus=64, batch=64).best.step.total > 0


LLAMA4 = dense("llama4_text", 48, 5120, 40, 8, 8192, 202048, head_dim=128, intermediate_size_mlp=16384)
LLAMA4 |= {"num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}
V2 = DEEPSEEK | {"model_type": "deepseek_v2", "num_hidden_layers": 60, "hidden_size": 5120, "n_shared_experts": 2}
V2 |= {"intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160, "num_experts_per_tok": 6}
V2 |= {"first_k_dense_replace": 1, "vocab_size": 102400, "scoring_func": "softmax", "num_nextn_predict_layers": None}
K2 = DEEPSEEK | {"model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840}
K2 |= {"n_routed_experts": 384, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0}


@pytest.mark.parametrize(
    "config, published, plain",
    [
        (DEEPSEEK, 671.026e9, 3),
        (V2, 235.741e9, 1),
        (K2, 1026.4e9, 1),
        (LLAMA4, 400.7e9, 24),  # the text model of Llama 4 Maverick: experts in every other layer
        (LLAMA4 | {"num_local_experts": 16, "interleave_moe_layer_step": 1}, 107.77e9, 0),  # Scout
    ],
)
def test_models_with_unlike_blocks_have_their_published_weights(config, published, plain):
    shape, _ = imported(config, context=4096)
    assert shape.parameters == pytest.approx(published, rel=0.001) and len(shape.plain) == plain


def test_a_text_model_beside_one_of_images_is_read():
    text = dense("gemma3_text", 26, 1152, 4, 1, 6912, 262144, head_dim=256)
    assert imported({"model_type": "gemma3", "text_config": text}) == imported(text)


@pytest.mark.parametrize(
    "config, plain",
    [
        (QWEN | {"decoder_sparse_step": 2}, 24),
        (QWEN | {"mlp_only_layers": [0, 3]}, 2),
        (QWEN | {"decoder_sparse_step": 2, "mlp_only_layers": [0, 3]}, 25),
        (DEEPSEEK | {"moe_layer_freq": 2}, 61 - 29),  # of layers 3 to 60 those with an even number
        (DEEPSEEK | {"moe_layer_freq": [0] * 10 + [1] * 51}, 10),
    ],
)
def test_layers_without_experts_are_counted_by_their_codes_rules(config, plain):
    assert len(imported(config).shape.plain) == plain


def test_a_shared_expert_of_another_width_is_said():
    assert imported(QWEN2_MOE | {"shared_expert_intermediate_size": 2000}).notes == (
        "the shared expert is 2000 wide: counted as 1408",
    )


def test_what_sounds_like_weights_and_is_not_read_is_said():
    more = {"num_memory_tokens": 16, "loops_of_layers": [1, 2], "pad_token_id": 3, "rope_theta": 1e4, "n_group": 8}
    assert imported(LLAMA | more | {"layer_types": ["full_attention"], "hidden_act": "silu"}).notes == (
        "num_memory_tokens=16 is not read here",
        "loops_of_layers=[1, 2] is not read here",
    )


def test_the_command_asks_for_the_length_of_training_if_a_config_has_only_the_longest(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    ask = ["plan", "--config", str(tmp_path), "--machine", "h100", "--gpus", "64", "--batch", "64"]
    for more, told, length in (([], True, "40,960"), (["--context", "4096"], False, "4,096")):
        assert main([*ask, *more]) == 0
        said = capsys.readouterr().out
        assert (f"sequences of {length} tokens, the longest that the config allows: give --context" in said) == told
        assert f"Assumed: {length} tokens in a sequence" in said


def test_a_config_is_a_dict_a_text_a_file_or_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")  # as Notepad writes it
    every = [LLAMA, json.dumps(LLAMA), tmp_path / "config.json", str(tmp_path)]
    assert len({imported(one).shape for one in every}) == 1


@pytest.mark.parametrize(
    "config, words",
    [
        ({"model_type": "mamba"}, "model_type='mamba' is not known: choose one of gpt2, llama"),
        ({"model_type": "llama", "hidden_size": 8}, "the config lacks num_attention_heads: add it"),
        (LLAMA | {"num_key_value_heads": 0}, "num_key_value_heads=0 in the config is not valid: give a whole number"),
        (LLAMA | {"head_dim": 0}, "head_dim=0 in the config is not valid: give a whole number, 1 or more"),
        (DEEPSEEK | {"moe_layer_freq": [1]}, "moe_layer_freq has 1 entries for 61 layers: give one for each"),
        (QWEN | {"mlp_only_layers": "all"}, "mlp_only_layers='all' in the config is not valid: give a list of whole"),
        ([1, 2], "the config is a list: give a dict, a string or the path of a config.json"),
    ],
)
def test_what_cannot_be_read_is_said(config, words):
    with pytest.raises(ValueError, match=words):
        imported(config)


# --- lines ----------------------------------------------------------------------------------------------------------

SHAPE = hl.Shape(layers=8, width=64, heads=8, context=64, kv_heads=4, style="llama")
SWITCHES = (
    "sequence-parallel use-distributed-optimizer overlap-grad-reduce overlap-param-gather use-megatron-fsdp "
    "bf16 swiglu group-query-attention no-gradient-accumulation-fusion disable-bias-linear "
    "untie-embeddings-and-output-weights multi-latent-attention qk-layernorm"
).split()
VALUED = (
    "tensor-model-parallel-size pipeline-model-parallel-size micro-batch-size global-batch-size context-parallel-size "
    "num-layers-per-virtual-pipeline-stage pipeline-model-parallel-layout cp-comm-type expert-model-parallel-size "
    "expert-tensor-parallel-size "
    "data-parallel-sharding-strategy "
    "recompute-granularity recompute-method recompute-num-layers num-layers hidden-size num-attention-heads "
    "ffn-hidden-size seq-length max-position-embeddings num-query-groups kv-channels normalization "
    "position-embedding-type num-experts moe-router-topk moe-ffn-hidden-size moe-shared-expert-intermediate-size "
    "moe-token-dispatcher-type fp8-format attention-backend ckpt-format q-lora-rank kv-lora-rank qk-head-dim "
    "qk-pos-emb-head-dim v-head-dim"
).split()


def parsed(arguments):
    """By a parser with the flags of Megatron-LM's documentation, and no others."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    for name in VALUED:
        parser.add_argument(f"--{name}")
    parser.add_argument("--hierarchical-context-parallel-sizes", nargs="+", type=int)
    return vars(parser.parse_args(arguments))


@pytest.mark.slow
def test_every_plan_of_a_space_has_a_line_or_a_sentence():
    found = plan(SHAPE, "h100", gpus=16, batch=32, contexts=True, fused=True)
    for place in range(0, len(found.seconds), 41):
        one = found.one(place)
        said = parsed(megatron(one, SHAPE, 32))
        ways = [int(said[f"{name}_parallel_size"] or 1) for name in ("tensor_model", "pipeline_model", "context")]
        assert ways == [one.t, one.p, one.cp]
        layers = int(said["num_layers_per_virtual_pipeline_stage"] or SHAPE.layers // one.p)
        assert layers * one.p * one.v == SHAPE.layers and said["sequence_parallel"] == bool(one.sequence)
        assert said["use_distributed_optimizer"] == (one.zero > 0)
        assert said["data_parallel_sharding_strategy"] == {2: "optim_grads", 3: "optim_grads_params"}.get(one.zero)


def test_experts_and_narrow_products_have_their_flags():
    shape = imported(QWEN, context=4096).shape
    said = parsed(megatron(Plan(d=2, ep=8, zero=1, fused=True), shape, 32, "fp8"))
    assert (said["num_experts"], said["moe_router_topk"], said["kv_channels"]) == ("128", "8", "128")
    assert (said["expert_model_parallel_size"], said["fp8_format"]) == ("8", "hybrid")


def test_unequal_stages_have_a_layout():
    """The letters are unrolled as Megatron-LM does it: groups first, then single letters."""
    shape = model("llama3-405b").shape
    for one in (
        Plan(p=16, t=8, d=8, v=8, uneven=True),
        Plan(p=16, t=8, d=8, v=2, uneven=True),
        Plan(p=5, uneven=True),
    ):
        said = parsed(megatron(one, shape, 128))
        text = said["pipeline_model_parallel_layout"]
        for group in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
            text = re.sub(group, lambda found: found[1] * int(found[2]), text)
        stages = text.split("|")
        assert (stages[0][0], stages[-1][-1], text.count("E"), text.count("L")) == ("E", "L", 1, 1)
        assert [stage.count("t") for stage in stages] == dealt(126, one.p * one.v)
        assert said["num_layers_per_virtual_pipeline_stage"] is None


def test_latents_have_their_flags():
    said = parsed(megatron(Plan(p=61, d=2, ep=8, zero=1, fused=True), model("deepseek-v3").shape, 976))
    assert said["multi_latent_attention"] and said["qk_layernorm"] and said["kv_channels"] is None
    assert [said[name] for name in ("q_lora_rank", "kv_lora_rank", "qk_pos_emb_head_dim")] == ["1536", "512", "64"]
    assert [said[name] for name in ("qk_head_dim", "v_head_dim")] == ["128", "128"]


@pytest.mark.parametrize(
    "write, one, words",
    [
        (megatron, Plan(x=2), "does not support the axis x"),
        (megatron, Plan(d=4, zero=3, secondary=2), "keeps no second copy of the weights near"),
        (torchtitan, Plan(d=4, zero=3, secondary=2), "keeps no second copy of the weights near"),
        (torchtitan, Plan(d=4, zero=3, z=2, two_levels=True), "replicates the optimizer's state between groups"),
        (megatron, Plan(d=2, sync_every=64), "has no local steps: leave out sums and sync_every"),
        (torchtitan, Plan(d=2, sync_every=64), "takes local steps through torchft, with a command for each copy"),
        (megatron, Plan(p=2, spread_head=True), "has no pieces of the head on all stages"),
        (torchtitan, Plan(p=2, spread_head=True), "has no pieces of the head on all stages"),
        (torchtitan, Plan(cp=4, attend=USP, ulysses=2), "has no flag to exchange heads inside a ring"),
        (megatron, Plan(recompute=2, redone=0.5), "leave them out"),
        (torchtitan, Plan(d=2, zero=1), "give zero=3 or zero=0"),
        (torchtitan, Plan(t=2), "give sequence=True"),
        (torchtitan, Plan(x=2), "does not support the axis x"),
        (megatron, Plan(p=3), "must divide"),
    ],
)
def test_what_a_program_cannot_do_is_said(write, one, words):
    with pytest.raises(ValueError, match=words):
        write(one, SHAPE, 32)


@pytest.mark.parametrize(
    "write, one, more, words",
    [
        (megatron, Plan(cp=2), {"context": 66}, "splits a sequence into 2·cp pieces"),
        (megatron, Plan(t=4, sequence=True), {"context": 66}, "splits a sequence into t·cp pieces with sequence"),
        (megatron, Plan(t=2), {"experts": 4, "chosen": 2}, "combines experts and tensor parallelism only with"),
        (megatron, Plan(), {"heads": 0, "kv_heads": None}, "starts only models with attention"),
        (torchtitan, Plan(t=8, sequence=True), {}, "does not copy KV heads over t"),
        (torchtitan, Plan(t=4, sequence=True), {"context": 68}, "splits a sequence into 2·t·cp pieces"),
        (torchtitan, Plan(cp=2), {"context": 66}, "splits a sequence into 2·t·cp pieces"),
        (torchtitan, Plan(), {"heads": 0, "kv_heads": None}, "starts only models with attention"),
    ],
)
def test_a_legal_plan_that_a_program_refuses_has_no_line(write, one, more, words):
    shape = replace(SHAPE, **more)
    check_plan(one, shape, 32)
    with pytest.raises(ValueError, match=f"{'torchtitan' if write is torchtitan else 'Megatron-LM'} .*{words}"):
        write(one, shape, 32)


def test_fewer_heads_of_keys_than_ranks_are_copied_by_megatron():
    assert "--num-query-groups" in megatron(Plan(t=8, sequence=True), SHAPE, 32)


def test_torchtitan_shards_among_owners_and_copies_them():
    words = torchtitan(Plan(p=2, t=2, d=8, b=1, v=2, zero=3, z=4, sequence=True), SHAPE, 32)
    said = dict(zip(words[::2], words[1::2]))
    assert said["--parallelism.data_parallel_shard_degree"] == "4"
    assert said["--parallelism.data_parallel_replicate_degree"] == "2"
    assert said["--parallelism.pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert said["--training.local_batch_size"] == "4" and said["--parallelism.pipeline_parallel_microbatch_size"] == "1"


def of_torchtitan(one, shape, batch):
    """The degrees of a line of torchtitan, by their names without what all have in common."""
    words = torchtitan(one, shape, batch)
    said = dict(zip(words[::2], words[1::2], strict=True))
    ways = {name.removeprefix("--parallelism."): value for name, value in said.items() if name.endswith("_degree")}
    return {name.removesuffix("_degree").removesuffix("_parallel"): int(value) for name, value in ways.items()}


def refused_by_torchtitan(ways, world):
    """Its rules of degrees in words of our own: pytorch/torchtitan at commit 0119de1, torchtitan/distributed/
    parallel_dims.py, `ParallelDims._validate`. At b5bcd76 the first is the same, the others are one, and weaker."""
    shared = ways["data_parallel_shard"] * ways["context"]
    if math.prod(ways[name] for name in ("data_parallel_replicate", "tensor", "pipeline")) * shared != world:
        return "the product of all degrees but those of experts is the number of ranks"
    if ways["expert"] > 1:
        experts, tensor = ways["expert"], ways["expert_tensor"]
        if tensor not in (1, ways["tensor"]):
            return "experts are cut as all else is, or not"
        along_tp = ways["tensor"] if tensor == 1 else 1
        if experts % (ways["context"] * along_tp) or shared * along_tp % experts:
            return "ranks of experts are some of those that share weights, and all along cp"
    return ""


@pytest.mark.long
def test_every_line_of_torchtitan_keeps_to_its_rules_of_degrees():
    shape = replace(SHAPE, experts=8, chosen=2)
    found, written = plan(shape, "h100", gpus=32, batch=64, contexts=True, experts=True, fused=True), 0
    for place in range(0, len(found.seconds), 17):
        one = found.one(place)
        try:
            ways = of_torchtitan(one, shape, 64)
        except ValueError as error:
            assert str(error).startswith("torchtitan ")
            continue
        assert refused_by_torchtitan(ways, 32) == "", one
        written += one.ep > 1
    assert written > 10


def test_torchtitans_experts_stand_on_ranks_that_share_weights():
    shape = replace(SHAPE, experts=8, chosen=2)
    one = Plan(p=2, t=2, d=2, ep=4, b=1, zero=3, sequence=True)
    ways = of_torchtitan(one, shape, 32)
    assert (ways["data_parallel_shard"], ways["data_parallel_replicate"]) == (8, 1)
    assert (ways["expert"], ways["expert_tensor"]) == (4, 2) and refused_by_torchtitan(ways, 32) == ""
    assert "expert_tensor" not in of_torchtitan(one._replace(ep=1), shape, 32)
    ways = of_torchtitan(one._replace(ep=2, d=4, cp=2, fold=True), shape, 32)
    assert (ways["expert"], ways["expert_tensor"]) == (8, 1) and refused_by_torchtitan(ways, 64) == ""
    assert refused_by_torchtitan(ways | {"data_parallel_shard": 2}, 32)  # as this line was once


@pytest.mark.parametrize(
    "more, words",
    [
        ({"cp": 2, "zero": 3}, "takes the ranks along cp for experts too"),
        ({"zero": 0}, "shards all weights among the ranks along ep and cp: give zero=3"),
        ({"ep": 1, "cp": 2, "zero": 0}, "shards all weights among the ranks along ep and cp: give zero=3"),
        ({"zero": 3, "z": 2}, "not so many owners: leave out z"),
        ({"zero": 3, "dispatch": 1}, "by all-to-alls: leave out dispatch"),
    ],
)
def test_how_torchtitan_cannot_place_experts_is_said(more, words):
    with pytest.raises(ValueError, match=f"^torchtitan .*{words}"):
        torchtitan(Plan(**{"d": 2, "ep": 4} | more), replace(SHAPE, experts=8, chosen=2), 32)


def test_a_script_asks_for_as_many_nodes_as_are_needed():
    text = slurm(Plan(p=4, d=8), 8, "pretrain_gpt.py", megatron(Plan(p=4, d=8), SHAPE, 32), hours=1.5)
    assert "#SBATCH --nodes=4\n" in text and "#SBATCH --time=01:30:00\n" in text and "--nproc-per-node=8" in text
    line = text.splitlines()[-1].split("pretrain_gpt.py ")[1]
    assert parsed(shlex.split(line))["pipeline_model_parallel_size"] == "4"
    with pytest.raises(ValueError, match="do not fill whole nodes of 8"):
        slurm(Plan(d=12), 8, "training.py", [])


def test_groups_of_owners_are_megatrons_instances():
    for levels, outer in ((False, "no_shard"), (True, "optim")):
        words = " ".join(megatron(Plan(d=8, zero=3, z=2, two_levels=levels), SHAPE, 32))
        assert f"--num-distributed-optimizer-instances 4 --outer-dp-sharding-strategy {outer}" in words
    with pytest.raises(ValueError, match="lets all ranks along ep share weights"):
        megatron(Plan(d=4, ep=2, zero=3, z=2), replace(SHAPE, experts=8, chosen=2), 32)
