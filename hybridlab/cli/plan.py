"""The command that plans a training run: its flags, its output, and the start of the best plan."""

import math
from dataclasses import replace

FIXED = {"pp": "p", "tp": "t", "dp": "d", "microbatch": "b", "chunks": "v", "x": "x", "owners": "z"}
FIXED |= {"cp": "cp", "ep": "ep"}  # flags, and the sizes of a plan that they fix
BY_NAME = ("recompute", "attend", "dispatch")  # flags of the same name, whose values are names
WIDER = ("grids", "contexts", "experts", "stages")  # what the search takes in beside the usual axes
STARTS = ("megatron", "torchtitan")  # programs for which a plan has lines
MOST_RANKS = 8  # that --run starts on this machine


def plan(chosen) -> dict:
    """Plan a training run that nobody here can afford."""
    from hybridlab.predict.plans.planner import days
    from hybridlab.predict.plans.planner import plan as search

    more = {name: getattr(chosen, name) for name in (*WIDER, "software", "precision")} | _fixed(chosen)
    shape = _shape(chosen)
    machine = _machine(chosen)
    more |= {"fit": _calibrated(chosen, shape, machine)} if chosen.took else {}
    planned = search(shape, machine, chosen.gpus, chosen.batch, **more)
    print(planned)
    answer = {"best": planned.best.facts, "front": [one.facts for one in planned.front], "rejected": planned.rejected}
    if chosen.tokens is not None:
        answer["best"]["days"] = days(planned.best, planned.shape, chosen.batch, chosen.tokens)
        print(f"{chosen.tokens:g} tokens take {answer['best']['days']:.1f} days")
    if chosen.run:
        answer["run"] = _run(planned.best)
        answer["ok"] = answer["run"].get("ok", True)
    if chosen.trace:
        answer["trace"] = _laid(chosen.trace, planned.best)
    if chosen.why:
        answer["why"] = planned.why(**chosen.why)
        print(answer["why"])
    if chosen.start:
        answer["start"] = _lines(chosen, planned)
        print(answer["start"], end="")
    return answer


def _shape(chosen):
    """The model to plan for: of the catalog or of a config, with sequences of its own length or of another one."""
    from hybridlab.core.what.catalog import model
    from hybridlab.predict.launch.imported import imported

    shape, notes = imported(chosen.config) if chosen.config else (model(chosen.model).shape, ())
    for note in notes:
        print(f"note: {note}")
    return shape if chosen.context is None else replace(shape, context=chosen.context)


def _machine(chosen):
    """The machine, with so much memory that the planner uses what may be used, and with the network that is there."""
    from hybridlab.core.what.catalog import machine
    from hybridlab.predict.plans.planner import ROOM

    found = machine(chosen.machine)
    if chosen.memory is not None and not 0 < chosen.memory < math.inf:
        raise ValueError(f"--memory {chosen.memory:g} is no number of bytes: give one such as 72e9")
    memory = {} if chosen.memory is None else {"memory": chosen.memory / ROOM}
    return replace(found, **memory, **_network(chosen, found.node))


def _network(chosen, node) -> dict:
    """What is said of the network; a node of the machine has so many devices."""
    pod, ratio = chosen.pod, chosen.oversubscription
    if pod is not None and pod < node:
        raise ValueError(f"--pod {pod} is less than the {node} devices of one node: a pod is made of whole nodes")
    if ratio is not None and pod is None:
        raise ValueError("--oversubscription is that of links out of a pod: say with --pod how many devices it has")
    if ratio is not None and not 1 <= ratio < math.inf:
        raise ValueError(f"--oversubscription {ratio:g} is no ratio: give 1 or more, such as 7")
    return {name: given for name, given in {"pod": pod, "oversubscription": ratio}.items() if given is not None}


def _calibrated(chosen, shape, machine):
    """What a row of somebody's logs says about their machine."""
    from hybridlab.predict.plans.measured import by_step
    from hybridlab.predict.plans.plan import named

    sizes = dict(chosen.took)
    try:
        seconds, batch = float(sizes.pop("seconds")), int(sizes.pop("batch", chosen.batch))
    except (KeyError, ValueError):
        raise ValueError("--took says no time: name a plan and its seconds, p=4,t=8,d=2,seconds=9.1") from None
    fit = by_step(shape, machine, named(sizes), batch, seconds, chosen.software, chosen.precision)
    print(f"calibrated on that step: a share of {fit.multiply:.2f} of the peak of {chosen.machine}")
    return fit


def _fixed(chosen) -> dict:
    given = {field: getattr(chosen, flag) for flag, field in FIXED.items()}
    given |= {name: getattr(chosen, name) for name in ("zero", "zigzag", "skew", "fused", *BY_NAME)}
    return {field: value for field, value in given.items() if value is not None}


