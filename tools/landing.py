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

*Core* and *further* are minutes for a reader alone, with the exercises of that part; the core stands by itself. *In a
lecture* is the core without its exercises.
"""
SLIDE = """\
## From a slide to its notebook

[Slide says, we predict, your machine measured](../docs/slides.md) lists the decks slide by slide, by the titles that
the slides print, with errata. [The twelve systems](../docs/systems.md) of the lectures have a table of their own. And
each notebook names its slides at its end, under *Sources*.

A slide that uses another word than we do: [glossary and notation](../docs/glossary.md), with the Korean terms.
"""
LECTURERS = """\
What to run in a lecture, what can go wrong, and where: [for lecturers](../docs/lecturers.md). `make editions` builds
slides, printable pages and the edition with solutions.
"""


@dataclass(frozen=True)
class Route:
    """One way through the cores of some notebooks, in order: for whom, and whether as a lecture or with exercises.

    after   the route that is walked before, if this one builds on it
    asked   the exercises that are handed in; none named: all of the cores
    """

    name: str
    told: str
    notebooks: tuple[str, ...]
    on_stage: bool = False
    after: "Route | None" = None
    asked: tuple[str, ...] = ()

    def there(self) -> list[Book]:
        """Those of its notebooks that exist, in order."""
        return [books()[name] for name in self.notebooks if name in books()]

    @property
    def known(self) -> tuple[str, ...]:
        """The notebooks of the routes before."""
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
        "pipelines and their hybrids in five meetings: pictures, predictions and real runs from the front",
        ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b", "13_interleaved", "14_zero_bubble")
        + ("20_collectives", "21_data_parallel", "22_zero_fsdp", "30_megatron", "40_hybrid", "41_choosing", "42_sc21"),
        on_stage=True,
    ),
    Route(
        "Half-day tutorial",
        "pipeline schedules, data parallelism and a tensor cut; then people choose an exercise each, for an hour",
        ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b", "20_collectives", "21_data_parallel", "30_megatron"),
        on_stage=True,
    ),
)
FIRST = Route(
    "First assignment",
    "Build a pipeline engine. Two weeks, one notebook after the other; everything runs on a student's own laptop.",
    ("00_start", "01_tour", "10_naive", "11_gpipe", "12_1f1b"),
)
SECOND = Route(
    "Second assignment",
    "Build data, sharded and tensor parallelism, put three axes together, and defend one plan. Three weeks, after the "
    "first assignment. With the last exercise comes a page of prose: the plan's largest terms of time and memory, its "
    "nearest rival and by which terms that one loses, and the assumption to measure first.",
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
    "One model, one machine, one budget: plan, play dry, run small, and write one page. Two weeks, after the second "
    "assignment. The page is read by the rubric in the instructor's edition; everything before it is checked.",
    ("42_sc21", "50_capstone"),
    after=SECOND,
    asked=("capstone.plan", "capstone.rivals", "capstone.start", "capstone.crossing", "capstone.page"),
)
ASSIGNMENTS = FIRST, SECOND, CAPSTONE


def whole() -> Route:
    """The systems course: the core of every notebook, exercises and all."""
    return Route(
        "Systems course", "the core of every notebook with its exercises, in the order of the numbers", tuple(books())
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
    """Minutes as people say them.

    >>> hours(45), hours(125)
    ('45 min', '2 h 05 min')
    """
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _routes():
    lines = ["## Three routes", "", "| route | what happens | notebooks | minutes |", "|---|---|---|---|"]
    for route in (ROUTES[0], whole(), ROUTES[1]):
        names = " · ".join(f"[{book.number}]({book.name}.ipynb)" for book in route.there())
        counted = "from the front" if route.on_stage else "alone"
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
