"""The catalog: sizes that can be, and a source for each number."""

from dataclasses import fields

import pytest

from hybridlab.core.what import catalog


@pytest.mark.parametrize("model", catalog.MODELS.values(), ids=lambda one: one.name)
def test_heads_are_as_wide_as_heads_are(model):
    assert 64 <= model.shape.head_width <= 160


@pytest.mark.parametrize("machine", catalog.MACHINES.values(), ids=lambda one: one.name)
def test_every_number_of_a_machine_has_a_source(machine):
    numbers = {one.name for one in fields(machine)} - {"name", "label", "sources", "like"}
    assert set(machine.sources) == numbers and all(machine.sources.values())
