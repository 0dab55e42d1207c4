"""The benchmark of blocks: on a core, with a clock instead of a GPU's events, it prints what its step reads."""

import itertools
import json
import sys
import time

import pytest
import torch

from hybridlab.predict.judged import blocks as law
from tools import first_hour
from tools.course import HOUSE


class Mark:
    """An event whose time is that of the host."""

    def __init__(self):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(HOUSE / "bench"))
    import blocks

    for name, small in (("SIDE", 32), ("SIZES", ((32, 4),)), ("WAYS", (1, 2)), ("SEQUENCES", (1, 2))):
        monkeypatch.setattr(blocks, name, small)
    monkeypatch.setattr(law, "CONTEXT", 16)
    monkeypatch.setattr(law, "VOCABULARY", 64)
    monkeypatch.setattr(blocks, "mark", lambda device: Mark())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    more = itertools.count(step=1_000_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(more))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-80GB")
    monkeypatch.setattr(sys, "argv", ["blocks.py", "--json"])
    return blocks


def test_its_rows_are_what_the_step_reads(bench, capsys):
    assert bench.main() == 0
    head, _, *lines, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert head.startswith("NVIDIA A100-SXM4-80GB, as A100 80 GB") and found["machine"] == "a100"
    assert [(one["t"], one["b"]) for one in found["rows"]] == [(1, 1), (1, 2), (2, 1), (2, 2)] and len(lines) == 4
    assert all(
        one["forward_s"] > 0 < one["backward_s"] and ("head_s" in one) == (one["t"] == 1) for one in found["rows"]
    )
    (step,) = [one for one in first_hour.on_a_gpu(1, False) if one.name == "blocks"]
    assert len(step.headlines([found])) == 4
    assert all(one["saved_bytes"] == 1_000_000 for one in found["rows"])  # input and output are equally long


def test_a_gpu_that_the_catalog_lacks_is_named(bench):
    with pytest.raises(ValueError, match="the catalog has no NVIDIA Z900: its machines are v100, "):
        bench.machine_here("NVIDIA Z900")
