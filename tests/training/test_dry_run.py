"""Dry runs: a rank without arithmetic holds and sends what a real one does, to the byte, and what the formulas say."""

import json
import time
from collections import Counter

import numpy as np
import pytest
import torch
from few import first

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.dry import KINDS
from hybridlab.core.what.catalog import model
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.bytes.activations import kept
from hybridlab.predict.bytes.transfer import by_axis
from hybridlab.predict.plans.footprint import live
from hybridlab.training.check import sent
from hybridlab.training.dry.alive import Alive
from hybridlab.training.dry.counted import Counted
from hybridlab.training.dry.dry_run import _by_action, dry_run
from hybridlab.training.dry.known import Known
from hybridlab.training.dry.one_rank import played
from hybridlab.training.make_job import job_of
from hybridlab.training.models import gpt
from hybridlab.world.processes.launch import ranks

GPT3 = model("gpt3-175b").shape
SMALL = Shape(layers=16, width=64, heads=8, context=32)
FEW = {
    "1f1b": (Mesh(dp=2, pp=2, tp=2), {"zero": 1, "sequence": True}),
    "zero3": (Mesh(dp=2, pp=2), {"schedule": "interleaved", "chunks": 2, "zero": 3}),
    "zb": (Mesh(pp=4), {"schedule": "zb_v", "microbatches": 8, "shape": Shape(layers=8)}),
    "chimera, tied": (Mesh(pp=2), {"schedule": "chimera", "shape": Shape(tied=True, dropout=0.1)}),
    "2bw": (Mesh(pp=2), {"schedule": "pipedream_2bw"}),
    "latents": (
        Mesh(tp=2),
        {"shape": Shape(layers=2, width=16, heads=4, context=8, style="llama", latent=6, rotary=4), "microbatches": 2},
    ),
    "conv": (Mesh(dp=2, pp=2), {"model": "conv", "accumulate": 2, "clip": 0.1}),
}


def assert_bytes_are_those_of_the_formulas(mesh, **how):
    job, total, formula = job_of(mesh, **how), Counter(), Counter()
    for rank in range(mesh.size):
        total.update(sent(played(job, rank)[0].comm.ledger.rows()))
    for mode in job.modes:
        formula.update({(mode.purpose, *key): size for key, size in by_axis(mode.transfers(job)).items()})
    if not job.flushes:  # its stages update by themselves: nothing is summed
        formula = Counter({key: size for key, size in formula.items() if key[0] != job.keeper.purpose})
    assert +total == +formula


SOON = ("chimera, tied", "2bw")  # in `make test`


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=pytest.mark.slow if one in SOON else pytest.mark.long) for one in FEW]
)
def test_what_all_ranks_send_is_what_the_formulas_say(case):
    mesh, how = FEW[case]
    assert_bytes_are_those_of_the_formulas(mesh, **how)


# --- the same as a real rank, to the byte


@pytest.mark.long
def test_what_is_forgotten_is_not_held():
    with Alive("cpu") as alive:
        kept, left_out = torch.empty(8, dtype=torch.uint8), torch.empty(100, dtype=torch.uint8)
        assert alive.now == 108
        alive.forget(alive.of([left_out]))
        assert alive.now == 8
        del left_out
        assert alive.now == 8 == kept.nbytes


def on_a_real_rank(comm, job):
    """(actions; bytes at the highest moment of each, and behind it) of a rank that computes."""
    job.layout, job.between  # what is found out of the job is no memory of the training
    with Alive("cpu") as alive:
        trainer = Counted(comm, job, alive)
        before = trainer.whole_step()
    return _told(trainer, before)


def _told(trainer, before):
    return [what for what, _ in trainer.work.marks], *(x.sum(axis=1) for x in _by_action(trainer, before))


