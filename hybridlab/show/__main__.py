"""The pictures of README and docs/python.md: `python -m hybridlab.show` writes them into docs/, or the folder named."""

import sys
from pathlib import Path

from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule
from hybridlab.show.timelines.svg import animated, svg

DOCS = Path(__file__).parents[2] / "docs"


def pictures() -> dict[str, str]:
    """Every picture by its file name: the schedules one below the other on one time axis, and 1F1B in motion."""
    costs = Costs(F=1, B=2)
    three = [simulate(schedule(name, ranks=4, microbatches=4), costs) for name in ("naive", "gpipe", "1f1b")]
    moving = simulate(schedule("1f1b", ranks=4, microbatches=8), costs)
    return {"pipeline.svg": svg(*three), "moving.svg": animated(moving)}


def main(folder: Path):
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder.name, name, sep="/")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
