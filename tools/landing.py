"""The course's landing page: notebooks/README.md, made from the first cells of the notebooks."""

from dataclasses import dataclass

from tools.course import Book, books
from tools.graph import told

# The pages' own sentences. Everything with a number or a name of a notebook in it comes from the notebooks.
HEAD = """\
# The course

Training one model on many processes: each way to divide the work is explained, predicted, run on real processes,
measured, and proved equal to one device. `make mine` opens these notebooks in JupyterLab as copies of your own, which
no update overwrites; `make lab` opens the originals. Two cores and no GPU are enough.

*This page is made by `make pages` from the first cells of the notebooks; change it there.*
"""
GLANCE = """\
## At a glance

*Alone* is for a reader with the exercises, *on stage* without them.
"""
SLIDE = """\
## From a slide to its notebook

Three ways. [Slide says, we predict, your machine measured](../docs/slides.md) lists the decks slide by slide, by the
titles that the slides print, with errata. The [README](../README.md#from-slide-to-notebook) has the short table. And
each notebook names its slides in its first cell, under *Sources*.

A slide that uses another word than we do: [glossary and notation](../docs/glossary.md), with the Korean terms.
"""
LECTURERS = """\
What to run on stage, what can go wrong, and where: [for lecturers](../docs/lecturers.md). `make editions` builds
slides, printable pages and the edition with solutions.
"""


@dataclass(frozen=True)
class Route:
    """One way through the course: for whom, which notebooks, and whether minutes are those on stage."""

    name: str
    told: str
    notebooks: tuple[str, ...]
    on_stage: bool = False

    def there(self) -> list[Book]:
        """Those of its notebooks that exist, in order."""
        return [books()[name] for name in self.notebooks if name in books()]

    @property
    def minutes(self) -> int:
        return sum(book.on_stage if self.on_stage else book.minutes for book in self.there())


ROUTES = (
    Route(
        "Lecture only",
        "pipelines and their hybrids in four meetings: pictures, predictions and real runs from the front",
        ("10_naive", "11_gpipe", "12_1f1b", "13_interleaved", "14_zero_bubble")
        + ("30_megatron", "40_hybrid", "41_choosing", "42_sc21"),
        on_stage=True,
    ),
    Route(
        "Half-day tutorial",
        "one schedule, one tensor cut and one grid; then people choose an exercise each",
        ("00_start", "01_tour", "11_gpipe", "12_1f1b", "30_megatron", "40_hybrid", "42_sc21"),
        on_stage=True,
    ),
)
ASSIGNMENT = Route(
    "First assignment",
    "Two weeks, one notebook after the other. Everything runs on a student's own laptop.",
    ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b"),
)


def whole() -> Route:
    """The systems course: every notebook, exercises and all."""
    return Route("Systems course", "every notebook with its exercises, in the order of the numbers", tuple(books()))


def page() -> str:
    """The text of notebooks/README.md."""
    builds = f"## What builds on what\n\n![{told(books())}](../docs/prerequisites.svg)\n"
    return "\n".join([HEAD, GLANCE, _glance(), builds, _routes(), SLIDE, _assignment(), LECTURERS, _objectives()])


def _glance():
    lines = ["| notebook | goal | alone, min | on stage, min | exercises | needs |", "|---|---|---|---|---|---|"]
    for book in books().values():
        needs = ", ".join(f"[{one[:2]}]({one}.ipynb)" for one in book.needs)
        times = f"{book.minutes} | {book.on_stage} | {len(book.tasks)}"
        lines.append(f"| [{book.name}]({book.name}.ipynb) | {book.goal} | {times} | {needs} |")
    return "\n".join([*lines, ""])


def hours(minutes: int) -> str:
    """Minutes as people say them.

    >>> hours(45), hours(125)
    ('45 min', '2 h 05 min')
    """
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _routes():
    lines = ["## Three routes", "", "| route | what happens | notebooks | minutes |", "|---|---|---|---|"]
    for route in (ROUTES[0], whole(), ROUTES[1]):
        names = " · ".join(f"[{book.number}]({book.name}.ipynb)" for book in route.there())
        counted = "on stage" if route.on_stage else "alone"
        lines.append(f"| **{route.name}** | {route.told} | {names} | {hours(route.minutes)} {counted} |")
    return "\n".join([*lines, ""])


def _assignment():
    lines = [f"## {ASSIGNMENT.name}", "", f"{ASSIGNMENT.told} About {hours(ASSIGNMENT.minutes)} of work:", ""]
    for book in ASSIGNMENT.there():
        lines.append(f"- [{book.name}]({book.name}.ipynb): {', '.join(f'`{task}`' for task in book.tasks)}")
    return "\n".join([*lines, ""])


def _objectives():
    lines = ["## What you can do afterwards", ""]
    for book in books().values():
        lines += [f"**[{book.title}]({book.name}.ipynb)**", "", *(f"- {one}" for one in book.objectives), ""]
    return "\n".join(lines)
