"""Megatron-LM's layout of stages, written and read back; its own example, and what it refuses."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.predict.launch.letters import layout, stages_in
from hybridlab.training.stages import cut

SIZES = some.lists(some.integers(1, 9), min_size=1, max_size=12)


@settings(max_examples=15)  # each makes a model
@given(blocks=SIZES)
def test_written_and_read_back_it_is_the_same_cut(blocks):
    found = stages_in(layout(blocks))
    assert [len(one) for one in found] == [
        size + (number == 0) + (number == len(blocks) - 1) for number, size in enumerate(blocks)
    ]
    assert tuple(found) == cut(Shape(layers=sum(blocks)), stages=len(blocks), by=blocks)


@settings(max_examples=100)
@given(blocks=SIZES, data=some.data())
def test_however_it_is_spelled_it_is_the_same(blocks, data):
    """Commas anywhere, letters repeated by a number, equal stages as a group."""
    stages = ["t" * size for size in blocks]
    plain = "|".join(["E" + stages[0], *stages[1:]]) + "L"
    spelled = re.sub(
        r"t+", lambda run: data.draw(some.sampled_from([run[0], f"t*{len(run[0])}", f"({run[0]})*1"])), plain
    )
    at = data.draw(some.integers(0, len(spelled)))
    if at == 0 or spelled[at - 1 : at + 1].isdigit():  # a comma inside a number would still be read as one
        at = len(spelled)
    assert stages_in(spelled[:at] + "," + spelled[at:]) == stages_in(plain) == stages_in(layout(blocks))


def test_the_example_of_the_documentation():
    """DeepSeek-V3: 61 blocks and a layer for a further token, on 16 ranks with two chunks."""
    found = stages_in("Et*3|(tt|)*29,m|L")
    assert [len(one) for one in found] == [4, *[2] * 29, 1, 1] and len(found) == 16 * 2
    assert found[-1].stop == 1 + 61 + 1 + 1


@pytest.mark.parametrize(
    "text, said",
    [
        ("Ex|tL", "has 'x', which is not a layer of Megatron-LM's layout: use E, t, m and L"),
        ("Et|(t|*2tL", "has '(', which is not a layer"),
        ("tt|tL", "is not a model: give one E first"),
        ("Ett|tt", "is not a model: give one E first"),
        ("Em|tL", "is not a model"),
        ("Et||tL", "has an empty stage: give every stage at least one layer"),
        ("Et*999999|(t*9999|)*9999L", "has too many layers"),
        ("Ett|ttL", "has 2 stages with 6 layers, E and L included, but this model has 5 layers on 2 stages"),
        ("Et|t|tL", "has 3 stages with 5 layers"),
    ],
)
def test_another_text_is_refused_in_a_sentence(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        cut(Shape(layers=3), stages=2, by=text)


@pytest.mark.ranks
def test_a_job_with_a_layout_is_that_with_the_numbers(bench):
    shape = Shape(layers=4, width=16, heads=2, context=8)
    one, other = (bench.asked(hl.Mesh(pp=2), cut=cut, shape=shape) for cut in ("Ettt|tL", [3, 1]))
    assert one.ok and one.losses == other.losses and one.bytes == other.bytes
