"""What a forward leaves behind: the paper's formulas, our model's to the byte, and both counted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.labs.megatron import sizes as megatron_sizes
from hybridlab.measuring.saved import Saved
from hybridlab.predict.bytes import saved
from hybridlab.predict.bytes.activations import RECOMPUTE, kept, kept_for
from hybridlab.training.models.gpt import GPT, token_loss

SMALL = hl.Shape(layers=1, width=32, heads=4, context=16)
LIKE = {
    "as it is": SMALL,
    "three blocks": replace(SMALL, layers=3),
    "no heads": replace(SMALL, heads=0),
    "fewer heads of keys": replace(SMALL, kv_heads=2),
    "dropped": replace(SMALL, layers=2, dropout=0.1),
    "dropped, no heads": replace(SMALL, heads=0, dropout=0.1),
    "tied": replace(SMALL, tied=True),
    "more words": replace(SMALL, vocabulary=300, context=20, width=48, heads=6),
}
gpts = st.builds(
    lambda a, width, s: hl.Shape(layers=2, width=a * width, heads=a, context=s),
    st.integers(1, 16),
    st.integers(1, 64),
    st.integers(1, 512),
)


# --- the paper ----------------------------------------------------------------------------------------------------

SETTINGS = {  # Korthikanti et al. 2022, table 2: (ways, sequence, recompute) -> bytes of a block, over s·b·h
    "no parallelism": (lambda t: (1, False, "none"), lambda t, scores: 34 + scores),
    "tensor": (lambda t: (t, False, "none"), lambda t, scores: 10 + 24 / t + scores / t),
    "tensor and sequence": (lambda t: (t, True, "none"), lambda t, scores: 34 / t + scores / t),
    "tensor and selective": (lambda t: (t, False, "selective"), lambda t, scores: 10 + 24 / t),
    "tensor, sequence and selective": (lambda t: (t, True, "selective"), lambda t, scores: 34 / t),
    "full": (lambda t: (1, False, "full"), lambda t, scores: 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@given(shape=gpts, b=st.integers(1, 8), t=st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=40)
def test_the_rows_of_the_papers_table(name, shape, b, t):
    ways, formula = SETTINGS[name]
    ways, sequence, recompute = ways(t)
    each, _ = kept_for(shape, b, ways, sequence, recompute)
    scores = 5 * shape.heads * shape.context / shape.width
    assert each == pytest.approx(shape.context * b * shape.width * formula(t, scores))


def test_gpt3_and_the_papers_own_example():
    """Section 4.1: for GPT-3 5as/h = 80, for the 530B model 64; selective recomputation saves 70 % and 65 %."""
    for shape, scores, saves in (
        (hl.Shape(layers=96, width=12288, heads=96, context=2048), 80, 0.70),
        (hl.Shape(layers=105, width=20480, heads=128, context=2048), 64, 0.65),
    ):
        one = kept(shape, 1)
        assert one.core / (shape.context * shape.width) == scores
        assert one.core / one.total == pytest.approx(saves, abs=0.005)


@given(shape=gpts, b=st.integers(1, 4))
@settings(max_examples=40)
def test_what_is_done_again_is_there_while_it_is_done(shape, b):
    whole = kept(shape, b).total
    for how in ("none", "selective"):
        assert sum(kept_for(shape, b, recompute=how)) == pytest.approx(whole)
    assert kept_for(shape, b, recompute="full")[1] == whole


def test_many_layouts_at_once_are_each_of_them():
    shape, ways, how = hl.Shape(width=64, heads=8, context=128), [1, 2, 4], [0, 1, 2]
    each, again = kept_for(shape, np.array([1, 2, 3]), np.array(ways), np.array([0, 1, 1]), np.array(how))
    for i, (b, t, sequence) in enumerate(zip((1, 2, 3), ways, (False, True, True))):
        assert (each[i], again[i]) == pytest.approx(kept_for(shape, b, t, sequence, RECOMPUTE[how[i]]))


# --- ours ---------------------------------------------------------------------------------------------------------


def left(shape, sequences=2):
    """(bytes that a forward and its loss leave behind, bytes that are still there after the backward)."""
    model, tokens = GPT(shape), torch.zeros(sequences, shape.context, dtype=torch.long)
    with Saved(model.parameters()) as count:
        loss = token_loss(model(tokens), torch.zeros_like(tokens)) / tokens.numel()
    loss.backward()
    return count.peak, count.now


@pytest.mark.parametrize("name", LIKE)
def test_our_formula_is_what_is_counted(name):
    assert left(LIKE[name]) == (sum(saved.layers(LIKE[name], 2)), 0)


@pytest.mark.slow
@given(
    heads=st.sampled_from([1, 2, 4]),
    head_width=st.sampled_from([4, 8, 12]),
    context=st.integers(1, 24),
    sequences=st.integers(1, 3),
    layers=st.integers(1, 3),
)
@settings(max_examples=8)
def test_our_formula_is_what_is_counted_for_any_sizes(heads, head_width, context, sequences, layers):
    shape = hl.Shape(layers=layers, width=heads * head_width, heads=heads, context=context)
    assert left(shape, sequences)[0] == sum(saved.layers(shape, sequences))


@pytest.mark.parametrize("what", [what for what, size in saved.block(replace(SMALL, dropout=0.1), 2).items() if size])
def test_every_thing_in_the_list_is_really_kept(what, monkeypatch):
    """A mutant for each: without it the formula is no longer what is counted."""
    whole = saved.block
    monkeypatch.setattr(saved, "block", lambda *sizes: whole(*sizes) | {what: 0})
    shape = replace(SMALL, dropout=0.1)
    assert left(shape)[0] > sum(saved.layers(shape, 2))


def test_a_block_is_what_notebook_30_counts_on_one_rank():
    for shape in (SMALL, LIKE["fewer heads of keys"]):
        numbers = megatron_sizes.kept(shape, 2, ways=1)
        assert sum(saved.block(shape, 2).values()) == saved.NUMBER * numbers


@pytest.mark.parametrize("name", LIKE)
def test_the_papers_list_adds_up_to_its_formula(name):
    assert sum(saved.paper(LIKE[name], 3).values()) == kept(LIKE[name], 3).total


def test_why_ours_is_not_the_papers():
    """Without the four reasons the two lists are one."""
    ours, theirs = saved.block(SMALL, 2), saved.paper(SMALL, 2)
    same = [what for what in ours if what not in ("scores", "masks", "sums for norms and heads")]
    assert [ours[what] for what in same] == [2 * theirs[what] for what in same]
    assert ours["scores"] == ours["masks"] == theirs["sums for norms and heads"] == 0
    assert saved.block(replace(SMALL, dropout=0.1), 2)["masks"] == theirs["masks"]


def test_memory_that_two_tensors_share_counts_once_and_weights_do_not():
    weight, x = torch.ones(8, requires_grad=True), torch.ones(8)
    with Saved([weight]) as count:
        y = (x * weight).sum() + (x.view(2, 4) * weight.view(2, 4)).sum()
    assert count.now == x.nbytes
    with Saved() as count:
        y = y + (x * weight).sum()
    assert count.now == x.nbytes  # x, for the weight's gradient; the weight is asked for by nobody
    y.backward()
    assert count.now == 0
