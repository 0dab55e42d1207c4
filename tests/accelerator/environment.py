"""What a process needs to find the emulated accelerator: a library that is built, and variables."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
