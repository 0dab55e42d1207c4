"""The recipes of docs/recipes.md: run each, and write its output below it.

python -m tools.recipes            write the outputs into the page
python -m tools.recipes --check    write nothing; name the recipes whose output has changed

A recipe is a heading, a question, one block of `sh` or `python`, a block of `text` with its output, and the answer.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from typing import NamedTuple

from tools.course import HOUSE

PAGE = HOUSE / "docs" / "recipes.md"
BLOCK = re.compile(r"```(sh|python)\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
ON_RANKS = re.compile(r"hybridlab (?:check|train|run)\b|hl\.(?:check|train|run|ranks)\(")
# rounding noise differs between machines, and what it hides
GAP = re.compile(r"(largest gap |Adam: at most )\S+(?: of the bound)? \(.*?\)")
HIDDEN = re.compile(r"  rounding noise hides .*?\n(?=  \S)", re.DOTALL)
PATIENCE = 300  # seconds for one recipe


class Recipe(NamedTuple):
    """One recipe: its heading, the language and the text of its code, and the stored output."""

    name: str
    language: str
    code: str
    stored: str

    @property
    def on_ranks(self) -> bool:
        """Whether it starts processes."""
        return bool(ON_RANKS.search(self.code))


def recipes() -> list[Recipe]:
    """All recipes of the page, in order."""
    sections = PAGE.read_text("utf-8").split("\n## ")[1:]
    return [Recipe(text.partition("\n")[0], *BLOCK.search(text).groups()) for text in sections if BLOCK.search(text)]


def output(recipe: Recipe) -> str:
    """The output of a recipe, run in a new process; one that shows an error catches and prints it.

    raises  RuntimeError if the recipe fails; TimeoutExpired, after all its processes have been ended

    >>> output(Recipe("two", "python", "print(1 + 1)", ""))
    '2\\n'
    """
    command = [sys.executable, "-c", recipe.code]
    if recipe.language == "sh":
        command = ["sh", "-c", recipe.code.replace("python -m", f"'{sys.executable}' -m")]
    there = {**os.environ, "PYTHONPATH": str(HOUSE), "COLUMNS": "120"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=there, start_new_session=True, **pipes) as running:
        try:
            printed, complaint = running.communicate(timeout=PATIENCE)
        except BaseException:  # also an interrupt, which does not reach the new session
            os.killpg(running.pid, signal.SIGKILL)
            raise
    if running.returncode:
        raise RuntimeError(
            f"{recipe.name}: status {running.returncode}, make the recipe succeed:\n{complaint or printed}"
        )
    return "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())


def comparable(printed: str) -> str:
    """An output without the numbers that rounding changes.

    >>> comparable("largest gap 4e-13 (weight q), allowed 1e-10")
    'largest gap …, allowed 1e-10'
    """
    return HIDDEN.sub("", GAP.sub(r"\1…", printed))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; name the recipes whose output has changed")
    check, changed = parser.parse_args(arguments).check, []
    for recipe in recipes():
        new = output(recipe)
        if comparable(new) != comparable(recipe.stored):
            changed.append(recipe.name)
            if not check:
                _store(recipe, new)
    print("\n".join(f"{name}: {'changed' if check else 'written'}" for name in changed) or "all outputs are current")
    return 1 if check and changed else 0


def _store(recipe: Recipe, new: str):
    shown = f"{recipe.code}```\n\n```text\n"
    page = PAGE.read_text("utf-8").replace(f"{shown}{recipe.stored}```", f"{shown}{new}```")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
