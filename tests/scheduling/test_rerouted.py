"""Lost ranks: every microbatch passes every stage once, on a living rank, and the result is that of one device."""

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.cli.main import main

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
]


@pytest.mark.ranks
@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.long] * (c[0] != "1f1b")) for c in CASES], ids=str)
def test_the_other_copies_make_the_step_of_one_device(case):
    name, dp, pp, microbatches, lost, inside, more = case
    made = hl.rerouted(hl.schedule(name, ranks=pp, microbatches=microbatches), dp, lost)
    model = hl.Shape(layers=made.stages)
    report = hl.check(hl.Mesh(pp=dp * pp, **inside), made, model=model, dtype="float64", **more)
    assert report.ok, report
