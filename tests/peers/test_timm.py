"""Nets of timm, and models without a plan, cut by torch's tracer: each equals its own forward, as it is, by one line.

Batch norm and dropout are not asked of them: the examination refuses both, traced or not.
"""

import functools

import pytest
import timm
import torch
import transformers
from on_pools import LAYOUTS, outcomes, pools
from torch.nn import functional

import hybridlab as hl

pytestmark = [pytest.mark.ranks, pytest.mark.long]

BLOCKS = ("blocks.1",)
SMALL = {"img_size": 16, "patch_size": 8, "embed_dim": 16}
VIT = SMALL | {"depth": 2, "num_heads": 2}
RESNET = {"layers": (1, 1, 1, 1), "norm_layer": functools.partial(timm.layers.GroupNorm, num_groups=4)}
SWIN = {"img_size": 16, "patch_size": 2, "window_size": 2, "embed_dim": 8, "depths": (1, 2), "num_heads": (2, 4)}
NETS = {  # a name of timm's list, or a class, where the list fixes the sizes; what it is told; where it is cut
    "resnet18": (RESNET | {"channels": (16, 16, 24, 32)}, ("layer2", "layer4")),
    "resnet26": (RESNET | {"channels": (8, 8, 16, 16)}, ("layer3",)),
    "vit_tiny_patch16_224": (VIT, BLOCKS),
    "deit_tiny_patch16_224": (VIT, BLOCKS),
    "deit_tiny_distilled_patch16_224": (VIT, BLOCKS),
    "beit_base_patch16_224": (VIT, BLOCKS),
    "cait_xxs24_224": (VIT, BLOCKS),
    "eva02_tiny_patch14_224": (VIT, BLOCKS),
    "swin_tiny_patch4_window7_224": (SWIN | {"drop_path_rate": 0.0}, ("layers.1",)),
    "MlpMixer": (SMALL | {"num_blocks": 2}, BLOCKS),
}
TRACED = [name for name in LAYOUTS if name != "tp2"]
TOKENS = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "pad_token_id": 0}
CLASSES = {  # of Hugging Face, whose classes have no plan
    "GPT2": (
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        ["transformer.h.1"],
    ),
    "StableLm": ({"num_hidden_layers": 2, "num_key_value_heads": 2}, ["model.layers.1"]),
    "OPT": (
        {"num_hidden_layers": 2, "ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.0},
        ["model.decoder.layers.1"],
    ),
}


def made(name, seed):
    kind = getattr(timm.models, name) if name[0].isupper() else functools.partial(timm.create_model, name)
    return kind(num_classes=10, **NETS[name][0])


def pictures(step, rows):
    drawn = torch.Generator().manual_seed(step)
    return torch.randn(rows, 3, 16, 16, generator=drawn), torch.randint(10, (rows,), generator=drawn)


def label_loss(scores, labels):
    return functional.cross_entropy(scores, labels, reduction="sum")


def tokens(step, rows):
    drawn = torch.randint(64, (rows, 9), generator=torch.Generator().manual_seed(step))
    return {"input_ids": drawn[:, :-1]}, drawn[:, 1:]


def of_class(name, seed):
    config = getattr(transformers, f"{name}Config")(**{**TOKENS, **CLASSES[name][0]}, use_cache=False)
    return transformers.AutoModelForCausalLM.from_config(config)


def token_loss(made, targets):
    return functional.cross_entropy(made.logits.flatten(0, 1), targets.flatten(), reduction="sum")


@pytest.fixture(scope="module")
def ranks_of():
    with pools(TRACED) as opened:
        yield opened


@pytest.mark.parametrize("name", NETS)
def test_a_net_is_its_own_forward_in_every_layout(name, ranks_of):
    model = hl.Model.traced(functools.partial(made, name), label_loss, pictures, cuts=NETS[name][1])
    assert outcomes(model, ranks_of, lambda net, x: net(x)) == dict.fromkeys(TRACED, "equal")


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_without_a_plan_takes_named_inputs_and_gives_its_own_output(name, ranks_of):
    model = hl.Model.traced(functools.partial(of_class, name), token_loss, tokens, cuts=CLASSES[name][1], terms=8)
    own = lambda net, x: net(input_ids=x).logits
    assert outcomes(model, ranks_of, own) == dict.fromkeys(TRACED, "equal")


def test_batch_norm_is_refused_when_traced_too():
    with pytest.raises(ValueError, match=r"the forward of ResNet changes the buffer .*eval\(\)"):
        hl.Model.traced(lambda seed: timm.create_model("resnet10t"), label_loss, pictures, cuts=["layer3"])


def test_a_graph_has_no_modules_that_tp_could_shard():
    name = "vit_tiny_patch16_224"
    model = hl.Model.traced(functools.partial(made, name), label_loss, pictures, cuts=NETS[name][1])
    with pytest.raises(
        ValueError, match="this model has none: a traced graph has no modules that could be cut: leave this axis out"
    ):
        hl.dry_run(hl.Mesh(tp=2), model=model, batch=4)


def test_ten_nets_of_timm_run():
    assert len(NETS) == 10
