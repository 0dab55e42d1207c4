"""The command `grade`: the submissions of a class, checked again and reported."""

import sys
from pathlib import Path

from hybridlab.core.files import folder, listed


def grade(chosen) -> dict:
    """Check the submissions of a folder: each one is reported on stderr, then the table is printed."""
    from hybridlab.labs.exercises import class_reports as reports
    from hybridlab.labs.exercises import grade as grading

    tasks = reports.chosen(chosen.assignment)

    def tell(row):
        print(f"{row.file}: {row.problem or f'{row.right} right'}", file=sys.stderr, flush=True)

    listed(chosen.folder)  # unreadable files are reported first, and a folder that cannot be written
    if chosen.feedback:
        folder(chosen.feedback)
    rows = grading.grade(chosen.folder, chosen.seconds, tell, chosen.jobs, tasks, chosen.again)
    print(grading.table(rows, tasks))
    told, found = grading.remarks(chosen.folder, rows), reports.statistics(rows, tasks)
    print("\n".join(["", *told, grading.note(rows)]))
    if chosen.statistics:
        print(f"\n{reports.told(found)}")
    if chosen.csv:
        reports.write_csv(chosen.csv, rows, tasks)
    if chosen.feedback:
        print(f"{len(reports.write_pages(chosen.feedback, rows, tasks))} pages in {Path(chosen.feedback)}")
    return grading.as_json(rows, told, tasks) | {"exercises": found}


def add_flags(one):
    """The flags of the command."""
    one.flag("folder", metavar="FOLDER", help="folder of the files that students wrote with labs.export")
    one.flag(
        "--seconds",
        type=float,
        metavar="X",
        default=300.0,
        help="time limit for one submission, in seconds (default 300)",
    )
    one.flag("--jobs", type=int, metavar="N", default=1, help="submissions to check at the same time (default 1)")
    one.flag("--assignment", metavar="NAMES", help="only these notebooks or exercises: 11_gpipe, gpipe.engine, …")
    one.flag("--again", action="store_true", help="also check the submissions that were graded before")
    one.flag("--csv", metavar="FILE", help="also write a line for each submission to this file")
    one.flag("--feedback", metavar="DIR", help="also write a page for each submission into this folder")
    one.flag("--statistics", action="store_true", help="also print how many answers to each exercise are right")
