"""The lectures' twelve systems and where each one runs: docs/systems.md, from docs/systems.toml."""

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


@cache
def systems() -> list[dict]:
    """The rows of docs/systems.toml, one for each system."""
    return tomllib.loads((HOUSE / "docs" / "systems.toml").read_text(encoding="utf-8"))["system"]


def page() -> str:
    """The text of docs/systems.md."""
    lines = [INTRO, "| system | its idea, in a line | here | runs |", "|---|---|---|---|"]
    for one in systems():
        runs = f"`check {one['flags']}`" if "flags" in one else f"`{one['inside']}`"
        lines.append(f"| {one['name']} | {one['idea']} | {link(one['notebook'])} | {runs} |")
    return "\n".join([*lines, ""])
