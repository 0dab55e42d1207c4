"""The table that shows itself."""

import pytest

from hybridlab import labs


def test_its_columns_are_aligned_and_its_html_is_safe():
    made = labs.table("schedule | held", [("1f1b", 4), ("a < b", 10)])
    assert repr(made).splitlines() == ["schedule  held", "1f1b      4", "a < b     10"]
    assert "<td>a &lt; b</td><td>10</td>" in made._repr_html_() and made._repr_html_().count("<tr>") == 3


def test_a_row_has_an_entry_for_each_head():
    with pytest.raises(ValueError, match="2 column headings, but 1 entries"):
        labs.table("a | b", [(1,)])


def test_numbers_are_written_as_people_read_them():
    made = labs.table(("GPUs", "GB", "fits"), [(3072, 27.6421, True), (64, 80.0, False)])
    assert made.rows == (("3,072", "27.64", "yes"), ("64", "80", "no")) and made.heads == ("GPUs", "GB", "fits")
