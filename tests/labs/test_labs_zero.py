"""The lab on zero: its figures, its formulas against the package's, and its programs."""

import math
import re
from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.zero import on_ranks as zero_fsdp
from hybridlab.labs.zero import plan as zero_plan
from hybridlab.labs.zero.pictures import ZeroExplorer, bars, stages, told
from hybridlab.labs.zero.plan import Plan, carried, kept
from hybridlab.show.layouts.memory_bars import GREEN, PARTS, TALL, Carried, Column, memory_bars

# --- bars ---------------------------------------------------------------------------------------------------------


def heights(svg, what):
    """The heights of one part's boxes, without the key of the legend."""
    found = re.findall(rf'height="([\d.]+)" fill="{PARTS[what][1]}"', svg)
    return [float(one) for one in found][1:]


def test_a_bar_is_as_high_as_its_bytes():
    columns = [Column("rank 0", {"value": 4e9, "gradient": 2e9, "optimizer": 1e9}), Column("rank 1", {"value": 8e9})]
    svg = memory_bars(columns, 16e9, (), 1, "title", "words").svg
    assert heights(svg, "value") == [TALL / 4, TALL / 2]
    assert heights(svg, "gradient") == [TALL / 8] and heights(svg, "optimizer") == [TALL / 16]
    assert ">7 GB<" in svg and ">8 GB<" in svg


def test_what_is_sent_stands_one_behind_the_other():
    svg = memory_bars([Column("rank 0", {})], 1, [Carried("a", 4, 1e9), Carried("b", 4, 2e9)], 4e9, "t", "w").svg
    bars = re.findall(rf'<rect x="([\d.]+)" [^>]* width="([\d.]+)" height="16" fill="{GREEN}"', svg)
    (x0, wide0), (x1, wide1) = [(float(x), float(wide)) for x, wide in bars]
    assert abs(x0 + wide0 - x1) < 0.02 and abs(wide1 - 2 * wide0) < 0.02
    assert ">3 GB<" in svg


def test_many_ranks_are_drawn_as_some_and_words_are_escaped():
    still = memory_bars([Column(f"rank {r}", {"value": 1}) for r in range(64)], 1, (), 1, "<b>", "one & all")
    assert ">rank 4<" in still.svg and ">rank 63<" in still.svg and ">rank 5<" not in still.svg and "…" in still.svg
    assert "one &amp; all" in still.svg and "<b>" not in still.svg


def test_sizes_that_would_touch_are_written_once_or_in_two_rows():
    sent = [Carried("a", 4, 1)]
    drawn = lambda sizes: memory_bars([Column("rank", {"value": x}) for x in sizes], 1e9, sent, 1, "", "")
    assert drawn([52.5e9] * 8).svg.count("52.5 GB") == 1 and ">52.5 GB on each<" in drawn([52.5e9] * 8).svg
    assert drawn([52.5e9] * 2).svg.count(">52.5 GB<") == 2
    rows = re.findall(r'y="([\d.]+)"[^>]*>\d\d\.5 MB<', drawn([x + 0.5e6 for x in (11e6, 12e6, 13e6, 14e6) * 2]).svg)
    assert len(rows) == 8 and abs(float(rows[0]) - float(rows[1])) > 12


def test_the_four_stages_get_smaller():
    assert "120 GB, 31.4 GB, 16.6 GB, 1.88 GB" in stages(Plan(policy="mixed, as printed")).summary


# --- the explorer -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_buttons_change_the_picture_and_owners_always_fit():
    explorer = ZeroExplorer(Plan(ranks=8, stage=3, owners=4))
    assert "26.2 GB" in explorer.summary and explorer._picture.value == bars(explorer.plan).svg
    explorer.choose(ranks=2)
    assert explorer.plan.owners == 2 and list(explorer._choices["owners"].options) == [1, 2]
    explorer.choose(ranks=64)
    assert explorer.plan.owners == 64, "fully sharded stays so"
    explorer.choose(owners=4)
    explorer.choose(ranks=16, stage=0, model="small GPT", policy="single")
    assert explorer.plan == Plan("small GPT", 16, 0, 4, "single")
    assert explorer._picture.value == bars(explorer.plan).svg and explorer.summary == told(explorer.plan)


def test_without_a_kernel_the_picture_is_there():
    bundle = ZeroExplorer(Plan(ranks=8, owners=8))._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg") and bundle["text/plain"].startswith("A rank keeps 13.1 GB")


# --- formulas -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 8, 64])
def test_the_bytes_of_a_step_are_those_of_the_papers(p):
    psi = 7.5e9
    for stage, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
        layout = Plan(ranks=p, stage=stage, owners=p).layout
        assert sum(one.bytes for one in carried(layout)) == pytest.approx(4 * times * psi * (p - 1) / p)


@pytest.mark.parametrize("p, owners", [(8, 4), (8, 2), (64, 8)])
def test_the_bytes_of_hybrid_sharding(p, owners):
    psi, copies = 7.5e9, p // owners
    formula = 3 * psi * (owners - 1) / owners + 2 * psi / owners * (copies - 1) / copies
    assert sum(one.bytes for one in carried(Plan(ranks=p, owners=owners).layout)) == pytest.approx(4 * formula)


