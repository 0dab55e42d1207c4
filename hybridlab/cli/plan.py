"""The command that plans a training run: its output, and the start of the best plan. `plan_flags` has its flags."""

import math
from dataclasses import replace

from hybridlab.cli.output import waiting
from hybridlab.cli.plan_flags import FIXED, MOST_RANKS

PLAIN = ("zero", "ulysses", "zigzag", "fold", "skew", "fused", "spread_head", "two_levels", "secondary", "further",
         "sync_every", "fragments", "sync_delay", "overlap", "directions")  # of the same name  # fmt: skip
BY_NAME = ("recompute", "attend", "dispatch", "optimizer")  # flags of the same name, whose values are names
WIDER = ("grids", "contexts", "experts", "stages")  # axes that the search includes only on request
ASSUMED = ("software", "precision", "schedule", "sums")


def plan(chosen) -> dict:
    """Plan a training run for machines that you do not have."""
    from hybridlab.predict.plans.link_needed import link_needed
    from hybridlab.predict.plans.planner import plan as search

    _refuse_early(chosen)
    traces = _read(chosen.trace or ())
    more = {name: getattr(chosen, name) for name in (*WIDER, *ASSUMED)} | _fixed(chosen)
    shape = _shape(chosen)
    machine = _machine(chosen)
    more |= {"fit": _calibrated(chosen, shape, machine, more)} if chosen.took else {}
    with waiting("predicting all plans"):
        planned = search(shape, machine, chosen.gpus, chosen.batch, **more)
    print(planned)
    answer = {"best": planned.best.facts, "front": [one.facts for one in planned.front], "rejected": planned.rejected}
    if planned.best.plan.sync_every:
        answer["best"]["link_needed_gb_per_second"] = link_needed(planned) / 1e9
    if chosen.tokens is not None:
        answer["best"] |= _training(chosen, planned)
    if chosen.run:
        answer["run"] = _run(planned.best)
        answer["ok"] = answer["run"].get("ok", True)
    if chosen.trace:
        answer["trace"] = _laid(traces, planned.best)
    if chosen.why:
        answer["why"] = planned.why(**chosen.why)
        print(answer["why"])
    if chosen.what_if:
        found = planned.what_if(**chosen.what_if)
        answer["what_if"] = {"plan": found.after.facts, "changed": found.changed}
        print(found)
    if chosen.start:
        answer["start"] = _lines(chosen, planned)
        print(answer["start"], end="")
    return answer


def _refuse_early(chosen):
    """Raise ValueError for an impossible question about the best plan, before the search for it."""
    from hybridlab.predict.plans.ranges import refuse_question, refuse_tokens

    _refuse_price(chosen)
    if chosen.tokens is not None:
        refuse_tokens(chosen.tokens)
    for sizes in filter(None, (chosen.why, chosen.what_if)):
        refuse_question(sizes)


def _refuse_price(chosen):
    if chosen.price is None:
        return
    if chosen.tokens is None:
        raise ValueError("--price is for a whole training run: give --tokens with it, such as --tokens 1e12")
    if not 0 <= chosen.price < math.inf:
        raise ValueError(f"--price {chosen.price:g} is not a price: give 0 or more for one GPU-hour, such as 2.5")


def _training(chosen, planned) -> dict:
    """The days and the GPU-hours of the training, and with a price its cost; all are as uncertain as the time of a
    step.
    """
    from hybridlab.predict.plans.choice import days

    took = days(planned.best, planned.shape, chosen.batch, chosen.tokens)
    hours = 24 * took * planned.devices
    found, priced = {"days": took, "gpu_hours": hours}, ""
    if chosen.price is not None:
        found["cost"] = chosen.price * hours
        priced = f", which cost {found['cost']:,.0f} at {chosen.price:g} each"
    print(f"{chosen.tokens:g} tokens take {took:.1f} days and {hours:,.0f} GPU-hours{priced} ({planned.error})")
    return found


