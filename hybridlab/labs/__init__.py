"""Exercises: `labs.answer("naive.utilisation", 0.25)` replies at once; `labs.progress()` shows your progress.

Also `labs.machines`: your measurements and those recorded on other machines; `labs.on_gpus`: published measurements on
GPUs, with our predictions; `labs.reveal`: your guesses; `labs.compare`: predictions and measurements; `labs.table`,
`labs.timelines`: tables of rows, instead of a loop that prints them.

The names are in `exercises`, `by_machine`, `gpu_results`, `revealed`, `comparison` and `rows`; `explore`, `play` and
`demo` are `hl.explore`, `hl.play` and the main job; `copies` makes your copies of the notebooks. Every notebook has its
own folder here. Each name is loaded when it is first used, because ranks import modules of this package and need none
of these names.
"""

from hybridlab.lazily import lazily

_HOME = {
    "answer": "exercises.answer",
    "question": "exercises.answer",
    "progress": "exercises.progress",
    "reset": "exercises.progress",
    "student": "exercises.student",
    "export": "exercises.submission",
    "machines": "by_machine",
    "on_gpus": "gpu_results",
    "reveal": "revealed",
    "Guess": "revealed",
    "compare": "comparison",
    "Compared": "comparison",
    "table": "rows",
    "timelines": "rows",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)


def __dir__():
    return sorted(__all__)
