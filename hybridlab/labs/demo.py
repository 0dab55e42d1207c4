"""The main job: train one model three ways, run three schedules, and write one page with both."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tqdm import tqdm

from hybridlab.core.files import folder, writable
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.time.overlay import predicted_for
from hybridlab.scheduling.registry import schedule
from hybridlab.show.charts.curves import curves
from hybridlab.show.live.report import report
from hybridlab.show.timelines.draw import draw
from hybridlab.training.affordable import affordable
from hybridlab.training.checkpoints.stored import weights
from hybridlab.training.data.text import Text
from hybridlab.training.models.gpt import GPT
from hybridlab.training.models.sampling import sample
from hybridlab.training.run import EMULATED, LEARNING, run, train

SHAPE = Shape(layers=4, width=64, heads=4, context=64)
BATCH = 16  # sequences in the global batch
LAYOUTS = {  # {name: (mesh, schedule, microbatches of one pipeline)}
    "one process": (Mesh(pp=1), "1f1b", 8),
    "pipeline pp=4": (Mesh(pp=4), "1f1b", 8),
    "hybrid dp=2 × pp=2": (Mesh(dp=2, pp=2), "1f1b", 4),
}
SCHEDULES = ("naive", "gpipe", "1f1b")
RANKS, MICROBATCHES = 4, 8
DTYPE = "float64"  # layouts differ by the order of sums: by 5e-7 in float32, by 1e-15 here
PROMPT = "A rank "  # the beginning of a text that the model continues


def demo(steps: int = 120, data: str | None = None, out: str = "build/report.html") -> dict:
    """Train, run, write the report, and return the numbers in it.

    raises  ValueError in one sentence for unreadable data, or a place where nothing can be written; RankError when a
    rank fails
    """
    if steps < 1:
        raise ValueError(f"steps={steps} is not a positive number: give 1 or more")
    folder(Path(out).parent)
    writable(out)
    for mesh, name, microbatches in LAYOUTS.values():
        affordable(mesh=mesh, schedule=name, microbatches=microbatches, batch=BATCH, **_learning(steps, data))
    begin = time.perf_counter()
    text = Text.of(data)
    print(f"Text: {text.source}, {len(text.train):,} bytes to train on.")
    losses, written = {}, [_written("0 steps")]
    for name, layout in LAYOUTS.items():
        with TemporaryDirectory() as folder_of_weights:
            losses[name] = _train(name, steps, data, folder_of_weights, *layout)
            written.append(_written(f"{steps} steps, {name}", weights(folder_of_weights)))
    gaps = {name: max(abs(a - b) for a, b in zip(losses[name], losses["one process"])) for name in losses}
    runs = {name: _run(name) for name in SCHEDULES}
    _write(out, text, losses, gaps, written, runs)
    for name in LAYOUTS:
        print(
            f"{name:>20}: loss {losses[name][0]:.3f} → {losses[name][-1]:.3f}, "
            f"from one process at most {gaps[name]:.1e} away"
        )
    for row in written[:2]:
        print(f"{row['after']:>20}: {row['the model writes']}")
    for name, (predicted, measured) in runs.items():
        print(
            f"{name:>20}: idle/total predicted {predicted.bubble_fraction:.1%}, measured {measured.bubble_fraction:.1%}"
        )
    print(f"Report: {out} ({time.perf_counter() - begin:.0f} s)")
    return {
        "report": str(out),
        "losses": losses,
        "largest_loss_gap": max(gaps.values()),
        "runs": {name: {"predicted": p.metrics(), "measured": m.metrics()} for name, (p, m) in runs.items()},
    }


def _written(after, state=None) -> dict:
    """The text that the model writes with its first weights, or with those of a state dict."""
    module = GPT(SHAPE, dtype=getattr(torch, DTYPE))
    if state:
        module.load_state_dict(state)
    return {"after": after, "the model writes": sample(module, PROMPT, length=120).replace("\n", " ")}


def _train(name, steps, data, kept, mesh, schedule_name, microbatches):
    with tqdm(total=steps, desc=f"train, {name}", unit="step") as bar:

        def tell(rank, event):
            bar.set_postfix(loss=f"{event['loss']:.3f}", refresh=False)
            bar.update()

        more = _learning(steps, data) | {"checkpoint": kept, "on_event": tell}
        return train(mesh, schedule_name, microbatches, BATCH, **more)["losses"]


def _learning(steps, data) -> dict:
    return LEARNING | {"steps": steps, "shape": SHAPE, "data": data, "dtype": DTYPE}


def _run(name):
    steps = 3
    with tqdm(total=steps + 1, desc=f"run, {name}", unit="step") as bar:
        made = schedule(name, ranks=RANKS, microbatches=MICROBATCHES)
        measured = run(made, steps=steps, on_event=lambda rank, event: bar.update())
    return predicted_for(measured), measured


def _write(out, text, losses, gaps, written, runs):
    trained = [
        {
            "layout": name,
            "processes": LAYOUTS[name][0].size,
            "first loss": f"{own[0]:.4f}",
            "last loss": f"{own[-1]:.4f}",
            "largest difference from one process": f"{gaps[name]:.1e}",
        }
        for name, own in losses.items()
    ]
    timed = [
        {
            "schedule": name,
            "length predicted": f"{p.length * 1e3:.0f} ms",
            "length measured": f"{m.length * 1e3:.0f} ms",
            "idle/total predicted": f"{p.bubble_fraction:.1%}",
            "idle/total measured": f"{m.bubble_fraction:.1%}",
            "activations held, by rank": " ".join(map(str, m.peak_live)),
        }
        for name, (p, m) in runs.items()
    ]
    own, origin = losses["one process"], next(iter(runs.values()))[1].origin
    where = (
        f"Measured {origin['when']} on {origin['system']} {origin['machine']}, {origin['cores']} cores, "
        f"Python {origin['python']}, torch {origin['torch']}. {RANKS} processes, gloo over loopback."
    )
    sections = [
        (
            "Three ways to train, one result",
            f"A GPT of {SHAPE.parameters:,} parameters learns to continue {text.source}, byte by byte: once on one "
            "process, once cut into a pipeline of four, and once as two copies of a pipeline of two. The "
            f"initial weights and the batches are the same. After {len(own)} steps the loss has fallen from "
            f"{own[0]:.2f} to {own[-1]:.2f} nats per byte, and the three curves coincide: the layout changes the "
            "place of the computation, not its result. Only the order of sums differs. In float64 this changes a "
            "loss by at most the last column of the first table. The second table shows text sampled from the model.",
            [curves(losses, title="Loss in nats per byte, three layouts"), trained, written],
        ),
        (
            "Three schedules, predicted and measured",
            f"The same work in three orders, on {RANKS} processes with {MICROBATCHES} microbatches: each picture shows "
            "the prediction above and the measurement below, on one time axis. Processes, messages and clocks are "
            f"real; instead of computing, a process waits {EMULATED.F * 1e3:g} ms for a forward and "
            f"{EMULATED.B * 1e3:g} ms for a backward, so that {RANKS} of them can share two cores. GPipe and 1F1B take "
            f"about the same time; 1F1B holds fewer activations, as the last column of the table shows. {where}",
            [*(draw(p, m, title=f"{name}: predicted and measured") for name, (p, m) in runs.items()), timed],
        ),
    ]
    report(out, "hybridlab: what ran on this machine", sections)
