"""The command line: the same verbs as the package. Each command prints for people, and with --json one object last.

Bad arguments end with one sentence that says what to change, and exit code 2; a failing rank with one sentence, and 1.
"""

import argparse
import json
import sys
from pathlib import Path

from hybridlab.core.mesh import Mesh

MODEL_SIZES = ("layers", "width", "heads", "context")
SCHEDULE = {"schedule": "1f1b", "microbatches": 8, "dp": 1}  # what is meant where neither a flag nor a file says it
EXPORTS = {  # what a file holds, and how a timeline is written to it
    "csv": ("write the schedule as text", lambda t, path: t.schedule.to_csv(path)),
    "pytorch": ("write the schedule as PyTorch loads it", lambda t, path: t.schedule.to_pytorch(path)),
    "save": ("save the timeline as JSON", lambda t, path: t.save(path)),
    "chrome": ("write a Chrome trace, for Perfetto", lambda t, path: t.to_chrome(path)),
    "svg": ("write a still picture", lambda t, path: _svg(t, path)),
    "html": ("write a page that holds the live picture", lambda t, path: _html(t, path)),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.stderr.write(f"{self.prog}: {message}; see {self.prog} --help\n")
        sys.exit(2)


def main(arguments=None) -> int:
    """Run one command; returns the exit code."""
    try:
        chosen = _parser().parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code or 0
    try:
        result = chosen.command(chosen)
    except (ValueError, FileNotFoundError) as error:
        sys.stderr.write(f"hybridlab {chosen.name}: {error}\n")
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "cloudpickle", "plotly", "anywidget", "tqdm"):
            raise
        sys.stderr.write(f"hybridlab {chosen.name}: this needs {error.name}, which is not installed: run make setup\n")
        return 2
    except RuntimeError as error:
        if type(error).__name__ != "RankError":
            raise
        sys.stderr.write(f"hybridlab {chosen.name}: {error}\n")
        return 1
    if chosen.json:
        print(json.dumps(result))
    return 0


def _parser():
    parser = _Parser(prog="hybridlab", description="Learn and do hybrid-parallel training.")
    commands = parser.add_subparsers(dest="name", required=True, parser_class=_Parser, metavar="COMMAND")

    def command(name, function, text):
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print one JSON object on the last line")
        one.set_defaults(command=function)
        return one

    command("doctor", doctor, "What this machine has, and what can run on it.")
    one = command("schedule", schedule, "Print a schedule: every rank's list of actions.")
    _schedule_or_file_flags(one)
    one.add_argument("--lower", action="store_true", help="write the messages out")
    _export_flags(one, "csv", "pytorch")
    one = command("simulate", simulate, "Predict the timeline of a schedule.")
    _schedule_or_file_flags(one)
    _cost_flags(one, F=1.0, B=2.0)
    _export_flags(one, "csv", "save", "chrome", "svg", "html")
    one = command("run", run, "Play a schedule on real processes, and compare with its prediction.")
    _schedule_flags(one)
    one.add_argument("--work", default="emulated", choices=("emulated", "model"), help="wait, or compute a real model")
    _cost_flags(one, F=0.02, B=0.04)
    one.add_argument("--jitter", type=float, default=0.0, help="waiting varies by this share (standard deviation)")
    one.add_argument("--steps", type=int, default=3, help="measured steps (default 3); the median one is reported")
    one.add_argument("--save", metavar="FILE", help="save the measured timeline as JSON")
    _training_flags(one)
    one = command("check", check, "Prove that a layout trains as one device does.")
    _mesh_flags(one)
    _training_flags(one, dtype="float64")
    one.add_argument("--steps", type=int, default=3, help="optimizer steps (default 3)")
    one = command("train", train, "Train a small GPT on real text; one JSON object per step with --json.")
    _mesh_flags(one)
    _training_flags(one)
    one.add_argument("--steps", type=int, default=20, help="optimizer steps (default 20)")
    one.add_argument("--optimizer", default="adamw", help="adamw (default) or sgd")
    one.add_argument("--rate", type=float, default=3e-3, help="learning rate (default 0.003)")
    one = command("measure", measure, "Measure this machine, and record it with where it comes from.")
    one.add_argument("--suite", default="cpu", help="cpu (default; a few minutes) or gpu (needs CUDA)")
    one.add_argument("--out", default="results", metavar="FOLDER", help="where the record goes (default results)")
    one = command("demo", demo, "The main job: train three ways, run three schedules, write build/report.html.")
    one.add_argument("--steps", type=int, default=120, help="training steps (default 120)")
    one.add_argument("--data", metavar="FILE", help="text to learn from; default: Python's standard library")
    one.add_argument("--out", default="build/report.html", metavar="FILE", help="where the report goes")
    return parser


