"""Notebook 21: buckets predicted and drawn, and sums measured on real ranks."""

import json
import math
import pathlib
import re

import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.core.where.layout import Layout, Param
from hybridlab.labs.data_parallel import pictures
from hybridlab.labs.data_parallel.clinic import symptoms
from hybridlab.labs.data_parallel.rank import Net, _buckets
from hybridlab.labs.data_parallel.tasks import LARGEST, MOST, best_exposed, tied_gradient, tied_numbers
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.predict.bytes.collectives import Link, cost
from hybridlab.predict.time.buckets import Bucket, Overlap, made_by_work, overlap
from hybridlab.show.paper.style import look
from hybridlab.show.timelines.buckets import Row, buckets, layers

# --- predicted --------------------------------------------------------------------------------------------------


def chain(packs, elements=10):
    """A layout of len(packs) parameters on two ranks, the last one made first."""
    params = (Param(f"{i}", (elements,), partial=("dp",), pack=pack) for i, pack in enumerate(packs))
    return Layout(hl.Mesh(dp=2), tuple(params))


MADE = {"2": 1.0, "1": 2.0, "0": 3.0}
SECOND = Link(alpha=0.5, beta=0.0)  # every sum between two ranks takes a second


def times(found):
    return [(bucket.full, bucket.begin, bucket.end) for bucket in found.buckets]


def test_a_sum_begins_when_its_bucket_is_full_and_the_link_is_free():
    assert times(overlap(chain([2, 1, 0]), MADE, SECOND)) == [(1, 1, 2), (2, 2, 3), (3, 3, 4)]
    slow = overlap(chain([2, 1, 0]), MADE, Link(1.0, 0.0))
    assert times(slow) == [(1, 1, 3), (2, 3, 5), (3, 5, 7)] and slow.exposed == 4


def test_after_waits_for_the_whole_backward_and_so_exposes_everything():
    found = overlap(chain([2, 1, 0]), MADE, SECOND, early=False)
    assert times(found) == [(1, 3, 4), (2, 4, 5), (3, 5, 6)]
    assert found.exposed == found.sending == 3


def test_buckets_go_in_their_order_however_early_a_later_one_is_full():
    found = overlap(chain([0, 1, 2]), MADE, SECOND)
    assert times(found) == [(3, 3, 4), (2, 4, 5), (1, 5, 6)]


def test_a_bucket_costs_one_message_more_and_its_bytes():
    link = Link(alpha=0.25, beta=0.01)
    found = overlap(chain([1, 0, 0]), MADE, link)
    assert [bucket.bytes for bucket in found.buckets] == [80, 40] and found.bytes == 120
    assert found.buckets[0].end - found.buckets[0].begin == pytest.approx(link.seconds("all_reduce", 2, 80))


def test_a_backward_that_goes_on_behind_its_last_gradient_hides_more():
    assert overlap(chain([2, 1, 0]), MADE, SECOND, end=9.0).exposed == 0


def test_gradients_come_from_the_last_to_the_first_and_take_the_time_of_their_products():
    one = pictures.model()
    made = [one.made[name] for name, _ in one.gradients]
    assert made == sorted(made) and one.gradients[-1][0] == "embed.token.weight"
    matrices = 12 * 12 * 768**2 + 256 * 768
    assert math.isclose(made[-1], 4 * 8 * 1024 * matrices / pictures.FLOPS)
    assert sum(size for _, size in one.gradients) == 4 * pictures.SHAPE.parameters
    assert made_by_work(one.layout, 1, 1.0)["embed.token.weight"] == 4 * matrices


def test_the_repeated_block_has_the_names_and_shapes_of_the_whole_model():
    from hybridlab.training.models.gpt import GPT

    shape = hl.Shape(layers=3, width=16, heads=2, context=8)
    layout = pictures.model(shape, ranks=2).layout
    assert [(p.name, p.shape) for p in layout.params] == [(n, tuple(w.shape)) for n, w in GPT(shape).named_parameters()]


@pytest.mark.long
def test_more_buckets_pay_more_messages_and_fewer_wait_longer():
    found = pictures.over_sizes()
    counts = [count for count, _ in found.values()]
    assert counts == sorted(counts, reverse=True) and counts[-1] == 1
    exposed = [seconds for _, seconds in found.values()]
    best = exposed.index(min(exposed))
    assert 0 < best < len(exposed) - 1, "a valley"
    assert exposed[: best + 1] == sorted(exposed[: best + 1], reverse=True) and exposed[best:] == sorted(exposed[best:])


