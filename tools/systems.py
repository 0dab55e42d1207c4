"""The lectures' twelve systems and where each one runs: the table in the README, from docs/systems.toml."""

import tomllib
from functools import cache

from tools.course import HOUSE
from tools.slides import link


@cache
def systems() -> list[dict]:
    """What docs/systems.toml says of each."""
    return tomllib.loads((HOUSE / "docs" / "systems.toml").read_text(encoding="utf-8"))["system"]


def readme() -> str:
    """The README's table."""
    lines = ["| system | its idea, in a line | here | runs |", "|---|---|---|---|"]
    for one in systems():
        runs = f"`check {one['flags']}`" if "flags" in one else f"`{one['inside']}`"
        lines.append(f"| {one['name']} | {one['idea']} | {link(one['notebook'], 'notebooks/')} | {runs} |")
    return "\n".join(lines)
