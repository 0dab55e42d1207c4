"""Lost ranks: every microbatch passes every stage once, on a living rank, and the result is that of one device."""

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.where.layout import Layout
from hybridlab.runtime import work
from hybridlab.runtime.work import ModelWork
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of

NAMES = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "chimera")


def length(name, dp, ranks, microbatches, lost):
    made = hl.rerouted(hl.schedule(name, ranks=ranks, microbatches=microbatches), dp, lost)
    return hl.simulate(hl.validate(made), hl.Costs(F=1, I=1, W=1)).length


# dp=3, 4 ranks, 6 microbatches: (lost ranks, length with full backwards, with halves, pipelines that were hurt)
TABLE = [
    ([2], 36, 29, 1),
    ([1, 6], 38, 30, 2),
    ([1, 6, 11], 38, 31, 3),
    ([2, 6], 62, 56, 2),
]


def test_what_a_schedule_says_of_its_stages_stays():
    """Pieces of a head, slices and ties belong to the model, which is the same on the other copies."""
    for name, more in (("vocabulary_1f1b", {}), ("seq1f1b", {"slices": 2}), ("interleaved", {"chunks": 2})):
        plain = hl.schedule(name, ranks=2, microbatches=2, **more)
        made = hl.rerouted(plain, 2, [1])
        facts = ("chunks", "slices", "pieces", "skips", "breaks")
        assert [getattr(made, fact) for fact in facts] == [getattr(plain, fact) for fact in facts]


@pytest.mark.ranks
def test_a_head_in_pieces_with_a_lost_rank_is_equal_to_one_device():
    made = hl.rerouted(hl.schedule("vocabulary_1f1b", ranks=2, microbatches=2), 2, [1])
    report = hl.check(hl.Mesh(pp=4), made, shape=hl.Shape(layers=2, width=16, heads=2, context=8))
    assert report.ok and report.largest_gap < 1e-10


@pytest.mark.parametrize("lost, whole, halves, hurt", TABLE)
def test_halves_fill_the_bubbles_and_several_losses_cost_less_than_whole_pipelines(lost, whole, halves, hurt):
    most = max(Counter(rank % 4 for rank in lost).values())
    assert (length("1f1b", 3, 4, 6, lost), length("zb_h1", 3, 4, 6, lost)) == (whole, halves)
    assert abs(whole - 3 * (6 * 3 / (3 - most) + 3)) <= 2  # the form of the docstring
    if hurt < 3:
        dropped = 3 * (6 * 3 / (3 - hurt) + 3)
        assert halves < whole <= dropped


def test_1f1b_without_a_loss_is_as_long_as_1f1b():
    assert length("1f1b", 3, 4, 6, []) == 3 * (6 + 3)


@pytest.mark.slow
@settings(max_examples=40)
@given(dp=st.integers(2, 4), ranks=st.integers(2, 4), rounds=st.integers(1, 3), data=st.data())
def test_the_length_is_near_the_closed_form_for_one_to_three_lost_ranks(dp, ranks, rounds, data):
    """3·(m·dp/(dp-f) + p-1) for full backwards, within two fills; halves take the work and at most two fills."""
    lost = data.draw(st.lists(st.integers(0, dp * ranks - 1), unique=True, min_size=1, max_size=3))
    most = max(Counter(rank % ranks for rank in lost).values())
    if most < dp:
        microbatches, fill = rounds * ranks, 3 * (ranks - 1)
        busy = 3 * microbatches * dp / (dp - most)
        assert busy <= length("1f1b", dp, ranks, microbatches, lost) <= busy + 3 * fill
        assert busy <= length("zb_h1", dp, ranks, microbatches, lost) <= busy + 2 * fill


def of_a_stage(plan, stage):
    """{rank: (the most microbatches whose activations of a stage it saves, how many it runs)}."""
    found, ends = {}, ("B", "W")
    for rank, program in enumerate(plan.program):
        kinds = [action.kind for action in program if action.stage == stage and action.kind in ("F", *ends)]
        if kinds:
            found[rank] = max(accumulate(-1 if kind in ends else 1 for kind in kinds)), kinds.count("F")
    return found