@pytest.mark.long
def test_no_way_to_deal_out_four_gradients_beats_the_best():
    """The search over all cuts, against every cut of a model of few gradients."""
    best = best_exposed(most=len(pictures.model().gradients), largest=math.inf)
    assert best <= best_exposed() <= min(seconds for _, seconds in pictures.over_sizes().values())
    assert math.isclose(best_exposed(most=1, largest=math.inf), pictures.over_sizes()["the whole model"][1])


# --- drawn ------------------------------------------------------------------------------------------------------


ONE = Overlap(1.0, 1.004, (Bucket(("b",), 8, 1.002, 1.002, 1.003), Bucket(("a",), 8, 1.004, 1.004, 1.007)))
MADE_ONE = {"blocks.1.b": 1.002, "blocks.0.a": 1.004}


def boxes(still, fill):
    """(x, y, width) of every rectangle of a colour."""
    place = " ".join(rf'{name}="([\d.]+)"' for name in ("x", "y", "width"))
    found = re.findall(rf'<rect {place}[^>]*fill="{fill}"', still.svg)
    return [tuple(map(float, one)) for one in found]


def test_the_picture_has_a_bar_for_every_layer_and_sum_and_grey_for_what_is_exposed():
    still = buckets(Row("each", MADE_ONE, predicted=ONE))
    (_, *backward), (_, *sums), (_, *grey) = (boxes(still, fill) for fill in ("#E69F00", "#009E73", "#E5E5E5"))
    assert len(backward) == 2 and len(sums) == 2 and len(grey) == 1, "and each once in the legend"
    assert math.isclose(sum(bar[2] for bar in backward) / grey[0][2], 4 / 3, rel_tol=0.01)
    assert sums[0][0] == backward[1][0] and sums[1][0] == grey[0][0]
    assert all(bar[1] > backward[0][1] for bar in sums), "sums lie under the backward"


def test_what_was_measured_lies_under_its_prediction_and_is_paler():
    still = buckets(Row("each", MADE_ONE, predicted=ONE, measured=ONE))
    predicted, measured = boxes(still, "#009E73")[1:], boxes(still, look("message", measured=True).fill)
    assert [one[0] for one in predicted] == [one[0] for one in measured]
    assert all(a[1] < b[1] for a, b in zip(predicted, measured))
    assert "predicted: all-reduces: 2, together 4.0 ms, exposed 3.0 ms; measured: all-reduces: 2" in still.summary


def test_many_sums_without_a_pause_are_one_bar_with_their_number():
    """Hundreds of narrow bars beside each other are a fence that flickers."""
    spans = [(0.02 + 0.001 * i, 0.021 + 0.001 * i) for i in range(50)] + [(0.09, 0.1)]
    many = Overlap(0.0, 0.02, tuple(Bucket((f"{begin}",), 8, 0.0, begin, end) for begin, end in spans))
    still = buckets(Row("each", {"blocks.0.q.weight": 0.02}, predicted=many))
    _, first, second = boxes(still, look("message").fill)
    assert math.isclose(first[2] / second[2], 5, rel_tol=0.01)
    assert "51 all-reduces, 1.2 ms each on average" in still.svg


def test_neighbours_of_one_layer_are_one_bar():
    made = {"embed.token.weight": 4.0, "blocks.0.q.bias": 3.0, "blocks.0.q.weight": 2.0, "head.norm.bias": 1.0}
    assert layers(made, 0.5) == [("head", 0.5, 1.0), ("block 0", 1.0, 3.0), ("embed", 3.0, 4.0)]


def test_nothing_of_the_picture_lies_outside_it():
    for still in (pictures.three(), pictures.Explorer()._still):
        wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', still.svg).groups())
        for x, y, w in boxes(still, "#[0-9A-F]{6}"):
            assert 0 <= x and x + w <= wide and y < tall


