"""Flags: each of a job's many has its group, and a misspelt one is answered with the right one."""

import json
import re
from pathlib import Path

import pytest

from hybridlab.cli.main import _parser, main
from hybridlab.cli.parser import ADDED, FURTHER, GROUP_OF, GROUPS, WITH_A_JOB
from hybridlab.modes import registry
from hybridlab.modes.mode import Mode, Option


def flags_of(command):
    parser = _parser([command])._subparsers._group_actions[0].choices[command]
    return {name.lstrip("-").replace("-", "_") for name in parser.flags}


@pytest.mark.parametrize("command", WITH_A_JOB)
def test_every_flag_of_a_job_stands_in_a_group(command):
    assert sorted(flags_of(command) - GROUP_OF.keys()) == []


def test_the_flags_of_plan_stand_under_titles(capsys):
    assert main(["plan", "--help"]) == 0
    shown = capsys.readouterr().out
    titles = re.findall(r"^([a-z ]+):\n", shown, re.M)
    assert [*titles[-4:]] == [
        "model and machine",
        "what to search",
        "fields of the plan",
        "what to do with the best plan",
    ]
    assert re.search(r"fields of the plan:\n(?:  .*\n)*?  --pp ", shown)


def test_every_name_of_a_group_is_a_flag_and_stands_once():
    names = [name for line in (GROUPS | FURTHER).values() for name in line.split()]
    assert len(names) == len(set(names))
    assert set(names) == set().union(*map(flags_of, WITH_A_JOB))


@pytest.mark.parametrize("page", ["modes", "recipes"])
def test_every_flag_of_the_documents_can_be_typed(page):
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    typed = {name.replace("-", "_") for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text)}
    assert sorted(typed - set().union(*map(flags_of, (*WITH_A_JOB, "plan")), ("help", "ranks"))) == []


@pytest.mark.parametrize("command", WITH_A_JOB)
def test_help_shows_what_is_often_used_and_help_all_the_rest(command, capsys):
    assert main([command, "--help"]) == 0
    short = capsys.readouterr().out
    assert main([command, "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert "--zero" in short and "--query-latent" not in short and "--help-all" in short
    assert "--query-latent" in whole and len(short.splitlines()) < 92


@pytest.mark.parametrize("command", WITH_A_JOB)
def test_help_says_what_can_be_typed(command, capsys):
    """The meanings are those of Python's arguments; there, a rate may be a function, and names have underscores."""
    assert main([command, "--help-all"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "with --tp: shard norms" in told and "with --device-memory: time to copy" in told
    assert "(default 0.9,0.999)" in told and "function" not in told and "device_memory" not in told


@pytest.mark.parametrize(
    "words, right",
    [
        ("check --microbatchs 4", "--microbatches"),
        ("train --optimiser sgd", "--optimizer"),
        ("run --seeds=2", "--seed"),
    ],
)
def test_a_misspelt_flag_is_answered_with_the_right_one(words, right, capsys):
    assert main(words.split()) == 2
    assert f"did you mean '{right}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        (
            "check --dp 2 --capacity 1.5",
            "capacity, balance, pace and scores need several experts: give experts=2 or more",
        ),
        (
            "check --dp 2 --balance loss",
            "capacity, balance, pace and scores need several experts: give experts=2 or more",
        ),
        ("check --ep 2 --experts 4 --pace 0.1", "pace=0.1 is invalid: nothing balances the load. Give balance='loss'"),
        ("plan --gpus 64 --batch 64 --skew 1", "skew=1.0 is invalid: this model has no experts. Leave skew out."),
        (
            "train --model conv --capacity 1.5",
            "--capacity applies only to a transformer, not to --model conv",
        ),
        ("train --model conv --layers 3", "--layers applies only to a transformer, not to --model conv"),
        ("check --dp 2 --sequence", "--sequence has no effect without --tp: give both, or leave it out"),
        ("check --dp 2 --owners 2", "--owners has no effect without --zero: give both, or leave it out"),
    ],
)
def test_a_flag_that_means_nothing_here_is_refused_by_its_name(words, said, capsys):
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


def test_a_mode_from_outside_has_its_flag_too(capsys):
    class Toy(Mode):
        name, purpose, options = "toy", "toys", {"toys": Option(3, "how many toys", int)}

    mode = registry.register(Toy())
    try:
        assert "toys" in flags_of("check") and main(["check", "--help-all"]) == 0
        assert ADDED in (told := capsys.readouterr().out) and "how many toys (default 3)" in told
    finally:
        registry.unregister(mode)


@pytest.mark.parametrize("command", ["schedule", "simulate"])
def test_copies_do_not_change_the_stages_of_a_schedule_and_its_help_says_so(command, capsys):
    assert main([command, "--help"]) == 0
    assert "pipeline-parallel ranks (default 4)" in " ".join(capsys.readouterr().out.split())
    assert main([command, "--dp", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["peak_live"]) == 2 * 4
