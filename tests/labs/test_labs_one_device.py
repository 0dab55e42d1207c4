"""Notebook 02: parts of a step, memory by formula and counted, also on a real pipeline, pictures and the explorer."""

import itertools
import re

import pytest
import torch

import hybridlab as hl
from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import MACHINES
from hybridlab.core.what.frameworks import FRAMEWORKS
from hybridlab.labs.one_device import loop as one_device
from hybridlab.labs.one_device import pictures
from hybridlab.labs.one_device.counting import counted, counted_on_ranks, held, left_by_stages
from hybridlab.labs.one_device.explorer import CARDS, KINDS, MODELS, SEQUENCES, activations, anatomy_explorer, fits
from hybridlab.labs.one_device.memory import computed, placing, states, training
from hybridlab.measuring.one_device import Parts, Product, bandwidth, matmul, quickest, steps
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.bytes.memory import MIXED
from hybridlab.show.layouts.anatomy import LABELS, LOOKS, RIGHT, WIDTH, Bar, anatomy
from hybridlab.show.layouts.memory_bars import PARTS
from hybridlab.show.plans.step_parts import Row, step_parts
from hybridlab.training.make_job import job_of
from tools.course import books

SHAPE = hl.Shape(layers=2, width=16, heads=2, context=16)
ROOM = WIDTH - LABELS - RIGHT


# --- a step -------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    """More of them than tests have otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    yield before + 1
    torch.set_num_threads(before)


@pytest.mark.long
def test_a_loop_has_its_parts_and_leaves_the_threads_alone(threads):
    found = steps(SHAPE, batch=2, count=2)
    assert len(found) == 2 and all(seconds > 0 for one in found for seconds in one)
    assert sum(quickest(found)) == min(map(sum, found))
    assert torch.get_num_threads() == threads


def test_what_is_measured_has_a_size():
    assert hl.measure.product is hl.measure.matmul  # the old name, until the next release
    one = matmul(8, 16, 32, repeat=1)
    assert one.rate == 2 * 8 * 16 * 32 / one.seconds and one.seconds > 0
    assert bandwidth(2**16, repeat=1) > 0


@pytest.mark.parametrize("batch", [1, 8])
def test_a_step_foreseen_has_two_forwards_in_a_backward(batch):
    one = one_device.foreseen(SHAPE, batch, peak=1e9, bandwidth=1e9)
    assert one.backward == 2 * one.forward
    assert one.update == one_device.foreseen(SHAPE, 2 * batch, 1e9, 1e9).update == 84 * SHAPE.parameters / 1e9
    faster = one_device.foreseen(SHAPE, batch, peak=2e9, bandwidth=2e9)
    assert all(slow == pytest.approx(2 * fast) for slow, fast in zip(one, faster))


@pytest.mark.slow
def test_adamw_touches_its_numbers_as_often_as_is_foreseen():
    """Counted operation by operation: the tensors that go into each, and what comes out."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            made = operation(*args, **(kwargs or {}))
            self.numbers += sum(x.numel() for x in (*args, made) if isinstance(x, torch.Tensor) and x.dim())
            return made

    weight = torch.nn.Parameter(torch.ones(1000))
    optimizer, weight.grad = torch.optim.AdamW([weight]), torch.ones(1000)
    optimizer.step()
    with Counted() as counted:
        optimizer.step()
    assert counted.numbers == 1000 * one_device.ADAMW


@pytest.mark.slow
def test_samples_may_change_places_and_steps_may_not():
    assert one_device.halves_apart() < 1e-12
    assert one_device.steps_apart() > 1e-4


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"tied": True}, {"dropout": 0.1}, {"kv_heads": 1}], ids=str)
def test_every_byte_of_a_real_step_is_foreseen(more):
    shape = hl.Shape(layers=2, width=16, heads=2, context=16, **more)
    assert counted(shape, 3) == computed(shape, 3)


def test_the_model_takes_16_bytes_for_a_parameter_in_either_precision():
    assert states(1000).total == states(1000, MIXED).total == 16_000 == training(1000, 1).total
    assert states(1000, MIXED) == training(1000, 1)


def test_the_lectures_cards():
    assert placing(175e9, 8).total / 1e9 == 43.75 and training(175e9, 8).total / 1e9 == 350
    assert training(175e9, 35).total == 80e9 < training(175e9, 34).total


@pytest.mark.ranks
def test_a_real_pipeline_holds_its_live_count_times_one_microbatch():
    found = held("naive", SHAPE)
    assert [one.live for one in found] == [1, 1]
    assert [one.counted for one in found] == [one.live * one.each for one in found]
    assert found[1].each > found[0].each  # the head and its scores


@pytest.mark.ranks
def test_with_chunks_of_unequal_size_the_program_says_how_much_is_live():
    job = job_of(hl.Mesh(pp=2), "interleaved", 4, 8, chunks=2, shape=hl.Shape(layers=4, width=16, heads=2, context=16))
    each, counts = left_by_stages(job), counted_on_ranks(job)
    for program, count in zip(job.schedule.program, counts):
        changes = [{"F": 1, "B": -1}.get(action.kind, 0) * each[action.stage] for action in program]
        assert count == max(itertools.accumulate(changes))


# --- pictures -----------------------------------------------------------------------------------------------------


def widths(svg, name):
    """The widths of one part's boxes, without the key of the legend."""
    found = re.findall(rf'width="([\d.]+)" height="34" fill="{LOOKS[name][0]}"', svg)
    return [float(one) for one in found]


