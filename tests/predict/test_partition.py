"""Where layers are cut, and which stages are copied: both programmes against all that could have been done."""

from itertools import combinations, pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.partition import dealt, lengths, partition
from hybridlab.predict.plans.replicated import Layer, Stage, replicated


def cuttings(first: int, last: int, stages: int):
    """Every way to cut the layers first to last - 1 into stages."""
    for cuts in combinations(range(first + 1, last), stages - 1):
        yield [range(*ends) for ends in pairwise((first, *cuts, last))]


# --- cut only ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
@settings(max_examples=150)
@pytest.mark.long
def test_the_largest_stage_is_as_small_as_can_be(weights, data):
    def largest(stages):
        return max(sum(weights[k] for k in one) for one in stages)

    every = list(cuttings(0, len(weights), data.draw(st.integers(1, len(weights)))))
    found = partition(weights, len(every[0]))
    assert found in every
    assert largest(found) == min(map(largest, every))


@pytest.mark.parametrize("chunks", [1, 2, 3, 8])
def test_lengths_are_those_of_the_stages_of_each_rank(chunks):
    for blocks, ranks in product((6, 22, 30, 61, 94, 126), (2, 3, 4, 8, 16)):
        if ranks * chunks > blocks + 2:
            continue
        stages = dealt(blocks, ranks * chunks)
        own = [sum(stages[r::ranks]) for r in range(ranks)]
        expected = (own[0], max(own), own[-1], own.index(max(own)), min(stages))
        assert lengths(blocks, ranks, chunks) == expected, (blocks, ranks)
        assert sum(stages) == blocks and max(stages) - min(stages) <= 1 and stages[-1] == min(stages)


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ValueError, match="3 stages need at least 3 layers, but this model has 2"):
        partition([1, 1], stages=3)


# --- cut and copied ---------------------------------------------------------------------------------------------


def plans(first: int, last: int, levels):
    """Every way to cut the layers first to last - 1, and to copy the stages, so that all machines are used."""
    if not levels:
        yield ()
        return
    *lower, (machines, _) = levels
    for stages in range(1, min(last - first, machines) + 1):
        for cut, copies in product(cuttings(first, last, stages), product(range(1, machines + 1), repeat=stages)):
            if sum(copies) == machines:
                for inside in product(*(list(plans(one.start, one.stop, lower)) for one in cut)):
                    yield tuple(map(Stage, cut, copies, inside))


def price(layers, stages, levels) -> float:
    """The seconds of a plan, as the papers say it: those of the slowest stage or boundary."""
    *lower, (_, bandwidth) = levels
    times = [2 * layers[one.layers[-1]].output / bandwidth for one in stages[:-1]]
    for one in stages:
        held, m = [layers[k] for k in one.layers], one.replicas
        seconds = price(layers, one.inside, lower) if lower else sum(layer.seconds for layer in held)
        summed = 4 * (m - 1) / m * sum(layer.weights for layer in held) / bandwidth
        times.append(max(seconds, summed) / m)
    return max(times)


numbers = st.integers(0, 20)
profiles = st.builds(Layer, numbers, numbers, numbers)
a_level = st.tuples(st.integers(1, 4), st.sampled_from([0.5, 1, 4, 16]))


@given(st.lists(profiles, min_size=1, max_size=6), a_level)
@settings(max_examples=150)
@pytest.mark.long
def test_no_plan_on_equal_machines_is_faster(layers, level):
    found = replicated(layers, level)
    every = list(plans(0, len(layers), [level]))
    assert found.stages in every
    assert found.seconds == pytest.approx(price(layers, found.stages, [level]), rel=1e-12)
    assert found.seconds == pytest.approx(min(price(layers, one, [level]) for one in every), rel=1e-12)