def _schedule_flags(one):
    one.add_argument("--schedule", default="1f1b", help="its name (default 1f1b)")
    one.add_argument("--ranks", type=int, help="pipeline ranks (default 4)")
    _mesh_flags(one, schedule=False)


def _schedule_or_file_flags(one):
    _schedule_flags(one)
    one.set_defaults(**dict.fromkeys(SCHEDULE))
    one.add_argument("--from", dest="file", metavar="FILE", help="a schedule of your own, text or JSON; - reads stdin")


def _export_flags(one, *names):
    for name in names:
        one.add_argument(f"--{name}", metavar="FILE", help=EXPORTS[name][0])


def _mesh_flags(one, schedule=True):
    if schedule:
        one.add_argument("--schedule", default="1f1b", help="its name (default 1f1b)")
    one.add_argument("--dp", type=int, default=1, help="data-parallel copies (default 1)")
    one.add_argument("--pp", type=int, help="pipeline ranks")
    one.add_argument("--microbatches", type=int, default=8 if not schedule else 4, help="microbatches of one pipeline")
    one.add_argument("--chunks", type=int, help="stages on each rank, where the schedule leaves the choice")


def _cost_flags(one, F, B):
    one.add_argument("--F", type=float, default=F, help=f"duration of one forward (default {F})")
    one.add_argument("--B", type=float, default=B, help=f"duration of one backward (default {B})")
    one.add_argument("--latency", type=float, default=0.0, help="of one message; for real ones, at least")


def _training_flags(one, dtype="float32"):
    one.add_argument("--batch", type=int, help="sequences in the global batch (default 2 per microbatch)")
    one.add_argument("--dtype", default=dtype, help=f"float32, float64 or bfloat16 (default {dtype})")
    one.add_argument("--data", metavar="FILE", help="text to learn from; default: Python's standard library")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--cut", type=_cut, default="layers", help="layers, parameters, time, or blocks per stage: 3,1")
    one.add_argument("--ahead", type=int, default=0, help="receives posted before their turn (default 0)")
    one.add_argument("--driven", action="store_true", help="no written order: ranks do what has arrived")
    one.add_argument("--clip", type=float, help="the largest norm of the whole gradient")
    one.add_argument("--accumulate", type=int, default=1, help="plays of the schedule for one optimizer step")
    one.add_argument("--tied", action="store_true", help="the head shares the weights of the embedding")
    one.add_argument("--skips", action="store_true", help="a U-shaped model: early blocks feed late ones")
    for size in MODEL_SIZES:
        one.add_argument(f"--{size}", type=int, help=f"of the model: {size}")


def _cut(text: str):
    return [int(part) for part in text.split(",")] if text[:1].isdigit() else text


def _pipeline_ranks(chosen, default=4):
    ranks = getattr(chosen, "ranks", None)
    if ranks is not None and chosen.pp is not None and ranks != chosen.pp:
        raise ValueError(f"--ranks {ranks} and --pp {chosen.pp} both name the pipeline's ranks: give one of them")
    return next((n for n in (ranks, chosen.pp) if n is not None), default)


def _schedule(chosen):
    from hybridlab.schedules.registry import schedule as make

    more = {"chunks": chosen.chunks} if chosen.chunks else {}
    return make(chosen.schedule, ranks=_pipeline_ranks(chosen), microbatches=chosen.microbatches, dp=chosen.dp, **more)


