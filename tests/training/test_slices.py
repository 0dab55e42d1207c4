"""A transformer in slices is the transformer: on one process, and on ranks with every mode. No mistake passes."""

import pytest
import torch
from few import one_in

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.what.catalog import machine
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.recomputation import done_again
from hybridlab.runtime.work import ModelWork
from hybridlab.scheduling.registry import schedule
from hybridlab.training.costs import costs_of
from hybridlab.training.make_job import job_of
from hybridlab.training.models import gpt, slices
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.modern import RotaryAttention
from hybridlab.training.models.slices import Kept, Memory, OnSlice, Sliced, Stream
from hybridlab.training.models.transformer import Transformer
from hybridlab.training.stages import cut

SMALL = {"layers": 4, "width": 16, "heads": 4, "context": 12}
SHAPES = {
    "gpt": Shape(**SMALL, dropout=0.1),
    "llama": Shape(**SMALL, style="llama", kv_heads=2, inner=24),
    "qwen": Shape(**SMALL, style="llama", kv_heads=1, per_head=6, inner=24, tied=True),
    "latent": Shape(**SMALL, style="llama", latent=6, rotary=4, query_latent=10),
    "experts": Shape(**SMALL, experts=4, chosen=2, shared=1, inner=16),
    "documents": Shape(**SMALL, documents=(7, 3, 2)),
    "parallel": Shape(**SMALL, parallel=True),
    "skips": Shape(**SMALL, skips=True, tied=True),
}
UNEVEN = (5, 4, 3)


def in_both_ways(shape, lengths, stages=2):
    """(output, gradients) of the model as it is, and of the model in slices, on one process in float64."""
    model = Transformer(shape)
    sliced, found = Sliced(model, lengths, cut(model, stages)), []
    tokens, targets = model.for_proof().batch(0, 3)
    for one in (model, sliced):
        module = one.made(0, torch.float64)
        if one is model:
            scores = model.through(module, tokens)
        else:
            made = slice_by_slice(sliced, module, tokens)
            scores = torch.cat([made[number] for number in sliced.scored(len(sliced.places))], 1)
        one.loss(scores, targets).backward()
        found.append((scores.detach(), {name: weight.grad for name, weight in module.named_parameters()}))
    return found


def slice_by_slice(sliced, module, tokens) -> dict:
    """{layer in slices: its output}."""
    return in_sequence(dict(enumerate(sliced.layers(module))), sliced.takes(module), {-1: tokens})


def gap_of(both) -> float:
    (scores, gradients), (others, its) = both
    off = [(scores - others).abs().max() / scores.abs().max()]
    for name, one in gradients.items():
        if one is not None and one.abs().max() > 1e-12:
            off.append((one - its[name]).abs().max() / one.abs().max())
    return float(max(off))


@pytest.mark.parametrize("lengths", [(12,), (6, 6), UNEVEN, (1, 1, 10), (1,) * 12], ids=str)
@pytest.mark.parametrize("name", one_in(4, SHAPES))
def test_a_model_in_slices_is_the_model(name, lengths):
    assert gap_of(in_both_ways(SHAPES[name], lengths)) < 1e-10


def test_its_layers_are_listed_stage_by_stage_and_slice_by_slice():
    sliced = Sliced(Transformer(SHAPES["gpt"]), (7, 5), cut(SHAPES["gpt"], 2))
    told = [
        [(place.layer, place.slice) for place in sliced.places[its.start : its.stop] if place.kind is OnSlice]
        for its in sliced.bounds
    ]
    assert told == [[(layer, i) for layer in its] for its in ((0, 1, 2), (3, 4, 5)) for i in (0, 1)]
    kinds = [place.kind for place in sliced.places]
    assert kinds.count(OnSlice) == 12 and kinds.count(Stream) == 8 and kinds.count(Kept) == 4
    job = job_of(Mesh(pp=2), "seq1f1b", shape=SHAPES["gpt"], slices=(7, 5), recompute="full")
    assert [job.model.places[n].layer for n in done_again(job)] == [1, 2, 1, 2, 3, 4, 3, 4]
    assert job.bounds == sliced.bounds and job.schedule.slices == 2


