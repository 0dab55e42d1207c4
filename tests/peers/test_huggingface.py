"""Language models of Hugging Face by their plans: each equals its own forward, or one sentence says why not.

One line a class. The table is exact: a model that no longer runs, or one that now does, changes it.
"""

import pathlib
import re

import pytest
import torch
import transformers
from on_pools import LAYOUTS, outcomes, pools

import hybridlab as hl
from hybridlab.training.models.gallery import named
from hybridlab.training.models.huggingface import IGNORED

pytestmark = [pytest.mark.ranks, pytest.mark.long]

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 8, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
DEEPSEEK = EXPERTS | LATENT | {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
GROUPS = {"head_dim": 8}
GLM = EXPERTS | GROUPS | {"n_routed_experts": 4, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
GPTJ = {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
NEXT = EXPERTS | GROUPS | {"num_experts": 4, "shared_expert_intermediate_size": 16}
NEXT |= {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}

EVERY = "equal"  # in all layouts
NO_PAIR = "no pair of colwise and rowwise"  # under tp: its plan gathers inside layers
NO_PLAN = "has no plan (_pp_plan)"
MODELS = {
    "Llama": ({}, EVERY),
    "Qwen2": ({}, EVERY),
    "Qwen3": (GROUPS, EVERY),
    "Mistral": ({}, EVERY),
    "Gemma": (GROUPS, EVERY),
    "Gemma2": (GROUPS, EVERY),
    "Gemma3Text": (GROUPS, EVERY),
    "Olmo": ({}, EVERY),
    "Olmo2": ({}, EVERY),
    "Starcoder2": ({}, EVERY),
    "Phi": ({}, EVERY),
    "Phi3": ({}, NO_PAIR),
    "GPTNeoX": ({}, EVERY),
    "Granite": ({}, EVERY),
    "Cohere": ({}, EVERY),
    "SmolLM3": ({}, EVERY),
    "Glm": (GROUPS, EVERY),
    "Mixtral": ({"num_local_experts": 4}, EVERY),
    "Qwen2Moe": (EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 48}, EVERY),
    "Qwen3Moe": (EXPERTS | GROUPS | {"num_experts": 4}, EVERY),
    "DeepseekV3": (DEEPSEEK | {"num_key_value_heads": 4}, EVERY),
    "Arcee": ({}, EVERY),
    "Exaone4": (GROUPS, EVERY),
    "Helium": (GROUPS, EVERY),
    "Ministral": (GROUPS, EVERY),
    "Olmo3": ({}, EVERY),
    "Ernie4_5": (GROUPS, EVERY),
    "Apertus": ({}, EVERY),
    "Cohere2": (GROUPS | {"sliding_window": 4}, EVERY),
    "Glm4": (GROUPS, EVERY),
    "Glm4Moe": (GLM, EVERY),
    "GPTJ": (GPTJ, EVERY),
    "VaultGemma": (GROUPS, EVERY),
    "MiniMax": (GROUPS | {"num_local_experts": 4}, EVERY),
    "Qwen3Next": (NEXT, EVERY),
    "GptOss": (GROUPS | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}, NO_PAIR),
    "DeepseekV2": (
        DEEPSEEK | {"num_key_value_heads": 4, "head_dim": 4},
        EVERY,
    ),  # its rotary embeddings are complex: PiPPy #941
    "GraniteSWA": (GROUPS | {"sliding_window": 4}, EVERY),  # its plan shards a parameter of the attention itself
    "Qwen3_5Text": (NEXT, EVERY),
    "NanoChat": (GROUPS, NO_PLAN),
    "Olmoe": ({"num_experts": 4, "num_experts_per_tok": 2}, NO_PLAN),
    "GPT2": ({"n_embd": 32, "n_layer": 2, "n_head": 4}, NO_PLAN),
    "StableLm": ({}, NO_PLAN),
    "Bloom": ({"n_layer": 2, "n_head": 4}, NO_PLAN),
    "HrmText": (GROUPS, NO_PLAN),  # its plan names layers that the model has not
    "OPT": ({"ffn_dim": 64, "word_embed_proj_dim": 32}, NO_PLAN),
}


def config_of(name: str, **more):
    return getattr(transformers, f"{name}Config")(**{**SMALL, **MODELS[name][0], **more})


def scores(module, tokens):
    return module(tokens, use_cache=False).logits


@pytest.fixture(scope="module")
def ranks_of():
    with pools(LAYOUTS) as opened:
        yield opened


@pytest.mark.parametrize("name", [name for name, (_, said) in MODELS.items() if said != NO_PLAN])
def test_a_model_is_its_own_forward_in_every_layout(name, ranks_of):
    found = outcomes(hl.Model.from_hf(config_of(name)), ranks_of, scores)
    if MODELS[name][1] is NO_PAIR:
        assert NO_PAIR in found.pop("tp2")
    assert found == dict.fromkeys(found, "equal")
    assert len(found) >= 3


@pytest.mark.parametrize("name", [name for name, (_, said) in MODELS.items() if said == NO_PLAN])
def test_a_model_without_a_plan_is_told_the_remedy(name):
    with pytest.raises(ValueError, match=r"has no plan \(_pp_plan\).*hl\.Model\.traced"):
        hl.Model.from_hf(config_of(name))


def test_thirty_seven_classes_run_in_all_four_layouts():
    assert sum(said is EVERY for _, said in MODELS.values()) == 37


def test_the_page_on_own_models_is_right(tmp_path):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "own-model.md").read_text()
    (code,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.S) if "from_hf" in one)
    *lines, check = code.strip().splitlines()
    names = {"hl": hl}
    exec("\n".join(lines), names)
    assert eval(check, names).ok
    names["config"].save_pretrained(tmp_path)
    assert isinstance(named(str(tmp_path / "config.json")), hl.Model)
    with pytest.raises(ValueError, match="does not exist, and nothing is downloaded: give the path"):
        named("absent/config.json")