def test_a_bar_is_as_long_as_its_bytes():
    svg = anatomy([Bar("a", "", (4, 2, 1, 1)), Bar("b", "", (2, 0, 0, 0))], "t", "w").svg
    scale = ROOM / (1.04 * 8)
    assert widths(svg, "weights") == pytest.approx([4 * scale, 2 * scale], abs=0.01)
    assert widths(svg, "activations") == pytest.approx([scale], abs=0.01)
    assert list(LOOKS)[:3] == [name for name, _, _ in PARTS.values()]


def test_what_is_longer_than_a_card_is_outlined_and_what_is_too_long_is_cut_off():
    svg = anatomy([Bar("a", "", (4e9,)), Bar("b", "", (40e9, 5e9))], "t", "w", card=8e9, longest=20e9).svg
    assert svg.count('stroke-width="3"') == 1 and ">one card: 8 GB<" in svg and ">45 GB<" in svg
    assert widths(svg, "weights") == pytest.approx([ROOM * 4 / (1.04 * 20), ROOM], abs=0.01)
    assert not widths(svg, "gradients")  # they begin beyond the edge


def test_the_lectures_picture_does_not_answer_the_exercise():
    still = pictures.placing_and_training(175e9, cards=8, card=80e9)
    assert "placing on 8 cards: 43.8 GB" in still.summary and "training on 35" not in still.summary


def test_a_step_is_drawn_by_its_parts():
    one = Parts(0.001, 0.02, 0.001, 0.04, 0.01)
    still = pictures.step(one, one._replace(forward=0.01))
    assert "predicted 62 ms, measured 72 ms" in still.summary and still.svg.count(">backward<") == 3  # and the legend
    bars = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)" height="40"', still.svg)
    places = [(float(x), float(wide)) for x, wide in bars[-5:]]  # read, forward, loss, backward, update, as measured
    each = (places[3][1] / 40, places[0][0])  # pixels of a millisecond, and where the bar begins
    begins = [each[1] + each[0] * ms for ms in (0, 1, 21, 22, 62)]
    assert [x for x, _ in places] == pytest.approx(begins, abs=0.1)
    assert step_parts([Row("only", {"forward": 1})], "t", "w").svg.count(">loss<") == 0


def test_every_framework_is_drawn_and_listed_with_its_notebook(tmp_path):
    (tmp_path / "11_gpipe.ipynb").touch()
    table, figure = pictures.Frameworks(tmp_path), pictures.growth()
    told = table._repr_markdown_()
    for row in FRAMEWORKS:
        assert f">{row.name}<" in figure.twin and f"| {row.name} |" in told and row.name in repr(table)
    assert told.count("[11_gpipe](11_gpipe.ipynb)") == 2 and "22_zero_fsdp (to come)" in told
    assert sum(len(trace.x) for trace in figure.data) == len(FRAMEWORKS)


