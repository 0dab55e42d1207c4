"""The lectures' twelve systems, those that followed, and where each runs: docs/systems.md, from docs/systems.toml."""

import tomllib
from functools import cache

from tools.course import HOUSE
from tools.slides import link

INTRO = """\
# The twelve systems of the lectures

The technique of each system is reimplemented here and can be run. `python -m hybridlab check` with the flags of the
last column compares it with one device. PipeDream trains with stale weights, so it is compared with a replay that uses
the same versions. If the last column names a module, the notebook calls it. *`make pages` makes this page from
docs/systems.toml.*
"""
SINCE = """\

## Systems and methods since then

They are not in the lectures. SpecTrain and both forms of DiLoCo are compared with a replay.
"""


@cache
def systems(which: str = "system") -> list[dict]:
    """The rows of docs/systems.toml, one for each system of the lectures, or one that came "since"."""
    return tomllib.loads((HOUSE / "docs" / "systems.toml").read_text(encoding="utf-8"))[which]


def page() -> str:
    """The text of docs/systems.md."""
    return "\n".join([INTRO, *_table(systems()), SINCE, *_table(systems("since")), ""])


def _table(rows: list[dict]) -> list[str]:
    lines = ["| system | its idea, in a line | here | runs |", "|---|---|---|---|"]
    for one in rows:
        runs = f"`check {one['flags']}`" if "flags" in one else f"`{one['inside']}`"
        lines.append(f"| {one['name']} | {one['idea']} | {link(one['notebook'])} | {runs} |")
    return lines
