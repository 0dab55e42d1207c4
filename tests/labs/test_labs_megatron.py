"""Notebook 30: its pictures are those of the Layout, its counts those of real ranks."""

import re
from xml.etree import ElementTree

import pytest

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.labs.megatron import in_pieces
from hybridlab.labs.megatron import on_ranks as megatron
from hybridlab.labs.megatron import pair as megatron_pair
from hybridlab.labs.megatron import pictures as megatron_pictures
from hybridlab.labs.megatron import sizes as megatron_sizes
from hybridlab.labs.megatron.f_and_g import there_and_back
from hybridlab.labs.megatron.pair import WAYS, layout_of, steps_of
from hybridlab.labs.megatron.pictures import SHAPE, attention_still, pair_still
from hybridlab.predict.bytes.traffic import tensor
from hybridlab.predict.time import pieces
from hybridlab.predict.time.overlap import Piece, length
from hybridlab.show.layouts.cuts import FILLS, Matrix, Sign, Slice, cuts, shade
from hybridlab.show.live.chooser import Chooser, below_each_other
from hybridlab.show.paper.style import contrast

# --- the picture --------------------------------------------------------------------------------------------------


def boxes(still):
    """Every filled box of a picture: (fill, x, y, width, height)."""
    root = ElementTree.fromstring(still.svg)
    found = [one.attrib for one in root.iter("{http://www.w3.org/2000/svg}rect") if "rx" not in one.attrib]
    return [(one["fill"], *(float(one[k]) for k in ("x", "y", "width", "height"))) for one in found]


def areas(still, kind, ranks):
    """{rank: the area in a picture that has its shade}."""
    shades = [shade(kind, rank, ranks) for rank in range(ranks)]
    return [sum(wide * tall for fill, _, _, wide, tall in boxes(still) if fill == one) for one in shades]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_rank_is_drawn_with_its_share_of_both_matrices(way, ranks):
    found = areas(pair_still(SHAPE, ranks, way), "weight", ranks)
    assert len(found) == ranks and max(found) < 1.03 * min(found)


def test_slices_are_the_boxes_of_the_layout_and_to_scale():
    still, layout = pair_still(SHAPE, 4), layout_of(SHAPE, 4)
    grey = [one for one in boxes(still) if one[0] in [shade("weight", rank, 4) for rank in range(4)]]
    drawn = sorted((round(one[3] / one[4], 1)) for one in grey)
    lengths = [
        [side.stop - side.start for side in layout.box(name, rank)] for name in layout.named for rank in range(4)
    ]
    assert drawn == sorted(round(outputs / inputs, 1) for outputs, inputs in lengths)


def lit(still):
    """The names in green frames."""
    root = ElementTree.fromstring(still.svg)
    ns = "{http://www.w3.org/2000/svg}"
    elements = list(root)
    frames = [i for i, one in enumerate(elements) if one.tag == f"{ns}rect" and one.get("rx") == "17"]
    return [elements[i + 1].text for i in frames if elements[i].get("stroke-dasharray") is None]


def test_f_and_g_swap():
    assert lit(pair_still(SHAPE, 4)) == lit(attention_still(SHAPE, 4, 8)) == ["g"]
    backward = [pair_still(SHAPE, 4, flow="backward"), attention_still(SHAPE, 4, 8, "backward")]
    assert [lit(one) for one in backward] == [["f"], ["f"]]
    assert lit(pair_still(SHAPE, 4, WAYS[1])) == ["g", "gather"]
    assert lit(pair_still(SHAPE, 4, WAYS[1], "backward")) == ["f", "split"]
    assert lit(pair_still(SHAPE, 1)) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flow", ["forward", "backward"])
def test_what_is_drawn_can_be_multiplied(way, flow):
    """left · W = right: in the backward ∂Z · Bᵀ = ∂H and ∂Y · Aᵀ = ∂x, with transposed matrices."""
    layout = layout_of(SHAPE, 4, way)
    write = megatron_pictures._backward if flow == "backward" else megatron_pictures._forward
    parts = write(layout, steps_of(layout), SHAPE.context, 4)
    matrices = [one for one in parts if isinstance(one, Matrix)]
    products = [i for i, one in enumerate(matrices) if one.kind == "weight"]
    said = [tuple(one.name for one in matrices[i - 1 : i + 2]) for i in products]
    read = {"forward": [("x", "A", "Y"), ("Y", "B", "Z")], "backward": [("∂Z", "Bᵀ", "∂H"), ("∂Y", "Aᵀ", "∂x")]}
    assert said == read[flow]
    for i in products:
        left, weight, right = matrices[i - 1 : i + 2]
        assert left.columns == weight.rows and (left.rows, weight.columns) == (right.rows, right.columns)
        name = megatron_pair.A if weight.name[0] == "A" else megatron_pair.B
        outputs, inputs = layout[name].shape
        assert (weight.rows, weight.columns) == ((outputs, inputs) if flow == "backward" else (inputs, outputs))