@pytest.mark.long
@given(st.lists(profiles, min_size=1, max_size=4), a_level, a_level)
@settings(max_examples=60)
def test_no_plan_on_two_levels_is_faster(layers, lower, upper):
    levels = [(min(lower[0], 3), lower[1]), (min(upper[0], 3), upper[1])]
    found = replicated(layers, *levels)
    every = list(plans(0, len(layers), levels))
    assert found.stages in every
    assert found.seconds == pytest.approx(price(layers, found.stages, levels), rel=1e-12)
    assert found.seconds == pytest.approx(min(price(layers, one, levels) for one in every), rel=1e-12)


@pytest.mark.long
@given(st.lists(profiles, min_size=1, max_size=5), st.integers(1, 4))
@settings(max_examples=60)
def test_where_nothing_is_sent_one_stage_on_all_machines_is_best(layers, machines):
    """And it is the first that is looked at, so that no other of the same time takes its place."""
    free = [Layer(layer.seconds, 0, 0) for layer in layers]
    total = sum(layer.seconds for layer in layers)
    assert replicated(free, (machines, 1.0)) == (total / machines, (Stage(range(len(layers)), machines),))


def test_what_sends_too_much_to_be_copied_or_cut_is_not():
    heavy, light = Layer(1, output=1, weights=1e9), Layer(1, output=1, weights=0)
    assert replicated([heavy, light], (3, 1e3)).stages == (Stage(range(0, 1), 1), Stage(range(1, 2), 2))
    talkative = Layer(1, output=1e9, weights=1)
    assert replicated([talkative, light], (3, 1e3)).stages == (Stage(range(0, 2), 3),)


@pytest.mark.parametrize("layers, levels", [([], [(2, 1.0)]), ([(1, 1, 1)], []), ([(1, 1, 1)], [(0, 1.0)])])
def test_nothing_to_plan_is_told(layers, levels):
    with pytest.raises(ValueError, match="a plan needs layers and a network"):
        replicated(layers, *levels)


# --- as published -----------------------------------------------------------------------------------------------

VGG16 = [
    Layer((row["forward_ms"] + row["backward_ms"]) / 1e3, row["output_bytes"], row["weight_bytes"])
    for row in published("pipedream_vgg16")
]
CONVOLUTIONS = next(k for k, row in enumerate(published("pipedream_vgg16")) if row["layer"].startswith("linear"))


@pytest.mark.slow
@pytest.mark.parametrize("gigabits", [1, 10])
def test_vgg16_on_16_machines_is_15_1(gigabits):
    """15 copies of the convolutions and one of the linear layers: PipeDream's setting of that model for 16 GPUs.

    So it stands in their repository, in the profile's commit: models/vgg16/gpus=16/hybrid_conf.json gives stage 0 the
    ranks 0 to 14, and stage1.py begins with the first linear layer. Here it comes out from 0.4 to 19 Gb/s; from 25 on,
    summing 553 MB takes no longer than computing, and one stage on all machines is faster.
    """
    plan = replicated(VGG16, (16, gigabits / 8 * 1e9))
    assert [(one.layers, one.replicas) for one in plan.stages] == [
        (range(CONVOLUTIONS), 15),
        (range(CONVOLUTIONS, len(VGG16)), 1),
    ]


@pytest.mark.long
def test_vgg16_is_data_parallel_where_the_network_is_fast():
    assert replicated(VGG16, (16, 25 / 8 * 1e9)).stages == (Stage(range(len(VGG16)), 16),)


def test_vgg16s_profile_is_the_model_that_we_know():
    """138 million weights in 4 bytes each, 89 percent of them in the linear layers, which take 1.5 percent of the time.

    (The profile counts 16 388 000 bytes for the last layer: 4096·1000 weights and 1000 biases.)
    """
    weights = sum(layer.weights for layer in VGG16)
    assert weights / 4 == 138_357_544
    linear = VGG16[CONVOLUTIONS:]
    assert sum(layer.weights for layer in linear) / weights == pytest.approx(0.89, abs=0.01)
    assert sum(layer.seconds for layer in linear) / sum(layer.seconds for layer in VGG16) < 0.016