REAL = {
    "one rank": (Mesh(pp=1), {}),
    "float64": (Mesh(pp=1), {"dtype": "float64", "optimizer": "adamw"}),
    "grouped queries": (Mesh(pp=1), {"shape": Shape(kv_heads=1)}),
    "modern": (Mesh(pp=1), {"shape": Shape(style="llama", kv_heads=2)}),
    "dp, accumulated, clipped": (Mesh(dp=2), {"accumulate": 2, "clip": 0.1}),
    "dp, zero 1": (Mesh(dp=2), {"zero": 1, "optimizer": "adamw"}),
    "tp, sequence": (Mesh(tp=2), {"sequence": True}),
    "pp": (Mesh(pp=2), {}),
    "pp, halves": (Mesh(pp=4), {"schedule": "zb_h1"}),
    "pp, scattered": (Mesh(pp=2, tp=2), {"scatter": True}),
    "local steps, streaming": (Mesh(dp=2), {"sums": "local", "sync_every": 4, "fragments": 2, "sync_delay": 3}),
}


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.parametrize("case", REAL)
def test_the_peak_is_that_of_a_real_rank(case):
    """To the byte, action by action. gloo may let go of what it has sent some time after: of boundary tensors, where
    sends outlast the next one, and of what was added or gathered inside a stage; so a real rank may have some more."""
    mesh, how = REAL[case]
    job = job_of(mesh, **how)
    with ranks(mesh) as pool:
        real = pool.run(on_a_real_rank, job)
    late = 2 * job.microbatches * job.between[0].nbytes if mesh["pp"] > 1 or mesh.inside else 0
    computing = slice(1, -2)  # before that batches, which are read on the host; behind it what gloo's sums need
    for rank, (actions, held, behind) in enumerate(real):
        dry_actions, dry_held, dry_behind = _told(*played(job, rank))
        assert dry_actions == actions
        more = np.stack([held - dry_held, behind - dry_behind])[:, computing]
        assert more.min() == 0 and more.max() <= late
        assert late or held.max() == dry_held.max()


def kept_of(one, action):
    """{kind: bytes} that are held behind an action."""
    return dict(zip(KINDS, one.kept[one.actions.index(action)].tolist()))


@pytest.mark.long
def test_a_tensor_more_is_seen(monkeypatch):
    kept = lambda: kept_of(dry_run(Mesh(pp=1), model=Shape()), "0F0")["activations"]
    before, forward = kept(), gpt.Mlp.forward
    monkeypatch.setattr(gpt.Mlp, "forward", lambda mlp, x: forward(mlp, x.exp().log()))  # keeps what exp has made
    x_BTD = 2 * 2 * 32 * 32  # bytes, of two rows
    assert kept() == before + 4 * x_BTD


def held_of(one, action):
    """{kind: bytes} at the highest moment of an action."""
    return dict(zip(KINDS, one.held[one.actions.index(action)].tolist()))


