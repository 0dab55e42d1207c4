"""The lectures' twelve systems, and those since: each has its notebook, which names it, and a row that runs, equal to
one device."""

import importlib

import pytest

from hybridlab.cli import flags
from hybridlab.cli.commands import COMMANDS
from hybridlab.cli.parser import Parser
from hybridlab.core.what.frameworks import FRAMEWORKS
from hybridlab.training.make_job import job_of
from tools.course import HOUSE, books
from tools.systems import systems

PAGE = (HOUSE / "docs" / "systems.md").read_text(encoding="utf-8")
EVERY = [*systems(), *systems("since")]
RUN = [pytest.param(one["flags"], id=one["name"]) for one in EVERY if "flags" in one]


def test_there_are_twelve_and_the_lectures_table_is_among_them():
    here = {one["name"]: one["notebook"] for one in systems()}
    assert len(here) == 12 and {row.name: row.notebook for row in FRAMEWORKS}.items() <= here.items()
    assert here.keys() - {row.name for row in FRAMEWORKS} == {"FSDP", "AxoNN"}


def test_the_page_has_a_row_for_each():
    assert len({one["name"] for one in EVERY}) == len(EVERY)
    assert [one["name"] for one in EVERY if PAGE.count(f"\n| {one['name']} | {one['idea']} | ") != 1] == []


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one["name"])
def test_the_notebook_names_the_system_and_something_runs(one):
    assert ("flags" in one) != ("inside" in one)
    if one["notebook"] not in books():
        assert f"{one['notebook']} (to come)" in PAGE
        return
    said = " ".join(cell.source for cell in books()[one["notebook"]].cells).lower()
    assert one["name"].lower() in said
    assert "flags" in one or importlib.import_module(one["inside"]).__doc__


def asked(typed):
    """What a line of flags asks of `hl.check`, as the command line reads it."""
    parser = Parser()
    COMMANDS["check"][2](parser)
    job = flags.read_learning(parser.parse_args(typed.split()))
    return job.pop("mesh"), job


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.parametrize("typed", RUN)
def test_a_row_runs_and_is_equal(bench, typed):
    mesh, job = asked(typed)
    report = bench.asked(mesh, **job)
    assert report.ok and mesh.size > 1, report


@pytest.mark.slow
@pytest.mark.parametrize("typed", RUN)
def test_a_row_is_a_legal_job(typed):
    mesh, job = asked(typed)
    assert job_of(mesh, **job).mesh == mesh


@pytest.mark.parametrize("one", [one for one in systems() if one["name"] != "FSDP"], ids=lambda one: one["name"])
def test_the_table_of_notebook_40_links_where_the_page_does(one):
    said = "\n".join(cell.source for cell in books()["40_hybrid"].cells if cell.cell_type == "markdown")
    rows = [row for row in said.splitlines() if row.startswith("|") and one["name"] in row.split("|")[1]]
    assert len(rows) == 1 and f"({one['notebook']}.ipynb)" in rows[0]
