"""Schedules and timelines in words: the lines of the ranks, the line under a picture, and the counts in it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridlab.core.when.schedule import Schedule
    from hybridlab.core.when.timeline import Timeline

LISTED = 16  # the most ranks whose numbers fit in one line


def in_lines(schedule: "Schedule", mark: int, around: int) -> str:
    """A line for each rank, as `Schedule.grid` shows it."""
    if mark >= len(schedule.rows):
        raise ValueError(f"there is no row {mark}: choose from 0 to {len(schedule.rows) - 1}")
    lines = []
    centre = None if mark < 0 else int(mark - schedule.starts[schedule.rank_of[mark]])
    for r, (start, end) in enumerate(zip(schedule.starts.tolist(), schedule.starts[1:].tolist())):
        first = start if centre is None else min(max(start, start + centre - around), end)
        last = end if centre is None else min(end, start + centre + around + 1)
        cells = [f"→{schedule.action(i)}←" if i == mark else str(schedule.action(i)) for i in range(first, last)]
        lines.append(" ".join([f"rank {r}:"] + ["…"] * (first > start) + cells + ["…"] * (last < end)))
    return "\n".join(lines)


def in_a_line(timeline: "Timeline") -> str:
    """Name, sizes, length, bubbles and activations of a timeline."""
    s, peaks = timeline.schedule, timeline.peak_live
    if len(set(peaks)) == 1:
        held = f"{peaks[0]} on every rank"
    elif len(peaks) <= LISTED:
        held = " ".join(map(str, peaks)) + " by rank"
    else:
        held = f"{min(peaks)} to {max(peaks)}, by rank"
    kind = "measured" if timeline.origin.get("kind") == "measured" else "predicted"
    length = length_text(timeline.length, timeline.unit)
    times = f"length {length}, idle/total {timeline.bubble_fraction:.1%}, idle/ideal {timeline.bubble_overhead:.1%}"
    if stuck := timeline.origin.get("stuck"):  # no step ends, so it has no length and no bubble
        times = f"a deadlock after {length}: {', '.join(_waits(*one) for one in stuck)}"
    return (
        f"{s.name}, {_count(s.ranks, 'rank')}, {_count(len(s.replica_of), 'microbatch')}, {kind}: "
        f"{times}{';' if stuck else ','} activations{one_of(s)} held at most {held}"
    )


def _waits(rank, action, whom):
    other = "itself" if whom == rank else f"rank {whom}" if whom >= 0 else "what no rank makes"
    return f"rank {rank} cannot do {action} and waits for {other}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "es" if thing.endswith("ch") else "s")


def one_of(schedule: "Schedule") -> str:
    """The part that an activation on a rank belongs to, in words: a slice, one of several stages, or "" for the only
    stage.

    >>> import hybridlab as hl
    >>> one_of(hl.Schedule.from_csv("0F0,0B0"))
    ''
    """
    return " of one slice" if schedule.slices > 1 else " of one stage" if schedule.chunks > 1 else ""


def length_text(length: float, unit: str) -> str:
    """A length as text: times have four digits, in milliseconds below ten seconds.

    >>> length_text(1, "units"), length_text(33, "units"), length_text(1.34292, "s"), length_text(10.4227, "s")
    ('1 unit', '33 units', '1343 ms', '10.42 s')
    """
    if unit == "s":
        return f"{1e3 * length:.4g} ms" if length < 9.9995 else f"{length:.4g} s"
    return f"{_number(length)} {unit.removesuffix('s') if length == 1 else unit}"


def _number(value: float) -> str:
    return f"{value:.6g}"