def test_a_model_that_hands_on_more_than_its_states_is_told_the_remedy():
    """Gemma 4's ends share a matrix beside the head; blocks of GLM with sparse attention hand on what they chose."""
    for name, more in (("Gemma4Text", {"head_dim": 8}), ("GlmMoeDsa", DEEPSEEK | {"num_key_value_heads": 4})):
        config = getattr(transformers, f"{name}Config")(**SMALL | more)
        with pytest.raises(ValueError, match=r"more than one tensor between its embeddings.*hl\.Model\.traced"):
            hl.Model.from_hf(config)


def test_a_balance_loss_inside_the_forward_is_refused():
    with pytest.raises(
        ValueError, match="MixtralForCausalLM adds a loss .* give the config output_router_logits=False"
    ):
        hl.Model.from_hf(config_of("Mixtral", output_router_logits=True))


def test_rotary_frequencies_are_as_wide_as_in_the_models_own_bfloat16():
    """Reports: gpt-neox #1003, transformers #25681, DeepSpeed #8066. Rounded, they turn late positions wrongly."""
    config = config_of("Llama")
    own = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    mine = hl.Model.from_hf(config).made(0, torch.bfloat16)
    assert mine.lm_head.weight.dtype == own.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(mine.model.rotary_emb.inv_freq, own.model.rotary_emb.inv_freq)
    trained = hl.train(
        hl.Mesh(pp=2), model=hl.Model.from_hf(config), batch=4, steps=1, dtype="bfloat16", progress=False
    )
    assert 3 < trained["losses"][0] < 6


def packed(step, rows):
    """Two documents in a row: a mask and positions for each, in a dict as a collator makes it."""
    tokens = torch.randint(1, 64, (rows, 9), generator=torch.Generator().manual_seed(step))
    of = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    seen = (of[:, None] == of) & torch.ones(8, 8, dtype=torch.bool).tril()
    mask = torch.where(seen, 0.0, -1e9).expand(rows, 1, 8, 8)
    labels = tokens[:, 1:].clone()
    labels[:, 2] = IGNORED
    positions = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4]).expand(rows, 8)
    return {"input_ids": tokens[:, :-1], "attention_mask": mask, "position_ids": positions, "labels": labels}


def test_packed_documents_from_a_function_of_the_step_train_as_alone():
    """Public report: Megatron-LM #453."""
    given = transformers.AutoModelForCausalLM.from_config(config_of("Llama"), attn_implementation="eager").double()
    report = hl.check(hl.Mesh(pp=2), model=hl.Model.from_hf(given, data=packed), batch=4)
    assert report.ok, report
    loss = hl.train(
        hl.Mesh(pp=2), model=hl.Model.from_hf(given, data=packed), batch=4, steps=1, dtype="float64", progress=False
    )["losses"][0]
    batch = packed(0, 4)
    of = lambda part: torch.nn.functional.cross_entropy(
        given(batch["input_ids"][:, part], use_cache=False).logits.flatten(0, 1),
        batch["labels"][:, part].flatten(),
        reduction="sum",
    )
    alone = (of(slice(3)) + of(slice(3, 8))) / 32
    assert abs(loss - alone.item()) < 1e-6  # norms of Hugging Face compute in float32