def _shape(chosen):
    """The model to plan for: from the catalog or from a config, with its own context length or another one."""
    from hybridlab.core.what.catalog import model
    from hybridlab.predict.launch.imported import imported

    shape, notes = imported(chosen.config) if chosen.config else (model(chosen.model).shape, ())
    if chosen.config and chosen.context is None:
        longest = f"sequences of {shape.context:,} tokens, the longest that the config allows"
        notes += (f"{longest}: give --context with the length of training",)
    for note in notes:
        print(f"note: {note}")
    return shape if chosen.context is None else replace(shape, context=chosen.context)


def _machine(chosen):
    """The machine, with its usable memory and its network."""
    from hybridlab.core.what.machines import machine_of
    from hybridlab.predict.plans.footprint import ROOM

    found = machine_of(chosen.machine)
    if chosen.memory is not None and not 0 < chosen.memory < math.inf:
        raise ValueError(f"--memory {chosen.memory:g} is not a number of bytes: give one above 0, such as 72e9")
    memory = {} if chosen.memory is None else {"memory": chosen.memory / ROOM}
    return replace(found, **memory, **_network(chosen, found.node))


def _network(chosen, node) -> dict:
    """The given values of the network; `node` is the number of devices in a node of the machine."""
    pod, ratio = chosen.pod, chosen.oversubscription
    if pod is not None and (pod < node or pod % node):
        raise ValueError(f"--pod {pod} does not hold whole nodes of {node} devices: give a multiple of {node}")
    if ratio is not None and pod is None:
        raise ValueError(
            "--oversubscription describes the links out of a pod: give the number of devices in a pod with --pod"
        )
    if ratio is not None and not 1 <= ratio < math.inf:
        raise ValueError(f"--oversubscription {ratio:g} is not a valid ratio: give 1 or more, such as 7")
    return {name: given for name, given in {"pod": pod, "oversubscription": ratio}.items() if given is not None}


def _calibrated(chosen, shape, machine, fixed):
    """The speed of a machine from a row of the user's logs, which ran under the conditions that are fixed."""
    from hybridlab.predict.plans.given import summed
    from hybridlab.predict.plans.measured import by_step
    from hybridlab.predict.plans.plan import CONDITIONS, named
    from hybridlab.predict.plans.usual import usual

    conditions = summed(chosen.sums, shape, {name: fixed[name] for name in CONDITIONS if name in fixed})
    sizes = {"fused": usual(machine).fused} | conditions | dict(chosen.took)
    try:
        seconds, batch = float(sizes.pop("seconds")), int(sizes.pop("batch", chosen.batch))
    except (KeyError, ValueError):
        raise ValueError("--took has no time: give a plan and its seconds, such as p=4,t=8,d=2,seconds=9.1") from None
    fit = by_step(shape, machine, named(sizes), batch, seconds, chosen.software, chosen.precision)
    print(f"calibrated on that step: GEMMs reach {fit.multiply:.3g} of the peak of {chosen.machine}")
    return fit


def _fixed(chosen) -> dict:
    given = {field: getattr(chosen, flag) for flag, field in FIXED.items()}
    given |= {name: getattr(chosen, name) for name in (*PLAIN, *BY_NAME)}
    given |= {"n": None if chosen.slices is True else chosen.slices}
    return {field: value for field, value in given.items() if value is not None} | {"slices": chosen.slices is not None}


def _run(best) -> dict:
    """The best plan, scaled down and checked on real ranks; if it still has too many ranks, a dry run of one of
    them."""
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


def _read(files) -> list:
    """The traces of ranks that ran the plan, read before the search: a file that is missing costs no time."""
    from hybridlab.predict.launch.traced import traced

    return [traced(file) for file in files]


def _laid(traces, best) -> dict:
    """These traces, compared with the prediction."""
    from hybridlab.predict.launch.traced import laid

    found = laid(best.step, traces)
    print(f"{best.plan}\n{found}")
    return found._asdict() | {"gap": found.gap}


def _lines(chosen, planned) -> str:
    """The command that starts the best plan in another program."""
    from hybridlab.predict.launch import lines

    best, shape = planned.best.plan, planned.shape
    if chosen.start == "megatron":
        words = lines.megatron(best, shape, chosen.batch, chosen.precision)
        return lines.slurm(best, planned.machine.node, "pretrain_gpt.py", words)
    words = lines.torchtitan(best, shape, chosen.batch)
    return lines.slurm(best, planned.machine.node, "-m torchtitan.train", words)
