"""Layouts stay what they are: fingerprints recorded before modes had files of their own, compared with today's.

A fingerprint is of every record: who has which slice, whose gradients are added, who owns what at rest, what is sent
together. A change of one of them is a change of the house.
"""

import json
import pathlib

import equality
import pytest

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.training.make_job import job_of

RECORDED = pathlib.Path(__file__).with_name("fingerprints.json")
MESHES = ("tp2", "tp4", "dp2 tp2", "tp2 dp2", "pp2 tp2", "dp2 pp2 tp2", "dp2 pp2", "dp4", "tp3")


def crossed() -> dict:
    """{name: (mesh, arguments)}: every mesh with all numbers of KV heads, streams, ties and ZeRO stages."""
    found = {}
    for axes in MESHES:
        mesh = Mesh(**{axis[:2]: int(axis[2:]) for axis in axes.split()})
        for keys in (4, 2, 1, 0) if mesh["tp"] != 3 else (0,):
            for sequence in (False, True) if mesh["tp"] > 1 else (False,):
                for tied in (False, True):
                    for zero in (0, 1, 3) if mesh["dp"] > 1 else (0,):
                        shape = Shape(3, 16, 4 if keys else 0, 31, 259, tied=tied, kv_heads=keys or None)
                        more = {"microbatches": 2, "shape": shape, "zero": zero, "sequence": sequence}
                        found[f"{axes}, kv{keys}, sequence={sequence}, tied={tied}, zero={zero}"] = mesh, more
    return found


def fingerprint(mesh, more) -> str:
    return job_of(mesh, **more).layout.fingerprint


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text())


@pytest.mark.slow
def test_some_layouts_are_what_they_were(recorded):
    some = dict(list(crossed().items())[::20])
    assert len(some) > 10
    assert {name: fingerprint(*asked) for name, asked in some.items()} == {
        name: recorded["crossed"][name] for name in some
    }


@pytest.mark.long
def test_all_crossed_layouts_are_what_they_were(recorded):
    every = crossed()
    assert len(every) == len(recorded["crossed"]) > 240
    assert not [name for name, asked in every.items() if fingerprint(*asked) != recorded["crossed"][name]]


@pytest.mark.long
def test_all_joined_layouts_are_what_they_were(recorded):
    """Other schedules, packs, owners, orders of axes: what the table of combinations chose when they were recorded."""
    since = {"style": "gpt", "attend": "gather", "dispatch": "all_to_all", "recompute": "none"}
    since |= {"zigzag": False, "fold": False, "norm": "apart", "copies": "together"}  # chosen since
    every = [(one["choices"] | since, one["fingerprint"]) for one in recorded["joined"]]
    assert len(every) > 50
    assert not [one for one, was in every if fingerprint(*equality.asked(one)) != was]