def test_copied_heads_are_told():
    assert "ranks 0–1 and 2–3 hold the same" in attention_still(SHAPE, 4, 2).summary
    assert "8 of keys and values, 2 on each rank" in attention_still(SHAPE, 4, 8).summary
    assert "0–1, 2–3" in attention_still(SHAPE, 4, 2).svg
    with pytest.raises(ValueError, match="tp=16 cannot share out heads=8"):
        attention_still(SHAPE, 16, 8)


@pytest.mark.slow
def test_nothing_is_drawn_outside_the_sheet():
    every = [
        pair_still(SHAPE, ranks, way, flow) for ranks in (1, 4, 8) for way in WAYS for flow in ("forward", "backward")
    ]
    every += [attention_still(SHAPE, ranks, heads) for ranks in (2, 8) for heads in (1, 8)]
    for still in every:
        wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', still.svg).groups())
        for _, x, y, width, height in boxes(still)[1:]:
            assert x >= 0 and x + width <= wide and y >= 0 and y + height <= tall


def test_shades_tell_ranks_apart_in_grey_too():
    for kind in FILLS:
        steps = [contrast(shade(kind, rank, 4), shade(kind, rank + 1, 4)) for rank in range(3)]
        assert min(steps) > 1.1, kind


def test_a_pile_has_a_card_for_each_rank():
    matrix = Matrix("Z", 4, 4, (Slice((0, 4), (0, 4), (0, 1, 2)),), "forward", piled=True)
    still = cuts([[matrix, Sign("g", "sum", lit=True)]], 3, "a pile", "three summands")
    assert [n > 0 for n in areas(still, "forward", 3)] == [True] * 3 and len(boxes(still)) == 3


# --- buttons ------------------------------------------------------------------------------------------------------


def test_what_is_chosen_is_drawn():
    one = megatron_pictures.pair_cut()
    one.choose(ranks=8, way=WAYS[1], flow="backward")
    assert one.summary == pair_still(SHAPE, 8, WAYS[1], "backward").summary
    assert one.children[-1].value == pair_still(SHAPE, 8, WAYS[1], "backward").svg


def test_what_cannot_be_is_told_in_place_of_the_picture():
    one = megatron_pictures.attention_cut()
    one.choose(ranks=16)
    assert "tp=16 cannot share out" in one.summary and "<svg" not in one.children[-1].value
    one.choose(ranks=2)
    assert "<svg" in one.children[-1].value


def test_without_a_kernel_both_directions_are_there():
    bundle = megatron_pictures.pair_cut()._repr_mimebundle_()
    assert [line.split(":")[0].split()[-1] for line in bundle["text/plain"].splitlines()] == ["forward", "backward"]
    ElementTree.fromstring(bundle["image/svg+xml"])


def test_pictures_below_each_other_are_as_tall_as_all():
    still = cuts([[Sign("f"), Matrix("A", 1, 1, ())]] * 2, 1, "t", "s")
    tall = lambda svg: float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)[1])
    assert tall(below_each_other([still] * 3)) == pytest.approx(3 * tall(still.svg), abs=0.5)
    assert Chooser(lambda n: still, {"n": ("n", [1, 2], 1)}, [{}]).summary == "s"


def test_the_chart_tells_what_is_no_speed_up():
    measured = {t: megatron.Shares(1 / t, 0.1 * t, 1 / t, []) for t in (1, 2, 4)}
    figure = megatron_pictures.times(measured, {1: measured[1]}, cores=2)
    assert "4, on 2 cores" in figure.twin and "2, on" not in figure.twin
    assert "9% with t = 1" in figure.summary


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_drawn_is_what_ranks_do(bench, ranks):
    """All four ways are equal to one process, and send what the steps say, there and back."""
    for way in WAYS:
        steps = steps_of(layout_of(Shape(), ranks, way))
        said = [*megatron_pair.calls(steps), *megatron_pair.calls(steps, backward=True)[::-1]]
        for home in megatron_pair.run_pair(bench.pool(hl.Mesh(tp=ranks)), way, Shape()):
            assert home["gap"] < 1e-13 and list(map(tuple, home["calls"])) == said, way


