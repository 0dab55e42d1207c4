"""Collect the facts about a machine that matter for ranks, except its GPUs (`world.devices.gpus`)."""

import importlib.metadata
import os
import platform
import shutil

PACKAGES = ("numpy", "torch", "cloudpickle", "safetensors", "jupyterlab", "ipywidgets", "plotly", "anywidget", "tqdm")


def shared_memory() -> int | None:
    """Total bytes of /dev/shm; None if it does not exist."""
    return shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else None


def open_files() -> int | None:
    """The largest number of open files of one process; None if the system does not report it."""
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
    """Kind of system and of processor, as in "Linux x86_64"; it contains no name of this machine."""
    return f"{platform.system()} {platform.machine()}"
