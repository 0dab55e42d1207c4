"""The commands: the same verbs as the package, each with its flags.

They print text for people, and return the object that --json prints.
"""

import pathlib

from hybridlab.cli import exports, flags, grading, output, plan, plan_flags, reshard


def schedule(chosen) -> dict:
    """Print every rank's list of actions."""
    from hybridlab.predict.time.simulate import simulate
    from hybridlab.scheduling.lower import lower

    made = flags.read_schedule_or_file(chosen)
    made = lower(made) if chosen.lower else made
    print(made)
    predicted = simulate(made)
    exports.write_exports(chosen, predicted)
    print(predicted.summary)
    program = [[str(action) for action in actions] for actions in made.program]
    return {"name": made.name, "program": program, **predicted.metrics()}


def simulate(chosen) -> dict:
    """Predict a timeline."""
    from hybridlab.predict.time.simulate import simulate as predict

    costs = flags.read_costs(chosen, latency=chosen.latency)
    timeline = predict(flags.read_schedule_or_file(chosen), costs)
    print(timeline.summary)
    exports.write_exports(chosen, timeline)
    return timeline.metrics()


def run(chosen) -> dict:
    """Run a schedule on real processes, and compare it with its prediction."""
    from hybridlab.predict.time.overlay import predicted_for
    from hybridlab.training.run import run as play

    made = flags.read_schedule(chosen, flags.ranks_of_a_pipeline(chosen) if chosen.work == "model" else None)
    if chosen.work == "model":
        flags.refuse_of_waits(chosen)
        more = {"batch": chosen.batch, "mesh": flags.read_mesh(chosen), **flags.read_training(chosen)}
        more |= {"slices": chosen.slices, "hang_s": chosen.hang_s}
    else:
        flags.refuse_of_a_model(chosen)
        more = {"costs": flags.read_costs(chosen), "latency": chosen.latency, "jitter": chosen.jitter}
        more |= {"ahead": chosen.ahead, "driven": chosen.driven}
    measured = play(made, work=chosen.work, steps=chosen.steps, **more)
    predicted = predicted_for(measured)
    print(predicted.summary)
    print(measured.summary)
    print(output.of_messages(measured))
    if chosen.save:
        measured.save(chosen.save)
    return {
        "schedule": made.name,
        "work": chosen.work,
        "predicted": predicted.metrics(),
        "measured": measured.metrics(),
        "gap": predicted.gap(measured),
        "same_order": measured.schedule.computing == predicted.schedule.computing == made.computing,
        "origin": measured.origin,
    }


def check(chosen) -> dict:
    """Compare a layout with one device."""
    from hybridlab.training.check import check as prove

    more = flags.read_learning(chosen)
    report = prove(hang_s=chosen.hang_s, **more)
    print(report)
    found = {"ok": report.ok, "largest_gap": report.largest_gap, "gaps": report.gaps, "bytes": report.bytes}
    found |= {"untouched": report.untouched, "unproved": report.unproved, "noisy": report.noisy}
    found |= {"blind": report.blind, "nothing": report.nothing}
    return found | ({"adam": report.adam} if report.adam else {})


def train(chosen) -> dict:
    """Train; each step is printed as it comes."""
    from hybridlab.training.run import train as learn

    def tell(rank, event):
        if "loss" in event or "resumed" in event:
            print(output.as_json(event) if chosen.json else _in_words(event), flush=True)

    more = flags.read_learning(chosen) | flags.read_saving(chosen) | {"on_event": tell}
    result = learn(hang_s=chosen.hang_s, **more)
    whole = result["end"] >= chosen.steps
    if not chosen.json and result["losses"]:  # without a step there are no gradients
        kept = ", ".join(f"{size / 1e6:.2f}" for size in result["memory"])
        print(f"weights, gradients and optimizer state on each rank: {kept} MB")
        if folder := chosen.checkpoint:
            early = "" if whole else f"stopped early ({chosen.steps:,} steps were asked for); "
            print(f"{early}saved after step {result['end']} in {folder}; --resume continues from there")
    return {"losses": result["losses"], "memory": result["memory"], "end": result["end"]} | (
        {} if whole else {"code": output.INTERRUPTED}
    )


