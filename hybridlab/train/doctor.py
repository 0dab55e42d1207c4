"""The doctor: what this machine has, and whether ranks run on it."""

import importlib.metadata
import os
import platform
import time

from hybridlab.modes.clocks import link_latency
from hybridlab.world.launch import ranks
from hybridlab.world.placement import placement

PACKAGES = ("numpy", "torch", "cloudpickle", "jupyterlab", "ipywidgets", "plotly", "anywidget")


def doctor(count: int = 4) -> dict:
    """Facts about this machine, two of them measured: how soon ranks are ready, how long a message takes."""
    facts = {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "missing packages": ", ".join(name for name in PACKAGES if not _installed(name)) or "none",
        "placement": str(placement(count).sentence),
    }
    begin = time.perf_counter()
    with ranks(count) as pool:
        pool.run(_here)
        facts["first ranks ready"] = f"{time.perf_counter() - begin:.2f} s for {count}"
        facts["one message"] = f"{pool.run(link_latency)[0] * 1e6:.0f} µs"
    begin = time.perf_counter()
    with ranks(count) as pool:
        pool.run(_here)
        facts["next ranks ready"] = f"{time.perf_counter() - begin:.2f} s for {count}"
    return facts


def _installed(name):
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def _here(comm):
    return comm.rank
