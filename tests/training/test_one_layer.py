"""The messages of one layer at their places: against closed forms of the papers, and against runs with a layer more."""

import re
from collections import Counter

import pytest

import hybridlab as hl
from hybridlab.core.layer import ONCE
from hybridlab.show.paper.style import contrast
from hybridlab.training.dry.dry_layer import Notes

SHAPE = hl.Shape()
B, T, D = 2, SHAPE.context, SHAPE.width
WIDE = 2  # bytes of bfloat16


def messages(layer, axis):
    """{(phase, place in words, operation): (operations, bytes)}"""
    return {(one.phase, layer.where(one.place), one.op): (one.count, one.bytes) for one in layer.along(axis)}


def test_tensor_parallelism_has_megatrons_four_all_reduces_at_f_and_g():
    whole = 1, B * T * D * WIDE
    assert messages(hl.dry_layer(hl.Mesh(tp=2)), "tp") == {
        ("forward", "out", "all_reduce"): whole,
        ("forward", "down", "all_reduce"): whole,
        ("backward", "norm → up", "all_reduce"): whole,
        ("backward", "norm → q·k·v", "all_reduce"): whole,
    }


def test_names_of_parts_are_dark_on_their_pale_boxes_in_the_dark_too():
    svg = hl.draw(hl.dry_layer(hl.Mesh(tp=2))).svg
    boxes = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="[\d.]+" rx="4" fill="(#\w+)"', svg)
    names = re.findall(r'<text x="([\d.]+)"[^>]* fill="(#\w+)" font-weight="600">(?:norm|up|down|out|q·k·v|gelu)', svg)
    assert len(names) >= 4
    for middle, ink in names:
        (fill,) = {f for x, wide, f in boxes if abs(float(x) + float(wide) / 2 - float(middle)) < 1}
        assert contrast(ink, fill) > 7


def test_sequence_parallelism_gathers_where_megatron_reads_and_once_more_for_its_weights():
    found = messages(hl.dry_layer(hl.Mesh(tp=2), sequence=True), "tp")
    inside = {key: value for key, value in found.items() if key[0] not in ONCE}
    assert set(inside.values()) == {(1, B * T * D * WIDE)}
    assert Counter(op for _, _, op in inside) == {"all_gather": 6, "reduce_scatter": 4}
    assert ("forward", "norm → q·k·v", "all_gather") in found and ("backward", "q·k·v", "all_gather") in found


@pytest.mark.slow
def test_a_recomputed_forward_gathers_where_the_first_forward_did():
    """Both norms have the same name, and queries of latents are at a different place from their keys and values."""
    recomputed = {"sequence": True, "recompute": "full"}
    found = messages(hl.dry_layer(hl.Mesh(tp=2), **recomputed), "tp")
    whole = 1, B * T * D * WIDE
    for place in ("norm → q·k·v", "norm → up"):
        assert found["backward", place, "all_gather"] == found["forward", place, "all_gather"] == whole
    latent = hl.Shape(style="llama", latent=12, query_latent=16, rotary=4)
    layer = hl.dry_layer(hl.Mesh(tp=2), model=latent, **recomputed)
    again = Counter((one.place, one.op) for one in layer.along("tp") if one.phase == "backward")
    assert layer.parts.count("q·k·v") == 2
    gathers = [one for one in layer.along("tp") if one.phase == "forward" and one.op == "all_gather"]
    assert gathers and all(again[one.place, one.op] for one in gathers)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_weights_of_a_layer_travel_as_the_stage_of_zero_says(zero):
    layer = hl.dry_layer(hl.Mesh(dp=2), zero=zero)
    phases = {phase: sum(one.bytes for one in layer.travels if one.phase == phase) for phase in ONCE}
    n = layer.weights
    assert phases == {"gather": 2 * n * (zero == 3), "reduce": 2 * n, "publish": n * (zero in (1, 2))}  # sums: float32


def test_context_parallelism_gathers_keys_and_values_at_attention():
    found = messages(hl.dry_layer(hl.Mesh(cp=2)), "cp")
    size = 2, 2 * B * T * D * WIDE
    assert found["forward", "attention", "all_gather"] == found["backward", "attention", "reduce_scatter"] == size


def test_a_pipeline_sends_at_the_ends():
    found = messages(hl.dry_layer(hl.Mesh(pp=2)), "pp")
    size = 1, B * T * D * WIDE
    assert found == {("forward", "output", "isend"): size, ("backward", "input", "isend"): size}