def _in_words(event) -> str:
    if "resumed" in event:
        return event["resumed"]
    return f"step {event['step']:4d}  loss {event['loss']:.4f}  {event['tokens_per_second']:,.0f} tokens/s"


def dry_run(chosen) -> dict:
    """Run one rank of a job without its arithmetic."""
    from hybridlab.training.dry.dry_run import dry_run as play

    more = flags.read_learning(chosen) | {name: getattr(chosen, name) for name in ("rank", "machine", "memory")}
    found = play(**more)
    print(found)
    return found.facts() | {"ok": found.fits}


def doctor(chosen) -> dict:
    """Print the facts about this machine."""
    from hybridlab.measuring.doctor import doctor as examine

    facts = examine()
    for name, value in facts.items():
        print(f"{name:>22}  {value}")
    return facts


def measure(chosen) -> dict:
    """Measure, row by row, and keep the record."""
    from hybridlab.measuring.record import measure as record
    from hybridlab.measuring.row import in_words

    told = output.as_json if chosen.json and chosen.only else in_words  # `make gpu` reads which notebook is done
    show = lambda row: print(told(row), flush=True)
    found, file = record(chosen.suite, chosen.out, show, tuple(chosen.only), chosen.jobs)
    print(f"recorded in {file}, after {found['took']:.0f} s")
    return found | {"file": str(file)} | (_described(found, file) if chosen.suite == "machine" else {})


def _described(record, file) -> dict:
    """Write the file that describes the measured machine to `plan`."""
    from hybridlab.core.files import put
    from hybridlab.measuring.machine_suite import described

    file = file.with_suffix(".toml")
    text = described(record)
    put(file, text)
    print(f"{text}for hl.plan and `plan --machine {file}`")
    return {"described": str(file)}


def demo(chosen) -> dict:
    """Run the main job."""
    from hybridlab.labs.demo import demo as show

    return show(steps=chosen.steps, data=chosen.data, out=chosen.out)


def notebooks(chosen) -> dict:
    """Copy the course."""
    from hybridlab.labs import copies

    taken = copies.take(pathlib.Path(chosen.folder))
    print(copies.told(taken, chosen.folder))
    return {"folder": chosen.folder, "notebooks": taken}


# --- the flags of each command ----------------------------------------------------------------------------------


def _schedule_flags(one):
    flags.add_schedule_or_file(one)
    one.flag("--lower", action="store_true", help="also list the messages")
    exports.add_exports(one, "csv", "pytorch")


def _simulate_flags(one):
    flags.add_schedule_or_file(one)
    flags.add_costs(one, F=1.0, B=2.0, unit="units of time", latency="duration of one message (default 0)")
    exports.add_exports(one, "csv", "save", "chrome", "svg", "html")


def _run_flags(one):
    flags.add_schedule(one, stages=f"4; with --work model {flags.OR_ONE}")
    told = "emulated: wait as long as the work would take (default); model: compute a real model"
    one.flag("--work", default="emulated", choices=("emulated", "model"), help=told)
    latency = "seconds added to each message; a real message may take longer (default 0)"
    flags.add_costs(one, F=0.02, B=0.04, unit="seconds", latency=latency)
    told = "relative standard deviation of the emulated times, such as 0.1 (default 0)"
    one.flag("--jitter", type=float, default=0.0, metavar="X", help=told)
    one.flag("--steps", type=int, default=3, metavar="N", help="measured steps (default 3); the median is reported")
    one.flag("--save", metavar="FILE", help="save the measured timeline as JSON")
    flags.add_training(one)
    flags.add_patience(one)


def _check_flags(one):
    flags.add_layout(one)
    flags.add_training(one, dtype="float64")
    flags.add_learning(one)
    flags.add_patience(one)


