"""The exercises of notebooks 13 and 14: what their questions and the text around them take for granted."""

import pathlib
import re

import nbformat
import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs import interleaved, zero_bubble
from hybridlab.labs.solutions.interleaved import RANK_1, SHORTER
from hybridlab.labs.solutions.zero_bubble import BETTER, CUT, H1
from hybridlab.labs.tasks.interleaved import _fits
from hybridlab.modes.work import EmulatedWork
from hybridlab.predict.published import published

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("first_attempt")]  # long: many cases

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "notebooks"


# --- what the exercises take for granted -----------------------------------------------------------------------


def test_a_shorter_warm_up_costs_time_only_where_messages_do():
    """The counter-example: the second p-1-r of the warm-up pays for messages, with memory."""
    reply = labs.answer("interleaved.warmup", f"{SHORTER}\n{RANK_1}")
    assert reply.sentence == (
        "messages free: 27 units, before 27; a message of 1 unit: 37 units, before 33. "
        "Rank 0 holds 4 chunks in place of 5."
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


# --- what the text of the notebooks says ------------------------------------------------------------------------


def prose(name):
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return " ".join(" ".join(cell.source.split()) for cell in book.cells if cell.cell_type == "markdown")


PROSE = [  # (notebook, what its text says, the same from the package)
    ("14_zero_bubble", "eighteen printed rates", lambda: {18: "eighteen printed rates"}[3 * len(_rows())]),
    ("14_zero_bubble", "six configurations", lambda: {6: "six configurations"}[len(_rows())]),
    ("13_interleaved", "80 ms, its backward 160 ms", lambda: _seconds(interleaved.costs(1, 0, interleaved.UNIT))),
    ("13_interleaved", "the twelve runs", lambda: {12: "the twelve runs"}[3 * len(interleaved.LATENCIES)]),
    ("13_interleaved", "has 2048 bytes", lambda: f"has {8 * EmulatedWork(None).elements} bytes"),
    (
        "13_interleaved",
        "sends three times the bytes",
        lambda: {3: "sends three times the bytes"}[_sends(2) / _sends(1)],
    ),
    ("14_zero_bubble", "of a whole rank 40 ms", lambda: f"of a whole rank {zero_bubble.UNIT * 1e3:g} ms"),
    ("14_zero_bubble", "twelve schedules", lambda: {12: "twelve schedules"}[len(_planned())]),
    ("13_interleaved", "up to 32 GPUs", lambda: f"up to {max(row['stages_p'] for row in _rows())} GPUs"),
]


def _seconds(costs):
    return f"{costs.F * 1e3:g} ms, its backward {costs.B * 1e3:g} ms"


def _sends(chunks):
    lowered = hl.lower(interleaved.thinned(chunks, ranks=2))
    return sum(action.kind.startswith("SEND") for program in lowered.program for action in program)


def _planned():
    """The schedules on the plane of notebook 14: lines of its table."""
    book = nbformat.read(FOLDER / "14_zero_bubble.ipynb", as_version=4)
    (table,) = (cell for cell in book.cells if cell.id == "zero_bubble-plane-table")
    return table.outputs[0].text.splitlines()


def _rows():
    return published("zero_bubble_tables")


@pytest.mark.parametrize("name, text, computed", PROSE, ids=[f"{name}: {text}" for name, text, _ in PROSE])
def test_a_number_in_the_text_is_what_the_package_computes(name, text, computed):
    assert text in prose(name) and computed() == text


def test_the_printed_gain_is_real_smaller_than_predicted_and_closes():
    """Notebook 13 says so of the paper's measured throughput."""
    gains = {}
    for row in _rows():
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


def test_the_text_types_no_percentage():
    assert not any(re.search(r"\d %", prose(name)) for name in ("13_interleaved", "14_zero_bubble"))