@st.composite
def cases(draw):
    name = draw(st.sampled_from(NAMES))
    dp, ranks = draw(st.integers(2, 4)), draw(st.sampled_from((2, 4)))
    microbatches = ranks * draw(st.integers(1, 2))
    lost = draw(st.lists(st.integers(0, dp * ranks - 1), unique=True, max_size=3))
    return name, dp, ranks, microbatches, lost


@given(cases())
@settings(max_examples=80)
def test_every_microbatch_passes_every_stage_once_on_a_living_rank(case):
    name, dp, ranks, microbatches, lost = case
    one = hl.schedule(name, ranks=ranks, microbatches=microbatches)
    homes = {stage: {place for (s, _), place in one.place.items() if s == stage} for stage in range(one.stages)}
    if any({q * ranks + home for q in range(dp) for home in its} <= set(lost) for its in homes.values()):
        with pytest.raises(ValueError, match="no copy of stage"):
            hl.rerouted(one, dp, lost)
        return
    made = hl.validate(hl.rerouted(one, dp, lost))
    done = Counter((a.kind, a.stage, a.microbatch) for program in made.program for a in program if a.microbatch >= 0)
    kinds = {action.kind for program in one.program for action in program}
    every = dp * len(one.replica_of)
    assert set(done.values()) == {1} and len(done) == len(kinds) * one.stages * every
    assert not any(made.program[rank] for rank in lost)
    assert not set(lost) & set(made.place.values())
    hl.validate(hl.lower(made))
    for stage in range(one.stages):
        before, after = (of_a_stage(plan, stage) for plan in (hl.orders.replicate(one, hl.Mesh(dp=dp, pp=ranks)), made))
        for rank, (peak, own) in after.items():
            assert peak <= -(-own * before[rank][0] // before[rank][1]) + 1


@pytest.mark.parametrize(
    "name, dp, lost, said",
    [
        ("1f1b", 1, [0], "dp=1 is invalid"),
        ("1f1b", 2, [8], "lost=8 is invalid: the ranks are 0 to 7"),
        ("1f1b", 2, [1, 5], "no copy of stage 1 is left"),
        ("pipedream", 2, [0], "one update at the end"),
        ("dualpipe", 2, [0], "one update at the end"),
    ],
)
def test_what_cannot_be_rerouted_is_refused(name, dp, lost, said):
    with pytest.raises(ValueError, match=said):
        hl.rerouted(hl.schedule(name, ranks=4, microbatches=8), dp, lost)


@pytest.mark.parametrize("change", ["left out", "twice", "waits for the lost rank"])
def test_a_wrong_route_is_no_training_step(change):
    made = hl.rerouted(hl.schedule("1f1b", ranks=2, microbatches=2), 2, [1])
    programs, place = [list(program) for program in made.program], dict(made.place)
    taken = next(action for action in programs[3] if action.kind == "B" and action.replica == 0)
    if change == "left out":
        programs[3].remove(taken)
    elif change == "twice":
        programs[3].append(taken)
    else:
        place[1, 0] = 1
    with pytest.raises(ValueError):
        hl.validate(made.with_programs(programs, place=place))


def test_replicas_on_one_rank_gather_its_shards_once():
    """The survivor runs microbatches of two replicas with the same weights."""
    made = hl.rerouted(hl.schedule("zb_h1", ranks=2, microbatches=3), 2, [1])
    for active in (1, 2):
        gathered = hl.validate(hl.sharded(made, active=active))
        beside = [str(action) for action in gathered.program[3] if action.kind not in ("F", "I", "W")]
        assert beside == ["1UNSHARD", "1RESHARD", "1REDUCE_GRAD"]


def test_a_mesh_with_an_axis_dp_is_refused_with_the_right_one():
    made = hl.rerouted(hl.schedule("1f1b", ranks=2, microbatches=2), 2, [1])
    with pytest.raises(ValueError, match=r"Mesh\(dp=2, pp=2\) has 4 in 2: give dp=1, pp=4"):
        job_of(hl.Mesh(dp=2, pp=2), made)
    with pytest.raises(ValueError, match="zero=1 is invalid: rerouted 1f1b has lost ranks, .* Leave zero out"):
        job_of(hl.Mesh(pp=4), made, zero=1)


@pytest.mark.parametrize("flags", ["--zero 1", "--lost 1,3", "--lost x"])
def test_the_command_refuses_in_one_sentence(flags, capsys):
    assert main(f"check --dp 2 --pp 2 --lost 1 {flags}".split()) == 2
    assert capsys.readouterr().err.count("\n") == 1


CASES = [  # schedule, dp, pp, microbatches, lost, other axes, other options
    ("1f1b", 2, 2, 4, [1], {}, {"optimizer": "adamw"}),
    ("zb_h1", 3, 2, 4, [0, 3], {}, {}),
    ("zb_h1", 2, 2, 4, [1], {"tp": 2}, {"sequence": True}),
    ("interleaved", 2, 2, 4, [2], {}, {"accumulate": 2}),
    ("chimera", 2, 2, 4, [0], {}, {"recompute": "full"}),
    ("1f1b", 2, 2, 4, [0], {}, {"validated": "before", "clip": 0.05}),
    ("zb_h1", 2, 2, 4, [1], {"cp": 2}, {"zero": 3}),
    ("zb_h1", 2, 4, 4, [0, 2, 5], {}, {"optimizer": "adamw"}),
    ("1f1b", 4, 2, 4, [0, 2, 5], {}, {}),
    ("1f1b", 4, 2, 3, [1, 3, 5], {}, {"validated": "before", "clip": 100.0}),
    ("zb_h1", 3, 2, 4, [0, 2, 5], {}, {"sums": "each"}),
]


@pytest.mark.ranks
@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.long] * (c[0] != "1f1b")) for c in CASES], ids=str)
def test_the_other_copies_make_the_step_of_one_device(case):
    name, dp, pp, microbatches, lost, inside, more = case
    made = hl.rerouted(hl.schedule(name, ranks=pp, microbatches=microbatches), dp, lost)
    model = hl.Shape(layers=made.stages)
    report = hl.check(hl.Mesh(pp=dp * pp, **inside), made, model=model, dtype="float64", **more)
    assert report.ok, report


