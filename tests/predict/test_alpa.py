"""Alpa's two levels: its formula is exact for GPipe and an upper bound for 1F1B; its stages are the best of all."""

import itertools
import math
import random

import pytest

import hybridlab as hl
from hybridlab.predict.plans import on_submeshes as module
from hybridlab.predict.plans.on_submeshes import Submesh, on_submeshes, pipeline_length, submeshes


def simulated(name: str, seconds: list[int], microbatches: int, backward: float) -> float:
    """The length of a schedule whose stages take these times, without communication."""
    forward = [one / (1 + backward) for one in seconds]
    costs = hl.Costs(F=tuple(forward), B=tuple(backward * one for one in forward))
    return hl.simulate(hl.schedule(name, ranks=len(seconds), microbatches=microbatches), costs).length


def cases(number: int):
    rng = random.Random(11)
    for _ in range(number):
        backward = rng.choice([1, 2, 4])
        forward = [rng.randint(1, 9) for _ in range(rng.randint(1, 6))]
        yield [(1 + backward) * one for one in forward], rng.randint(1, 12), backward


def test_the_formula_is_exact_for_gpipe():
    for seconds, microbatches, backward in cases(60):
        assert simulated("gpipe", seconds, microbatches, backward) == pipeline_length(seconds, microbatches)


def test_it_is_an_upper_bound_for_1f1b_and_often_too_large():
    shares = [
        simulated("1f1b", seconds, microbatches, backward) / pipeline_length(seconds, microbatches)
        for seconds, microbatches, backward in cases(60)
    ]
    assert max(shares) <= 1 + 1e-12 and min(shares) < 0.95
    assert sum(share > 1 - 1e-12 for share in shares) >= 10, "equal stages among them"


def test_of_gpipe_too_it_is_only_a_bound_if_backwards_are_not_in_proportion():
    costs = hl.Costs(F=(1, 3), B=(5, 2))
    real = hl.simulate(hl.schedule("gpipe", ranks=2, microbatches=4), costs).length
    assert real > pipeline_length([6, 5], 4), "the longest forward and the longest backward are in different stages"


def every_way(layers: int, cluster: Submesh):
    """All cuts of layers into stages, with all submeshes that together have all devices."""
    for stages in range(1, min(layers, cluster.devices) + 1):
        for ends in itertools.combinations(range(1, layers), stages - 1):
            spans = [range(a, b) for a, b in zip((0, *ends), (*ends, layers))]
            for shapes in itertools.product(submeshes(cluster), repeat=stages):
                if sum(one.devices for one in shapes) == cluster.devices:
                    yield spans, shapes


def price_of(seed: int, layers: int):
    """Random times of layers, a random gain of more devices, and a memory limit on early stages."""
    rng = random.Random(seed)
    own = [rng.uniform(0.5, 4) for _ in range(layers)]
    gain = [rng.uniform(0.3, 1) for _ in range(layers)]
    limit = rng.choice([1.0, 2.0, 99.0])

    def price(span, submesh, later):
        if len(span) * (later + 1) / submesh.devices > limit * layers / 2:
            return math.inf
        return sum(own[layer] / submesh.devices ** gain[layer] for layer in span)

    return price


@pytest.mark.parametrize("seed", range(12))
def test_no_other_stages_are_shorter(seed):
    layers, cluster, microbatches = 4 + seed % 2, [Submesh(1, 4), Submesh(2, 2)][seed % 2], 1 + seed % 5
    price = price_of(seed, layers)
    best = math.inf
    for spans, shapes in every_way(layers, cluster):
        times = [price(span, shape, len(spans) - 1 - at) for at, (span, shape) in enumerate(zip(spans, shapes))]
        best = min(best, pipeline_length(times, microbatches))
    found = on_submeshes(price, layers, cluster, microbatches)
    assert found.seconds == pytest.approx(best, rel=1e-12)
    assert [layer for stage in found.stages for layer in stage.layers] == list(range(layers))
    assert sum(stage.submesh.devices for stage in found.stages) == cluster.devices


def test_a_longest_stage_is_not_missed_and_other_mutants(monkeypatch):
    price, right = price_of(3, 5), on_submeshes(price_of(3, 5), 5, Submesh(1, 4), 8)
    monkeypatch.setattr(
        module, "pipeline_length", lambda seconds, microbatches: sum(seconds) + microbatches * max(seconds)
    )
    assert on_submeshes(price, 5, Submesh(1, 4), 8).seconds > right.seconds


def test_submeshes_are_alike_or_there_is_no_job():
    price = lambda wide: lambda span, one, later: sum(wide[i] for i in span) / one.devices**0.7
    alike = on_submeshes(price([1, 1, 6, 6]), 4, Submesh(1, 4), 16)
    assert alike.job() == {"mesh": hl.Mesh(pp=2, tp=2), "cut": [3, 1]}
    mixed = on_submeshes(price([5, 5, 8]), 3, Submesh(1, 4), 16)
    assert [tuple(one.submesh) for one in mixed.stages] == [(1, 1), (1, 1), (1, 2)]
    with pytest.raises(ValueError, match="stage 0 has one device and stage 2 has tp=2.*give a model of equal layers"):
        mixed.job()


def test_a_job_has_the_axes_of_the_plan_inside_the_stages():
    """Alpa's inner level also chooses the form of a submesh: all of tp, all of dp, or a grid."""
    price = lambda span, one, later: len(span) / one.devices**0.9
    about = (price, 4, Submesh(2, 2), 1)
    assert on_submeshes(*about).job() == {"mesh": hl.Mesh(pp=1, dp=2, tp=2), "cut": [4]}
    folded = on_submeshes(*about, axes=lambda layers, one: {"tp": one.devices})
    assert folded.job()["mesh"] == hl.Mesh(pp=1, tp=4)
    turned = on_submeshes(*about, axes=lambda layers, one: {"tp": 2, "x": 1, "dp": 2})
    assert turned.job()["mesh"] == hl.Mesh(pp=1, tp=2, dp=2) and turned.seconds == folded.seconds


def test_stages_with_equal_submeshes_and_other_axes_are_no_job():
    price = lambda span, one, later: len(span) / one.devices**0.5
    by_stage = lambda layers, one: {"dp": one.devices} if layers.start else {"tp": one.devices}
    found = on_submeshes(price, 2, Submesh(1, 4), 16, axes=by_stage)
    assert len({stage.submesh for stage in found.stages}) == 1 < len({stage.kind for stage in found.stages})
    with pytest.raises(ValueError, match="stage 0 has tp=2 and stage 1 has dp=2.*a job has one mesh"):
        found.job()
    with pytest.raises(ValueError, match="axes tp=3 do not have the 2 devices of their submesh: give"):
        on_submeshes(price, 2, Submesh(1, 4), 16, axes=lambda layers, one: {"tp": 3})


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="give more devices, or fewer layers"):
        on_submeshes(lambda *_: math.inf, 3, Submesh(1, 2), 4)
    with pytest.raises(ValueError, match="give 1, 2, 4, 8 or more"):
        submeshes(Submesh(1, 3))
