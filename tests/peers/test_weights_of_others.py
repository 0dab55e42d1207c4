"""Weights to and from Hugging Face: what we write, `from_pretrained` reads, and the other way round."""

import sys

import pytest
import torch
from torch import nn

import hybridlab as hl

SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, vocab_size=40)
TOKENS = torch.arange(12).view(2, 6)


def llama(seed=0, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(**SIZES | {"num_key_value_heads": 1, "max_position_embeddings": 16} | more)
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("tied", [False, True])
def test_hugging_face_reads_what_we_write(tmp_path, tied):
    import transformers

    module = llama(tie_word_embeddings=tied)
    folder = hl.export(module, tmp_path / "ours")
    back = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(back) is transformers.LlamaForCausalLM and back.config.architectures == ["LlamaForCausalLM"]
    assert torch.equal(back(TOKENS).logits, module(TOKENS).logits)


@pytest.mark.parametrize("most", ["1GB", "10KB"])
@pytest.mark.parametrize("tied", [False, True])
def test_we_read_what_hugging_face_writes(tmp_path, most, tied):
    module = llama(tie_word_embeddings=tied)
    module.save_pretrained(tmp_path, max_shard_size=most)
    assert (tmp_path / "model.safetensors.index.json").exists() == (most == "10KB")
    found, own = hl.weights(tmp_path), module.state_dict()
    assert found.keys() == own.keys() - ({"lm_head.weight"} if tied else set())
    assert all(torch.equal(x, own[name]) for name, x in found.items())


class Sequence(nn.Module):
    """A Llama as layers in sequence, under its own names."""

    def __init__(self, whole):
        super().__init__()
        self.model, self.lm_head, self.config = whole.model, whole.lm_head, whole.config

    def layers(self):
        body = [Block(one, self.model.rotary_emb) for one in self.model.layers]
        return [self.model.embed_tokens, *body, nn.Sequential(self.model.norm, self.lm_head)]

    def forward(self, tokens):
        for layer in self.layers():
            tokens = layer(tokens)
        return tokens


class Block(nn.Module):
    def __init__(self, block, rotary):
        super().__init__()
        self.block, self.rotary = block, rotary

    def forward(self, x):
        places = torch.arange(x.shape[1])[None]
        mask = torch.full((x.shape[1], x.shape[1]), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)[None, None]
        made = self.block(x, attention_mask=mask, position_ids=places, position_embeddings=self.rotary(x, places))
        return made if torch.is_tensor(made) else made[0]


def in_sequence(seed):
    """One on a rank, where torchvision, whose build does not fit torch's, is better not there at all."""
    sys.modules.setdefault("torchvision", None)
    return Sequence(llama(seed + 2))


def loss(scores, tokens):
    return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


def data(step, rows):
    tokens = torch.randint(40, (rows, 6), generator=torch.Generator().manual_seed(step))
    return tokens, tokens


def test_a_training_begins_with_weights_of_hugging_face_and_gives_them_back(tmp_path):
    """Under Hugging Face's names, so that `from_pretrained` reads what ranks have trained."""
    given = llama(seed=1)
    given.save_pretrained(tmp_path / "theirs")
    more = dict(loss=loss, data=data, batch=8, microbatches=2, steps=2, rate=0.1, optimizer="sgd", progress=False)
    mine = hl.train(hl.Mesh(pp=2), model=in_sequence, weights=tmp_path / "theirs", **more)
    losses = []
    for step in range(2):
        tokens, _ = data(step, 8)
        said = loss(given(tokens).logits, tokens) / 8
        losses.append(said.item())
        given.zero_grad()
        said.backward()
        with torch.no_grad():
            for weight in given.parameters():
                weight -= 0.1 * weight.grad
    assert mine["losses"] == pytest.approx(losses, rel=1e-5)
    back = type(given).from_pretrained(hl.export(mine["model"], tmp_path / "ours")).eval()
    assert torch.allclose(back(TOKENS).logits, given.eval()(TOKENS).logits, rtol=1e-4, atol=1e-5)