@pytest.mark.slow
def test_copies_of_gradients_are_in_flight_while_they_are_added_up():
    one = dry_run(Mesh(dp=2), model=Shape(layers=2, width=16, heads=2), microbatches=2)
    during, behind = held_of(one, "sums"), kept_of(one, "sums")
    assert during["gradients"] == during["in flight"] > 0  # what has been made, and what it becomes
    assert behind["in flight"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("delay, under_way", [(0, 0), (1, 1), (3, 2)])
def test_moves_that_later_steps_hide_are_held_beside_activations(delay, under_way):
    """Of two fragments, one is under way beside a step, or with a long delay both are; without a delay none is, since
    nothing is saved when the exchange begins."""
    about = {"sums": "local", "sync_every": 4, "fragments": 2, "sync_delay": delay, "dtype": "float32"}
    shape = Shape(layers=2, width=16, heads=2)
    one = dry_run(Mesh(dp=2), model=shape, microbatches=2, **about)
    largest, whole = one.bytes["moves"], 4 * shape.parameters
    assert whole / 2 < largest < whole
    assert kept_of(one, "0F0")["in flight"] == {0: 0, 1: largest, 2: whole}[under_way]


@pytest.mark.slow
def test_a_rank_is_run_in_the_step_that_sends_its_largest_fragment():
    """The middle rank has one layer: in the last step before all copies are equal it would send nothing."""
    about = {"sums": "local", "sync_every": 4, "fragments": 2, "model": Shape(layers=4, width=16, heads=2)}
    sent_by = [dry_run(Mesh(dp=2, pp=4), rank=rank, **about).bytes["moves"] for rank in range(4)]
    assert min(sent_by) > 0


@pytest.mark.slow
def test_on_one_rank_nothing_is_in_flight_and_all_data_stays_data():
    one = dry_run(Mesh(pp=1), microbatches=3, model=Shape(layers=2, width=16, heads=2))
    held = dict(zip(KINDS, one.held.T))
    assert not held["in flight"].any()
    assert held["data"].min() == held["data"].max() > 0


@pytest.mark.long
def test_what_was_needed_to_make_the_trainer_is_not_held(monkeypatch):
    """Even where it refers to itself, so that only the collector takes it away."""
    small, works = {"model": Shape(layers=2, width=16, heads=2)}, Counted.works
    plain = dry_run(Mesh(pp=1), **small).held

    def leaves_a_loop(trainer, *about):
        loop = [torch.empty(1000, device="meta")]
        loop.append(loop)
        return works(trainer, *about)

    monkeypatch.setattr(Counted, "works", leaves_a_loop)
    assert (dry_run(Mesh(pp=1), **small).held == plain).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", first(1, ["1f1b", "gpipe", "zb_h1"]))
def test_behind_the_last_backward_no_activation_is_left(name):
    for rank in (0, 1):
        one = dry_run(Mesh(pp=2), name, microbatches=3, rank=rank, model=Shape(layers=2, width=16, heads=2))
        assert kept_of(one, "sums")["activations"] == 0 < kept_of(one, "0F0" if rank == 0 else "1F0")["activations"]


# --- the same as the closed formula, part by part


@pytest.mark.long
def test_every_part_is_the_footprints_and_what_differs_is_named():
    p, t, d, m = 4, 2, 2, 8
    mesh = Mesh(dp=d, pp=p, tp=t)
    one = dry_run(mesh, "1f1b", m, m * d, model=SMALL, rank=mesh.rank(pp=1), zero=1, sequence=True)
    shape, tokens = SMALL, SMALL.context
    block = shape.block
    weights = shape.layers // p * ((block.attention + block.mlp) // t + block.whole)  # stage 1 of 4: blocks and no ends
    held = kept_of(one, "1F2")  # as many microbatches as this stage will ever hold
    assert held["weights"] == 2 * weights
    assert held["optimizer"] == 12 * weights // d
    assert kept_of(one, "1B0")["gradients"] == 4 * weights  # in float32; the footprint has them in 16 bits
    paper = kept(shape, 1, t, True)
    masks = tokens * 2 * shape.width // t  # nothing is dropped
    statistics = tokens // t * 2 * 2 * 4 + 4 * shape.heads // t * tokens  # of two norms; and one number for each head
    leaving = 2 * tokens * shape.width // t  # the boundary tensor is kept until the backward
    per_block = paper.whole + paper.cut - masks + statistics
    assert held["activations"] == (live(p, m) - 1) * (shape.layers // p * per_block + leaving)


@pytest.mark.long
def test_memory_does_not_grow_with_the_microbatches():
    peaks = []
    for m in (8, 32):
        one = dry_run(Mesh(dp=2, pp=4), "1f1b", m, 2 * m, model=SMALL, rank=1)
        peaks.append(one.peak_bytes - one.peak["data"] - one.peak["working"])
    assert peaks[0] == peaks[1]


@pytest.mark.long
def test_gpipes_memory_does():
    kept = [kept_of(dry_run(Mesh(pp=4), "gpipe", m, m, model=SMALL), f"0F{m - 1}")["activations"] for m in (8, 16)]
    assert kept[1] == 2 * kept[0]


@pytest.mark.long
def test_scores_are_not_kept_in_what_is_done_again():
    shape = Shape(layers=2, width=64, heads=4, context=1024)
    peaks = {how: dry_run(Mesh(pp=1), model=shape, batch=4, recompute=how) for how in ("none", "full", "selective")}
    scores = 2 * 4 * shape.context**2
    assert max(one.peak["working"] for one in peaks.values()) < scores
    assert peaks["full"].peak_bytes < peaks["none"].peak_bytes


# --- a rank of thousands


@pytest.mark.long
def test_a_rank_of_3072():
    mesh = Mesh(dp=48, pp=8, tp=8)
    one = dry_run(mesh, "1f1b", 8, 48 * 8, rank=17, model=SMALL, zero=1, sequence=True)
    forward = {(row[0], row[1]) for row in zip(one.messages["op"], one.messages["peer"]) if row[1] is not None}
    assert forward == {("irecv", 9), ("isend", 25), ("irecv", 25), ("isend", 9)}  # the same rank of tp, one stage on
    assert one.bytes["messages"] == 2 * 8 * 2 * SMALL.context * SMALL.width // 8
    assert one.actions[:6] == ("2F0", "2F1", "2F2", "2F3", "2F4", "2F5")
    assert (np.diff(one.begin) >= 0).all() and one.end[-1] == one.length


@pytest.mark.long
@pytest.mark.soak
def test_gpt3_on_3072_gpus_in_a_minute():
    began = time.process_time()
    mesh, more = Mesh(dp=48, pp=8, tp=8), {"zero": 1, "sequence": True, "model": "gpt3-175b"}
    one = dry_run(mesh, "1f1b", 32, 1536, rank=17, **more)
    assert time.process_time() - began < 60
    assert 24e9 < one.peak_bytes < 25e9 and one.fits


# --- what it says


@pytest.mark.long
def test_what_does_not_fit_is_said_before_anyone_pays_for_it():
    one = dry_run(Mesh(pp=4), "gpipe", 32, model=SMALL, memory=10e6)
    first = next(action for action, size in zip(one.actions, one.total) if size > 10e6)
    assert not one.fits and one.peak_bytes > 10e6
    assert f"does not fit into 0.01 GB: {first} is the first action that needs more" in one.verdict
    assert one.verdict.endswith(" GB, is for activations") and one.verdict in str(one)
    assert dry_run(Mesh(pp=4), "gpipe", 2, model=Shape()).verdict.startswith("fits into 80 GB")


@pytest.mark.slow
def test_what_would_hang_is_said():
    stuck = hl.Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0", name="stuck")
    with pytest.raises(ValueError, match="1F1"):
        dry_run(Mesh(pp=2), stuck, model=Shape())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rank": 4}, "has no rank 4"),
        ({"machine": "abacus"}, "no machine 'abacus'"),
        ({"driven": True}, "give driven=False"),
        ({"offload": True}, "leave it out"),
        ({"schedule": "pipeoffload", "machine": "tpu-v5e", "model": Shape(layers=8)}, "host link of .* is not known"),
        ({"model": "gpt4"}, "gpt3-175b"),
        ({"zero": 1}, "give dp=2 or more"),
    ],
)
def test_bad_input_gets_a_sentence(how, said):
    with pytest.raises(ValueError, match=said):
        dry_run(Mesh(pp=4), **how)


