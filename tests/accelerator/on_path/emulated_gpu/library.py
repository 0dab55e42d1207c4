"""device.cpp as a library: built on demand against the torch that is installed, and kept by what it is made of.

Run as a program it builds. torch is not imported for that: building takes longer than ranks may take to start.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[4]
SOURCE = Path(__file__).parents[2] / "device.cpp"


def built() -> str:
    """The library's path. To build it takes about 15 s; who comes later finds it."""
    made_of = SOURCE.read_bytes() + importlib.metadata.version("torch").encode()
    library = ROOT / "build" / "accelerator" / f"{hashlib.sha256(made_of).hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        torch, fresh = Path(importlib.util.find_spec("torch").origin).parent, library.with_suffix(f".{os.getpid()}")
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w"]
        include = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
        link = [f"-L{torch}/lib", "-lc10", "-ltorch_cpu"]
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, *options, *include, str(SOURCE), *link, "-o", str(fresh)], check=True)
        fresh.replace(library)  # complete, or not there
    return str(library)


if __name__ == "__main__":
    built()
