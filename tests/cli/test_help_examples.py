"""The examples in the help texts: every command has three, each is read as it is typed, and the light ones run."""

import pytest

from hybridlab.cli import main as cli
from hybridlab.cli.commands import COMMANDS
from hybridlab.cli.examples import EXAMPLES

TYPED = [f"{command} {typed}".split() for command, examples in EXAMPLES.items() for typed, _ in examples]
LIGHT = ("schedule", "simulate", "plan")  # they start no ranks and record nothing


def test_every_command_has_examples():
    assert EXAMPLES.keys() - {""} == COMMANDS.keys()
    assert all(len(examples) == 3 for command, examples in EXAMPLES.items() if command != "doctor")


@pytest.mark.parametrize("typed", TYPED, ids=" ".join)
def test_an_example_is_read(typed):
    assert cli._read(typed).name == typed[0]


@pytest.mark.parametrize("typed", [typed for typed in TYPED if typed[0] in LIGHT], ids=" ".join)
def test_a_light_example_runs(typed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n", encoding="utf-8")
    assert cli.main(typed) == 0
    assert all((tmp_path / word).exists() for word in typed if "." in word and not word[0].isdigit())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_screen_says_what_it_is_for_and_shows_the_examples(command, capsys):
    assert cli.main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert COMMANDS[command][1] in " ".join(said.split())
    assert all(f"hybridlab {command} {typed}".strip() in said for typed, _ in EXAMPLES[command])