@pytest.mark.parametrize("name", one_in(4, SHAPES))
def test_the_examples_between_its_layers_have_the_true_shapes(name):
    sliced = Sliced(Transformer(SHAPES[name]), UNEVEN, cut(SHAPES[name], 2))
    module = sliced.made(0, torch.float32)
    made = slice_by_slice(sliced, module, sliced.batch(0, 2)[0])
    shapes = lambda x: [tuple(one.shape) for one in (x if isinstance(x, tuple) else (x,))]
    assert [shapes(x) for x in sliced.between(2, torch.float32)] == [shapes(made[n]) for n in range(len(sliced.places))]


# ---- on ranks

DRAWN = [  # schedule, mesh, shape, further arguments of hl.check
    ("seq1f1b", Mesh(pp=2), "gpt", {"slices": 2}),
    ("seq1f1b", Mesh(pp=3), "llama", {"slices": UNEVEN, "microbatches": 5}),
    ("terapipe", Mesh(pp=2), "latent", {"slices": 3}),
    ("seq1f1b", Mesh(pp=2), "latent", {"slices": 3, "chunks": 2, "slicing": "cost"}),
    ("seq1f1b", Mesh(dp=2, pp=2), "llama", {"slices": UNEVEN}),
    ("seq1f1b", Mesh(dp=2, pp=2), "gpt", {"slices": UNEVEN, "zero": 1}),
    ("seq1f1b", Mesh(dp=2, pp=2), "latent", {"slices": UNEVEN, "zero": 3}),
    ("seq1f1b", Mesh(dp=2), "llama", {"slices": 2, "zero": 3}),
    ("seq1f1b", Mesh(tp=2, pp=2), "llama", {"slices": UNEVEN}),
    ("terapipe", Mesh(pp=2, tp=2), "latent", {"slices": UNEVEN, "recompute": "full"}),
    ("seq1f1b", Mesh(pp=2), "gpt", {"slices": 4, "recompute": "selective"}),
    ("seq1f1b", Mesh(pp=2), "qwen", {"slices": 2, "accumulate": 2, "optimizer": "adamw", "rate": 0.01, "clip": 0.05}),
    ("seq1f1b", Mesh(pp=2, ep=2), "experts", {"slices": UNEVEN}),
    ("seq1f1b", Mesh(x=2, pp=2), "llama", {"slices": 3}),
    ("seq1f1b", Mesh(dp=2, pp=2), "skips", {"slices": 2, "sums": "buckets"}),
    ("terapipe", Mesh(pp=2), "parallel", {"slices": 2, "ahead": 2}),
    ("seq1f1b", Mesh(pp=2), "documents", {"slices": 3}),
    ("halves", Mesh(pp=2), "llama", {"slices": 3}),
    ("halves", Mesh(pp=2, tp=2), "latent", {"slices": 3}),
    ("halves", Mesh(pp=2), "gpt", {"slices": 2, "chunks": 2}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "name, mesh, shape, more",
    [pytest.param(*one, marks=() if number == 17 else pytest.mark.long) for number, one in enumerate(DRAWN)],
)
def test_it_trains_as_one_device_does_and_every_byte_is_claimed(bench, name, mesh, shape, more):
    if name == "halves":
        chunks = more.get("chunks", 1)
        name, more = schedule("seq1f1b", mesh["pp"], 4, slices=more["slices"], chunks=chunks, halves=True), {}
    report = bench.asked(mesh, schedule=name, shape=SHAPES[shape], **more)
    assert report.ok and report.largest_gap < 1e-10, report


@pytest.mark.ranks
@pytest.mark.parametrize("lengths", [UNEVEN, (6, 6)])
def test_the_bytes_between_ranks_are_those_of_whole_rows(bench, lengths):
    """No keys travel, and no targets: p - 1 cuts, forward and back, for each row and step."""
    rows, microbatches, steps, width = 2, 4, 3, 16
    report = bench.asked(Mesh(pp=2), schedule="seq1f1b", shape=SHAPES["llama"], slices=lengths)
    assert report.bytes == {"messages between stages": (steps * microbatches * 2 * rows * 12 * width * 8,) * 2}


# ---- mistakes


def cache_without_gradient():
    """No gradient reaches the keys and values of earlier slices: the loss is right."""
    whole = Memory.__init__
    Memory.__init__ = lambda self, past: whole(self, tuple(x.detach() for x in past))


def only_the_last_slices_gradient():
    """Keys get their gradient from the next slice only, and not from those after it."""

    def call(self, *new):
        self.kept, seen = new, new
        if self.past:
            seen = tuple(torch.cat(both, -2) for both in zip(self.past, new))
            self.kept = tuple(torch.cat((old.detach(), one), -2) for old, one in zip(self.past, new))
        return seen

    whole = Memory.__init__
    Memory.__init__ = lambda self, past: (whole(self, past), setattr(self, "past", past))[0]
    Memory.__call__ = call


def positions_from_zero():
    """Every slice believes that it is at the beginning of its row."""
    whole = gpt.Embed.forward

    def wrong(self, tokens_BT):
        self.first = 0
        return whole(self, tokens_BT)

    gpt.Embed.forward = wrong


def mask_of_the_slice_alone():
    """A query sees the keys of its own slice only."""
    whole = gpt.attend

    def wrong(q, k, v, documents=(), causal=True):
        own = q.shape[2]
        return whole(q, k[:, :, -own:], v[:, :, -own:], (), causal)

    gpt.attend = wrong


def loss_of_each_slice_by_itself():
    """The loss of a slice is divided by its own tokens, as if it were a row."""
    through_stage = ModelWork._through

    def wrong(self, stage, *more):
        tokens, self.tokens = self.tokens, self.tokens // max(1, len(self.ends.scored))
        try:
            return through_stage(self, stage, *more)
        finally:
            self.tokens = tokens

    ModelWork._through = wrong


def keys_before_rotary():
    """Keys are kept as they are, and rotated by the positions of the slice that reads them."""
    RotaryAttention.kept = gpt.Attention.kept
    RotaryAttention.keys_and_values = lambda self, k, v: (self.rotary(k), v)


def cache_not_emptied():
    """The first slice of a row finds the keys of the row before."""
    forward, left = OnSlice.forward, {}

    def wrong(self, *arrived):
        if not self.follows and id(self.layer) in left and slices.recalling(self.layer) and self.span.start == 0:
            before, self.follows = left[id(self.layer)], True
            made = forward(self, *arrived, before)
            self.follows = False
            return made[0], *(x[..., -self.span.stop :, :] for x in made[1:])
        made = forward(self, *arrived)
        if isinstance(made, tuple):
            left[id(self.layer)] = tuple(x.detach() for x in made[1:])
        return made

    OnSlice.forward = wrong


MISTAKES = {
    cache_without_gradient: "gpt",
    only_the_last_slices_gradient: "llama",
    positions_from_zero: "gpt",
    mask_of_the_slice_alone: "gpt",
    loss_of_each_slice_by_itself: "gpt",
    keys_before_rotary: "llama",
    cache_not_emptied: "llama",
}


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", one_in(4, MISTAKES))
def test_a_mutant_is_caught(mutant):
    shape = SHAPES[MISTAKES[mutant]]
    report = hl.check(Mesh(pp=2), "seq1f1b", 2, slices=UNEVEN, shape=shape, steps=1, sabotage=mutant)
    assert not report.ok and report.largest_gap > 1e-6, report


@pytest.mark.ranks
def test_without_the_caches_gradient_the_loss_is_right():
    """Only gradients show it: the lesson of notebook 16."""
    asked = {"slices": UNEVEN, "shape": SHAPES["llama"], "steps": 1, "microbatches": 2}
    wrong, right = (hl.check(Mesh(pp=2), "seq1f1b", sabotage=one, **asked) for one in (cache_without_gradient, None))
    assert wrong.losses == right.losses and right.ok and not wrong.ok


# ---- refusals


@pytest.mark.parametrize(
    "mesh, more, words",
    [
        (Mesh(pp=2), {"model": "conv"}, "slices=2 is invalid: slices need causal attention"),
        (Mesh(pp=2), {"model": "multi_token"}, "which only reference transformers have"),
        (Mesh(pp=2), {"shape": Shape(experts=4, routing=Routing(capacity=1.0))}, "a capacity counts the tokens"),
        (Mesh(pp=2), {"shape": Shape(heads=0)}, "slices=2 is invalid: a model without attention"),
        (Mesh(pp=2), {"cut": [0, 4]}, "stage 0 has no attention, so nothing joins its slices"),
        (Mesh(pp=2, cp=2), {}, "cp=2 is invalid: slices=2 cuts the positions of a row already"),
        (Mesh(pp=2, tp=2), {"sequence": True}, "sequence=True is invalid: slices=2 cuts the positions"),
        (Mesh(pp=2, tp=2), {"scatter": True}, "scatter=True is invalid: slices=2 cuts the positions"),
        (Mesh(pp=2), {"device_memory": 0.5}, "device_memory=0.5 is invalid: it plans the copies of each stage"),
        (Mesh(pp=2), {"slices": (3, 4)}, r"slices=\(3, 4\) is invalid: a row of 32 tokens has 2 slices"),
        (Mesh(pp=2), {"slices": (12.0, 20)}, r"slices=\(12.0, 20\) is invalid: a row of 32 tokens has 2 slices"),
        (Mesh(pp=2), {"slices": (31,)}, r"slices=\(31,\) is invalid: a row of 32 tokens has 1 slices"),
        (Mesh(pp=2), {"slices": 1, "slicing": "cost"}, "slicing='cost' is invalid: seq1f1b runs whole rows"),
        (Mesh(pp=2), {"slices": (30, 2), "slicing": "cost"}, "slicing='cost' is invalid: slices has the lengths"),
        (Mesh(pp=2), {"slices": 40}, "slices=40 is invalid: a row of 32 tokens leaves a slice empty"),
        (Mesh(pp=2), {"schedule": "1f1b", "slicing": "cost"}, "slicing='cost' is invalid: 1f1b runs whole rows"),
        (Mesh(pp=2), {"schedule": "1f1b"}, "schedule '1f1b' has no option 'slices'"),
        (Mesh(pp=2), {"schedule": "dualpipe"}, "schedule 'dualpipe' has no option 'slices'"),
        (Mesh(pp=2), {"driven": True}, "not a chain with one stage on each rank"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(mesh, more, words):
    asked = {"schedule": "seq1f1b", "slices": 2} | more
    if more.get("schedule") == "1f1b" and "slicing" in more:
        del asked["slices"]
    with pytest.raises(ValueError, match=words):
        job_of(mesh, **asked)


def test_another_number_of_slices_than_the_schedules_is_refused():
    with pytest.raises(ValueError, match="slices=3 is invalid: seq1f1b was made with slices=2"):
        job_of(Mesh(pp=2), schedule("seq1f1b", 2, 4, slices=2), slices=3)
    assert job_of(Mesh(pp=2), schedule("seq1f1b", 2, 4, slices=2), slices=(20, 12)).model.lengths == (20, 12)


def test_lengths_without_a_model_are_refused(capsys):
    assert main(["simulate", "--schedule", "seq1f1b", "--slices", "12,9,7"]) == 2
    assert "this command runs without a model" in capsys.readouterr().err


# ---- what a dry run predicts


def test_a_message_of_a_slice_has_a_whole_latency():
    """Its bytes are divided by the slices, and its latency is not."""
    asked = {"shape": Shape(layers=2, context=128), "dtype": "bfloat16"}
    post = [costs_of(job_of(Mesh(pp=2), "seq1f1b", slices=n, **asked), machine("a100")).post for n in (1, 2, 128)]
    latency = machine("a100").latency[0] / 2
    assert post[0] > post[1] > post[2] >= latency > post[0] / 2


def test_the_predicted_times_of_the_slices_add_up_to_a_little_more_than_those_of_rows():
    """Of equal cost, they halve the idle time; of equal lengths, less than that."""
    shape = Shape(layers=4, width=4096, heads=32, context=8192)
    asked = {"shape": shape, "dtype": "bfloat16", "microbatches": 4}
    jobs = [job_of(Mesh(pp=2), "1f1b", **asked)]
    jobs += [job_of(Mesh(pp=2), "seq1f1b", slices=2, slicing=how, **asked) for how in ("cost", "equal")]
    whole, cost, equal = (costs_of(job, machine("a100")) for job in jobs)
    for sliced in (cost, equal):
        for stage in (0, 1):
            # each slice starts its kernels, and its matmuls have fewer rows
            assert 1 < sum(sliced.F[2 * stage : 2 * stage + 2]) / whole.F[stage] < 1.02
    assert cost.F[0] == pytest.approx(cost.F[1], rel=1e-3) and equal.F[1] > 1.1 * equal.F[0]
    idle = [hl.simulate(job.schedule, costs).bubble_overhead for job, costs in zip(jobs, (whole, cost, equal))]
    assert idle[1] == pytest.approx(idle[0] / 2, rel=0.03) and idle[1] < idle[2] < idle[0]