ODD = Shape(layers=3, heads=8, kv_heads=2, vocabulary=251, context=31)


@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("sequence", [False, True])
def test_every_term_is_counted(sequence):
    assert megatron.counted(ODD, 2, sequence) == tensor(ODD, 1, 2, sequence)


@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("ways, sequence", [(1, False), (2, False), (2, True), (4, True)])
def test_a_forward_leaves_behind_what_the_formula_says(ways, sequence):
    shape = Shape(kv_heads=2)
    assert megatron.left_behind(shape, ways, sequence) == megatron_sizes.kept(shape, 1, ways, sequence)


@pytest.mark.ranks
def test_a_sum_forgotten_by_f_gives_a_right_loss_and_wrong_gradients():
    report = hl.check(mesh=hl.Mesh(tp=2), steps=1, microbatches=1, sabotage=megatron.forget_the_sum_of_f)
    wrong = [name for name, gap in report.gaps.items() if name.startswith("gradient") and gap > 1e-3]
    assert report.gaps["loss"] < 1e-12 and not report.ok
    assert "gradient blocks.0.mlp.up.weight" in wrong and "gradient head.scores.weight" not in wrong


@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
def test_times_are_of_computing_and_of_collectives(bench):
    small = dict(shape=Shape(layers=1), sequences=1, steps=2)
    assert megatron.shares(1, **small).collectives == 0
    two = megatron.shares(2, **small)
    assert two.computing > 0 and two.collectives > 0 and len(two.sums) == sum((4, 2, 1, 1))
    said = megatron.foreseen(two, bench.pool(2), two)
    assert said.computing == two.computing / 2 and said.collectives > 0 and two.work > 0


# --- sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"kv_heads": 2}, {"tied": True}, {"inner": 40}], ids=str)
def test_records_are_those_of_the_model(more):
    from hybridlab.training.models.gpt import GPT

    shape = Shape(layers=2, **more)
    model = {name: tuple(weight.shape) for name, weight in GPT(shape).named_parameters()}
    assert megatron_sizes.records(shape) == model
    assert list(model) == list(megatron_sizes.records(shape))


def test_sequence_parallelism_sends_the_same_and_one_more_gather():
    shape = Shape()
    again = sum(elements for (_, when), elements in tensor(shape, 1, 4, True).items() if when == "again")
    plain, cut = (megatron_sizes.on_the_wire(shape, 1, 4, sequence) for sequence in (False, True))
    # the embedding and the head: one of the two directions was free, and is a gather now
    assert cut - plain == pytest.approx(0.75 * again)


@pytest.mark.ranks
def test_f_and_g_are_told_by_what_they_did(bench):
    f, g = (there_and_back(bench.pool(4), pair).summary for pair in "fg")
    assert f == "f on 4 ranks: forward it changes nothing, backward it sums over the ranks"
    assert g == "g on 4 ranks: forward it sums over the ranks, backward it changes nothing"


def test_a_cut_layer_is_faster_from_a_width_on_that_does_not_depend_on_the_cut():
    """72 h²/C against 8 g h/W for each token: t ranks gain exactly where one layer on one rank takes longer."""
    least = megatron_sizes.least_width(312e12, 25e9)
    for ways in (2, 4, 8):
        speed_up = [ways * megatron_sizes.efficiency(h, ways, 312e12, 25e9) for h in (0.99 * least, 1.01 * least)]
        assert speed_up[0] < 1 < speed_up[1]


@pytest.mark.long
@pytest.mark.ranks
def test_hops_lie_under_the_matmuls_within_a_twentieth_of_the_prediction(bench):
    """Ranks wait instead of computing, long enough that the wake-ups of a busy machine are a small part of it."""
    wait, ways = 20e-3, 4
    pool = bench.pool(hl.Mesh(tp=ways))
    plain, ours = ([Piece(*one) for one in pool.run(in_pieces._recorded, over, wait, 10)[0]] for over in (False, True))
    hop = max(0.0, length(plain) - ways * wait) / (ways - 1)
    assert length(ours) == pytest.approx(length(pieces.in_pieces(ways, wait, hop)), rel=0.05)
    matmuls, hops = ([one for one in ours if one.track == track] for track in ("compute", "tp"))
    assert len(hops) == ways - 1 and all(any(its.begin < one.end < its.end for its in matmuls) for one in hops)
