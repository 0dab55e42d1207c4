"""Plans of Hugging Face read without their package: from modules that are built like theirs."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import hybridlab as hl
from hybridlab.training.data.tokens import Tokens
from hybridlab.training.models.huggingface import _refuse_draws
from hybridlab.training.models.planned_layers import Layers, called, calls_of, heard
from hybridlab.training.models.tp_plan import dims_of

WIDTH, HEADS, KEYS = 8, 4, 2


class Attention(nn.Module):
    head_dim = 2

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 4, bias=False)
        self.norm, self.o = nn.RMSNorm(2), nn.Linear(8, WIDTH)

    def forward(self, states, mask, turn=None):
        return self.o(self.q(states)) * mask + turn[0]


class MLP(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)


class Block(nn.Module):
    def __init__(self, hidden: int = 16):
        super().__init__()
        self.attention, self.mlp = Attention(), MLP(hidden)

    def forward(self, states, mask=None, turn=None, cache=None):
        states = states + self.attention(states=states, mask=mask, turn=turn)
        return states + self.mlp.down(self.mlp.up(states).relu())


class Base(nn.Module):
    """What a base model's forward does: embeds, makes a mask and turns once, calls its blocks, norms."""

    _pp_plan = {"embed": ([], []), "blocks": ([], []), "norm": ([], [])}

    def __init__(self, between=False):
        super().__init__()
        self.embed, self.norm = nn.Embedding(5, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks, self.between = nn.ModuleList([Block(), Block(hidden=24)]), between

    def forward(self, ids=None, inputs_embeds=None, use_cache=True):
        states = 3 * (self.embed(ids) if inputs_embeds is None else inputs_embeds)
        mask, turn = torch.ones(states.shape[1], 1).tril(), (states.detach().cos(), torch.ones(1))
        for block in self.blocks:
            states = block(states, mask=mask, turn=turn, cache=None)
            states = 2 * states if self.between else states
        return SimpleNamespace(last_hidden_state=self.norm(states))


class Whole(nn.Module):
    base_model_prefix = "base"
    config = SimpleNamespace(num_attention_heads=HEADS, num_key_value_heads=KEYS, to_dict=lambda: {"attn_drop": 0.1})
    _tp_plan = {
        "base.blocks.*.attention.q": "colwise", "base.blocks.*.attention.k": "colwise",
        "base.blocks.*.attention.norm": "replicated_with_grad_allreduce", "base.blocks.*.attention.o": "rowwise",
        "base.blocks.*.mlp.up": "colwise", "base.blocks.*.mlp.down": "rowwise", "head": "colwise_gather_output",
    }  # fmt: skip

    def __init__(self, between=False):
        super().__init__()
        self.base, self.head = Base(between), nn.Linear(WIDTH, 5, bias=False)
        self.head.weight = self.base.embed.weight  # tied

    @property
    def base_model(self):
        return self.base

    def forward(self, *args, **named):
        return SimpleNamespace(logits=0.5 * self.head(self.base(*args, **named).last_hidden_state))


IDS = torch.tensor([[0, 1, 2], [2, 3, 4]])


def layers_of(module):
    return Layers("blocks", ("norm",), calls_of(module, "blocks", ("norm",), IDS))(module)


def test_opening_blocks_and_closing_do_what_the_forward_does():
    module = Whole()
    x, layers = IDS, layers_of(module)
    for layer in layers:
        x = layer(x)
    assert len(layers) == 4 and torch.equal(x, called(module, IDS))
    x.sum().backward()
    mine = {name: weight.grad.clone() for name, weight in module.named_parameters() if weight.grad is not None}
    module.zero_grad()
    called(module, IDS).sum().backward()
    assert all(torch.equal(mine[name], x.grad) for name, x in module.named_parameters() if x.grad is not None)


def test_what_blocks_are_given_is_computed_once_and_travels():
    x, *carried = layers_of(Whole())[0](IDS)
    assert [tuple(one.shape) for one in carried] == [(3, 1), (2, 3, WIDTH), (1,)]
    assert x.requires_grad and not any(one.requires_grad for one in carried)
    (_, _, named, _), _ = heard(Whole().base, "blocks", 2, IDS)
    assert list(named) == ["mask", "turn", "cache"]


def test_each_weight_is_in_its_layer_and_a_tied_one_in_both_ends():
    module = Whole()
    opening, first, second, closing = ({id(x) for x in layer.parameters()} for layer in layers_of(module))
    assert opening == {id(module.head.weight)} and opening < closing and not (first & second)
    assert closing - opening == {id(x) for x in module.base.norm.parameters()}


def test_something_between_two_blocks_is_refused():
    with pytest.raises(ValueError, match=r"computes something between blocks\.0 and blocks\.1.*hl\.Model\.traced"):
        layers_of(Whole(between=True))


def test_pairs_of_colwise_and_rowwise_become_dims():
    dims, sizes, left = dims_of(Whole())
    at = lambda name: dims.get(f"base.blocks.0.{name}")
    assert [at(f"attention.{name}") for name in ("q.weight", "q.bias", "k.weight", "o.weight", "o.bias")] == [
        "NH .", "NH", "NH .", ". NH", None,
    ]  # fmt: skip
    assert at("attention.norm.weight") is None and at("mlp.up.weight") == "FH ."
    assert sizes == {"N": KEYS, "F": 8} and left == ["colwise_gather_output"]  # F: of 16 and 24


def test_a_module_of_another_kind_stays_whole():
    module = Whole()
    module._tp_plan = Whole._tp_plan | {"base.blocks.*.attention.k": "packed_colwise"}
    dims, sizes, left = dims_of(module)
    assert not any("attention" in name for name in dims) and set(sizes) == {"F"} and "packed_colwise" in left


def test_dropout_names_what_to_set():
    module = Whole()
    module.base.blocks[0].attention.dropout = 0.1
    with pytest.raises(ValueError, match=r"Attention draws dropout .* give the config attn_drop=0\.0"):
        _refuse_draws(module)
    _refuse_draws(module.base.blocks[1].mlp)


def test_tokens_are_those_of_the_step_and_of_the_whole_vocabulary_in_a_proof():
    for vocabulary in (64, 300):
        source = Tokens(vocabulary, 6)
        tokens, targets = source.batch(3, 4)
        assert torch.equal(tokens, source.batch(3, 4)[0]) and not torch.equal(tokens, source.batch(4, 4)[0])
        assert torch.equal(source.for_proof.batch(0, 4)[0], Tokens(vocabulary, 6, spread=True).batch(0, 4)[0])
        assert not torch.equal(tokens, source.unseen.batch(3, 4)[0]) and int(targets.max()) < vocabulary


def test_without_the_package_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match="needs the package transformers: pip install transformers"):
        hl.Model.from_hf("config.json")
