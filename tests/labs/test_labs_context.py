"""Notebook 33: pictures and tables say what the package computes; what is counted and timed is what a ring does."""

import re
from dataclasses import replace

import numpy as np
import pytest

from hybridlab.core.where.chunks import Chunks
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.context import clinic, on_ranks, pictures, sizes
from hybridlab.labs.context.moments import moments
from hybridlab.labs.context.tasks import busy
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.time.ring import block_seconds, hop_seconds, least_tokens

# --- what meets ---------------------------------------------------------------------------------------------------

EVERY = [
    *(Chunks.in_order(24, ranks) for ranks in (2, 3, 4)),
    *(Chunks.zigzag(24, ranks) for ranks in (2, 3, 4)),
    Chunks.in_order(13, 4),
    Chunks.zigzag(24, 3)._replace(documents=(5, 11, 8)),
    Chunks.in_order(12, 3)._replace(causal=False),
]


@pytest.mark.parametrize("chunks", EVERY, ids=range(len(EVERY)))
def test_the_steps_of_a_ring_have_all_pairs_that_are_seen_and_no_other(chunks):
    every, ranks = moments(chunks), range(len(chunks.of))
    assert [sum(one.pairs[rank] for one in every) for rank in ranks] == chunks.pairs
    assert all(sorted(one.sources) == list(ranks) for one in every)
    meets = [pair for one in every for pair in one.meets]
    assert len(set(meets)) == len(meets)
    together = {pair for one in every for pair in one.meets | one.skipped}
    assert together == {(a, b) for a in range(len(chunks.spans)) for b in range(len(chunks.spans))}


def test_what_is_skipped_no_query_sees():
    for chunks in EVERY:
        for mine, other in {pair for one in moments(chunks) for pair in one.skipped}:
            assert not chunks.seen(mine, other).any()


def test_in_a_zigzag_every_step_is_as_long_for_all_ranks():
    for ranks in (2, 3, 4):
        assert all(len(set(one.pairs)) == 1 for one in moments(Chunks.zigzag(24, ranks)))
    assert any(0 in one.pairs for one in moments(Chunks.in_order(24, 3)))


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_causal_ring_is_half_waiting(ranks):
    assert busy(ranks) == pytest.approx(ranks / 2 / (ranks - 1 / 2), rel=1e-3)
    assert busy(ranks, zigzag=True) == 1


# --- pictures and tables ------------------------------------------------------------------------------------------


def test_only_attention_looks_at_other_positions():
    told = pictures.dependence(6).summary
    assert told.endswith("norm 6, Q 6, attention 21, MLP 6")


def test_a_stepper_has_a_picture_of_every_step():
    for zigzag in (False, True):
        steps = pictures.ring(3, zigzag, context=12)
        told = []
        for step in range(3):
            steps.show(step)
            told.append(steps.summary)
        chunks = (Chunks.zigzag if zigzag else Chunks.in_order)(12, 3)
        assert told[-1].endswith(f"so far {' '.join(map(str, chunks.pairs))}")


def test_a_title_is_in_the_middle_of_its_square():
    texts = re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)', pictures.step_still(Chunks.in_order(8, 4), 0).svg
    )
    (middle,) = [float(x) for x, _, text in texts if text == "keys and values of rank"]
    columns = [float(x) for x, y, text in texts if float(y) == pictures.SQUARE_TOP - 8]
    assert len(columns) >= 4 and middle == pytest.approx(sum(columns) / len(columns))


def test_the_bars_of_packed_documents_are_those_of_the_chunks():
    assert pictures.balance((12, 4), 2).summary == "of the row: 20 and 68 pairs; of each document: 44 and 44 pairs"
    alone = pictures.balance((16,), 2).summary
    assert alone == "of the row: 68 and 68 pairs; of each document: 68 and 68 pairs"


def test_groups_that_exchange_heads_send_what_the_closed_form_says():
    closed = lambda u, p=16: (2 * 4096 + 2 * 1024) / p * (u - 1) / u + 2 * 1024 / u * (p / u - 1) / (p / u)
    for (u, _, *cells), size in zip(sizes.groups().rows, (closed(u) for u in (1, 2, 4, 8))):
        assert float(cells[2]) == pytest.approx(size * 131072 * 2 / 1e6, abs=0.5)
        assert float(cells[0]) + float(cells[1]) == pytest.approx(float(cells[2]), abs=1.1) and int(u) >= 1
    assert sizes.groups(4, every=(1,)).rows[0][4] == sizes.ways((4,)).rows[0][1]


def test_packed_documents_have_fewer_pairs():
    assert pictures.packed(16, (5, 4, 7)).summary == "one document: 136 pairs; packed, 5 + 4 + 7: 53 pairs"


def test_memory_grows_with_the_length_and_scores_with_its_square():
    rows = np.array([[float(cell.replace(",", "")) for cell in row] for row in sizes.memory((8192, 131072)).rows])
    assert rows[1, 1] / rows[0, 1] == pytest.approx(16, rel=0.05) == rows[1, 2] / rows[0, 2]
    assert rows[1, 3] / rows[0, 3] == pytest.approx(256, rel=0.05)


def test_both_ways_send_alike_on_as_many_ranks_as_the_exercise_says():
    for heads in (32, 64, 40):
        shape = replace(sizes.LLAMA, heads=heads, width=128 * heads)
        ranks = heads // shape.key_heads + 1
        assert sizes.of_one_layer("ring", shape, ranks) == pytest.approx(sizes.of_one_layer("ulysses", shape, ranks))


@pytest.mark.parametrize("sequences", [1, 3])
def test_from_so_many_tokens_on_a_hop_hides(sequences):
    about = dict(rate=2e14, link=Link(1e-5, 1 / 25e9))
    least = least_tokens(sizes.LLAMA, **about, sequences=sequences)
    late = lambda tokens: (
        hop_seconds(sizes.LLAMA, tokens, about["link"], sequences=sequences)
        - block_seconds(sizes.LLAMA, tokens, about["rate"], sequences)
    )
    assert late(0.99 * least) > 0 > late(1.01 * least)


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.mark.ranks
def test_every_word_of_every_way_is_foreseen(bench):
    told = on_ranks.sent(bench.pool(Mesh(cp=2)), (1, 4, 2, 8, 4))
    assert told.note == "All equal one device." and [row[0] for row in told.rows] == on_ranks.WAYS
    for _, *cells in told.rows:
        assert all(len(set(cell.split(" / "))) == 1 for cell in cells)


@pytest.mark.ranks
def test_emulated_work_takes_as_long_as_the_rank_with_most_pairs(bench):
    took = on_ranks.timed(bench.pool(Mesh(cp=2)), 16, 5e-4, times=2)
    for predicted, measured in took.values():
        assert measured > 0.99 * predicted
    assert took["in order"][0] > took["zigzag"][0] == 16 * 17 / 4 * 5e-4


@pytest.mark.ranks
def test_the_clinic_is_ill_in_a_zigzag_alone_and_the_mended_one_is_well(bench):
    pool = bench.pool(Mesh(cp=2))
    ill = [one == other for _, one, other in clinic.symptoms(pool).rows]
    assert ill == [True, False, True]
    well = lambda rank, ranks, context: Chunks.zigzag(context, ranks).positions(rank)
    assert all(one == other for _, one, other in clinic.symptoms(pool, well).rows)
