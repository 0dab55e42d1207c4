"""Files that a command writes: a schedule as text, a timeline as JSON, as a trace, as a picture or a page."""

from pathlib import Path

from hybridlab.core.files import put, writable


def _svg(timeline, path):
    from hybridlab.show.timelines.svg import svg

    put(path, svg(timeline))


def _html(timeline, path):
    from hybridlab.show.live.report import report

    report(path, timeline.schedule.name, [("Timeline", timeline.summary, [timeline])])


EXPORTS = {  # what a file holds, and how a timeline is written to it
    "csv": ("write the schedule as text", lambda t, path: t.schedule.to_csv(path)),
    "pytorch": ("write the schedule in PyTorch's format", lambda t, path: t.schedule.to_pytorch(path)),
    "save": ("save the timeline as JSON", lambda t, path: t.save(path)),
    "chrome": ("write a Chrome trace, which Perfetto opens", lambda t, path: t.to_chrome(path)),
    "svg": ("write a static picture", _svg),
    "html": ("write a page with the live picture", _html),
}


def add_exports(one, *names):
    for name in names:
        one.flag(f"--{name}", metavar="FILE", help=EXPORTS[name][0])


def open_exports(chosen):
    """Raise ValueError before the work starts if its result cannot be written, or one file would replace another."""
    taken: dict[Path, str] = {}
    for name in EXPORTS:
        if path := getattr(chosen, name, None):
            file = writable(path).resolve()
            if file in taken and not file.is_char_device():
                raise ValueError(f"--{taken[file]} and --{name} both write {path}: give each its own file")
            taken[file] = name


def write_exports(chosen, timeline):
    for name, (_, write) in EXPORTS.items():
        if path := getattr(chosen, name, None):
            write(timeline, path)
