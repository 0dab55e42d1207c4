"""The command `reshard`: the messages from one layout to another, their picture, and the check on ranks."""

from functools import partial
from typing import Any

from hybridlab.cli import flags
from hybridlab.cli.settings import settings
from hybridlab.core.files import put
from hybridlab.core.where.mesh import Mesh

EXAMPLE = "such as tp=4 or dp=2,tp=2,zero=1"


def reshard(chosen) -> dict:
    """Print the plan; with --check, reshard on real ranks, and compare with one device."""
    from hybridlab.training.reshard import reshard as plan_of

    if chosen.at is not None and not chosen.check:
        raise ValueError("--at has no effect without --check: give both, or leave out --at")
    plan = plan_of(to=_second(chosen.to), **flags.read_learning(chosen))
    print(plan)
    if chosen.svg:
        from hybridlab.show.layouts.passage_matrix import passage_matrix

        put(chosen.svg, passage_matrix(plan).svg)
    pairs = [{"sender": one, "receiver": other, "bytes": size} for (one, other), size in plan.sent.items()]
    found = {"total": plan.total, "bytes": plan.bytes, "there": plan.there, "messages": pairs}
    if not chosen.check:
        return found
    report = plan.check(at=1 if chosen.at is None else chosen.at)
    print(report)
    return found | {"ok": report.ok, "largest_gap": report.largest_gap, "gaps": report.gaps}


def add_flags(one):
    typed = partial(settings, example=EXAMPLE)
    one.flag("--to", type=typed, required=True, metavar="A=N,…", help=f"the second layout, {EXAMPLE}")
    one.flag("--check", action="store_true", help="train on ranks in both layouts, and compare with one device")
    told = "with --check: steps under the first layout (default 1)"
    one.flag("--at", type=int, metavar="N", help=told)
    one.flag("--svg", metavar="FILE", help="write the matrix of senders and receivers")
    flags.add_layout(one)
    flags.add_training(one, dtype="float64")
    flags.add_learning(one, optimizer="adamw")


def _second(typed: dict[str, str]) -> dict[str, Any]:
    """The second layout, as `hl.reshard` takes it: axes make its mesh, the others are arguments.

    raises  ValueError for a value of the wrong kind
    """
    from hybridlab.modes.registry import modes, options

    axes = {axis for mode in modes() for axis in mode.axes} | {"dp", "pp"}
    whole = axes | {"microbatches", "chunks", "batch", "rows", "accumulate", "ahead", "active"}
    kinds = dict.fromkeys(whole, int) | {name: one.kind for name, one in options().items()}
    found = {name: _read(name, value, kinds.get(name, str)) for name, value in typed.items()}
    mesh = {name: value for name, value in found.items() if name in axes}
    rest = {name: value for name, value in found.items() if name not in axes}
    return ({"mesh": Mesh(**mesh)} if mesh else {}) | rest


def _read(name: str, text: str, kind) -> Any:
    if kind is bool:
        kind = {"yes": True, "no": False}.__getitem__
    try:
        return kind(text)
    except (ValueError, KeyError):
        form = {int: "a whole number", float: "a number"}.get(kind, "yes or no")
        raise ValueError(f"--to has {name}={text}, which is not valid: give {name}={form}") from None
