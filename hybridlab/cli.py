"""The command line: the same verbs as the package. Each command prints for people, and with --json one object last.

Bad arguments end with one sentence that says what to change, and exit code 2; a failing rank with one sentence, and 1;
so does a check that finds ranks not equal to one device.
"""

import sys

from hybridlab import flags, output

INTERRUPTED = 130  # as shells say it


@output.to_the_end
def main(arguments=None) -> int:
    """Run one command; returns the exit code."""
    try:
        typed = sys.argv[1:] if arguments is None else arguments
        chosen = _parser(typed).parse_args(typed)
    except SystemExit as leaving:
        return leaving.code or 0
    try:
        flags.open_exports(chosen)
        result = chosen.command(chosen)
    except (ValueError, FileNotFoundError) as error:
        sys.stderr.write(f"hybridlab {chosen.name}: {error}\n")
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "cloudpickle", "safetensors", "plotly", "anywidget", "tqdm"):
            raise
        sys.stderr.write(f"hybridlab {chosen.name}: this needs {error.name}, which is not installed: run make setup\n")
        return 2
    except RuntimeError as error:
        if type(error).__name__ != "RankError":
            raise
        sys.stderr.write(f"hybridlab {chosen.name}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"hybridlab {chosen.name}: interrupted\n")
        return INTERRUPTED
    if chosen.json:
        print(output.as_json(result))
    return 0 if result.get("ok", True) else 1


def _parser(arguments):
    """The parser of all commands; flags are those of the command that was typed, because some of them need torch."""
    parser = flags.Parser(prog="hybridlab", description="Learn and do hybrid-parallel training.")
    commands = parser.add_subparsers(dest="name", required=True, parser_class=flags.Parser, metavar="COMMAND")
    for name, (function, text, add) in COMMANDS.items():
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument(
            "--json", action="store_true", help=f"print one JSON object on the last line; {output.NUMBERS}"
        )
        one.set_defaults(command=function)
        if name in arguments[:1]:
            add(one)
    return parser


def schedule(chosen) -> dict:
    """Print every rank's list of actions."""
    from hybridlab.predict.time.simulate import simulate
    from hybridlab.schedules.lower import lower

    made = flags.read_schedule_or_file(chosen)
    made = lower(made) if chosen.lower else made
    print(made)
    predicted = simulate(made)
    flags.write_exports(chosen, predicted)
    print(predicted.summary)
    return {
        "name": made.name,
        "program": [[str(a) for a in program] for program in made.program],
        **predicted.metrics(),
    }


def simulate(chosen) -> dict:
    """Predict a timeline."""
    from hybridlab.predict.time.simulate import simulate as predict

    costs = flags.read_costs(chosen, latency=chosen.latency)
    timeline = predict(flags.read_schedule_or_file(chosen), costs)
    print(timeline.summary)
    flags.write_exports(chosen, timeline)
    return timeline.metrics()


def run(chosen) -> dict:
    """Play a schedule for real, and lay it beside its prediction."""
    from hybridlab.predict.time.overlay import predicted_for
    from hybridlab.train.run import run as play

    made = flags.read_schedule(chosen)
    if chosen.work == "model":
        more = {"batch": chosen.batch, "mesh": flags.read_mesh(chosen), **flags.read_training(chosen)}
    else:
        more = {"costs": flags.read_costs(chosen), "latency": chosen.latency, "jitter": chosen.jitter}
        more |= {"ahead": chosen.ahead, "driven": chosen.driven}
    measured = play(made, work=chosen.work, steps=chosen.steps, **more)
    predicted = predicted_for(measured)
    print(predicted.summary)
    print(measured.summary)
    print(f"one message takes {measured.origin['latency'] * 1e6:.0f} µs here")
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
    from hybridlab.train.check import check as prove

    more = flags.read_learning(chosen)
    report = prove(flags.read_mesh(chosen), chosen.schedule, chosen.microbatches, chosen.batch, **more)
    print(report)
    found = {"ok": report.ok, "largest_gap": report.largest_gap, "gaps": report.gaps, "bytes": report.bytes}
    found |= {"untouched": report.untouched}
    return found | ({"adam": report.adam, "excepted": report.excepted} if report.adam else {})


def train(chosen) -> dict:
    """Train; each step is printed as it comes."""
    from hybridlab.train.run import train as learn

    def tell(rank, event):
        if "loss" in event:
            print(output.as_json(event) if chosen.json else _step_in_words(event), flush=True)

    more = flags.read_learning(chosen) | flags.read_saving(chosen) | {"on_event": tell}
    result = learn(flags.read_mesh(chosen), chosen.schedule, chosen.microbatches, chosen.batch, **more)
    if not chosen.json:
        kept = ", ".join(f"{size / 1e6:.2f}" for size in result["memory"])
        print(f"weights, gradients and optimizer state on each rank: {kept} MB")
        if folder := chosen.checkpoint:
            print(f"saved after step {result['end']} in {folder}; --resume goes on from there")
    return {"losses": result["losses"], "memory": result["memory"], "end": result["end"]}


def _step_in_words(event) -> str:
    return f"step {event['step']:4d}  loss {event['loss']:.4f}  {event['tokens_per_second']:,.0f} tokens/s"


def dry_run(chosen) -> dict:
    """Play one rank of a job without its arithmetic."""
    from hybridlab.train.dry.dry_run import dry_run as play

    more = flags.read_learning(chosen) | {name: getattr(chosen, name) for name in ("rank", "machine", "memory")}
    found = play(flags.read_mesh(chosen), chosen.schedule, chosen.microbatches, chosen.batch, **more)
    print(found)
    return found.facts()


def doctor(chosen) -> dict:
    """Say what this machine has."""
    from hybridlab.measuring.doctor import doctor as examine

    facts = examine()
    for name, value in facts.items():
        print(f"{name:>22}  {value}")
    return facts


def plan(chosen) -> dict:
    """Plan a training run that nobody here can afford."""
    from hybridlab.predict.plans.planner import days
    from hybridlab.predict.plans.planner import plan as search

    more = {name: getattr(chosen, name) for name in ("grids", "contexts", "experts", "stages")} | flags.read_plan(
        chosen
    )
    more |= {"software": chosen.software, "precision": chosen.precision}
    planned = search(flags.read_planned(chosen), chosen.machine, chosen.gpus, chosen.batch, **more)
    print(f"{len(planned.seconds)} legal plans, {int(planned.fits.sum())} of them fit; the quickest:")
    for one in planned.top(5):
        print(f"  {one}")
    print(f"Predictions err by {planned.error}: the first {len(planned.ties)} are as good as equal")
    answer = {"best": planned.best.facts, "front": [one.facts for one in planned.front], "rejected": planned.rejected}
    if chosen.tokens is not None:
        answer["best"]["days"] = days(planned.best, planned.shape, chosen.batch, chosen.tokens)
        print(f"{chosen.tokens:g} tokens take {answer['best']['days']:.1f} days")
    if chosen.run:
        answer["run"] = _planned_run(planned.best)
        answer["ok"] = answer["run"].get("ok", True)
    if chosen.why:
        answer["why"] = planned.why(**chosen.why)
        print(answer["why"])
    if chosen.start:
        answer["start"] = _started(chosen, planned)
        print(answer["start"], end="")
    return answer


def _planned_run(best) -> dict:
    """The best plan scaled down and checked on real ranks; where even that has too many of them, one rank of it dry."""
    from hybridlab.train.check import check as prove
    from hybridlab.train.dry.dry_run import dry_run as play

    small = best.scaled()
    if small.plan.devices <= flags.MOST_RANKS:
        report = prove(**small.job() | {"dtype": "float64", "optimizer": "sgd"})
        print(f"scaled to {small.plan.devices} ranks on this machine, {small.shape.parameters:,} weights: {small.plan}")
        print(report)
        return {"scaled": small.plan._asdict(), "ok": report.ok, "largest_gap": report.largest_gap}
    print(f"{small.plan.devices} ranks are too many for this machine, even scaled down; one rank of the plan, dry:")
    found = play(**best.job())
    print(found)
    return {"dry_run": found.facts()}


def _started(chosen, planned) -> str:
    from hybridlab.predict.launch import lines

    best, shape = planned.best.plan, planned.shape
    if chosen.start == "megatron":
        words = lines.megatron(best, shape, chosen.batch, chosen.precision)
        return lines.slurm(best, planned.machine.node, "pretrain_gpt.py", words)
    words = lines.torchtitan(best, shape, chosen.batch)
    return lines.slurm(best, planned.machine.node, "-m torchtitan.train", words)


def measure(chosen) -> dict:
    """Measure, row by row, and keep the record."""
    from hybridlab.measuring.record import in_words
    from hybridlab.measuring.record import measure as record

    found, file = record(chosen.suite, chosen.out, on_row=lambda row: print(in_words(row), flush=True))
    print(f"recorded in {file}, after {found['took']:.0f} s")
    return found | {"file": str(file)}


def demo(chosen) -> dict:
    """Run the main job."""
    from hybridlab.labs.demo import demo as show

    return show(steps=chosen.steps, data=chosen.data, out=chosen.out)


def grade(chosen) -> dict:
    """Check the submissions of a folder again; told on stderr as they come, then the table."""
    from hybridlab.labs.exercises import grade as grading

    def tell(row):
        print(f"{row.file}: {row.problem or f'{row.right} right'}", file=sys.stderr, flush=True)

    rows = grading.grade(chosen.folder, chosen.seconds, tell)
    print(grading.table(rows))
    print(f"\n{grading.note(rows)}")
    return grading.as_json(rows)


# --- the flags of each command ----------------------------------------------------------------------------------


def _schedule_flags(one):
    flags.add_schedule_or_file(one)
    one.add_argument("--lower", action="store_true", help="write the messages out")
    flags.add_exports(one, "csv", "pytorch")


def _simulate_flags(one):
    flags.add_schedule_or_file(one)
    flags.add_costs(one, F=1.0, B=2.0)
    flags.add_exports(one, "csv", "save", "chrome", "svg", "html")


def _run_flags(one):
    flags.add_schedule(one)
    one.add_argument("--work", default="emulated", choices=("emulated", "model"), help="wait, or compute a real model")
    flags.add_costs(one, F=0.02, B=0.04)
    one.add_argument("--jitter", type=float, default=0.0, help="waiting varies by this share (standard deviation)")
    one.add_argument("--steps", type=int, default=3, help="measured steps (default 3); the median one is reported")
    one.add_argument("--save", metavar="FILE", help="save the measured timeline as JSON")
    flags.add_training(one)


def _check_flags(one):
    flags.add_layout(one)
    flags.add_training(one, dtype="float64")
    flags.add_learning(one, steps=3, optimizer="sgd", rate=0.1)


def _train_flags(one):
    from hybridlab.train.run import LEARNING

    flags.add_layout(one)
    flags.add_training(one)
    flags.add_learning(one, **LEARNING)
    flags.add_saving(one)


def _dry_run_flags(one):
    from hybridlab.train.dry.dry_run import AS_ON_GPUS

    one.add_argument("--rank", type=int, default=0, help="of all ranks of the mesh, counted from 0 (default 0)")
    one.add_argument("--machine", default="a100", help="v100, a100 (default), h100 or h200")
    one.add_argument("--memory", type=float, help="bytes of a device, such as 40e9, in place of the machine's")
    flags.add_layout(one)
    flags.add_training(one, dtype=AS_ON_GPUS["dtype"])
    flags.add_learning(one, steps=1, optimizer=AS_ON_GPUS["optimizer"], rate=0.1)


def _measure_flags(one):
    one.add_argument("--suite", default="cpu", help="cpu (default), gpu (needs CUDA), course (the notebooks)")
    one.add_argument("--out", default="results", metavar="FOLDER", help="where the record goes (default results)")


def _demo_flags(one):
    one.add_argument("--steps", type=int, default=120, help="training steps (default 120)")
    one.add_argument("--data", metavar="FILE", help="text to learn from; default: Python's standard library")
    one.add_argument("--out", default="build/report.html", metavar="FILE", help="where the report goes")


def _grade_flags(one):
    one.add_argument("folder", metavar="FOLDER", help="where the files lie that students wrote with labs.export")
    one.add_argument("--seconds", type=float, default=300.0, help="for one submission at most (default 300)")


COMMANDS = {  # by name: what it does, in a line, and its flags
    "doctor": (doctor, "What this machine has, and what can run on it.", lambda one: None),
    "schedule": (schedule, "Print a schedule: every rank's list of actions.", _schedule_flags),
    "simulate": (simulate, "Predict the timeline of a schedule.", _simulate_flags),
    "run": (run, "Play a schedule on real processes, and compare with its prediction.", _run_flags),
    "check": (check, "Prove that a layout trains as one device does.", _check_flags),
    "train": (
        train,
        "Train a model, by default a small GPT on real text; with --json an object per step.",
        _train_flags,
    ),
    "dry-run": (
        dry_run,
        "One rank of any job without its arithmetic: memory over time, every message, and whether it fits.",
        _dry_run_flags,
    ),
    "plan": (
        plan,
        "Every legal way to train a model on so many GPUs, the quickest that fits, and why.",
        flags.add_plan,
    ),
    "measure": (measure, "Measure this machine, and record it with where it comes from.", _measure_flags),
    "demo": (demo, "The main job: train three ways, run three schedules, write build/report.html.", _demo_flags),
    "grade": (grade, "Check submissions again, each in a process of its own: a table student × task.", _grade_flags),
}
