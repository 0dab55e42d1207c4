"""What a check looks at: tokens of the whole vocabulary, weights that do not begin all alike; what it says it missed.

Each mutant here passed a check whose text was English and whose biases began at 0.
"""

import pytest
import torch
from few import one_in

import hybridlab as hl
from hybridlab.cli import main as cli
from hybridlab.modes.parts import vocabulary_parallel
from hybridlab.modes.parts.replicated import Replicated
from hybridlab.modes.tensor_parallel import RowParallel
from hybridlab.training import check as proof
from hybridlab.training.data.text import Spread, Text
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gallery import model_of
from hybridlab.training.models.model import Model
from hybridlab.training.report import Report

SMALL = hl.Shape(layers=2, width=16, heads=2, context=8)
TP2 = hl.Mesh(tp=2)


def rows_of(change):
    """Another rule for which tokens a rank has; change(tokens, first, last) -> (whether each is here, its row)."""
    return lambda patch: patch.setattr(vocabulary_parallel, "_rows", change)


def upper_half_dead(tokens_BT, first, last):
    here_BT = (tokens_BT >= first) & (tokens_BT < last) & (first == 0)
    return here_BT, (tokens_BT - first).clamp(0, last - first - 1)


def offset_forgotten(tokens_BT, first, last):
    return (tokens_BT >= first) & (tokens_BT < last), tokens_BT.clamp(0, last - first - 1)


def border_counted_twice(tokens_BT, first, last):
    return (tokens_BT >= first) & (tokens_BT <= last), (tokens_BT - first).clamp(0, last - first - 1)


def bias_added_by_every_rank(patch):
    def forward(layer, x_BTF):
        return layer.stream.leave(torch.nn.functional.linear(x_BTF, layer.weight, layer.bias))

    patch.setattr(RowParallel, "forward", forward)


MUTANTS = {
    "the upper half of the vocabulary is dead": (rows_of(upper_half_dead), 3),
    "the offset of the upper half is forgotten": (rows_of(offset_forgotten), 3),
    "the token at the border is counted twice": (rows_of(border_counted_twice), 1),
    "a bias is added as often as there are ranks": (bias_added_by_every_rank, 1),
}


@pytest.mark.ranks
@pytest.mark.parametrize("name", one_in(2, MUTANTS))
def test_what_english_text_and_biases_of_zero_hid_is_noticed(bench, name):
    sabotage, steps = MUTANTS[name]
    about = dict(shape=SMALL, microbatches=3, steps=steps)
    assert bench.right(TP2, **about) and not bench.asked(TP2, sabotage=sabotage, **about).ok


def sent_before_the_last_microbatch(patch):
    """Sums that begin inside the backward are packed before its last gradient has been added up."""
    hook, hook_sums = Replicated._hook, Replicated._hook_sums
    patch.setattr(Replicated, "_hook_sums", lambda weights: None)
    patch.setattr(Replicated, "_hook", lambda weights: (hook(weights), hook_sums(weights)))


@pytest.mark.ranks
def test_sums_in_another_dtype_that_begin_early_have_every_microbatch(bench):
    mesh, about = hl.Mesh(dp=2), dict(shape=SMALL, microbatches=3, steps=1, dtype="bfloat16", sums="each")
    assert bench.right(mesh, **about)
    assert not bench.asked(mesh, sabotage=sent_before_the_last_microbatch, **about).ok


@pytest.mark.ranks
def test_what_few_steps_did_not_touch_is_said(bench):
    whole = bench.asked(TP2, shape=SMALL, microbatches=16, steps=2)
    part = bench.asked(TP2, shape=SMALL, microbatches=3, steps=1)
    (share,) = part.untouched.values()
    assert not whole.untouched and 1 - 48 / 256 < share < 1 - 24 / 256, "half of 48 tokens are all different"
    assert f"no gradient in these steps, so not proved: {share:.0%} of embed.token.weight" in str(part)


@pytest.mark.slow
def test_a_proof_reads_every_token_and_begins_with_those_at_borders():
    spread = Spread(Text.of(), 250)
    both = [spread.batch(step, 4, 25) for step in range(5)]
    for what in (0, 1):
        assert sorted(token for one in both for token in one[what][::2].flat) == [*range(250)]
        assert {0, 249, 124, 125, 83, 84, 166, 167} <= {int(token) for token in both[0][what].flat}, "halves, thirds"
    assert (spread.batch(0, 4, 25, seed=1)[0] != both[0][0]).any()
    lines = [row for step in range(9) for row in spread.batch(step, 4, 25)[0][1::2]]
    assert max(max(row) for row in lines) > 125 > min(min(row) for row in lines), "letters lie in both halves"


@pytest.mark.slow
def test_in_a_proof_no_weight_begins_all_alike():
    model = model_of(hl.Shape(layers=2, width=16, heads=2, context=8, style="llama"))
    for one in (model, model_of(SMALL), model_of("conv")):
        begins = one.for_proof().made(0, torch.float64)
        assert all(weight.unique().numel() > 1 for weight in begins.parameters())


def test_anyones_zeros_are_stirred_too_and_what_is_frozen_stays():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    torch.nn.init.zeros_(net[0].weight)
    torch.nn.init.zeros_(net[1].bias).requires_grad_(False)
    mine = Model(net, lambda y, target: y.sum(), lambda step, rows: (torch.ones(rows, 4), torch.ones(rows)))
    begins = mine.for_proof().made(0, torch.float64)
    assert begins[0].weight.unique().numel() == 12 and not begins[1].bias.any()
    assert torch.equal(begins[0].bias, net[0].bias.double()), "drawn already"
    assert not net[0].weight.any(), "the model itself is left alone"


def test_parts_of_a_stirred_model_are_those_of_the_whole():
    model = model_of(SMALL).for_proof()
    whole = dict(model.made(0, torch.float64).named_parameters())["blocks.0.mlp.up.bias"]
    box = {"blocks.0.mlp.up.bias": (slice(7, 20),)}
    part = dict(model.made(0, torch.float64, box).named_parameters())["blocks.0.mlp.up.bias"]
    assert torch.equal(part, whole[7:20])


def test_a_text_that_was_given_is_read_in_a_proof_too(tmp_path):
    file = tmp_path / "text"
    file.write_text("abc" * 400)
    model = job_of(hl.Mesh(pp=1), shape=SMALL, data=str(file)).model.for_proof()
    assert model.batch(0, 4)[0].unique().tolist() == [97, 98, 99]


@pytest.mark.parametrize("gap, code", [(0.0, 0), (1e-3, 1), (float("nan"), 1), (float("inf"), 1)])
def test_a_check_that_is_not_equal_exits_with_1(monkeypatch, capsys, gap, code):
    report = Report("x", {"loss": gap}, {}, {}, 1e-10)
    monkeypatch.setattr(proof, "check", lambda *_, **__: report)
    assert cli.main(["check", "--pp", "2", "--json"]) == code
    assert ("NOT equal" in capsys.readouterr().out) == bool(code)