class Masking(torch.nn.Module):
    """Asks whether there is padding, as transformers do, and then makes places of the mask."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Embedding(5, 5)

    def forward(self, tokens, mask):
        x, places = self.inner(tokens), torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        padded = mask == 0
        return x, (places * mask if bool(padded.any()) else places).to(x.dtype)


class Unpacking(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, arrived):
        return self.inner(*arrived)


class Adding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(5, 5)

    def forward(self, x, places):
        return self.inner(x + places[..., None])


class Choosing(torch.nn.Module):
    """Takes a way that its weights decide."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(5, 5)

    def forward(self, x):
        return self.inner(x) if bool((self.inner.weight.sum() > 9).any()) else x + self.inner(x)


def padded(step, rows):
    tokens = torch.arange(rows * 4).reshape(rows, 4) % 5
    return (tokens, (torch.arange(4) < 3).long().expand(rows, 4).contiguous()), tokens.float()


def masked(*more):
    layers = torch.nn.Sequential(Unpacking(Masking()), Unpacking(Adding()), *more)
    return hl.Model(layers, lambda output, target: (output.sum(-1) - target).square().sum(), padded)


@pytest.mark.slow
@pytest.mark.ranks
def test_a_forward_may_ask_for_numbers_that_follow_from_its_batch():
    ask = dict(model=masked(torch.nn.Linear(5, 5)), batch=8, microbatches=2, dtype="float32")
    one = dry_run(Mesh(pp=3), **ask, rank=1)
    real = hl.train(Mesh(pp=3), **ask, steps=1, progress=False)["timeline"].ledger
    sent = [row["bytes"] for row in real if row["rank"] == 1 and row["purpose"] == "messages" and row["op"] == "isend"]
    assert one.bytes["messages"] == sum(sent) > 0


