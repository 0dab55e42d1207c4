"""The pictures of notebook 22: the memory and traffic of each rank under a plan; all stages side by side."""

import ipywidgets

from hybridlab.labs.zero.on_ranks import RANKS
from hybridlab.labs.zero.plan import MODELS, POLICIES, Plan, carried, kept
from hybridlab.show.layouts.memory_bars import Column, memory_bars, size
from hybridlab.show.live.chooser import below_each_other, beside
from hybridlab.show.paper.still import Still

STAGES = {0: "0 nothing", 1: "1 optimizer state", 2: "2 and gradients", 3: "3 and weights"}
CHOICES, ACTIVE = (2, 4, 8, 16, 64), 2  # numbers of ranks; units gathered at a time


def bars(plan: Plan) -> Still:
    """The state that every rank keeps between two steps under a plan, and the bytes that it sends in a step."""
    layout, policy = plan.layout, plan.policy
    whole = ACTIVE * plan.unit if layout.params[0].rest == 3 else 0
    shares = [layout.share_number("all", rank) for rank in range(plan.ranks)]
    below = [f"shard {share}" if layout.params[0].owners > 1 else "all" for share in shares]
    own = [kept(plan, rank) for rank in range(plan.ranks)]
    columns = [Column(f"rank {rank}", *each, whole) for rank, each in enumerate(zip(own, below))]
    sends = carried(layout, plan.widths)
    title = f"{plan.model}, {policy}, {plan.ranks} ranks: ZeRO stage {plan.stage}, {_owners(plan)}"
    return memory_bars(columns, _full(plan), sends, _most(plan), title, told(plan))


def told(plan: Plan) -> str:
    """A plan in one line of words.

    >>> told(Plan(ranks=8, stage=1, owners=8))
    'A rank keeps 41.2 GB: weights 15 GB, gradients 15 GB, optimizer state 11.2 GB; it sends 26.2 GB in a step'
    """
    own, sends = kept(plan), sum(one.bytes for one in carried(plan.layout, plan.widths))
    parts = (("weights", "value"), ("gradients", "gradient"), ("optimizer state", "optimizer"))
    said = ", ".join(f"{name} {size(own[what])}" for name, what in parts)
    units = f"at most {ACTIVE} of {MODELS[plan.model].units} units are gathered at a time"
    more = f"; {units}: {size(ACTIVE * plan.unit)} more"
    shared = plan.layout.params[0].rest == 3
    return f"A rank keeps {size(sum(own.values()))}: {said}; it sends {size(sends)} in a step{more if shared else ''}"


def stages(plan: Plan) -> Still:
    """One rank under each of the four stages of ZeRO, with an otherwise equal plan."""
    plans = [plan._replace(stage=stage) for stage in STAGES]
    columns = [Column(f"stage {one.stage}", kept(one), STAGES[one.stage][2:]) for one in plans]
    totals = ", ".join(size(sum(column.kept.values())) for column in columns)
    title = f"{plan.model}, {plan.policy}, {plan.ranks} ranks: the state of one rank"
    return memory_bars(columns, _full(plan), (), 1, title, f"Stages 0, 1, 2, 3: {totals}")


def counted(homes: dict, below: dict[str, str]) -> Still:
    """The counted state and most gathered weights of rank 0 in real runs; the first run outlines the others.

    homes  {name: the `on_ranks.Home` of rank 0};  below  {name: a second line}
    """
    columns = [Column(name, home.kept, below[name], home.whole) for name, home in homes.items()]
    full = sum(columns[0].kept.values())
    whole = {name: f" and {size(home.whole)} gathered" if home.whole else "" for name, home in homes.items()}
    told = [f"{name} {size(sum(home.kept.values()))}{whole[name]}" for name, home in homes.items()]
    title = f"Small GPT in single precision on {RANKS} ranks, counted on rank 0"
    return memory_bars(columns, full, (), 1, title, "; ".join(told))


def _owners(plan):
    count = plan.layout.params[0].owners
    kind = "replicated" if count == 1 else "fully sharded" if count == plan.ranks else "hybrid"
    return f"{count} owner{'s' * (count > 1)} ({kind})"


def _full(plan):
    return sum(kept(plan._replace(stage=0)).values())


def _most(plan):
    """The bytes that fill the width on the right: all traffic of fully sharded weights."""
    every = carried(plan._replace(stage=3, owners=plan.ranks).layout, plan.widths)
    return sum(one.bytes for one in every)


class ZeroExplorer(ipywidgets.VBox):
    """Buttons for model, dtypes, ranks, stage and owners over a picture of bars; `plan` is their choice.

    >>> ZeroExplorer(Plan(ranks=8, stage=3, owners=4)).summary[:29]
    'A rank keeps 26.2 GB: weights'
    """

    def __init__(self, plan: Plan | None = None):
        plan = plan or Plan()
        self._picture = ipywidgets.HTML()
        self._choices = {
            "model": _buttons("model", list(MODELS), plan.model),
            "policy": _buttons("dtypes", list(POLICIES), plan.policy),
            "ranks": _buttons("ranks", list(CHOICES), plan.ranks),
            "stage": _buttons("ZeRO stage", [(name, stage) for stage, name in STAGES.items()], plan.stage),
            "owners": _buttons("owners", _divisors(plan.ranks), plan.owners),
        }
        self._choices["ranks"].observe(self._refit, "value")
        for one in self._choices.values():
            one.observe(self._draw, "value")
        super().__init__([*self._choices.values(), self._picture])
        self._draw()

    @property
    def plan(self) -> Plan:
        """The plan of the picture."""
        return Plan(**{name: one.value for name, one in self._choices.items()})

    @property
    def summary(self) -> str:
        """The picture in words."""
        return told(self.plan)

    def choose(self, **choices):
        """Press buttons: `choose(stage=3, owners=4)`."""
        for name in self._choices:  # ranks before owners
            if name in choices:
                self._choices[name].value = choices[name]

    def _refit(self, change):
        """New owners after a change of ranks: all ranks if it was all before, else the same number."""
        owners = self._choices["owners"]
        before = change["new"] if owners.value == change["old"] else min(owners.value, change["new"])
        owners.options = _divisors(change["new"])
        owners.value = before

    def _draw(self, _=None):
        if self._choices["ranks"].value % self._choices["owners"].value == 0:
            self._picture.value = bars(self.plan).svg

    @property
    def stills(self) -> list[Still]:
        """The pictures that are shown if no kernel runs: this stage, the stages after it, and the last with half the
        owners."""
        plan, last = self.plan, max(STAGES)
        plans = [plan._replace(stage=stage) for stage in STAGES if stage >= plan.stage]
        if plan.owners % 2 == 0:
            plans.append(plan._replace(stage=last, owners=plan.owners // 2))
        return list(map(bars, plans))

    def _repr_mimebundle_(self, **more):
        told = "\n".join(still.summary for still in self.stills)
        return {**super()._repr_mimebundle_(**more), "image/svg+xml": below_each_other(self.stills), "text/plain": told}


def _divisors(ranks):
    return [n for n in range(1, ranks + 1) if ranks % n == 0]


def _buttons(name, options, value):
    return ipywidgets.ToggleButtons(description=name, options=options, value=value, **beside("90px"))
