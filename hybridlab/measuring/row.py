"""Define the rows of a record: one measured quantity, with all repetitions and the device of its tensors."""

import statistics

from hybridlab.world.devices.placement import Placement, placement


def device_of_ranks() -> str:
    """The kind of device that ranks compute on here, as torch calls it: "cpu", "cuda"."""
    return placement(1).kind


def where(placed: Placement) -> dict:
    """The facts about the ranks of a row on GPUs: their number, their backend, and the number that share one GPU.

    >>> where(placement(4, gpus=1)), where(placement(4, gpus=0))
    ({'ranks': 4, 'backend': 'gloo', 'ranks per GPU': 4}, {})
    """
    if placed.kind == "cpu":
        return {}
    ranks = len(placed.devices)
    return {"ranks": ranks, "backend": placed.backend, "ranks per GPU": -(-ranks // len(set(placed.devices)))}


def row(name: str, unit: str, repetitions: list, *, device: str, **more) -> dict:
    """One row of a record.

    device  the kind of device of the tensors;  more  further circumstances

    >>> row("a call", "s", [0.3, 0.1, 0.2], device="cpu", ranks=4)  # doctest: +NORMALIZE_WHITESPACE
    {'name': 'a call', 'device': 'cpu', 'ranks': 4,
     'unit': 's', 'median': 0.2, 'least': 0.1, 'repetitions': [0.3, 0.1, 0.2]}
    """
    middle = {"median": statistics.median(repetitions), "least": min(repetitions)}
    return {"name": name, "device": device, **more, "unit": unit, **middle, "repetitions": list(repetitions)}


def in_words(row: dict) -> str:
    """One row in one line.

    >>> in_words(row("a call", "s", [0.3, 0.1, 0.2], device="cpu", ranks=4))
    'a call (cpu, ranks 4): 0.2 s, the median of 3'
    """
    if "needs" in row:
        return f"{row['name']}: needs {row['needs']}"
    if "ended" in row:
        right = [answer["right"] for answer in row["answers"] if "right" in answer]
        told = f"{sum(right)} of {len(right)} right; " if right else ""
        return f"{row['name']}: {told}ended {row['ended']}, {row['seconds']:.0f} s"
    if "alpha" in row:
        return f"{row['name']}: alpha {row['alpha'] * 1e6:.0f} µs, beta {row['beta'] * 1e9:.3f} s per GB"
    told = ("unit", "median", "least", "repetitions", "name", "device")
    under = ", ".join([row["device"], *(f"{key} {value}" for key, value in row.items() if key not in told)])
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    return f"{row['name']} ({under}): {row['median']:.4g}{unit}, the median of {len(row['repetitions'])}"
