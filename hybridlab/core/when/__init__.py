"""Order and time: schedules, the law that orders them, and timelines, predicted or measured.

Read in this order: `action` (one thing that a rank does), `schedule` (a list of them for every rank), `law` (what each
kind of action consumes and produces) and `flow` (the law applied to a schedule, in numbers). `values` numbers the
values of the law, `lists` are lists of lists without objects, `meetings` are actions that end together, and `lifetimes`
computes how long values are held. `play` executes a schedule in rounds, `inferred` completes one from its lists of
actions, `stated` has the facts that these do not contain, `exchange` reads and writes it as text. `along` has the
values that go from rank to rank, for the norm. `room` is the memory of a device as part of the law, and `journeys` are
the copies to the host and back. A `timeline` has the times of all actions, `timeline_file` saves it, `chrome` writes it
for trace viewers, `lanes` are its rows; `critical_path` and `gap` explain it. `words` puts schedules and timelines into
lines.
"""
