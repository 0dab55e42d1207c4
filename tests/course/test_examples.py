"""The scripts in examples/ that need nothing of ours."""

import re
import subprocess
import sys

import pytest

from tools.course import HOUSE, books


def losses_of_one_process(ranks, m, steps=3):
    """The losses of the same model, all stages in one process, each made as its rank makes it."""
    import torch
    from torch import nn

    stages = []
    for rank in range(ranks):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rank)
            stages += [nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh()]
    model, chance = nn.Sequential(*stages), torch.Generator().manual_seed(0)
    data = [tuple(torch.rand(2, 4, 16, generator=chance)) for _ in range(m)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sum(((model(x) - target) ** 2).mean() / m for x, target in data)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("ranks, m", [(3, 5), (4, 2)])
def test_1f1b_without_the_package_is_one_process(ranks, m):
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"]
    done = subprocess.run(
        [*command, HOUSE / "examples" / "one_f_one_b.py", str(m)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [float(one) for one in re.findall(r"step \d: loss ([\d.]+)", done.stdout)]
    assert found == pytest.approx(losses_of_one_process(ranks, m), abs=2e-6)


def test_it_imports_nothing_of_ours_and_notebook_12_shows_its_loop():
    script = (HOUSE / "examples" / "one_f_one_b.py").read_text(encoding="utf-8")
    assert "hybridlab" not in script
    shown = books()["12_1f1b"]
    assert script[script.index("for step in range(3):") :].rstrip() in "\n".join(cell.source for cell in shown.cells)
    assert f"{script.count(chr(10))} lines run under" in shown.prose
