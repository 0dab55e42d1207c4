"""Packages of others, which `make test-peers` installs beside .venv: without them nothing here can be collected."""

import os
import pathlib
import runpy

START = pathlib.Path(__file__).parent / "start"

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1"
)  # every model is made from its config: nothing is fetched
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(START), os.environ.get("PYTHONPATH"))))  # of ranks
runpy.run_path(str(START / "sitecustomize.py"))
