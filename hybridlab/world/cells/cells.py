"""Cells on ranks: `%%ranks` runs a notebook's cell on every rank; variables stay for the next such cell.

    %%ranks              on every rank; `comm`, `rank` and `progress` are defined
    %%ranks 0,2          on some ranks only
    %ranks 8             restart with this number of ranks; %ranks dp=2 pp=2 with a mesh; the default is four
    %ranks push a b      copy variables of the notebook to every rank
    %ranks stop          end the ranks

Every rank returns the value of the cell's last expression. The notebook shows the values sorted by rank, and `_` is the
list of them. This is the kernel's side; `namespace` is the rank's.
"""

import re
import tempfile
import traceback

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.cells import namespace
from hybridlab.world.cells.progress import Bar
from hybridlab.world.explain.faults import FRESH, RankError, failure, fault_of
from hybridlab.world.processes.launch import Ranks, ranks

DEFAULT = 4
GONE = "What earlier %%ranks cells defined is gone with the ranks: run those cells again."


def register(shell) -> None:
    """Add the magic `ranks` to an IPython shell, for cells and lines."""
    cells = Cells(shell)
    shell.register_magic_function(cells.magic, magic_kind="line_cell", magic_name="ranks")


class Cells:
    """The persistent ranks of `%%ranks`; `launch` reports when they had to be replaced."""

    def __init__(self, shell):
        self._shell = shell
        self._pool: Ranks | None = None

    def magic(self, line: str, cell: str | None = None):
        """The function that IPython calls: with a cell for `%%ranks`, without one for `%ranks`."""
        try:
            return self.manage(line) if cell is None else self.run(line, cell)
        except ValueError as error:
            raise _brief(error) from None
        except RankError as error:
            raise _brief(error, error.traceback_text, GONE if str(error).endswith(FRESH) else "") from None
        except KeyboardInterrupt:
            raise _brief(KeyboardInterrupt("the ranks were stopped")) from None

    def run(self, line: str, cell: str) -> "Values | None":
        """Run a cell, and return the values of its last expression, or None if no rank has one.

        raises  RankError if a rank fails, or, before any rank runs it, if the cell is not valid Python
        """
        pool = self._pool or self.start(str(DEFAULT))
        chosen = _chosen(line, pool.size)
        name = f"cell [{self._number()}]"
        source = "\n" + cell  # the line with %%ranks is the cell's first line
        _read(source, name)
        namespace.register(name, f"%%ranks {line}\n{cell}")
        with tempfile.TemporaryDirectory(prefix="hybridlab-cell-") as folder:
            outcomes = self._run(namespace.run_cell, source, name, chosen, folder)
        done = {rank: outcomes[rank] for rank in chosen}
        if faults := {rank: outcome["fault"] for rank, outcome in done.items() if "fault" in outcome}:
            raise _failure(faults, len(chosen))
        return Values(done) if any("text" in outcome for outcome in done.values()) else None

    def _number(self) -> int:
        """The number of the running cell; IPython's own count may already be that of the next cell."""
        return len(self._shell.history_manager.input_hist_raw) - 1

    def manage(self, line: str):
        """Run a line magic, and return the ranks if the line is empty."""
        match line.split():
            case []:
                return self._pool or self.start(str(DEFAULT))
            case ["stop"]:
                self.stop()
            case ["push", *names]:
                self.push(names)
            case _:
                print(self.start(line.strip()))

    def start(self, size: str) -> Ranks:
        """Restart with "8" ranks, or with a mesh, "dp=2 pp=2"."""
        pool = ranks(_size(size))
        self.stop()
        self._pool = pool.__enter__()
        return pool

    def stop(self):
        """End the ranks; the next cell starts new ones."""
        if self._pool:
            self._pool.stop()
        self._pool = None

    def push(self, names: list[str]):
        """Copy variables of the notebook to every rank."""
        missing = [name for name in names if name not in self._shell.user_ns]
        if missing:
            raise ValueError(
                f"this notebook has no variable {missing[0]}: write the name of an existing one after `%ranks push`"
            )
        self._pool = self._pool or self.start(str(DEFAULT))
        self._run(namespace.store, {name: self._shell.user_ns[name] for name in names})

    def _run(self, function, *args) -> list:
        """Run a function on the persistent ranks, with a bar for ranks that report their progress."""
        with Bar(self._pool.size) as bar:
            return self._pool.run(function, *args, on_event=bar)


class Values(list):
    """The value of a cell's last expression on each rank that ran it, in rank order; it shows as one line per rank.

    A value that cannot be sent is replaced by its text.
    """

    def __init__(self, outcomes: dict[int, dict]):
        super().__init__(outcome.get("value", outcome.get("text")) for outcome in outcomes.values())
        self._texts = {rank: outcome["text"] for rank, outcome in outcomes.items() if "text" in outcome}

    def __repr__(self):
        return "\n".join(f"rank {rank}:{_beside(text)}" for rank, text in self._texts.items())


def _beside(text):
    return f" {text}" if "\n" not in text else "\n" + "\n".join(f"  {line}" for line in text.split("\n"))


def _size(text: str) -> int | Mesh:
    """A number of ranks, or a mesh of them.

    >>> _size("8"), _size("dp=2 pp=4")
    (8, Mesh(dp=2, pp=4))
    """
    axes = [re.fullmatch(r"(\w+)=(\d+)", word) for word in text.split()]
    if text.isdigit():
        return int(text)
    if not all(axes):
        raise ValueError(
            f"%ranks {text} is not understood: write a number of ranks (%ranks 4), a mesh (%ranks dp=2 pp=2), "
            "%ranks push NAME …, or %ranks stop"
        )
    return Mesh(**{axis[1]: int(axis[2]) for axis in axes})


def _chosen(line: str, size: int) -> list[int]:
    """The ranks that a line names: "0,2" or "0 2"; all of them if it names none.

    >>> _chosen("0,2", 4), _chosen("", 2)
    ([0, 2], [0, 1])
    """
    words = line.replace(",", " ").split()
    if not all(word.isdigit() and int(word) < size for word in words):
        raise ValueError(f"%%ranks {line} names no ranks: write numbers from 0 to {size - 1}, as in %%ranks 0")
    return sorted({int(word) for word in words}) or list(range(size))


def _read(source: str, name: str):
    """Check that a cell is valid Python."""
    try:
        compile(source, name, "exec")
    except SyntaxError as error:
        raise RankError(
            f"no rank has run this cell: SyntaxError: {error.msg} ({name}:{error.lineno})",
            rank=None,
            kind="SyntaxError",
            message=error.msg,
            where=f"{name}:{error.lineno}",
            traceback_text="".join(traceback.format_exception_only(error)).rstrip(),
        ) from None


def _failure(faults: dict[int, list], size: int) -> RankError:
    """The RankError of ranks that failed while no other rank waited for them: all ranks and their variables stay."""
    found = [fault_of(rank, "fault", tree) for rank, tree in faults.items()]
    told = failure(found, size, None, last={})
    fields = {name: getattr(told, name) for name in ("rank", "kind", "message", "where", "traceback_text")}
    return RankError(str(told).removesuffix(FRESH) + "the ranks keep their variables", **fields)


def _brief(error: BaseException, before: str = "", after: str = "") -> BaseException:
    """The error in the form that a notebook shows: the lines of the ranks, if any, and its sentence."""
    sentence = f"\x1b[31m{type(error).__name__}\x1b[0m: {error}"
    error._render_traceback_ = lambda: [*filter(None, (before, sentence, after))]
    return error