@pytest.mark.slow
def test_a_forward_that_asks_for_a_weights_number_is_told_so():
    with pytest.raises(ValueError, match="reads values of a tensor .* does not know.* or use hl.run"):
        dry_run(Mesh(pp=3), model=masked(Choosing()), batch=8, microbatches=2, rank=2)


@pytest.mark.slow
def test_numbers_are_known_until_something_unknown_is_written_into_them():
    with Known():
        whole = torch.arange(4).to("meta")
        first, rest = whole[:1], whole[1:]
        rest.fill_(7)
        assert whole.tolist() == [0, 7, 7, 7]
        first.copy_(torch.zeros(1, device="meta"))
        with pytest.raises(ValueError, match="a dry run does not know"):
            whole.sum().item()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", ["empty(3, dtype=torch.long, device='meta')", "empty_like(torch.arange(3).to('meta'))"]
)
def test_memory_without_numbers_is_unknown(make):
    """A buffer for a message, say."""
    with Known(), pytest.raises(ValueError, match="a dry run does not know"):
        eval(f"torch.{make}").tolist()


@pytest.mark.slow
def test_an_index_by_numbers_asks_for_none_and_one_by_unknown_flags_does():
    x = torch.zeros(4, 2, device="meta")
    with Known():
        assert x[torch.zeros(3, device="meta").argsort()].shape == (3, 2)
        with pytest.raises(ValueError, match="values of a tensor \\(index\\)"):
            x[torch.zeros(4, device="meta") > 0]


@pytest.mark.slow
def test_nothing_is_left_behind():
    resize, default = torch.UntypedStorage.resize_, torch.get_default_dtype()
    begin = time.perf_counter()
    one = dry_run(Mesh(dp=2), zero=3, model=Shape())
    assert 0 < one.seconds < time.perf_counter() - begin
    assert torch.UntypedStorage.resize_ is resize and torch.get_default_dtype() == default
    assert torch.ones(2).sum() == 2 and not torch.distributed.is_initialized()


@pytest.mark.long
def test_it_is_drawn():
    one = dry_run(Mesh(pp=4), "zb_h1", 6, model=SMALL, rank=1)
    figure = hl.draw(one, title="One rank")
    assert f"{one.peak_bytes / 1e6:.3g} MB, in {one.at}" in figure.summary and "predicted" in figure.summary
    assert [trace.name for trace in figure.data[: len(KINDS)]] == list(KINDS)
    most = max(sum(y) for y in zip(*(trace.y for trace in figure.data[: len(KINDS)])))
    assert round(most * 1e6) == one.peak_bytes
    assert figure.twin.count("<rect") > len(one.actions) and "<title>One rank</title>" in figure.twin


@pytest.mark.long
def test_the_command(capsys):
    typed = "dry-run --model gpt3-175b --layers 8 --width 64 --heads 8 --tp 8 --pp 8 --dp 48 --microbatches 4 --zero 1"
    assert main([*typed.split(), "--sequence", "--rank", "17", "--json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert {"peak_bytes", "at", "bytes", "messages", "seconds"} <= found.keys() and found["at"] in out
    assert (
        found["bytes"].keys() == {"messages", "inside", "shares"} and sum(found["peak"].values()) == found["peak_bytes"]
    )
    assert "rank 17 of 3,072 (dp=0 pp=2 tp=1)" in out


def test_a_change_of_weights_searches_no_known_numbers(monkeypatch):
    """There may be one for each rank of the job, and several changes for each weight."""
    with Known() as known:
        mask = torch.tensor([1, 1, 0]).to("meta")
        monkeypatch.setattr(type(known.numbers), "__iter__", lambda self: pytest.fail("all numbers were searched"))
        torch.ones(3, device="meta").add_(1.0)
        assert mask.sum().item() == 2
