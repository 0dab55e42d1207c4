"""What a process needs to find the emulated accelerator: a library that is built, and variables."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from hybridlab.world.devices.placement import devices_here

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1]
COMPILER = os.environ.get("CXX", "g++")


def missing() -> str:
    """Why there can be none here; nothing where there can."""
    return "" if shutil.which(COMPILER) else f"the emulated accelerator is built with {COMPILER}, which is not here"


def emulated(devices: int = 8) -> dict[str, str]:
    """The variables of a process whose ranks compute on so many emulated devices: one each, or one for all."""
    subprocess.run([sys.executable, str(HERE / "on_path" / "emulated_gpu" / "library.py")], check=True)
    places = [str(HERE / "on_path"), str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(places), "HYBRIDLAB_DEVICES": f"gpu:{devices}"}


def on_devices(count: int) -> tuple[str, bool]:
    """(devices of this machine, such as "cuda:2", whether they are emulated). Where this program sees none, it begins
    anew on so many emulated ones, or on as many as HYBRIDLAB_DEVICES says."""
    importlib.import_module("torch")  # which loads the emulated device, where there is one
    kind, numbers = devices_here()
    emulating = "emulated_gpu" in sys.modules
    if not numbers or (kind == "gpu" and not emulating):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | emulated(len(numbers) or count))
    return f"{kind}:{len(numbers)}", emulating
