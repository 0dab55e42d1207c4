"""A calculator, live: the memory of a GPU and the time of a step, for models, machines and divisions that a reader
chooses. `predict.plans` computes all of it here, in tables; `calculator.js` looks numbers up.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from hybridlab.core.what import catalog
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.plans.arithmetic import flops, utilisation
from hybridlab.predict.plans.footprint import ROOM, footprint, room_of
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.software import programs
from hybridlab.predict.plans.usual import usual
from hybridlab.show.live.module import packed
from hybridlab.show.live.shown import Shown
from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, mix

BATCH, DIGITS = 1024, 4  # sequences in a step; significant digits of a number: one more than is shown, for sums
MODELS, MACHINES = ("llama3-8b", "gpt-39.1b", "llama3-70b", "gpt3-175b"), ("a100", "h100", "b200")
AXES = {  # in the order of each table
    "GPUs n": (8, 16, 32, 64, 128, 256, 512, 1024),
    "stages p": (1, 2, 4, 8, 16),
    "parts t": (1, 2, 4, 8),
    "microbatch b": (1, 2, 4),
    "ZeRO stage": (0, 1, 2, 3),
    "recomputation": tuple(f"{how} recomputation".replace("none", "no") for how in RECOMPUTE),
}
FIRST = ("llama3-70b", "h100", 128, 4, 4, 1, 1, 0)  # model and machine, and then of each axis
KINDS, PX, SKY = STYLE["kinds"], STYLE["pixels"], STYLE["curves"][0]
F, B, OPT, GREEN = (KINDS[kind]["fill"] for kind in ("F", "B", "OPT", "message"))
WIDTH, LEFT, BAR = 960, 24, 34


class Part(NamedTuple):
    """A part of a bar: its name, its colour, and its number in a prediction, in GB or in seconds."""

    name: str
    colour: str
    of: Callable


MEMORY = (
    Part("weights", F, lambda one: one.weights / 1e9),
    Part("gradients", B, lambda one: one.gradients / 1e9),
    Part("optimizer", OPT, lambda one: one.optimizer / 1e9),
    Part("saved activations", SKY, lambda one: one.activations / 1e9),
)
STEP = (
    Part("matmuls", F, lambda one: one.multiply + one.head),
    Part("other kernels", SKY, lambda one: one.pointwise + one.launch),
    Part("tp all-reduces", GREEN, lambda one: one.tensor),
    Part("messages between stages", mix(GREEN, STYLE["paper"], 0.5), lambda one: one.messages),
    Part("bubble", KINDS["bubble"]["fill"], lambda one: one.bubble),
    Part("gradients over copies", B, lambda one: one.data),
    Part("optimizer", OPT, lambda one: one.optimizer),
)


def calculator() -> Shown:
    """The memory of a GPU, in its parts, next to the memory that it has; and the time of a step, in its parts.

    A step has 1024 sequences. Programs are the usual ones of each machine. A rank has one chunk of layers, and with
    t > 1 the sequence is sharded too. The numbers are those of `hl.memory` and `hl.plans.step`, to four digits.

    >>> import hybridlab as hl
    >>> print(hl.pictures.calculator().summary.splitlines()[0])
    llama3-70b on 128 × h100, p=4, t=4, d=8, b=1, ZeRO 1, no recomputation: it fits
    """
    values = [list(MODELS), list(MACHINES), *map(list, AXES.values())]
    labels = ["model", "machine", *AXES]
    first = [own.index(one) for own, one in zip(values[:-1], FIRST)] + [FIRST[-1]]
    choices = [{"label": label, "values": own, "first": one} for label, own, one in zip(labels, values, first)]
    machines = [catalog.machine(name) for name in MACHINES]
    data = {
        "show": "calculator",
        "choices": choices,
        "tables": packed([json.dumps(one, separators=(",", ":")) for one in tables()]),
        "memory": [(one.name, one.colour) for one in MEMORY],
        "step": [(one.name, one.colour) for one in STEP],
        "capacity": [one.capacity / 1e9 for one in machines],
        "room": ROOM,
        "peak": [one.peak for one in machines],
        "work": [flops(catalog.model(name).shape, BATCH, "none", 0).total for name in MODELS],
        "batch": BATCH,
        "recompute": RECOMPUTE,
        "assumed": [f', fused={one.fused}, software="{one.software}"' for one in map(usual, MACHINES)],
    }
    return Shown(data, _still())


@cache
def tables() -> list[dict]:
    """A table for each model, machine and part, the last varying fastest: {axes: those that matter, numbers: flat}.

    An axis along which no number changes is left out. Where n or the batch is too small, the number is 0.
    """
    return [
        table
        for model in MODELS
        for machine in MACHINES
        for parts, one in zip((MEMORY, STEP), predicted(model, machine, *_legal()[1]))
        for table in (_table(part.of(one)) for part in parts)
    ]


def predicted(model: str, machine: str, n, p, t, b, zero, recompute) -> tuple:
    """(memory, time) of a division, or of many, as `hl.memory` and `hl.plans.step` predict them."""
    shape, kind, assumed = catalog.model(model).shape, catalog.machine(machine), usual(machine)
    copies = np.maximum(n // (p * t), 1)
    options: dict = {"recompute": recompute, "sequence": np.greater(t, 1), "fused": np.array(assumed.fused)}
    options["zero"] = np.where(copies > 1, zero, 0)  # one copy shards nothing
    plan = Plan(p, t, copies, b, **options)
    software = programs(assumed.software, "bf16")
    return footprint(shape, plan, BATCH, software), step(shape, plan, BATCH, kind, assumed.fit, software)


@cache
def _legal() -> tuple:
    """(whether each division of the axes is possible, the divisions, the first one instead of impossible ones)."""
    axes = [np.arange(len(one)) if isinstance(one[0], str) else np.array(one) for one in AXES.values()]
    n, p, t, b, *more = np.meshgrid(*axes, indexing="ij")
    legal = (p * t <= n) & (n // (p * t) * b <= BATCH)
    return legal, [*(np.where(legal, one, one.flat[0]) for one in (n, p, t, b)), *more]


def _table(numbers) -> dict:
    legal, _ = _legal()
    short, axes = np.where(legal, digits(np.broadcast_to(numbers, legal.shape)), 0), []
    for axis in range(short.ndim):
        most = short.max(axis, keepdims=True)
        if np.all((short == most) | ~legal):
            short, legal = most, legal.any(axis, keepdims=True)
        else:
            axes.append(axis)
    return {"axes": axes, "numbers": [float(f"{one:.{DIGITS}g}") for one in short.ravel().tolist()]}


def digits(numbers) -> np.ndarray:
    """Numbers with four significant digits.

    >>> digits(np.array([0.0, 12.3456, 98768])).tolist()
    [0.0, 12.35, 98770.0]
    """
    numbers = np.asarray(numbers, float)
    power = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.where(numbers > 0, numbers, 1))))
    return np.round(numbers * power) / power


def _still() -> Still:
    """The first choices: both bars, and their numbers."""
    model, machine, *sizes = FIRST
    n, p, t, b, zero, how = sizes
    memory, took = predicted(model, machine, *map(np.array, sizes))
    kind, held, seconds = catalog.machine(machine), float(memory.total) / 1e9, float(took.total)
    fits = "it fits" if held * 1e9 <= room_of(kind) else "it does not fit"
    title = f"{model} on {n} × {machine}, p={p}, t={t}, d={n // (p * t)}, b={b}, ZeRO {zero}, "
    title += AXES["recomputation"][how]
    share = utilisation(catalog.model(model).shape, BATCH, seconds, n, kind.peak)
    told = f"{title}: {fits}\n{held:.3g} of {kind.capacity / 1e9:.3g} GB; a step takes {seconds:.3g} s, "
    told += f"{share:.0%} of the peak"
    full = max(held, kind.capacity / 1e9)
    limit = LEFT + (WIDTH - 2 * LEFT) * kind.capacity / 1e9 / full
    line = f'<path d="M{limit:.1f} 68v{BAR + 8}" stroke="{STYLE["ink"]}" stroke-width="3"/>'
    bars = [*_bar(MEMORY, memory, "GB", full, 72), line, *_bar(STEP, took, "s", seconds, 166)]
    return captioned(WIDTH, 282, title, told, [heading(LEFT, 34, title), *bars])


def _bar(parts, one, unit, full, y):
    """A bar as long as `full`, under its name, and its keys in rows below it."""
    yield words(LEFT, y - 8, "memory of a GPU; the line is its capacity" if parts is MEMORY else "a step", PX["axis"])
    x, at, row = float(LEFT), float(LEFT), y + BAR + 22
    for name, colour, of in parts:
        number = float(of(one))
        wide = (WIDTH - 2 * LEFT) * number / full
        yield f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}" fill="{colour}"/>'
        x, text = x + wide, f"{name} {number:.3g} {unit}"
        if at + 9 * len(text) > WIDTH - LEFT:
            at, row = float(LEFT), row + 22
        yield f'<rect x="{at:.1f}" y="{row - 12}" width="18" height="14" fill="{colour}"/>'
        yield words(at + 24, row, text, PX["caption"])
        at += 50 + 7.6 * len(text)
