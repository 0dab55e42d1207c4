"""The table of timelines: a row for each, the same numbers as text and as HTML."""

import hybridlab as hl
from hybridlab import labs


def test_each_timeline_has_a_row_with_its_own_numbers():
    named = {name: hl.simulate(hl.schedule(name, ranks=3, microbatches=4)) for name in ("naive", "gpipe", "1f1b")}
    table = labs.timelines(named)
    assert [row[0] for row in table.rows] == [*named]
    assert table.rows[1][1:] == ("18 units", "33.3%", "50.0%", "4 4 4")
    assert [row[4] for row in table.rows] == [" ".join(map(str, t.peak_live)) for t in named.values()]
    text = repr(table).splitlines()
    assert len(text) == 4 and len({line.index(row[1]) for line, row in zip(text[1:], table.rows)}) == 1


def test_a_name_is_text_and_not_html():
    table = labs.timelines({"m < p": hl.simulate(hl.schedule("gpipe", ranks=2, microbatches=1))})
    assert "<td>m &lt; p</td>" in table._repr_html_() and table._repr_html_().count("<tr>") == 2
