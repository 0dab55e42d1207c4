"""The CPU suite: measurements that any machine can make in a few minutes. Read `record` first."""

from collections.abc import Iterator

from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring import startup
from hybridlab.measuring.links import SIZES, measured_link
from hybridlab.measuring.row import device_of_ranks, row, where
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.overlay import predicted_for
from hybridlab.scheduling.registry import schedule
from hybridlab.training.check import check
from hybridlab.training.run import run
from hybridlab.world.devices.placement import placement
from hybridlab.world.processes.launch import ranks

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
MESHES = (Mesh(pp=2), Mesh(dp=2), Mesh(dp=2, pp=2))


def rows() -> Iterator[dict]:
    """Yield row after row, each as soon as it is measured."""
    yield from _startup()
    yield from _links()
    yield from _equality()
    yield from _bubbles()


def _startup():
    yield row("the very first start, with the warm parent's own", "s", [startup.parent()], device="cpu", ranks=1)
    for count, rounds in ((4, 3), (16, 1)):
        warm, spawned = startup.in_turns(count, rounds)
        ours = row("ranks ready, from their warm parent", "s", warm, device="cpu", ranks=count)
        theirs = row("ranks ready, spawned by torch", "s", spawned, device="cpu", ranks=count)
        yield ours
        yield theirs
        sooner = theirs["median"] / ours["median"]
        yield row("sooner than spawned, times", "1", [sooner], device="cpu", ranks=count)
    yield row("one call on kept ranks", "s", startup.calls(4, 50), device="cpu", ranks=4)
    yield row("start, one sum, end", "s", [startup.crowd(32)], device="cpu", ranks=32)


def _links():
    device, placed = device_of_ranks(), where(placement(4))
    with ranks(4) as pool:
        for op in ("send", *COLLECTIVES):
            link, times = measured_link(pool, op)
            for size, runs in zip(SIZES, times):
                about = placed | {"ranks": 2 if op == "send" else 4, "bytes": size}
                yield row(f"{op}, one", "s", runs, device=device, **about)
            fit = {"unit": "s, s per byte", "alpha": link.alpha, "beta": link.beta}
            yield {"name": f"{op}, fitted", "device": device} | fit


def _equality():
    for mesh in MESHES:
        report = check(mesh, microbatches=4)
        layout = {"layout": report.layout, "allowed": report.tolerance, "ok": report.ok}
        yield row("largest gap to one device", "relative", [report.largest_gap], device=device_of_ranks(), **layout)


def _bubbles():
    made = schedule("1f1b", ranks=4, microbatches=8)
    real = [run(made, costs=Costs(F=0.02, B=0.04), steps=3) for _ in range(3)]
    ideal = [predicted_for(one) for one in real]
    name = "idle / total of 1F1B, 4 ranks, 8 microbatches, emulated work of 20 and 40 ms"
    device = real[0].origin["device"]
    yield row(f"{name}: predicted", "1", [one.bubble_fraction for one in ideal], device=device)
    yield row(f"{name}: measured", "1", [one.bubble_fraction for one in real], device=device)
