"""device.cpp and groups.cpp as libraries: built on demand against the torch that is installed, and kept by their text.

Run as a program it builds. torch is not imported for that: building takes longer than ranks may take to start.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[4]
SOURCES = Path(__file__).parents[2]
LIBRARIES = {"device": ("-lc10", "-ltorch_cpu"), "groups": ("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python")}


def built(name: str) -> str:
    """The path of a library. To build one takes some 20 s; who comes later finds it."""
    source = SOURCES / f"{name}.cpp"
    made_of = source.read_bytes() + f"{importlib.metadata.version('torch')} {sys.version}".encode()
    library = ROOT / "build" / "accelerator" / f"{name}_{hashlib.sha256(made_of).hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        torch, fresh = Path(importlib.util.find_spec("torch").origin).parent, library.with_suffix(f".{os.getpid()}")
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w", f"-DTORCH_EXTENSION_NAME={library.stem}"]
        include = [
            f"-I{torch}/include",
            f"-I{torch}/include/torch/csrc/api/include",
            f"-I{sysconfig.get_path('include')}",
        ]
        link = [f"-L{torch}/lib", *LIBRARIES[name]]
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, *options, *include, str(source), *link, "-o", str(fresh)], check=True)
        fresh.replace(library)  # complete, or not there
    return str(library)


def module(name: str):
    """A library as a module of Python."""
    file = Path(built(name))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


if __name__ == "__main__":
    for name in LIBRARIES:
        built(name)
