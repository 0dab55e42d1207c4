"""Memory that was measured, through `hl.memory`; what the software, the precision and the device change."""

import statistics
from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.core.what.catalog import machine, model
from hybridlab.predict.bytes.activations import FULL
from hybridlab.predict.judged.peaks import peaks
from hybridlab.predict.plans.footprint import ON_DEVICE, ROOM, entered, footprint, kept_on, largest
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.software import SOFTWARE

LLAMA = replace(model("llama3-8b").shape, layers=8)
SPARSE = replace(model("qwen3-30b-a3b").shape, context=4096, layers=4)
SIZES = dict(batch=8, d=8, zero=1, fused=True)


@pytest.mark.parametrize("source", ["zero_bubble_tables", "simumax_b200_memory"])
def test_measured_peaks_are_met(source):
    off = [abs(one.error) for one in peaks() if one.source == source]
    print(f"{source}: median {statistics.median(off):.1%}, worst {max(off):.1%} of {len(off)}")
    assert len(off) >= 12 and statistics.median(off) <= 0.015 and max(off) <= 0.025


def test_gradients_have_the_width_of_the_software():
    old, new = (hl.memory(LLAMA, software=name, **SIZES) for name in ("megatron-2021", "megatron-2024"))
    assert old == hl.memory(LLAMA, **SIZES) and old.weights == 2 * LLAMA.parameters
    apart = 6 * largest(LLAMA)
    assert new.gradients == 4 * LLAMA.parameters + apart and old.gradients == 2 * LLAMA.parameters
    assert old.optimizer == new.optimizer and old.activations == new.activations
    assert hl.memory(LLAMA, software=SOFTWARE["megatron-2024"], **SIZES) == new


def test_the_largest_matrix_of_a_block_is_that_of_its_weights():
    up = LLAMA.width * LLAMA.inside
    assert largest(LLAMA) == 2 * up and largest(replace(LLAMA, style="gpt")) == up
    shared = hl.memory(LLAMA, software="megatron-2024", **SIZES | {"d": 1, "zero": 0, "batch": 8, "t": 8})
    assert shared.gradients == pytest.approx(4 * LLAMA.parameters / 8 + 6 * 2 * up / 8, rel=1e-3)


@pytest.mark.parametrize("shape", [LLAMA, SPARSE], ids=["dense", "experts"])
def test_narrow_matmuls_save_their_inputs_in_one_byte(shape):
    """Of a token: inputs of attention and of the MLP or experts, the projection's own copy, and the last matrix's."""
    wide, narrow = (hl.memory(shape, precision=how, **SIZES).activations for how in ("bf16", "fp8"))
    h, f, k = shape.width, shape.inside, shape.chosen
    inputs = h + (h if shape.experts == 1 else k * h) - shape.found_width + k * f
    assert wide - narrow == pytest.approx(shape.layers * shape.context * inputs)
    assert narrow == hl.memory(shape, precision="fp4", **SIZES).activations


def test_half_the_layers_recomputed_save_half():
    none, half, every = (
        hl.memory(LLAMA, recompute="full", redone=share, **SIZES).activations for share in (0.0, 0.5, 1.0)
    )
    saved = kept_on(LLAMA, Plan(d=8, fused=True)).total - entered(LLAMA, Plan(d=8))
    assert none - half == pytest.approx(half - every) == pytest.approx(LLAMA.layers / 2 * saved)


def test_offloaded_layers_leave_the_device():
    none, half, every = (
        float(footprint(LLAMA, Plan(d=8, recompute=FULL, offload=share), 8).activations) for share in (0.0, 0.5, 1.0)
    )
    assert none - half == pytest.approx(half - every)
    assert none - every == pytest.approx((LLAMA.layers - ON_DEVICE) * entered(LLAMA, Plan(d=8)))


def test_a_plan_may_use_what_the_driver_reports():
    """85.5 GB of an "80 GB" H100: the rest of them is for CUDA's context, NCCL and gaps."""
    h100 = machine("h100")
    assert h100.capacity == 81_559 * 2**20 > h100.memory and machine("a100").capacity == machine("a100").memory
    assert replace(h100, memory=72e9).capacity == 72e9, "another memory is taken as given"
    found = hl.plan("llama3-8b", "h100", gpus=8, batch=128)
    assert found.room == ROOM * h100.capacity and found.best.memory.total <= found.room
    assert "of 86 GB may be used" in found.why(zero=0, p=1, t=1)


def test_software_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="there is no software 'megatron': choose one of"):
        hl.memory(LLAMA, software="megatron", **SIZES)