def _run(best) -> dict:
    """The best plan scaled down and checked on real ranks; where even that has too many of them, one rank of it dry."""
    from hybridlab.training.check import check
    from hybridlab.training.dry.dry_run import dry_run

    small = best.scaled()
    if small.plan.devices <= MOST_RANKS:
        report = check(**small.job() | {"dtype": "float64", "optimizer": "sgd"})
        print(f"scaled to {small.plan.devices} ranks on this machine, {small.shape.parameters:,} weights: {small.plan}")
        print(report)
        return {"scaled": small.plan._asdict(), "ok": report.ok, "largest_gap": report.largest_gap}
    print(f"{small.plan.devices} ranks are too many for this machine, even scaled down; one rank of the plan, dry:")
    found = dry_run(**best.job())
    print(found)
    return {"dry_run": found.facts()}


def _laid(files, best) -> dict:
    """The traces of ranks that ran the plan, under its prediction."""
    from hybridlab.predict.launch.traced import laid, traced

    found = laid(best.step, [traced(file) for file in files])
    print(f"{best.plan}\n{found}")
    return found._asdict() | {"gap": found.gap}


def _lines(chosen, planned) -> str:
    """What starts the best plan elsewhere."""
    from hybridlab.predict.launch import lines

    best, shape = planned.best.plan, planned.shape
    if chosen.start == "megatron":
        words = lines.megatron(best, shape, chosen.batch, chosen.precision)
        return lines.slurm(best, planned.machine.node, "pretrain_gpt.py", words)
    words = lines.torchtitan(best, shape, chosen.batch)
    return lines.slurm(best, planned.machine.node, "-m torchtitan.train", words)


# --- its flags --------------------------------------------------------------------------------------------------


def add_flags(one):
    _add_question(one)
    _add_search(one)
    _add_fixed(one)
    _add_answer(one)


def _add_question(one):
    """What is to be trained, and on what."""
    from hybridlab.predict.plans.software import SOFTWARE

    one.flag("--model", default="gpt3-175b", help="its name in the catalog (default gpt3-175b)")
    one.flag("--config", metavar="FILE", help="a Hugging Face config.json, in place of --model")
    one.flag("--machine", default="a100", help="of the catalog: a100 (default), h100, gb200, tpu-v5p, …")
    one.flag("--memory", type=float, help="bytes of a device that may be used, such as 72e9 (default 95%% of all)")
    one.flag("--pod", type=int, help="devices that need no spine to meet (default all)")
    one.flag("--oversubscription", type=float, help="what a pod could send, over what its links out carry")
    one.flag("--gpus", type=int, required=True, help="how many, all of them used")
    one.flag("--batch", type=int, required=True, help="sequences in the global batch")
    one.flag("--context", type=int, help="positions of a sequence, in place of the model's own")
    one.flag("--tokens", type=float, help="of the whole training: says how many days it takes")
    one.flag("--software", default="megatron-2021", help=f"what programs hide: {', '.join(SOFTWARE)}")
    one.flag("--precision", default="bf16", help="of products by weights: bf16 (default), fp8 or fp4")
    one.flag("--took", type=_sizes, metavar="SIZES", help="a step of your logs, p=4,t=8,d=2,seconds=9.1: calibrates")


def _add_search(one):
    """What the search takes in."""
    one.flag("--grids", action="store_true", help="grids too: the width cut along x, weights shared by owners")
    one.flag("--with-cp", action="store_true", dest="contexts", help="sequences cut along their positions too")
    one.flag("--with-ep", action="store_true", dest="experts", help="experts shared out among ranks too")
    one.flag("--uneven", action="store_true", dest="stages", help="stages too of which some have a block more")


def _add_fixed(one):
    """What is decided beforehand."""
    for flag, field in FIXED.items():
        one.flag(f"--{flag}", type=int, help=f"fix {field} of the plan")
    one.flag("--zero", type=int, help="fix ZeRO's stage, 0 to 3")
    one.flag("--recompute", help="fix what is done twice: none, selective or full")
    one.flag("--attend", help="fix how queries meet keys along cp: gather, ring or ulysses")
    one.flag("--zigzag", action="store_true", default=None, help="fix that ranks along cp compute as much")
    one.flag("--dispatch", help="fix how tokens find experts along ep: all_to_all or all_gather")
    one.flag("--skew", type=float, help="Zipf's exponent of how popular experts are; 0: equally (default)")
    one.flag("--fused", action="store_true", default=None, help="attention is one kernel and keeps no scores")


def _add_answer(one):
    """What is done with the best plan."""
    one.flag(
        "--run",
        action="store_true",
        help=f"do the best plan here: two ranks along each axis that it uses and a small model, checked against one "
        f"device; a dry run of its first rank where that is more than {MOST_RANKS} ranks",
    )
    one.flag("--trace", nargs="+", metavar="FILE", help="of torch's profiler, from ranks that ran this plan")
    one.flag("--start", choices=STARTS, help="print the lines that start the best plan there")
    one.flag("--why", type=_sizes, metavar="SIZES", help="why not these? for instance t=16,p=4")


def _sizes(text: str) -> dict:
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    return {name.strip(): int(value) if value.strip().isdigit() else value.strip() for name, value in pairs}
