"""The calculator: its tables are `hl.memory` and `hl.plans.step`, for hundreds of divisions; and it is small."""

import pathlib
import random
import re

import pytest

import hybridlab as hl
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.plans.software import programs
from hybridlab.predict.plans.usual import usual
from hybridlab.show.live.calculator import AXES, BATCH, MACHINES, MEMORY, MODELS, STEP, calculator, digits, tables

DRAWN, LARGEST = 600, 250_000  # divisions; bytes of the data
LENGTHS = [len(values) for values in AXES.values()]
PARTS = len(MEMORY) + len(STEP)


def look(model, machine, at) -> list[float]:
    """The numbers of a division, as calculator.js looks them up."""
    found = []
    for one in tables()[(model * len(MACHINES) + machine) * PARTS :][:PARTS]:
        place = 0
        for axis in one["axes"]:
            place = place * LENGTHS[axis] + at[axis]
        found.append(one["numbers"][place])
    return found


def drawn(seed):
    """A model, a machine and a place on each axis, of a division that is possible."""
    draw = random.Random(seed)
    while True:
        at = [draw.randrange(length) for length in LENGTHS]
        n, p, t, b, _, _ = (values[place] for values, place in zip(AXES.values(), at))
        if p * t <= n and n // (p * t) * b <= BATCH:
            return draw.randrange(len(MODELS)), draw.randrange(len(MACHINES)), at


def test_every_number_is_that_of_the_package():
    for seed in range(DRAWN):
        model, machine, at = drawn(seed)
        n, p, t, b, zero, _ = (values[place] for values, place in zip(AXES.values(), at))
        d, assumed = n // (p * t), usual(MACHINES[machine])
        one = {"p": p, "t": t, "d": d, "b": b, "zero": zero if d > 1 else 0, "sequence": t > 1, "fused": assumed.fused}
        memory = hl.memory(MODELS[model], batch=BATCH, recompute=RECOMPUTE[at[-1]], software=assumed.software, **one)
        plan, kind = hl.plans.Plan(recompute=at[-1], **one), hl.catalog.machine(MACHINES[machine])
        shape, software = hl.catalog.model(MODELS[model]).shape, programs(assumed.software, "bf16")
        step = hl.plans.step(shape, plan, BATCH, kind, assumed.fit, software)
        wanted = [float(part.of(memory)) for part in MEMORY] + [float(part.of(step)) for part in STEP]
        assert look(model, machine, at) == pytest.approx(digits(wanted).tolist(), rel=1e-12), (seed, one)


def test_every_live_picture_names_the_one_that_draws_it_in_the_browser():
    source = (pathlib.Path(calculator.__code__.co_filename).parent / "shows.js").read_text()
    known = re.findall(r"(\w+): render\w+", re.search(r"const SHOWS = \{([^}]+)\}", source)[1])
    made = [
        hl.pictures.box_of_ranks(hl.Mesh(pp=2, dp=2)),
        hl.pictures.bubble_formula(),
        hl.pictures.ring_all_reduce(),
        calculator(),
    ]
    assert sorted({one.data["show"] for one in made}) == sorted(known)


def test_the_parts_add_up_to_the_plan_of_the_planner():
    at = [3, 1, 1, 0, 1, 0]  # 64 GPUs, p = t = 2, b = 1, ZeRO 1, no recomputation
    numbers = look(MODELS.index("llama3-8b"), MACHINES.index("h100"), at)
    given = {"p": 2, "t": 2, "d": 16, "b": 1, "v": 1, "zero": 1, "sequence": True, "recompute": "none"}
    best = hl.plan("llama3-8b", "h100", gpus=64, batch=BATCH, **given).best
    assert sum(numbers[: len(MEMORY)]) == pytest.approx(best.memory.total / 1e9, rel=1e-3)
    assert sum(numbers[len(MEMORY) :]) == pytest.approx(best.step.total, rel=1e-3)


def test_it_is_small_and_names_no_other_host():
    text = calculator().as_json
    assert len(text) < LARGEST and "http" not in text
