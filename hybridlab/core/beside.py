"""Find the files that come with the package but are not part of it: the course's notebooks, records of machines."""

import site
import sys
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
SHARE = "share/hybridlab"  # where a wheel puts them, in the environment or next to the package


def beside(folder: str) -> Path:
    """The folder of this name: next to the package in a checkout, else in the `share` folder of the environment.

    raises  FileNotFoundError if the package was installed without it

    >>> beside("notebooks").name
    'notebooks'
    """
    if (HOUSE / "pyproject.toml").exists():
        return HOUSE / folder
    homes = [Path(home) / SHARE / folder for home in (HOUSE, sys.prefix, site.getuserbase())]
    for home in homes:
        if home.is_dir():
            return home
    raise FileNotFoundError(f"this copy of hybridlab has no {folder}: install its wheel, or clone its repository")