def test_one_owner_is_plain_data_parallelism():
    for stage in range(4):
        one, plain = Plan(ranks=8, stage=stage, owners=1), Plan(ranks=8, stage=0, owners=8)
        assert kept(one) == kept(plain) and carried(one.layout) == carried(plain.layout)


def test_gathers_ahead_are_hidden_inside_a_node():
    plan = Plan(ranks=8, owners=4)
    work = 36 * (zero_plan.FORWARD + zero_plan.BACKWARD)
    assert zero_plan.seconds(plan, 2) < 1.03 * work < zero_plan.seconds(plan, 1)


# --- programs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [1, 2, 3])
def test_where_weights_are_let_go(active):
    plain = hl.sharded(zero_fsdp.looped(units=4), active)
    stay, go = hl.validate(zero_fsdp.kept_after_forward(plain)), hl.validate(zero_fsdp.always_freed(plain))
    gathers = [sum(action.kind == "UNSHARD" for action in one.program[0]) for one in (stay, plain, go)]
    assert gathers == [4, 8 - active, 8 - active + 1]
    assert stay.computing == plain.computing == go.computing


def test_a_prediction_of_equal_ranks_is_that_of_one():
    plan = hl.sharded(zero_fsdp.looped(units=3), 2)
    t = zero_fsdp.foreseen(plan, hl.Costs(F=1, B=2, gather=1, reduce=1))
    assert t.busy == [9, 9] and min(t.begin[0][t.lane == 0]) == 0 and t.schedule is plan


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    jobs = {"plain": zero_fsdp.job(0), "3": zero_fsdp.job(3), "hybrid": zero_fsdp.job(3, 2)}
    with hl.ranks(hl.Mesh(dp=4)) as pool:
        return {name: (one, homes) for (name, one), homes in zip(jobs.items(), zero_fsdp.train(pool, *jobs.values()))}


@pytest.mark.long
@pytest.mark.ranks
def test_counted_bytes_are_the_formulas(trained):
    from hybridlab.predict.bytes.memory import model_states

    for job, homes in trained.values():
        for rank, home in enumerate(homes):
            assert home.kept == model_states(job.layout, rank) and home.sent == zero_fsdp.sent(job, rank)


@pytest.mark.ranks
def test_the_bits_are_those_of_plain_data_parallelism_and_a_wrong_one_is_seen(trained):
    (plain, one), (job, homes) = trained["plain"], trained["3"]
    assert zero_fsdp.same_bits(plain, one, one) and zero_fsdp.same_bits(job, homes, one)
    assert not zero_fsdp.same_bits(*trained["hybrid"], one), "pairs are added first: another order"
    assert one[0].losses[0] == pytest.approx(math.log(256), abs=0.1), "of the whole batch: every byte is as likely"
    next(iter(homes[1].weights.values()))[0] += 1e-6
    assert not zero_fsdp.same_bits(job, homes, one)


@pytest.mark.long
@pytest.mark.ranks
def test_the_check_catches_old_weights():
    small = hl.Shape(layers=2, width=16, heads=2, context=8)
    assert not hl.check(hl.Mesh(dp=2), shape=small, microbatches=1, zero=1, sabotage=zero_fsdp.keep_old_weights).ok


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2, 4])
def test_accumulation_costs_two_gathers_for_each_microbatch_and_one_reduce_scatter(m):
    """Whole gradients are kept until the last backward: (2m + 1)Ψ in stage 3, 2Ψ in the others."""
    plain, second, third = (zero_fsdp.job(stage, accumulate=m) for stage in (0, 2, 3))
    freed = replace(third, schedule=zero_fsdp.always_freed(third.schedule))
    assert zero_fsdp.sent(freed) / zero_fsdp.sent(plain) == pytest.approx((2 * m + 1) / 2)
    assert zero_fsdp.sent(second) == zero_fsdp.sent(plain)
    assert TASKS["zero_fsdp.accumulate"].check.right == 3 * 4 / 2


# --- half an answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter, told", [("d", "the letter is right; replace None"), ("a", "replace None with your")])
def test_a_letter_without_a_function_is_told_so_where_it_is_right(letter, told):
    reply = labs.answer("zero_fsdp.clinic", (letter, None))
    assert not reply.right and reply.sentence.startswith(told) and not reply.hint


@pytest.mark.ranks
@pytest.mark.parametrize("last, told", [(1, "the function is right; name the letter"), (2, "replace None with your")])
def test_a_function_without_a_letter_is_told_so_where_it_is_right(last, told):
    def mended(rank, ranks, context):
        length = context // (2 * ranks)
        return [i * length + place for i in (rank, 2 * ranks - last - rank) for place in range(length)]

    reply = labs.answer("context.clinic", (None, mended))
    assert not reply.right and reply.sentence.startswith(told) and not reply.hint


def test_what_is_gathered_is_in_a_second_line_where_it_fits():
    columns = [Column(f"rank {rank}", {"value": 273e3}, whole=87.7e3) for rank in range(4)]
    text = memory_bars(columns, 1e6, [Carried("a", 4, 1)], 1, "", "").svg
    assert text.count(">273 kB<") == text.count(">+ 87.7 kB<") == 4
    assert ">+ 87.7 kB<" not in memory_bars(columns * 2, 1e6, [Carried("a", 4, 1)], 1, "", "").svg
