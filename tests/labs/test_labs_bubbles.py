"""The exercises of notebooks 13 and 14: what their questions and the text around them take for granted."""

import pathlib

import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs.gpipe.tasks import _slots
from hybridlab.labs.interleaved.solutions import RANK_1, SHORTER
from hybridlab.labs.interleaved.tasks import _fits
from hybridlab.labs.zero_bubble.solutions import BETTER, CUT, H1
from hybridlab.predict.papers.published import published

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("first_attempt")]  # slow: many cases

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"


# --- what the exercises take for granted -----------------------------------------------------------------------


def test_a_shorter_warm_up_costs_time_only_where_messages_do():
    """The counter-example: the second p-1-r of the warm-up pays for messages, with memory."""
    reply = labs.answer("interleaved.warmup", f"{SHORTER}\n{RANK_1}")
    assert reply.sentence == (
        "with free messages: 27 units, before 27; with messages of 1 unit: 37 units, before 33. "
        "Rank 0 holds 4 chunks instead of 5."
    )


def test_the_design_has_one_answer_among_the_divisors():
    fits = [v for v in range(1, 25) if 24 % v == 0 and _fits(v)]
    assert fits == [4]


def test_the_published_numbers_are_of_two_definitions():
    gpipe = hl.simulate(hl.schedule("gpipe", ranks=8, microbatches=48))
    thin = hl.simulate(hl.schedule("interleaved", ranks=8, microbatches=48, chunks=2))
    assert round(gpipe.bubble_fraction, 3) == 0.127 and round(thin.bubble_overhead, 3) == 0.073
    assert round(0.127 / 0.073, 2) == 1.74
    assert gpipe.bubble_overhead / thin.bubble_overhead == pytest.approx(2)


def test_the_slips_are_what_their_sentences_say():
    unequal = hl.Costs(F=1, I=1.2, W=0.8)
    thin = hl.simulate(hl.schedule("interleaved", ranks=4, microbatches=8, chunks=2))
    whole = hl.simulate(hl.schedule("1f1b", ranks=4, microbatches=8), unequal)
    cut = hl.simulate(CUT, unequal)
    assert (thin.peak_live[0], whole.peak_live[0], 5.5 / whole.peak_live[0]) == (11, 4, 1.375)
    assert whole.length - max(whole.busy) == pytest.approx(9) and cut.length - max(cut.busy) == pytest.approx(6.6)


def test_the_puzzle_can_be_won_in_steps():
    """The first attempt takes 30; waiting with W on two ranks beats it; nothing is shorter than 27."""
    lengths = [hl.simulate(hl.validate(one)).length for one in (CUT, BETTER, H1)]
    assert lengths[0] == 30 and 27 <= lengths[1] < 30 and lengths[2] == 27
    assert max(hl.simulate(H1).busy) + 3 == 27  # the last rank starts 3 late


def test_a_cut_backward_keeps_the_order_of_the_rest():
    one = hl.schedule("1f1b", ranks=4, microbatches=8)
    whole = [[str(a).replace("I", "B") for a in program if a.kind != "W"] for program in CUT.program]
    assert whole == [[str(a) for a in program] for program in one.program]


IN_WHICH = [(F, I, W) for F in (1, 2) for I in (0.5, 1, 1.5, 3) for W in (0.4, 0.9, 1, 1.5, 2.5)]


@pytest.mark.parametrize("F, I, W", IN_WHICH)
@pytest.mark.parametrize("p, m", [(4, 8), (8, 24)])
def test_the_formulas_of_idle_time_hold_under_their_conditions_and_only_there(p, m, F, I, W):
    """Notebook 14: W ≤ F and W ≤ I; a longer W saves ZB-H1 no more than F, and nothing goes below (p-1)F."""
    h1, h2 = (hl.simulate(hl.schedule(name, ranks=p, microbatches=m), hl.Costs(F=F, I=I, W=W)) for name in HALVED)
    idle, within = h1.length - max(h1.busy), _own_span(h2) - max(h2.busy)
    by_formula = (p - 1) * (F + I - W), (p - 1) * (F + I - 2 * W)
    assert idle == pytest.approx((p - 1) * max(F, F + I - min(W, F)))
    assert (idle == pytest.approx(by_formula[0])) is (W <= min(F, I))
    if W <= min(F, I):
        assert within == pytest.approx(by_formula[1])
    elif 2 * W > F + I:
        assert within > by_formula[1] + 0.1


HALVED = ("zb_h1", "zb_h2")


def _own_span(t):
    own = [[span for span in t.spans if span.rank == rank] for rank in range(t.schedule.ranks)]
    return max(max(one.end for one in spans) - min(one.begin for one in spans) for spans in own)


# --- what the text of the notebooks says ------------------------------------------------------------------------


def test_the_printed_gain_is_real_smaller_than_predicted_and_closes():
    """Notebook 13 says so of the paper's measured throughput."""
    gains = {}
    for row in published("zero_bubble_tables"):
        p, m, v = row["stages_p"], row["microbatches_m"], row["chunks_v_for_1F1B_I"]
        F, B, message = row["TF_ms"], row["TB_ms"] + row["TW_ms"], row["Tcomm_ms"]
        before = hl.simulate(hl.schedule("1f1b", p, m), hl.Costs(F=F, B=B, latency=message))
        thin = hl.schedule("interleaved", p, m, chunks=v)
        after = hl.simulate(thin, hl.Costs(F=F / v, B=B / v, latency=message))
        printed = row["samples_per_gpu_s_1F1B_I"] / row["samples_per_gpu_s_1F1B"]
        assert 1 < printed < before.length / after.length
        gains.setdefault(row["model"], []).append((m, printed))
    twice = [sorted(pairs) for pairs in gains.values() if len(pairs) == 2]
    assert len(twice) == 2 and all(few[1] > many[1] for few, many in twice)


def test_every_action_of_the_chart_has_its_slot():
    slots = _slots()
    assert len(slots) == 32 and slots["0F0"] == 0 and slots["0B0"] == 7 and slots["3B3"] == 10
