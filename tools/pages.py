"""Write the pages about the course again, from the notebooks, docs/slides.toml and docs/systems.toml.

python -m tools.pages            notebooks/README.md; in docs/ prerequisites.svg, layer.svg, slides.md, systems.md,
                                 lecturers.md, the last section of glossary.md, and the line of gpu.md that names the
                                 machines
python -m tools.pages --check    write nothing; name the pages that are not current
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Callable

import hybridlab as hl
from hybridlab.measuring.recorded import Recorded, recorded
from tools import graph, landing, lessons, slides, systems, wording
from tools.course import FOLDER, HOUSE, books


def layer() -> str:
    """README's picture of one layer, on one of 32 ranks."""
    mesh = hl.Mesh(dp=2, pp=2, cp=2, ep=2, tp=2)
    return hl.draw(hl.dry_layer(mesh, model=hl.Shape(experts=4), zero=1)).svg


def glossary() -> str:
    """The glossary; its last section is made, and the rest is that of the file."""
    return wording.page((HOUSE / "docs" / "glossary.md").read_text(encoding="utf-8"))


PAGES: dict[pathlib.Path, Callable[[], str]] = {  # every page that is made, and the function that makes its text
    FOLDER / "README.md": landing.page,
    HOUSE / "docs" / "prerequisites.svg": lambda: graph.svg(books()),
    HOUSE / "docs" / "layer.svg": layer,
    HOUSE / "docs" / "slides.md": slides.page,
    HOUSE / "docs" / "lecturers.md": lessons.page,
    HOUSE / "docs" / "systems.md": systems.page,
    HOUSE / "docs" / "glossary.md": glossary,
}


def with_machines(text: str, records: list[Recorded]) -> str:
    """A page whose line "Measured on" names these records.

    >>> with_machines("Measured on: nothing.", [Recorded("2 cores x86_64, 2026-11-21", ())])
    'Measured on: 2 cores x86_64, 2026-11-21.'
    """
    line = f"Measured on: {'; '.join(one.label for one in records)}."
    return re.sub(r"^Measured on: .*$", line, text, flags=re.MULTILINE)


def about_records() -> dict[pathlib.Path, str]:
    """The page that names what was measured on. It follows from records and not from the course: a record that was just
    added makes no test fail."""
    path = HOUSE / "docs" / "gpu.md"
    return {path: with_machines(path.read_text("utf-8"), recorded())}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; name the pages that are not current")
    check = parser.parse_args(arguments).check
    every = {path: text() for path, text in PAGES.items()} | about_records()
    old = {path: text for path, text in every.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in old.items():
        print(f"{path.relative_to(HOUSE)}: {'not current; run  make pages' if check else 'written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    if not old:
        print("all pages are current")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
