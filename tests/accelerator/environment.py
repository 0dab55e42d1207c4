"""What a process needs to find the emulated accelerator: variables, and nothing in the program."""

import os
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1]


def emulated(devices: int = 8) -> dict[str, str]:
    """The environment of a process whose ranks compute on so many emulated devices: one each, or one for all."""
    places = [str(HERE / "on_path"), str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(places), "HYBRIDLAB_DEVICES": f"gpu:{devices}"}
