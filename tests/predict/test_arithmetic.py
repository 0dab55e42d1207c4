"""FLOPs and the roofline: formulas as the papers print them. (Days of training: test_sc21.)"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.what import catalog
from hybridlab.labs.one_device.loop import products
from hybridlab.predict.plans.arithmetic import flops, product, utilisation

sizes = st.integers(1, 4096)
GPTS = [name for name in catalog.MODELS if name.startswith("gpt")]
A100 = catalog.machine("a100")


@pytest.mark.parametrize("name", GPTS)
def test_a_step_as_sc21_prints_it(name):
    """96 B s l h² (1 + s/6h + V/16lh) with recomputation, 72 B s l h² (1 + s/6h + V/12lh) without."""
    one, B = catalog.model(name).shape, 12
    l, h, s, V = one.layers, one.width, one.context, one.vocabulary
    assert flops(one, B, "full").total == pytest.approx(96 * B * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h)))
    assert flops(one, B).total == pytest.approx(72 * B * s * l * h * h * (1 + s / (6 * h) + V / (12 * l * h)))


def test_selective_recomputation_does_attention_again_and_nothing_else():
    one = catalog.model("gpt3-175b").shape
    none, selective, full = (flops(one, 1, how) for how in ("none", "selective", "full"))
    assert (selective.blocks, selective.head) == (none.blocks, none.head)
    assert selective.attention == full.attention == 4 / 3 * none.attention
    assert full.blocks == 4 / 3 * none.blocks and full.head == none.head
    with pytest.raises(ValueError, match="choose one of none, selective, full"):
        flops(one, 1, "some")


@pytest.mark.slow
@given(
    l=st.integers(1, 4), heads=st.sampled_from([0, 1, 2, 4]), h=st.sampled_from([8, 16, 64]), s=st.integers(1, 64),
    B=st.integers(1, 8),
)  # fmt: skip
@settings(max_examples=40)
def test_flops_are_those_of_the_products_one_by_one(l, heads, h, s, B):
    shape = hl.Shape(layers=l, width=h, heads=heads, context=s)
    forward = sum(2 * m * k * n * count for m, k, n, count in products(shape, B))
    assert flops(shape, B).total == pytest.approx(3 * forward)


def test_a_step_at_the_peak_uses_all_of_it():
    one = catalog.model("gpt-1.7b").shape
    seconds = flops(one, 8).total / A100.peak
    assert utilisation(one, 8, seconds, 1, A100.peak) == pytest.approx(1)
    assert utilisation(one, 8, seconds, 2, A100.peak, "full") > 0.5


# --- the roofline -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(m=sizes, k=sizes, n=sizes)
def test_no_product_is_above_the_roof(m, k, n):
    one = product(m, k, n, A100.peak, A100.bandwidth)
    rate = one.flops / one.seconds
    assert rate <= A100.peak * 1.0001 and rate <= one.intensity * A100.bandwidth * 1.0001
    assert (one.bound == "arithmetic") == (one.intensity >= A100.peak / A100.bandwidth)


@given(n=sizes)
@pytest.mark.long
def test_a_square_has_n_over_6_flops_per_byte_in_single_precision(n):
    assert product(n, n, n, 1, 1, width=4).intensity == pytest.approx(n / 6)


@pytest.mark.slow
@given(k=sizes, n=sizes)
def test_a_single_row_never_has_more_than_one_flop_per_byte_in_half_precision(k, n):
    assert product(1, k, n, 1, 1).intensity < 1


def test_training_is_arithmetic_and_a_single_token_is_memory():
    gpt3 = catalog.model("gpt3-175b").shape
    for machine in catalog.MACHINES.values():
        bound = lambda rows, one=machine: product(rows, gpt3.width, gpt3.inside, one.peak, one.bandwidth).bound
        assert (bound(gpt3.context), bound(1)) == ("arithmetic", "memory"), machine.name