def test_a_models_own_weights_are_taken():
    given = transformers.AutoModelForCausalLM.from_config(config_of("Llama"))
    model = hl.Model.from_hf(given, tokens=8)
    mine = model.made(0, torch.float64)
    assert all(torch.equal(mine.get_parameter(name), x.double()) for name, x in given.named_parameters())


def test_what_draws_or_is_no_language_model_is_refused():
    with pytest.raises(ValueError, match=r"draws dropout .* give the config attention_dropout=0\.0"):
        hl.Model.from_hf(transformers.LlamaConfig(**SMALL, attention_dropout=0.1))
    with pytest.raises(ValueError, match="ViTConfig describes no language model: give the model itself"):
        hl.Model.from_hf(transformers.ViTConfig(hidden_size=8, num_attention_heads=2))
    with pytest.raises(ValueError, match="int is not a Hugging Face model"):
        hl.Model.from_hf(3)


class Padded(torch.utils.data.Dataset):
    """Rows as a tokenizer and a collator of Hugging Face give them: some without padding, others with."""

    def __init__(self, names=("input_ids", "attention_mask", "labels"), shifted=True):
        self.names, self.shifted = names, shifted

    def __len__(self):
        return 8

    def __getitem__(self, number):
        drawn = torch.randint(1, 64, (9,), generator=torch.Generator().manual_seed(number))
        mask = (torch.arange(9) < 9 - number % 3).long()
        tokens, labels = drawn * mask, torch.where(mask.bool(), drawn, IGNORED)
        ends = slice(1, None) if self.shifted else slice(None, -1)
        row = {"input_ids": tokens[:-1], "attention_mask": mask[:-1], "labels": labels[ends]}
        return {name: row[name] for name in self.names}


def test_a_dataset_of_a_tokenizer_trains_as_on_one_device():
    report = hl.check(hl.Mesh(pp=2), model=hl.Model.from_hf(config_of("Llama"), data=Padded()), batch=4)
    assert report.ok, report


def test_a_dry_run_answers_what_masks_ask():
    """Whether a batch has padding is known from the batch; which expert gets a token is not."""
    model = hl.Model.from_hf(config_of("Llama"), data=Padded())
    one = hl.dry_run(hl.Mesh(pp=2), model=model, batch=4, microbatches=2, dtype="float32")
    assert one.bytes["messages"] >= 4 * 8 * 32 * 4, "of four rows, 8 tokens of width 32 in float32"
    with pytest.raises(ValueError, match=r"reads values of a tensor \(nonzero\) that a dry run does not know"):
        hl.dry_run(hl.Mesh(pp=2), model=hl.Model.from_hf(config_of("Mixtral")), batch=4, microbatches=2)


def test_inputs_in_another_order_than_the_forward_takes_are_refused():
    data = Padded(("attention_mask", "input_ids", "labels"))
    said = (
        "data has the inputs attention_mask, input_ids, but LlamaForCausalLM takes input_ids, attention_mask, .*: give"
    )
    with pytest.raises(ValueError, match=said):
        hl.Model.from_hf(config_of("Llama"), data=data)


def test_labels_that_are_not_shifted_are_refused_but_for_a_loss_that_shifts():
    """Beside the token that it is asked for, a model would learn to copy its input."""
    with pytest.raises(ValueError, match="the targets equal the inputs.*next token of each position, and -100"):
        hl.Model.from_hf(config_of("Llama"), data=Padded(shifted=False))

    def shifting(scores, labels):
        kept = scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(*kept, reduction="sum")

    model = hl.Model.from_hf(config_of("Llama"), loss=shifting, data=Padded(shifted=False))
    assert hl.check(hl.Mesh(dp=2), model=model, batch=4, microbatches=2).ok


def test_fused_attention_of_a_model_that_is_given_with_masks_is_refused():
    """In a batch without padding it has no mask, so other tensors would travel than in one with padding."""
    given = transformers.AutoModelForCausalLM.from_config(config_of("Llama"))
    with pytest.raises(ValueError, match="attention 'sdpa' drops the mask of a batch without padding"):
        hl.Model.from_hf(given, data=Padded())
    given.set_attn_implementation("eager")
    hl.Model.from_hf(given, data=Padded())