def test_three_forms_on_one_axis():
    told = pictures.three().summary.splitlines()
    assert [line.split(":")[0] for line in told] == ["after", "each", "buckets"]
    exposed = [float(line.rpartition("exposed ")[2].removesuffix(" ms")) for line in told]
    assert exposed == sorted(exposed, reverse=True)


# --- the explorer -----------------------------------------------------------------------------------------------


def exposed(explorer):
    return float(explorer.summary.rpartition("exposed ")[2].removesuffix(" ms"))


def test_controls_move_the_picture():
    explorer = pictures.Explorer()
    start, picture = exposed(explorer), explorer._picture.value
    explorer.alpha.value = "300 µs"
    assert exposed(explorer) > start and explorer._picture.value != picture
    explorer.alpha.value, explorer.rate.value = "30 µs", "1 GB/s"
    assert exposed(explorer) > 10 * start
    explorer.rate.value, explorer.waits.value = "25 GB/s", True
    assert "exposed 30.9 ms" in explorer.summary


def test_buttons_lead_through_the_sizes_and_not_beyond():
    explorer = pictures.Explorer()
    smaller, larger, _ = explorer.children[0].children
    seen = []
    for button in (smaller, smaller, smaller, smaller, larger):
        button.click()
        seen.append(explorer.size.value)
    assert seen == ["10 MiB", "5 MiB", "one gradient", "one gradient", "5 MiB"]
    assert [button.tooltip for button in (smaller, larger)] == ["smaller buckets", "larger buckets"]


def test_without_a_kernel_the_picture_and_its_words_are_there():
    explorer = pictures.Explorer()
    bundle = explorer._repr_mimebundle_()
    assert bundle["image/svg+xml"] == explorer._picture.value and bundle["text/plain"] == explorer.summary


def test_own_buckets_are_drawn_and_refused_with_a_reason():
    names = [name for name, _ in pictures.model().gradients]
    assert "all-reduces: 2," in pictures.mine([names[:50], names[50:]]).summary
    for groups, piece in (
        ([names, []], "non-empty list"),
        ([names[1:]], f"{names[0]} is in 0 buckets"),
        ([names, names[:1]], f"{names[0]} is in 2 buckets"),
        ([["nothing"]], "no gradient 'nothing'"),
        (names, "list of buckets"),
    ):
        with pytest.raises(ValueError, match=piece):
            pictures.mine(groups)


def test_the_charts_hold_what_they_are_given():
    runs = {1 << 14: Row("buckets", MADE_ONE, ONE, ONE), 1 << 20: Row("buckets", MADE_ONE, ONE, ONE)}
    figure = pictures.valley(runs)
    assert [round(y, 6) for y in figure.data[0].y] == [7, 7] and figure.data[0].text == ("sums: 2", "sums: 2")
    figure = pictures.learned({"batch 8": [4.0, 2.0, 2.0, 1.0]}, {"batch 8": 8}, each=16)
    assert list(figure.data[0].y) == [3.0, 1.5] and figure.summary == "Last point: batch 8: 1.50"


# --- on real ranks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    with hl.ranks(hl.Mesh(dp=2)) as ranks:
        yield ranks


@pytest.mark.ranks
@pytest.mark.parametrize("form", ["after", "each", "buckets"])
def test_a_measured_step_has_every_sum_once_and_in_order(pair, form):
    from hybridlab.labs.data_parallel import on_ranks as data_parallel

    one = data_parallel.job(form)
    row = data_parallel.measured(pair, {"it": one}, Link(1e-4, 1e-9), steps=2)["it"]
    packs = [tuple(names) for _, names in sorted(one.layout.packs.items())]
    assert [bucket.names for bucket in row.measured.buckets] == packs
    assert [bucket.names for bucket in row.predicted.buckets] == packs
    assert set(row.made) == set(one.layout.named)
    assert all(row.measured.start < at < row.measured.end for at in row.made.values())
    inside = [bucket.full < row.measured.end for bucket in row.measured.buckets]
    assert not any(inside) if form == "after" else all(inside)
    assert all(bucket.full <= bucket.begin <= bucket.end for bucket in row.measured.buckets)
    assert row.measured.bytes == 4 * data_parallel.SMALL.parameters == data_parallel.sent(row.measured.bytes)


