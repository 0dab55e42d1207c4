"""The card: a prediction over its measurement."""

import subprocess
import sys

import pytest

from hybridlab.labs.comparison import Compared, compare


@pytest.mark.parametrize(
    "measured, form, within, verdict",
    [
        (109, "{:g}", 0.1, "within"),
        (111, "{:g}", 0.1, "outside"),
        (91, "{:g}", 0.1, "within"),
        (89, "{:g}", 0.1, "outside"),
        (0.55, "{:.0%}", 0.05, "outside"),
    ],
)
def test_a_share_may_differ_by_points_and_all_else_by_percent_of_the_prediction(measured, form, within, verdict):
    predicted = 0.49 if form.endswith("%}") else 100
    assert Compared("", predicted, measured, form, within).verdict.startswith(f"{verdict} tolerance")


def test_columns_without_a_word_are_left_out():
    plain = compare(Compared("a step", 46, 50))._repr_html_()
    assert "your guess" not in plain and "likely cause" not in plain
    full = compare(Compared("a step", 46, 50, yours=40, why="<messages>"), Compared("idle", 1, 1))._repr_html_()
    assert "your guess" in full and "&lt;messages&gt;" in full and full.count('"listitem"') == 2


def test_the_text_reads_as_a_sentence_with_its_cause():
    told = repr(compare(Compared("a step", 40, 50, "{:.0f} ms", yours=30, why="each message wakes a process")))
    card = "your guess 30 ms, predicted 40 ms, measured ≈50 ms, off by ≈+25.0 %: outside tolerance (±10 %)"
    assert told == f"a step: {card}; likely cause: each message wakes a process"


def test_a_prediction_of_nothing_is_compared_too():
    assert Compared("idle", 0, 0.5, "{:g}").off == 0.5
    assert Compared("idle", 0, 0).verdict.startswith("within") and Compared("idle", 0, 0, within=0).verdict == "equal"


@pytest.mark.slow
def test_a_function_is_found_whichever_name_of_its_module_comes_first():
    for first, then in (("Compared", "compare"), ("Guess", "reveal")):
        text = f"from hybridlab import labs; labs.{first}; assert callable(labs.{then})"
        assert subprocess.run([sys.executable, "-c", text]).returncode == 0


@pytest.mark.slow
def test_a_function_is_found_when_somebody_has_imported_its_module():
    """So no module is called as its function: the module would stand in its place."""
    modules = "import hybridlab.labs.comparison, hybridlab.labs.rows"
    text = f"{modules}; from hybridlab import labs; assert callable(labs.compare) and callable(labs.table)"
    assert subprocess.run([sys.executable, "-c", text]).returncode == 0
