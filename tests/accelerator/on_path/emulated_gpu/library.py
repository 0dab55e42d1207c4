"""device.cpp as a library: built on demand with g++ against the torch that is installed, kept by what it is made of."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[4]
SOURCE = Path(__file__).parents[2] / "device.cpp"
COMPILER = "g++"


def missing() -> str:
    """Why it cannot be built here, in a few words; nothing where it can."""
    return "" if shutil.which(COMPILER) else f"there is no {COMPILER} to build the emulated accelerator with"


def built(torch) -> str:
    """The library's path. To build it takes about 15 s; whoever is late finds it."""
    source = SOURCE.read_bytes()
    key = hashlib.sha256(source + torch.__version__.encode()).hexdigest()[:16]
    library = ROOT / "build" / "accelerator" / f"{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        fresh = library.with_suffix(f".{os.getpid()}")
        home = Path(torch.__file__).parent
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
        include = [f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include"]
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w", abi, *include]
        link = [f"-L{home}/lib", "-lc10", "-ltorch_cpu"]
        subprocess.run([COMPILER, *options, str(SOURCE), *link, "-o", str(fresh)], check=True)
        fresh.replace(library)
    return str(library)
