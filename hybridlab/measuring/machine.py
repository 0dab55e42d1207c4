"""The machine: the facts that matter for ranks, except its GPUs (`world.devices.gpus`)."""

import importlib.metadata
import os
import platform
import shutil

PACKAGES = ("numpy", "torch", "cloudpickle", "safetensors", "jupyterlab", "ipywidgets", "plotly", "anywidget", "tqdm")


def shared_memory() -> int | None:
    """Bytes of /dev/shm in all; None where there is none."""
    return shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else None


def open_files() -> int | None:
    """How many files one process may hold open; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def missing() -> tuple[str, ...]:
    """The packages of the course that are not installed."""
    return tuple(name for name in PACKAGES if version(name) is None)


def version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def system() -> str:
    """Kind of system and of processor, as in "Linux x86_64"; no name of this very machine."""
    return f"{platform.system()} {platform.machine()}"