def _train_flags(one):
    from hybridlab.training.run import LEARNING

    flags.add_layout(one)
    flags.add_training(one)
    flags.add_learning(one, **LEARNING)
    flags.add_saving(one)
    flags.add_patience(one)


def _dry_run_flags(one):
    from hybridlab.core.what.catalog import MACHINES
    from hybridlab.training.dry.dry_run import AS_ON_GPUS

    one.flag("--rank", type=int, default=0, metavar="N", help="which rank of the mesh, counted from 0 (default 0)")
    one.flag(
        "--machine",
        default="a100",
        metavar="NAME",
        help=f"accelerator (default a100): {', '.join(MACHINES)}, or a TOML file",
    )
    one.flag(
        "--memory",
        type=float,
        metavar="X",
        help="memory of one device in bytes, such as 40e9, instead of the machine's",
    )
    flags.add_layout(one)
    flags.add_training(one, dtype=AS_ON_GPUS["dtype"])
    flags.add_learning(one, steps=1, optimizer=AS_ON_GPUS["optimizer"])


def _measure_flags(one):
    one.flag(
        "--suite",
        metavar="NAME",
        default="cpu",
        help="what to measure: cpu (default), gpu (needs CUDA), machine (for plan --machine) or course (the notebooks)",
    )
    one.flag("--out", default="results", metavar="FOLDER", help="folder for the record (default results)")
    one.flag(
        "--only",
        nargs="+",
        default=(),
        metavar="NOTEBOOK",
        help="with --suite course: run only these, and add them to its record",
    )
    one.flag("--jobs", type=int, metavar="N", default=1, help="notebooks to run at the same time (default 1)")


def _demo_flags(one):
    one.flag("--steps", type=int, metavar="N", default=120, help="training steps (default 120)")
    one.flag("--data", metavar="FILE", help="text file to train on (default: the text of the course)")
    one.flag(
        "--out", default="build/report.html", metavar="FILE", help="file for the report (default build/report.html)"
    )


def _notebooks_flags(one):
    one.flag("folder", nargs="?", default="mine", metavar="FOLDER", help="folder for your copies (default mine)")


ON_RANKS = {  # modules that the ranks of these commands import
    "run": "hybridlab.training.run",
    "check": "hybridlab.training.check",
    "train": "hybridlab.training.run",
    "reshard": "hybridlab.training.reshard",
}
COMMANDS = {  # {name of a command: its description in a line, and its flags}
    "doctor": (doctor, "Report what this machine has, and what can run on it.", lambda one: None),
    "schedule": (schedule, "Print a schedule: the list of actions of every rank.", _schedule_flags),
    "simulate": (simulate, "Predict the timeline of a schedule.", _simulate_flags),
    "run": (
        run,
        "Run a schedule on real processes, and compare the measured timeline with the prediction.",
        _run_flags,
    ),
    "check": (
        check,
        "Check that training under a layout gives exactly the results of one device, and sends the predicted bytes.",
        _check_flags,
    ),
    "train": (
        train,
        "Train a model (by default a small GPT on real text) under any layout, with checkpoints.",
        _train_flags,
    ),
    "reshard": (
        reshard.reshard,
        "List the messages that move a training run from one layout to another in memory, and check them on ranks.",
        reshard.add_flags,
    ),
    "dry-run": (
        dry_run,
        "Simulate one rank of a large job: its memory over time, its messages, and whether it fits.",
        _dry_run_flags,
    ),
    "plan": (
        plan.plan,
        "Sort all legal plans for a model on a cluster by predicted time, and explain the best one.",
        plan_flags.add_flags,
    ),
    "measure": (measure, "Measure this machine, and save a record with machine, date and command.", _measure_flags),
    "demo": (demo, "Train one model in three ways, run three schedules, and write build/report.html.", _demo_flags),
    "notebooks": (
        notebooks,
        "Copy the course into your own folder; no update overwrites your work.",
        _notebooks_flags,
    ),
    "grade": (
        grading.grade,
        "Grade a folder of submissions, each in its own process, and print a table of students and tasks.",
        grading.add_flags,
    ),
}