@pytest.mark.ranks
def test_as_many_all_reduces_as_own_groups(pair):
    from hybridlab.labs.data_parallel import on_ranks as data_parallel

    names = [name for name, _ in data_parallel.gradients()]
    counted = data_parallel.counted(pair, data_parallel.in_groups([names[:5], names[5:]]))
    assert counted == (2, 4 * data_parallel.SMALL.parameters)


# --- answers ----------------------------------------------------------------------------------------------------


def test_one_process_has_the_gradient_that_autograd_computes():
    import torch

    w, x, targets = map(torch.tensor, tied_numbers())
    w.requires_grad_()
    (x @ w @ w.T - targets).square().sum(dim=1).mean().backward()
    assert torch.allclose(w.grad.flatten(), torch.tensor(tied_gradient(), dtype=w.dtype), rtol=1e-12)


def test_the_last_hints_solve_the_exercises(first_attempt):
    gradients = pictures.model().gradients
    sizes = [size << 20 for size in (20, *[38] * 7, 28, 14)]  # the last ones smaller
    groups, room = [], 0
    for name, size in gradients:
        if size > room and len(groups) < MOST:
            groups.append([])
            room = sizes[len(groups) - 1]
        groups[-1].append(name)
        room -= size
    assert labs.answer("data_parallel.buckets", groups).right
    assert 26 + 1e3 * pictures.LINK.seconds("all_reduce", 8, 26e6) + 1.05 - 28 == pytest.approx(1.29)
    assert "1.75" in TASKS["data_parallel.exposed"].hints[1] and cost("all_reduce", 8, 1).bytes == 1.75


def test_numbers_in_the_text_are_those_of_the_package():
    book = json.loads((pathlib.Path(__file__).parents[2] / "notebooks/21_data_parallel.ipynb").read_text())
    text = " ".join(" ".join("".join(cell["source"]).split()) for cell in book["cells"])
    one, whole = pictures.model(), pictures.over_sizes()["the whole model"]
    each, pytorch = pictures.over_sizes()["one gradient"], pictures.over_sizes()["25 MiB"]
    backward = max(one.made.values())
    for said in (
        f"backward takes {1e3 * backward:.0f} ms",
        f"in one piece, takes {1e3 * whole[1]:.1f} ms",
        f"{len(one.gradients)} gradients",
        f"2(*p*−1) = {cost('all_reduce', pictures.RANKS, 1).messages} times",
        f"only {pytorch[0]} all-reduces",
        f"{pictures.SHAPE.layers} layers on eight GPUs",
        f"{pictures.SEQUENCES} sequences of {pictures.SHAPE.context} tokens",
        f"each of a GPU's {pictures.SEQUENCES * pictures.SHAPE.context} tokens",
    ):
        assert said in text, said
    assert 2.5 < each[1] / backward < 3, "nearly three times"
    assert LARGEST >> 20 == 48


def test_the_valley_has_its_lowest_point_inside():
    exposed = [float(one) for one in re.findall(r"([\d.]+) ms", pictures.over_sizes_chart().summary)]
    assert len(exposed) == len(pictures.SIZES) - 1 and exposed[0] > min(exposed) < exposed[-1]


def test_with_enough_tokens_the_backward_lasts_as_long_as_the_all_reduce():
    """For any number of weights: 4ΨK/C is 2gΨ/W."""
    C, W, g, weights = 312e12, 25e9, 2, 7e9
    assert 4 * weights * pictures.enough_tokens(C, W, g) / C == pytest.approx(2 * g * weights / W)


# --- what students' programs are compared with --------------------------------------------------------------------


def test_a_layer_that_fills_a_bucket_exactly_is_in_it():
    buckets = _buckets(Net(""), 1088)  # a weight of 1,024 bytes and a bias of 64
    assert [[weight.nbytes for weight in bucket] for bucket in buckets] == [[64, 1024]] * 4


def test_the_symptoms_are_told_of_every_step_by_the_weight_that_differs_most():
    first = [[0.0, 0.0], [0.1, 0.2], [0.2, 0.4]]
    second = [[0.0, 0.3], [0.1, 0.5], [0.2, 0.9]]
    told = symptoms([(None, None, first), (None, None, second)])
    assert told == [
        "after step 1 the weights differ by up to 0.300; it changed both alike: True",
        "after step 2 the weights differ by up to 0.500; it changed both alike: False",
    ]
