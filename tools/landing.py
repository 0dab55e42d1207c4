"""The course's landing page: notebooks/README.md, made from the first cells of the notebooks."""

from dataclasses import dataclass

from tools.course import Book, books
from tools.graph import told

# The page's fixed text. Numbers and names of notebooks come from the notebooks.
HEAD = """\
# The course

This course teaches how to train one model on many processes. Each way to divide the work is explained, predicted, run
on real processes, measured, and checked against one device. `make mine` opens your own copies of these notebooks in
JupyterLab; no update overwrites them. `make lab` opens the originals. Two cores are enough; you need no GPU.

*`make pages` makes this page from the first cells of the notebooks: change them, not this page.*
"""
GLANCE = """\
## At a glance

*Core* and *further* are the minutes of a reader who works alone, exercises included. The core section is complete
without the rest. *In a lecture* is the time of the core section without its exercises.
"""
SLIDE = """\
## From a slide to its notebook

[The slide says, we predict, your machine measures](../docs/slides.md) lists the decks slide by slide, by their printed
titles, with errata. [The twelve systems](../docs/systems.md) of the lectures are in a separate table. Each notebook
names its slides in its last cell, under *Sources*.

If a slide uses a different word from ours, look it up in [glossary and notation](../docs/glossary.md), which also has
the Korean terms.
"""
LECTURERS = """\
[For lecturers](../docs/lecturers.md) explains what to show in a lecture, on which machine, and what to do if a demo
fails. `make editions` builds slides, printable pages and the edition with solutions.
"""


@dataclass(frozen=True)
class Route:
    """One way through the cores of some notebooks, in order, as a lecture or with exercises.

    after   the route that comes before, if this one builds on it
    asked   the exercises that students submit; if empty, all exercises of the cores
    """

    name: str
    told: str
    notebooks: tuple[str, ...]
    on_stage: bool = False
    after: "Route | None" = None
    asked: tuple[str, ...] = ()

    def there(self) -> list[Book]:
        """The notebooks of this route that exist, in order."""
        return [books()[name] for name in self.notebooks if name in books()]

    @property
    def known(self) -> tuple[str, ...]:
        """The notebooks of all earlier routes."""
        return () if self.after is None else self.after.known + self.after.notebooks

    @property
    def minutes(self) -> int:
        return sum(book.on_stage if self.on_stage else book.core for book in self.there())

    def handed_in(self, book: Book) -> list[str]:
        """The exercises of a notebook that this route asks for."""
        return [task for task in book.tasks if task in (self.asked or book.core_tasks)]


ROUTES = (
    Route(
        "Lecture only",
        "pipelines and hybrid parallelism in five lectures, with pictures, predictions and real runs",
        ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b", "13_interleaved", "14_zero_bubble")
        + ("20_collectives", "21_data_parallel", "22_zero_fsdp", "30_megatron", "40_hybrid", "41_choosing", "42_sc21"),
        on_stage=True,
    ),
    Route(
        "Half-day tutorial",
        "pipeline schedules, data parallelism and tensor parallelism; then an hour for one exercise of each person's "
        "choice",
        ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b", "20_collectives", "21_data_parallel", "30_megatron"),
        on_stage=True,
    ),
)
FIRST = Route(
    "First assignment",
    "Build a pipeline engine, notebook by notebook, in two weeks. Everything runs on a student's laptop.",
    ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b"),
)
SECOND = Route(
    "Second assignment",
    "Build data parallelism, ZeRO and tensor parallelism, combine three axes, and defend one plan. This takes three "
    "weeks, after the first assignment. With the last exercise, students submit one page of text: the plan's largest "
    "terms of time and memory, the second-best plan and the terms that make it slower, and the assumption to measure "
    "first.",
    ("13_interleaved", "20_collectives", "21_data_parallel", "22_zero_fsdp", "30_megatron", "40_hybrid", "41_choosing"),
    after=FIRST,
    asked=(
        "collectives.ring",
        "data_parallel.ddp",
        "zero_fsdp.one",
        "megatron.layers",
        "hybrid.step",
        "choosing.scenario",
    ),
)
CAPSTONE = Route(
    "Capstone",
    "One model, one machine, one budget: plan, make a dry run, run at small scale, and write one page. This takes "
    "two weeks, after the second assignment. The page is graded by the rubric in the instructor's edition; "
    "everything else is checked automatically.",
    ("42_sc21", "50_capstone"),
    after=SECOND,
    asked=("capstone.plan", "capstone.rivals", "capstone.start", "capstone.crossing", "capstone.page"),
)
ASSIGNMENTS = FIRST, SECOND, CAPSTONE


def whole() -> Route:
    """The systems course: the core section of every notebook, with its exercises."""
    return Route(
        "Systems course",
        "the core section of every notebook with its exercises, in the order of the numbers",
        tuple(books()),
    )


def page() -> str:
    """The text of notebooks/README.md."""
    builds = f"## What builds on what\n\n![{told(books())}](../docs/prerequisites.svg)\n"
    return "\n".join(
        [HEAD, GLANCE, _glance(), builds, _routes(), SLIDE, *map(_assignment, ASSIGNMENTS), LECTURERS, _objectives()]
    )


def _glance():
    head = "| notebook | goal | core, min | further, min | in a lecture, min | exercises | needs |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for book in books().values():
        needs = ", ".join(f"[{one[:2]}]({one}.ipynb)" for one in book.needs)
        times = f"{book.core} | {book.further or ''} | {book.on_stage} | {len(book.tasks)}"
        lines.append(f"| [{book.name}]({book.name}.ipynb) | {book.goal} | {times} | {needs} |")
    return "\n".join([*lines, ""])


def hours(minutes: int) -> str:
    """Minutes as hours and minutes.

    >>> hours(45), hours(125)
    ('45 min', '2 h 05 min')
    """
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _routes():
    lines = ["## Three routes", "", "| route | what happens | notebooks | minutes |", "|---|---|---|---|"]
    for route in (ROUTES[0], whole(), ROUTES[1]):
        names = " · ".join(f"[{book.number}]({book.name}.ipynb)" for book in route.there())
        counted = "as lectures" if route.on_stage else "alone"
        lines.append(f"| **{route.name}** | {route.told} | {names} | {hours(route.minutes)} {counted} |")
    return "\n".join([*lines, ""])


def _assignment(route):
    lines = [f"## {route.name}", "", f"{route.told} About {hours(route.minutes)} for the cores:", ""]
    for book in route.there():
        tasks = ", ".join(f"`{task}`" for task in route.handed_in(book))
        lines.append(f"- [{book.name}]({book.name}.ipynb): {tasks or 'to read'}")
    return "\n".join([*lines, ""])


def _objectives():
    lines = ["## What you can do afterwards", ""]
    for book in books().values():
        lines += [f"**[{book.title}]({book.name}.ipynb)**", "", *(f"- {one}" for one in book.objectives), ""]
    return "\n".join(lines)
