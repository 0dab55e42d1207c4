"""Reasons: why a plan loses, in one sentence that names the number that decides."""

from hybridlab.predict.plans.plan import check_plan, named

WORDS = {  # each term of a step in words
    "multiply": "matrix products",
    "pointwise": "work between the matrix products",
    "tensor": "tp all-reduces",
    "launch": "kernel launches",
    "head": "scores on the last stage",
    "messages": "messages between stages",
    "bubble": "filling and emptying the pipeline",
    "data": "the sum of gradients over copies",
    "optimizer": "the optimizer",
}


def reason(planned, sizes: dict) -> str:
    """The sentence about the best plan with these sizes, among all those of a `planner.Planned`."""
    asked, mine = ", ".join(f"{name}={value}" for name, value in sizes.items()), planned.only(**sizes)
    if not len(mine.space.p):
        return _unlawful(planned, sizes, asked)
    if not mine.fits.any():
        one = mine.choice(mine.space.one(int(mine.bytes.argmin())))
        return (
            f"{asked} does not fit: at least {one.memory.total / 1e9:.0f} GB on one device, most of it "
            f"{one.memory.most}, and {planned.room / 1e9:.0f} of {planned.machine.memory / 1e9:.0f} GB may be used"
        )
    one, best = mine.best, planned.best
    if one.plan == best.plan:
        return f"{asked} is the best: {one}"
    return f"{asked} {_slower(one, best)}; {_leaving(one, best, planned.machine.node, sizes)}{_term(one, best)}"


def _slower(one, best) -> str:
    share = one.step.total / best.step.total - 1
    return f"is {share:.0%} slower" if share >= 0.005 else f"is slower by {share:.2%}"


def _grown(one, best) -> str:
    """The term that takes most time more than in the best plan."""
    more = {name: mine - its for name, mine, its in zip(one.step._fields, one.step, best.step)}
    return max(more, key=more.get)


def _leaving(one, best, node: int, sizes: dict) -> str:
    """That tensor groups leave their node, where their sums decide; with t, where nobody asked for it."""
    if _grown(one, best) != "tensor" or one.plan.t <= node:
        return ""
    who = "its tensor groups leave" if "t" in sizes else f"its best plan has t={one.plan.t}, which leaves"
    return f"{who} the node of {node}: "


def _term(one, best) -> str:
    """What takes more time than in the best plan."""
    term = _grown(one, best)
    return (
        f"{WORDS[term]} {getattr(one.step, term):.2f} s of {one.step.total:.2f} s, in the best plan "
        f"{getattr(best.step, term):.2f} s of {best.step.total:.2f} s"
    )


def _unlawful(planned, sizes: dict, asked: str) -> str:
    """Why no plan has these sizes: the number that must divide."""
    whole = {name: sizes.get(name) for name in ("p", "t", "d")}
    given = [size for size in whole.values() if size is not None]
    rest = planned.devices
    for size in given:
        if rest % size:
            return f"{asked} is impossible: p·t·d must be {planned.devices}"
        rest //= size
    if None not in whole.values() and rest > 1:
        return f"{asked} is impossible: p·t·d must be {planned.devices}"
    one = named(sizes)
    if len(given) == 2:
        one = one._replace(**{name: rest for name, size in whole.items() if size is None})
    try:
        check_plan(one, planned.shape, planned.batch)
    except ValueError as error:
        return f"{asked} is impossible: {error}"
    return f"{asked} is impossible: no legal plan for {planned.devices} devices has these sizes"
