"""The machine: what it has that ranks care about. Nothing is started but one child that looks at the GPUs."""

import functools
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys

from hybridlab.world.devices.placement import DRIVER_FILES

PACKAGES = ("numpy", "torch", "cloudpickle", "safetensors", "jupyterlab", "ipywidgets", "plotly", "anywidget", "tqdm")
GPUS = (
    "import json, torch; of = torch.cuda.get_device_properties; "
    "print(json.dumps([[of(i).name, of(i).total_memory] for i in range(torch.cuda.device_count())]))"
)


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


@functools.cache
def gpus() -> tuple[tuple[str, int], ...]:
    """(name, bytes of memory) of each GPU that torch can use, asked in a child so that CUDA stays untouched here."""
    if "torch" in missing() or not any(os.path.exists(file) for file in DRIVER_FILES):
        return ()
    child = subprocess.run([sys.executable, "-c", GPUS], capture_output=True, text=True)
    return tuple((name, size) for name, size in json.loads(child.stdout)) if child.returncode == 0 else ()


def driver() -> str | None:
    """The version of NVIDIA's driver; None without one."""
    if not shutil.which("nvidia-smi"):
        return None
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = subprocess.run(asked, capture_output=True, text=True).stdout.split()
    return lines[0] if lines else None


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