JOBS = {
    "sequence": (hl.Mesh(dp=2, tp=2), {"sequence": True}),
    "zero 1": (hl.Mesh(dp=2, tp=2), {"zero": 1}),
    "hybrid sharding": (hl.Mesh(dp=4), {"zero": 2, "owners": 2}),
    "ring": (hl.Mesh(dp=2, cp=2), {"attend": "ring"}),
    "each": (hl.Mesh(dp=2, cp=2, tp=2), {"sums": "each", "attend": "ulysses"}),
    "grid": (hl.Mesh(tp=2, x=2), {}),
    "recomputed": (hl.Mesh(tp=2), {"recompute": "full"}),
    "experts": (hl.Mesh(ep=2, tp=2), {"experts": 4}),
}


def shape(layers, experts=1):
    return hl.Shape(layers=layers, experts=experts)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_a_layer_has_the_messages_by_which_a_run_with_one_more_layer_is_larger(name):
    mesh, options = JOBS[name]
    options = dict(options)
    experts = options.pop("experts", 1)
    runs = [hl.dry_run(mesh, model=shape(n, experts), microbatches=1, **options) for n in (1, 2)]
    small, large = (Counter({key[1:]: 0 for key in run.axes}) for run in runs)
    for run, table in zip(runs, (small, large)):
        for (_, axis, op), size in run.axes.items():
            table[axis, op] += size
    found = Counter()
    for one in hl.dry_layer(mesh, model=shape(4, experts), **options).travels:
        found[one.axis, one.op] += one.bytes
    more = {key: size - small[key] for key, size in large.items() if size > small[key]}
    if experts > 1:
        more["ep", "all_reduce"] -= (
            8 * experts
        )  # the router's tallies, one number for each expert: not a message of a layer
    assert found == more


def test_a_layer_whose_backward_is_not_noted_would_be_found(monkeypatch):
    """The mutant: messages of the backward belong to no place."""
    note = Notes.note
    deaf = lambda self, place, phase=None: note(self, place, "" if phase == "backward" else phase)
    monkeypatch.setattr(Notes, "note", deaf)
    found = messages(hl.dry_layer(hl.Mesh(tp=2)), "tp")
    assert {phase for phase, _, _ in found} == {"forward"}


@pytest.mark.parametrize(
    "given",
    [
        {"schedule": "zb_h1"},
        {"chunks": 2},
        {"copies": (2, 2)},
        {"slices": 2},
        {"slicing": "cost"},
        {"cut": [1, 3]},
        {"driven": True},
    ],
    ids=lambda given: next(iter(given)),
)
def test_an_argument_without_a_meaning_for_one_layer_is_refused_by_name(given):
    (name,) = given
    with pytest.raises(TypeError, match=f"dry_layer has no argument '{name}'"):
        hl.dry_layer(hl.Mesh(pp=2), **given)
    assert f"`{name}`" in hl.dry_layer.__doc__


def test_accumulated_runs_share_the_rows_of_a_batch():
    (first, *_) = hl.dry_layer(hl.Mesh(tp=2), batch=24, microbatches=4, accumulate=3).along("tp")
    assert first.bytes == 24 // 4 // 3 * T * D * WIDE


def test_another_model_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="not a transformer.*give a Shape"):
        hl.dry_layer(hl.Mesh(dp=2), model="conv")


@pytest.mark.slow
def test_a_large_model_is_a_layer_too():
    layer = hl.dry_layer(hl.Mesh(dp=48, pp=8, tp=8), model="gpt3-175b", batch=1536, microbatches=32, rank=17)
    (first, *_) = layer.along("tp")
    assert first.bytes == 1536 // 48 // 32 * 2048 * 12288 * WIDE


def test_two_jobs_have_two_headings():
    mesh = hl.Mesh(dp=2, tp=2)
    plain, sharded = hl.dry_layer(mesh), hl.dry_layer(mesh, zero=1, sequence=True)
    assert (plain.job, sharded.job) == ("bfloat16", "zero=1, sequence, bfloat16")
    for layer in (plain, sharded):
        picture = hl.draw(layer)
        assert f", {layer.job}: norm" in str(layer) and f"The job: {layer.job}.<" in picture.svg
        assert picture.summary.startswith(f"One layer on rank 0 of dp=2 × tp=2, {layer.job}.")


def test_few_bytes_are_told_in_bytes():
    summary = hl.draw(hl.dry_layer(hl.Mesh(tp=2), sequence=True)).summary
    assert "6 × all-reduce along tp at weights, 768 B" in summary and "0.7" not in summary


def test_the_picture_names_each_message_and_its_words():
    layer = hl.dry_layer(hl.Mesh(dp=2, pp=2, tp=2), zero=3)
    picture = hl.draw(layer)
    for one in layer.travels:
        assert one.op.removeprefix("i").replace("_", "-") in picture.svg and layer.where(one.place) in picture.summary
    assert "all-reduce along tp at out" in picture.summary
