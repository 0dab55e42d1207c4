"""The GPUs of a machine as nvidia-smi describes them: the settings that affect a measurement, without any names of the
machine.

Relatives: `world.devices.driver`, which asks nvidia-smi; `measuring.record`, which keeps it.
"""

import re

from hybridlab.world.devices import driver

ASKED = (
    "clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,persistence_mode,ecc.mode.current,mig.mode.current,"
    "compute_mode"
)
STYLE = re.compile(r"\x1b\[[\d;]*m")  # the head of the topology is underlined


def settings() -> dict[str, list]:
    """The settings of the cards, and their connections.

    cards            for each one its current and maximum clocks, its power limit, and its active modes
    other processes  the memory of each process on the cards; asked before ranks start, so none is ours
    topology         the rows of `nvidia-smi topo -m`: the kind of link between two cards, and the cores near each card
    """
    return {
        "cards": driver.cards(ASKED),
        "other processes": driver.asked("--query-compute-apps=used_memory", "--format=csv,noheader"),
        "topology": topology(driver.asked("topo", "-m")),
    }


def topology(lines: list[str]) -> list[str]:
    """The rows of a matrix of links, without its legend.

    >>> topology(["\\x1b[4m\\tGPU0\\tGPU1\\x1b[0m", "GPU0\\t X \\tNV18", "", "Legend:", "  X = Self"])
    ['GPU0 GPU1', 'GPU0 X NV18']
    """
    rows = [" ".join(STYLE.sub("", line).split()) for line in lines]
    return rows[: rows.index("")] if "" in rows else rows