def test_notebook_02_sends_every_framework_to_the_notebook_that_has_it():
    """As the table does; AxoNN is in no row of the lecture's table, and notebook 36 bears its name."""
    (cell,) = (cell for cell in books()["02_one_device"].cells if "The slide *Hybrid parallelism*" in cell.source)
    linked = dict(re.findall(r"([A-Z][\w-]+)(?:, which[^()]*)?\s*\(\[(\w+)\]", cell.source))
    right = {row.name: row.notebook for row in FRAMEWORKS if row.name in linked} | {"AxoNN": "36_axonn"}
    assert linked == right and len(linked) == 5


def test_the_things_of_a_block_add_up_to_what_it_keeps_and_to_the_papers_formula():
    shape = hl.Shape(layers=4, width=128, heads=4, context=128)
    table = pictures.Things(shape, 8)
    (name, here, paper), scores = table.rows[-1], next(row for row in table.rows if row[0] == "scores")
    assert (name, scores) == ("together", ("scores", 0, 20))
    assert here == sum(row[1] for row in table.rows[:-1]) == 64.25
    assert paper == sum(row[2] for row in table.rows[:-1]) == 34 + 5 * shape.heads * shape.context / shape.width
    assert len(repr(table).splitlines()) == table._repr_html_().count("<tr>") == len(table.rows) + 1


def test_every_product_but_the_largest_is_told_what_keeps_it_below_the_roof():
    roof, fast = pictures.Roof(1e11, 1e10), 2 * 4096**2 / 5e9  # seconds at the slope: 5 GFLOP/s
    small, thin, large = pictures.below_the_roof(
        [Product(16, 16, 16, 1e-5), Product(1, 4096, 4096, fast), Product(64, 4096, 4096, 1)], roof
    ).rows
    assert small.measured == pytest.approx(8.192e8 / (16 / 6 * 1e10)) and "call" in small.why
    assert thin.measured == pytest.approx(1, rel=0.01) and "copied" in thin.why and not large.why


def test_the_roof_bends_at_the_ridge():
    square = [Product(n, n, n, 2 * n**3 / (n * 1e8)) for n in (16, 64, 256)]
    figure = pictures.roofline(square, [Product(1, 4096, 4096, 1e-2)], pictures.Roof(1e11, 1e10))
    roof = figure.data[0]
    assert roof.x[1] == pytest.approx(1) and roof.y[1] == roof.y[2] == pytest.approx(2)
    assert "ridge at 10 FLOPs" in figure.summary and ">m = 1<" in figure.twin
    assert pictures.ridges().keys() == MACHINES.keys()


# --- the explorer -------------------------------------------------------------------------------------------------


def test_the_buttons_change_the_picture():
    explorer = anatomy_explorer()
    assert "fits in 80 GB; at least 39 such cards" in explorer.summary
    explorer.choose(recompute="none")
    assert "does not fit" in explorer.summary and "no number of cards helps" in explorer.summary
    explorer.choose(recompute="full", cards=8, card="h200")
    assert "349 GB of the model" in explorer.summary and "in 141 GB; at least 22" in explorer.summary
    assert explorer._picture.value.startswith("<svg")


def test_without_a_kernel_the_explorer_is_there():
    bundle = anatomy_explorer()._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg") and bundle["text/plain"].startswith("GPT-3: 174.6 billion")


@pytest.mark.slow
def test_every_choice_can_be_drawn():
    for model, sequences, card in itertools.product(MODELS, SEQUENCES, KINDS):
        for precision, recompute in itertools.product(("mixed", "single"), RECOMPUTE):
            assert "billion parameters" in fits(model, sequences, precision, recompute, CARDS[-1], card).summary


@pytest.mark.parametrize("model", ["gpt3-175b", "llama3-8b"])
def test_single_precision_doubles_numbers_and_no_masks(model):
    shape = catalog.model(model).shape
    scores = 4 * shape.context * shape.vocabulary
    for how in RECOMPUTE:
        mixed, single = (activations(shape, 1, one, how) - scores for one in ("mixed", "single"))
        assert (single == 2 * mixed) == (shape.style == "llama") and mixed < single <= 2 * mixed


@pytest.mark.parametrize("model", MODELS)
def test_recomputing_more_keeps_less(model):
    kept = [activations(catalog.model(model).shape, 4, recompute=how) for how in RECOMPUTE]
    assert kept == sorted(kept, reverse=True)
