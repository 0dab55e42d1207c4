"""What a student is told of an answer that is right and cannot be handed in, or not as it was given."""

import enum
import functools
from decimal import Decimal
from fractions import Fraction

import pytest
from test_source import cell

from hybridlab import labs
from hybridlab.labs.exercises import answer as answering
from hybridlab.labs.exercises.submission import load
from hybridlab.labs.exercises.written import read, write


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, first_attempt):
    """A folder of its own for the record, in which nothing was answered."""
    monkeypatch.setenv("HYBRIDLAB_PROGRESS", str(tmp_path))
    return tmp_path


def exported(folder) -> dict:
    return load(labs.export(folder / "me.json"))["answers"]


def test_fractions_and_decimals_are_numbers(folder):
    assert repr(labs.answer("naive.utilisation", Fraction(1, 4))) == "Right: 0.25."
    assert repr(labs.answer("naive.slots", Decimal(5))) == "Right: 5 slots."
    assert exported(folder) == {"naive.utilisation": 0.25, "naive.slots": 5.0}


ANSWERS = [Fraction(1, 3), Decimal("0.25"), enum.IntEnum("E", "A").A, (Decimal("inf"), Fraction(3))]


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_numbers_of_other_kinds_are_read_again(answer):
    assert read(write(answer)) == (list(map(float, answer)) if isinstance(answer, tuple) else float(answer))


UNWRITTEN = [
    (10**5000, "more than 4,000 digits"),
    ("\ud800", "half a character"),
    (functools.partial(max, 1), "a partial cannot be stored: answer with a function, def …, that calls it"),
]


@pytest.mark.parametrize("answer, piece", UNWRITTEN, ids=range(len(UNWRITTEN)))
def test_what_has_no_writing_is_told_and_breaks_nothing(folder, answer, piece, capsys):
    assert not labs.answer("naive.engine" if callable(answer) else "start.swap", answer).right
    exported(folder)
    assert piece in capsys.readouterr().out


ORDER = """
def my_order(rank, ranks, microbatches):
    w = min(ranks - 1 - rank, microbatches)
    return "F" * w + "FB" * (microbatches - w) + "B" * w
"""
WITH_A_TENSOR = "import torch\nonce = torch.ones(1)" + ORDER.replace("    w = min", "    once\n    w = min")


@pytest.mark.ranks
def test_a_right_answer_that_cannot_be_handed_in_is_told_at_once(folder, capsys):
    names = cell(WITH_A_TENSOR)
    reply = labs.answer("1f1b.order", names["my_order"])
    assert reply.right and "But labs.export leaves it out: it uses once (Tensor), which cannot be stored" in repr(reply)
    exported(folder)
    assert "1f1b.order is not in it: it uses once (Tensor)" in capsys.readouterr().out
    assert labs.answer("1f1b.order", cell(ORDER)["my_order"]).right
    labs.answer("1f1b.order", names["my_order"])
    assert "function" in exported(folder)["1f1b.order"], "what can be handed in stays"


@pytest.mark.ranks
def test_code_is_checked_again_as_a_grader_has_it(folder, monkeypatch):
    monkeypatch.setattr(answering, "write", lambda answer: write(cell(ORDER.replace("ranks - 1", "ranks"))["my_order"]))
    reply = labs.answer("1f1b.order", cell(ORDER)["my_order"])
    assert reply.right and "leaves it out: from its source alone it is not right" in reply.sentence
    assert list(exported(folder)["1f1b.order"]) == ["unwritten"]


def test_what_holds_itself_is_told():
    itself = []
    itself.append(itself)
    assert write(itself) == {"unwritten": "it contains itself, or is nested too deeply"}


NUMBER, HALF = "it has a number with more than 4,000 digits", "it contains a lone surrogate \\(half a character\\)"
DAMAGED = {
    '{"form": 1, "student": ' + "9" * 10_000 + "}": NUMBER,
    '{"form": 1, "answers": {"a": ' + "9" * 10_000 + "}}": NUMBER,
    r'{"form": 1, "student": "\ud800"}': HALF,
    r'{"form": 1, "answers": {"a": "\udc00"}}': HALF,
}


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_what_python_cannot_read_is_told_in_a_sentence_of_ours(folder, text):
    (folder / "x.json").write_text(text)
    with pytest.raises(ValueError, match=f"^damaged: {DAMAGED[text]}; export it again$"):
        load(folder / "x.json")


def test_a_file_that_begins_with_a_byte_order_mark_is_read(folder):
    (folder / "x.json").write_text('\ufeff{"form": 1, "student": null, "seed": 0, "answers": {}}', encoding="utf-8")
    assert load(folder / "x.json")["answers"] == {}
