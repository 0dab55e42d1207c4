"""The main job: train one model three ways, run three schedules, and write one page that shows both."""

import time
from pathlib import Path

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
from hybridlab.training.data.text import Text
from hybridlab.training.run import run, train

SHAPE = Shape(layers=4, width=64, heads=4, context=64)
BATCH = 16  # sequences in the global batch
LAYOUTS = {  # name: (mesh, schedule, microbatches of one pipeline)
    "one process": (Mesh(pp=1), "1f1b", 8),
    "pipeline pp=4": (Mesh(pp=4), "1f1b", 8),
    "hybrid dp=2 × pp=2": (Mesh(dp=2, pp=2), "1f1b", 4),
}
SCHEDULES = ("naive", "gpipe", "1f1b")
RANKS, MICROBATCHES = 4, 8


def demo(steps: int = 120, data: str | None = None, out: str = "build/report.html") -> dict:
    """Train, run, and write the report; returns the numbers in it.

    raises  ValueError in one sentence for unreadable data, or a place where nothing can be written; RankError when a
    rank fails
    """
    if steps < 1:
        raise ValueError(f"steps={steps} trains nothing: give 1 or more")
    folder(Path(out).parent)
    writable(out)
    for mesh, name, microbatches in LAYOUTS.values():
        affordable(mesh=mesh, schedule=name, microbatches=microbatches, batch=BATCH, **_learning(steps, data))
    begin = time.perf_counter()
    text = Text.of(data)
    print(f"Text: {text.source}, {len(text.train):,} bytes to learn from.")
    losses = {name: _train(name, steps, data, *layout) for name, layout in LAYOUTS.items()}
    gaps = {name: max(abs(a - b) for a, b in zip(losses[name], losses["one process"])) for name in losses}
    runs = {name: _run(name) for name in SCHEDULES}
    _write(out, text, losses, gaps, runs)
    for name in LAYOUTS:
        print(f"{name:>20}: loss {losses[name][0]:.3f} → {losses[name][-1]:.3f}, off by at most {gaps[name]:.1e}")
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


def _train(name, steps, data, mesh, schedule_name, microbatches):
    with tqdm(total=steps, desc=f"train, {name}", unit="step") as bar:

        def tell(rank, event):
            bar.set_postfix(loss=f"{event['loss']:.3f}", refresh=False)
            bar.update()

        return train(mesh, schedule_name, microbatches, BATCH, on_event=tell, **_learning(steps, data))["losses"]


def _learning(steps, data) -> dict:
    return {"steps": steps, "optimizer": "adamw", "rate": 3e-3, "shape": SHAPE, "data": data}


def _run(name):
    steps = 3
    with tqdm(total=steps + 1, desc=f"run, {name}", unit="step") as bar:
        made = schedule(name, ranks=RANKS, microbatches=MICROBATCHES)
        measured = run(made, steps=steps, on_event=lambda rank, event: bar.update())
    return predicted_for(measured), measured


def _write(out, text, losses, gaps, runs):
    trained = [
        {"layout": name, "first loss": own[0], "last loss": own[-1], "largest difference": f"{gaps[name]:.1e}"}
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
    origin = next(iter(runs.values()))[1].origin
    where = (
        f"Measured {origin['when']} on {origin['system']} {origin['machine']}, {origin['cores']} cores, "
        f"Python {origin['python']}, torch {origin['torch']}. {RANKS} processes, gloo over loopback."
    )
    sections = [
        (
            "Three ways to train, one result",
            f"A GPT of {SHAPE.parameters:,} parameters learns the bytes of {text.source}. Seeds and batches are the "
            "same; only the layout differs. The curves lie on each other: who computes changes, not what.",
            [curves(losses, title="Loss in nats per byte, three layouts"), trained],
        ),
        (
            "Three schedules, predicted and measured",
            f"Every rank waits in place of computing, 20 ms for a forward and 40 ms for a backward, so that {RANKS} "
            f"ranks can be watched on any machine. Processes, messages and clocks are real. {where}",
            [*(draw(p, m, title=f"{name}: predicted over measured") for name, (p, m) in runs.items()), timed],
        ),
    ]
    report(out, "hybridlab: what ran on this machine", sections)
