"""NVIDIA's driver: its version, the build of torch that fits it, and torch's view of its GPUs.

Importing this needs only Python, so that the Makefile can call it before there is an environment, and a child process
can query torch without loading anything else:

    python hybridlab/world/devices/driver.py build    cpu, cu129 or cuda: the build of torch that runs on this machine
    python hybridlab/world/devices/driver.py torch    torch's view of the GPUs, as JSON
"""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings

FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")  # the last place is for WSL2
# The oldest driver that runs a release of CUDA: NVIDIA, "CUDA compatibility", minor version compatibility.
OLDEST = {13: 580, 12: 525}
BUILDS = ((580, "cuda"), (525, "cu129"))  # PyPI's torch is built with CUDA 13; one of PyTorch's indexes has CUDA 12.9
QUERY = "driver_version,compute_mode,mig.mode.current"


def cards(query: str = QUERY) -> list[dict[str, str]]:
    """The answer of nvidia-smi for each GPU, by the names of its query; [] if it does not answer."""
    names = query.split(",")
    rows = [line.split(", ") for line in asked(f"--query-gpu={query}", "--format=csv,noheader")]
    return [dict(zip(names, map(str.strip, row))) for row in rows if len(row) == len(names)]


def asked(*about: str) -> list[str]:
    """The output lines of nvidia-smi; [] if it does not answer."""
    if not shutil.which("nvidia-smi"):
        return []
    try:
        answer = subprocess.run(["nvidia-smi", *about], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return []
    return answer.stdout.splitlines() if answer.returncode == 0 else []


def version() -> str:
    """The driver's version, "550.54.15"; "" if there is none."""
    for card in cards():
        return card["driver_version"]
    if os.path.exists(FILES[0]):
        with open(FILES[0], encoding="utf-8") as file:
            if found := re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", file.readline()):
                return found[0]
    return ""


def build(driver: str) -> str:
    """The build of torch for a machine with this driver; PyPI's is called "cuda".

    >>> build("580.65.06"), build("550.54.15"), build("470.82"), build("")
    ('cuda', 'cu129', 'cpu', 'cpu')
    """
    major = int(driver.partition(".")[0] or 0)
    return next((name for oldest, name in BUILDS if major >= oldest), "cpu")


def told() -> dict:
    """The GPUs as this process's torch sees them; this call may start CUDA.

    torch, cuda  its version and the CUDA it was built with ("" for a CPU build);  kernels  ["sm_80", …]
    counted      the number of GPUs that the driver has;  gpus  those that CUDA opens: [name, bytes of memory, [major,
                 minor], UUID]
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that the driver is too old; the caller reports it in a sentence
        opens = torch.cuda.is_available()
        about = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count() if opens else 0)]
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "",
            "kernels": torch.cuda.get_arch_list(),
            "counted": torch.cuda.device_count(),
            "gpus": [[one.name, one.total_memory, [one.major, one.minor], str(one.uuid)] for one in about],
        }


if __name__ == "__main__":
    print(build(version()) if sys.argv[1:] == ["build"] else json.dumps(told()))