# ---- mistakes: each is given a pytest.MonkeyPatch


def tokens_of_the_living(patch):
    """The loss is divided by the tokens of the ranks that are left."""
    plain = work.scaled
    patch.setattr(work, "scaled", lambda loss, tokens: plain(loss, tokens * 3 // 4))


def rerouted_twice(patch):
    """A microbatch of the lost rank is counted by both pipelines."""
    plain = ModelWork.backward
    twice = lambda arrived: [tuple(2 * x for x in one) for one in arrived]
    wrong = lambda self, stage, m, version, x: plain(self, stage, m, version, twice(x) if (stage, m) == (0, 1) else x)
    patch.setattr(ModelWork, "backward", wrong)


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", [tokens_of_the_living, pytest.param(rerouted_twice, marks=pytest.mark.long)])
def test_a_mutant_is_caught(bench, mutant):
    made = hl.rerouted(hl.schedule("1f1b", ranks=2, microbatches=3), 2, [1])
    about = {"schedule": made, "model": hl.Shape(layers=2, width=16, heads=2, context=8), "steps": 1}
    assert bench.right(hl.Mesh(pp=4), **about)
    report = bench.asked(hl.Mesh(pp=4), sabotage=mutant, **about)
    assert not report.ok and report.largest_gap > 1e-6


def a_step_that_sums_with_the_lost_rank(comm, job):
    with pytest.MonkeyPatch.context() as patch:
        plain = Layout.summed
        with_it = lambda self, *about: tuple(sorted({1, *plain(self, *about)}))
        patch.setattr(Layout, "summed", lambda self, *about: with_it(self, *about) if comm.rank != 1 else ())
        comm.open((1, 3, 5), (0, 1, 2, 4))
        Trainer(comm, job).step(0)


@pytest.mark.ranks
@pytest.mark.long
def test_a_sum_that_waits_for_the_lost_rank_is_named():
    job = job_of(hl.Mesh(pp=6), hl.rerouted(hl.schedule("1f1b", ranks=2, microbatches=2), 3, [1]))
    deadlock = pytest.raises(hl.RankError, match="deadlock: rank 0 waits in all_reduce")
    with hl.ranks(hl.Mesh(pp=6), hang_s=2) as pool, deadlock:
        pool.run(a_step_that_sums_with_the_lost_rank, job)