def _schedule_or_file(chosen):
    given = [f"--{name}" for name in ("ranks", "pp", *SCHEDULE) if getattr(chosen, name) is not None]
    if chosen.file is None:
        vars(chosen).update({name: value for name, value in SCHEDULE.items() if f"--{name}" not in given})
        return _schedule(chosen)
    if given:
        raise ValueError(f"--from gives the whole schedule: leave {given[0]} out")
    from hybridlab.core.schedule import Schedule
    from hybridlab.schedules.validate import validate

    return validate(Schedule.load(sys.stdin.buffer if chosen.file == "-" else chosen.file))


def _export(chosen, timeline):
    for name, (_, write) in EXPORTS.items():
        if path := getattr(chosen, name, None):
            try:
                write(timeline, path)
            except OSError as error:
                raise ValueError(f"cannot write {path}: {error.strerror}") from None


def _svg(timeline, path):
    from hybridlab.show.svg import svg

    Path(path).write_text(svg(timeline), encoding="utf-8")


def _html(timeline, path):
    from hybridlab.show.report import report

    report(path, timeline.schedule.name, [("Timeline", timeline.summary, [timeline])])


def _mesh(chosen):
    return Mesh(dp=chosen.dp, pp=_pipeline_ranks(chosen, default=1 if chosen.dp > 1 else 4))


def _training(chosen) -> dict:
    from hybridlab.core.catalog import Shape

    sizes = {size: getattr(chosen, size) for size in MODEL_SIZES if getattr(chosen, size) is not None}
    shape = Shape(**sizes, tied=chosen.tied, skips=chosen.skips)
    names = ("data", "seed", "dtype", "cut", "ahead", "driven", "clip", "accumulate")
    return {"shape": shape} | {name: getattr(chosen, name) for name in names}


def schedule(chosen) -> dict:
    """Print every rank's list of actions."""
    from hybridlab.predict.simulate import simulate
    from hybridlab.schedules.lower import lower

    made = _schedule_or_file(chosen)
    made = lower(made) if chosen.lower else made
    print(made)
    predicted = simulate(made)
    _export(chosen, predicted)
    print(predicted.summary)
    return {
        "name": made.name,
        "program": [[str(a) for a in program] for program in made.program],
        **predicted.metrics(),
    }


def simulate(chosen) -> dict:
    """Predict a timeline."""
    from hybridlab.predict.costs import Costs
    from hybridlab.predict.simulate import simulate as predict

    timeline = predict(_schedule_or_file(chosen), Costs(F=chosen.F, B=chosen.B, latency=chosen.latency))
    print(timeline.summary)
    _export(chosen, timeline)
    return timeline.metrics()


def run(chosen) -> dict:
    """Play a schedule for real, and lay it beside its prediction."""
    from hybridlab.predict.costs import Costs
    from hybridlab.predict.overlay import predicted_for
    from hybridlab.train.run import run as play

    made = _schedule(chosen)
    if chosen.work == "model":
        training = _training(chosen)
        more = {"model": training.pop("shape"), "batch": chosen.batch, **training}
    else:
        more = {"costs": Costs(F=chosen.F, B=chosen.B), "latency": chosen.latency, "jitter": chosen.jitter}
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

    more = {"steps": chosen.steps, "chunks": chosen.chunks, **_training(chosen)}
    report = prove(_mesh(chosen), chosen.schedule, chosen.microbatches, chosen.batch, **more)
    print(report)
    return {"ok": report.ok, "largest_gap": report.largest_gap, "gaps": report.gaps, "bytes": report.bytes}


def train(chosen) -> dict:
    """Train; each step's loss is printed as it comes."""
    from hybridlab.train.run import train as learn

    def tell(rank, event):
        if "loss" in event:
            print(
                json.dumps(event) if chosen.json else f"step {event['step']:4d}  loss {event['loss']:.4f}", flush=True
            )

    more = {"steps": chosen.steps, "optimizer": chosen.optimizer, "rate": chosen.rate, "chunks": chosen.chunks}
    more |= _training(chosen)
    result = learn(_mesh(chosen), chosen.schedule, chosen.microbatches, chosen.batch, on_event=tell, **more)
    return {"losses": result["losses"]}


def doctor(chosen) -> dict:
    """Say what this machine has."""
    from hybridlab.measuring.doctor import doctor as examine

    facts = examine()
    for name, value in facts.items():
        print(f"{name:>22}  {value}")
    return facts


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
