"""Every text is in the words of docs/wording.toml: notebooks, documents, docstrings, messages and help.

`wording.toml` here says how many forbidden uses a file may still have. No number in it may grow; without that file none
is allowed anywhere.
"""

import pathlib
import tomllib
from collections import Counter

import pytest

from tools import wording

STILL = pathlib.Path(__file__).with_name("wording.toml")
PLANTED = {
    "Each rank adds its summand to the result.": "partial sum",
    "A rank gathers the whole weights and lets them go after their use.": "full, unsharded or gathered",
    "The buffer is let go after the backward.": "free",
    "The length is as foreseen.": "predicted; within tolerance",
    "The GPU computes a product while it receives.": "matmul or GEMM",
    "There is no room for a second microbatch.": "memory",
    "It sends a shard in place of the tensor.": "instead of",
    "Four counters stand beside the picture.": "next to, together with",
    "Who trusts the formula is right about the time.": "the ranks that …, the weights that …",
    "It reads this from what the ranks wrote.": "the ranks that …, the weights that …",
    "Every branch has a group of its own.": "its own …, a separate …",
    "Drawn is the fastest of some steps.": "The figure shows …, The rank holds …",
    "--copies 3 are no copies.": "is not",
    "Your code is tried on 3 ranks, then on 2 and 4.": "test (code)",
    "It takes longer if messages decide.": "determine; dominate",
    "The weights cost each token 24 h² FLOPs.": "takes … FLOPs per token",
    "The hops are hidden from *N* = 1333.": "hidden if N is at least …",
    "By what factor does the step take longer?": "the ratio of … to …; by what factor does … grow",
    "How many times as long as the forward does the backward take?": "the ratio of … to …; by what factor does … grow",
    "It returned another sum than one device.": "different from, other than",
    "All ranks compute, also if one of them waits.": "even if",
    "They measured 1.0 samples per second and GPU.": "per second per GPU",
    "A small message spends most of its time on starting.": "spend time sending",
    "The loss is divided by m once too often.": "one time too many",
    "A rank holds four neighbouring layers.": "consecutive layers, stages, blocks",
    "It is at most the number of key heads.": "KV heads",
    "One minibatch is in flight.": "mini-batch",
    "These layers take 2 percent of the time.": "33 %",
    "**Core** 45 minutes. **After** 00_start: ranks.": "Prerequisites. (the label)",
}
PLAIN = [
    "What does a rank hold? Who waits for whom?",
    "The dot product of two rows, hidden behind the backward.",
    "`summand` is a name, and so is `whole weights`.",
    "By what factor does the traffic grow? What is the ratio of the rows sent to those received?",
    "There is no GPU on this machine; `s` stands for a stage.",
]


@pytest.mark.parametrize("sentence", PLANTED)
def test_a_forbidden_word_is_found(sentence):
    assert PLANTED[sentence] in [write for _, write in wording.forbidden(sentence)]


@pytest.mark.parametrize("sentence", PLAIN)
def test_an_ordinary_use_is_not(sentence):
    assert wording.forbidden(sentence) == []


@pytest.mark.parametrize(
    "name, text",
    [
        ("page.md", "Before:\n\n- one\n- {}\n"),
        ("book.ipynb", '{{"cells": [{{"cell_type": "markdown", "source": ["{}"]}}]}}'),
        ("module.py", 'def f():\n    """One thing.\n\n    {}\n    """\n'),
        ("message.py", 'raise ValueError(\n    f"{{x}}: "\n    "{}"\n)\n'),
    ],
)
def test_it_is_found_in_every_kind_of_file(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text.format("A summand stands here."), encoding="utf-8")
    found = [found for _, text in wording.texts(path) for found, _ in wording.forbidden(text)]
    assert sorted(found) == ["stands", "summand"]


def test_no_file_has_more_than_it_may():
    still = tomllib.loads(STILL.read_text(encoding="utf-8")) if STILL.exists() else {}
    every = list(wording.uses(wording.files()))
    counted = Counter(one.file for one in every)
    assert [str(one) for one in every if counted[one.file] > still.get(one.file, 0)] == []


def test_few_uses_are_allowed():
    assert len(wording.listed()["allowed"]["uses"]) <= 60
