"""The exercises of notebooks 13 and 14: what `test_exercises` feeds them.

And what their questions and the text around them take for granted, held against the package.
"""

import pathlib
import re

import nbformat
import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs import interleaved, zero_bubble
from hybridlab.labs.interleaved_tasks import _fits
from hybridlab.labs.zero_bubble import beside
from hybridlab.labs.zero_bubble_tasks import UNEQUAL
from hybridlab.modes.work import EmulatedWork
from hybridlab.predict.published import published

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("first_attempt")]  # long: many cases

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "notebooks"


def typed(name, ranks, microbatches, **options):
    return hl.schedule(name, ranks=ranks, microbatches=microbatches, **options).to_csv()


USUAL = typed("interleaved", 2, 4, chunks=2)
RANK_0, RANK_1 = USUAL.strip().splitlines()
SHORTER = "0F0,0F1,2F0,2F1,2B0,0F2,2B1,0F3,0B0,2F2,0B1,2F3,2B2,2B3,0B2,0B3"
CUT = beside(hl.schedule("1f1b", ranks=4, microbatches=8))
H1 = hl.schedule("zb_h1", ranks=4, microbatches=8)
BETTER = CUT.with_programs([*CUT.program[:2], *H1.program[2:]])  # only the last two ranks wait with W
LONGER = CUT.with_programs([*CUT.program[:3], [*CUT.program[3][1:], CUT.program[3][0]]])

RIGHT = {
    "interleaved.bubbles": [[3 / 19, 3 / 16], (0.158, 0.1875), ["0.158", "0.1875"]],
    "interleaved.memory": [5.5, "5.5", 4 * (1 + 3 / 8)],
    "interleaved.warmup": [f"{SHORTER}\n{RANK_1}", hl.Schedule.from_csv(f"{SHORTER}\n{RANK_1}")],
    "interleaved.published": [[7 / 55, 7 / 103], [7 / 48, 7 / 96], (0.127, 0.068), (0.146, 0.073)],
    "interleaved.design": [4, 4.0, "4"],
    "zero_bubble.h1": [4.2, 3 * (1 + 1.2 - 0.8)],
    "zero_bubble.clipped": [7 / 79, 0.0886],
    "zero_bubble.pair": [2.875, 2.88],
    "zero_bubble.puzzle": [H1, H1.to_csv(), BETTER, hl.schedule("zb_h1", ranks=4, microbatches=8).to_csv().strip()],
}
WRONG = {  # (answer, a piece of the sentence that it must get)
    "interleaved.bubbles": [
        ([3 / 16, 3 / 19], "other way round"),
        ([3 / 11, 3 / 8], "without interleaving"),
        ([3 / 22, 3 / 16], "does not simply halve"),
        ([0.9, 3 / 16], "idle / total is too large"),
        ([3 / 19, 0.01], "idle / ideal is too small"),
        (0.158, "two numbers"),
        ([0.158], "two numbers"),
        ([15.8, 18.75], "idle / total is too large"),
    ],
    "interleaved.memory": [(11, "counts chunks"), (4, "That is 1F1B"), (1.375, "the factor"), (7, "Too large")],
    "interleaved.warmup": [
        (USUAL, "warms up with 4 forwards before its first pair; make it 3"),
        (f"{RANK_0}\n{RANK_1.replace('1F1,3F0', '3F0,1F1')}", "Leave the line of rank 1"),
        (f"{SHORTER.replace('2B1,0F3', '0F3,2B1')}\n{RANK_1}", "one forward, one backward"),
        (f"{SHORTER.replace('0F0,0F1', '0F1,0F0')}x\n{RANK_1}", "is no action"),
        (f"{SHORTER[:-4]}\n{RANK_1}", "add 0B3"),
        (SHORTER, "nobody makes"),
        ("0F0,0B0\n1F0,1B0", "Keep 2 ranks, 4 stages and 4 microbatches"),
        ("2B0," + SHORTER.replace("2B0,", "") + "\n" + RANK_1, "waits"),
        (16, "Answer with text"),
        ("0F0," * 3000, "much longer"),
    ],
    "interleaved.published": [
        ([0.127, 0.073], "That is the published pair"),
        ([7 / 96, 7 / 48], "other way round"),
        ([7 / 48, 7 / 103], "not of one definition"),
        ([12.7, 7.3], "between 0 and 1"),
        ([0.5, 0.25], "take one of the two formulas"),
        (1.74, "two numbers"),
    ],
    "interleaved.design": [
        (1, "memory is fine, 355 units are not kept"),
        (2, "too slow, and too much"),
        (3, "the time is fine, 4.8 shares are not kept"),
        (6, "355 units are not kept"),
        (5, "no 5 equal chunks"),
        (2.5, "one whole number"),
        (0, "no 0 equal chunks"),
        (10**12, "equal chunks"),
    ],
    "zero_bubble.h1": [(3, "equal costs"), (9, "That is 1F1B"), (6.6, "has not been moved"), (5, "Too large")],
    "zero_bubble.clipped": [(7 / 72, "idle / ideal"), (7 / 31, "That is 1F1B"), (0, "Too small"), (0.5, "Too large")],
    "zero_bubble.pair": [(3, "nothing is gained"), (2, "Too small"), (2.95, "Too large")],
    "zero_bubble.puzzle": [
        (CUT, "it takes 30 units. Beat 30; 27 can be reached"),
        (typed("1f1b", 4, 8), "it takes 33 units"),
        (typed("zb_h2", 4, 8), "27 units, but rank 0 holds 7 activations until W; 4 are allowed"),
        (LONGER, "waits"),
        (typed("zb_h1", 2, 8), "Keep 4 ranks, 4 stages and 8 microbatches"),
        (typed("zb_v", 4, 8), "Keep 4 ranks, 4 stages"),
        (CUT.to_csv().replace("3W7", "3W6"), "stands twice"),
        (CUT.to_csv().replace(",3W7", ""), "rank 3 never makes"),
        ("no schedule", "is no action"),
        ("nowhere.csv", "No such file"),
    ],
}
NONSENSE = [[None] * 2, [float("nan")] * 2, [float("inf")] * 2, -1, [-1, -1], True]


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
    thin = hl.simulate(hl.schedule("interleaved", ranks=4, microbatches=8, chunks=2))
    whole = hl.simulate(hl.schedule("1f1b", ranks=4, microbatches=8), UNEQUAL)
    cut = hl.simulate(CUT, UNEQUAL)
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
    ("14_zero_bubble", "has 24 units of work", lambda: f"has {max(hl.simulate(H1).busy):g} units of work"),
    ("14_zero_bubble", "1F1B takes 33", lambda: f"1F1B takes {hl.simulate(hl.schedule('1f1b', 4, 8)).length:g}"),
    ("14_zero_bubble", "cut only: 30 units", lambda: f"cut only: {hl.simulate(CUT).length:g} units"),
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
