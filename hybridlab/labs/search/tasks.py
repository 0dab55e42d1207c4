"""The exercises of notebook 43. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import partial

from hybridlab.core.what.operators import refuse
from hybridlab.core.what.programs import classifier, mlp
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.exercises.plain import single
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.search import stages
from hybridlab.labs.search.sizes import CLUSTER, IMAGES
from hybridlab.labs.search.tables import ms
from hybridlab.labs.search.trial import CHAINS, WALKS, judged_chain, judged_walk
from hybridlab.labs.trials.trial import Function
from hybridlab.predict.search.chain import chain
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.one_rule import one_rule
from hybridlab.predict.search.problem import Problem

task = partial(Task, notebook="43_search")


# --- how many -----------------------------------------------------------------------------------------------------


def _count(axes: int) -> Task:
    mesh = Mesh(**{axis: 2 for axis in "ijkl"[:axes]})
    problem = Problem(mlp(16, 16, 16, 16), mesh, CLUSTER)
    once = 5 * 4 * 5 * 4
    return task(
        "A program has four operators: up BTD,FD->BTF, gelu BTF->BTF, down BTF,DF->BTD, loss BTD,BTD->. The mesh has "
        f"{axes} axes of 2 ranks, and every length can be divided by 16. How many strategies are there?",
        Number(
            lambda: problem.count,
            within=1e-9,
            slips=[
                (once, f"That is for one axis. Each operator chooses for each of its {axes} axes."),
                (once * axes, f"Choices of different axes multiply: {once} for one axis, and for {axes}?"),
                (256**axes, "Did you forget that an axis may also cut nothing?"),
                (4**4, "An operator has one more choice than it has dims: to cut nothing. And there are several axes."),
                (5 ** (4 * axes), "gelu and loss have three dims, not four."),
            ],
        ),
        (
            "How many choices are there for one axis in one operator? Its dims, and one more.",
            "up has the dims B, T, D, F, so 5 choices for each axis; gelu 4, down 5, loss 4.",
            f"(5 · 4 · 5 · 4) to the power of {axes}.",
        ),
        objective="Count the strategies of a program.",
        difficulty=1,
        minutes=3,
    )


# --- the time of an all-reduce---------------------------------------------------------------------------------------


def _price(hidden: int) -> Task:
    graph = classifier(512, 64, 2048, 64, hidden, 1024)
    problem = Problem(graph, Mesh(i=4), CLUSTER)
    words = hidden * 64 * 64
    size, beta, alpha = 4 * words, CLUSTER.links.beta, CLUSTER.links.alpha
    summed = lambda one: next(p.sums for p in one.parts(data_parallel(one).strategy) if p.operator == "hidden")
    right, in_the_table = summed(problem), 1e3 * summed(IMAGES)
    return task(
        f"The same classifier has {hidden} hidden units and runs with data parallelism on four ranks. How many ms does "
        f"the all-reduce of the gradient of A take? A has dims FPE: {hidden} × 64 × 64 words of 4 bytes. A message "
        "takes 50 µs plus its bytes at 10 GB/s. A ring all-reduce of 4 ranks is 2 · 3 messages, one after the other.",
        Number(
            lambda: 1e3 * right,
            "ms",
            within=0.005,
            slips=[
                (1e3 * (1.5 * size * beta), "Add the 50 µs of each of the six messages."),
                (
                    1e3 * (0.75 * size * beta + 3 * alpha),
                    "An all-reduce goes around the ring twice: a reduce-scatter, then an all-gather.",
                ),
                (1e3 * (size * beta + 6 * alpha), "A rank sends 2 · 3/4 times the bytes of the tensor."),
                (1e3 * (1.5 * words * beta + 6 * alpha), "A word takes 4 bytes."),
                (1e3 * (6 * size * beta + 6 * alpha), "Each of the six messages has a quarter of the tensor."),
                (right, "Answer in ms, not in s."),
                (in_the_table, f"That is with {IMAGES.graph.sizes['F']} hidden units; here there are {hidden}."),
            ],
        ),
        (
            "Add two parts: six times 50 µs, and the bytes that a rank sends, at 10 GB/s.",
            f"A has {hidden} · 64 · 64 · 4 bytes; a rank sends 2 · 3/4 times that.",
            f"6 · 0.05 + 1.5 · {size} / 10e9 · 1000.",
        ),
        objective="Predict the time of an all-reduce in a strategy.",
        difficulty=1,
        minutes=4,
    )


# --- by hand ------------------------------------------------------------------------------------------------------


def _by_hand(answer) -> Verdict:
    names = list(IMAGES.choices)
    answer = {name: single(dim) for name, dim in answer.items()} if isinstance(answer, dict) else answer
    is_dict = isinstance(answer, dict) and all(isinstance(one, str) for pair in answer.items() for one in pair)
    if not is_dict:
        return False, 'Answer with a dict from each operator to the dim that i cuts in it: {"features": "B", …}.'
    if strange := sorted(answer.keys() - set(names)):
        return False, f"There is no operator {strange[0]}: the operators are {', '.join(names)}."
    if lost := [name for name in names if name not in answer]:
        return False, f'Say which dim i cuts in {lost[0]} too; "" if none.'
    strategy = {name: (answer[name].strip("–"),) for name in names}
    try:
        refuse(IMAGES.graph, strategy, IMAGES.mesh)
    except ValueError as error:
        return False, f"Not possible: {error}."
    seconds, goal = IMAGES.seconds(strategy), one_rule(IMAGES).seconds
    if seconds >= goal * (1 - 1e-9):
        worst = max(IMAGES.parts(strategy), key=lambda part: part.seconds)
        kinds = {"work": worst.forward + worst.backward, "messages": worst.there + worst.back, "sums": worst.sums}
        most = {"work": "its work", "messages": "its messages", "sums": "sums of gradients"}[max(kinds, key=kinds.get)]
        told = f"A step takes {ms(seconds)}; it must be below {ms(goal)}."
        return False, f"{told} The longest part is {worst.operator}, mostly {most}."
    best = chain(IMAGES).seconds
    found = (
        "no search finds a faster one, but others are equally fast"
        if seconds <= best * (1 + 1e-9)
        else f"the fastest takes {ms(best)}"
    )
    return True, f"{ms(seconds)}: faster than every table of rules; {found}."


TASKS: dict[str, Task] = {
    **stages.TASKS,
    "search.count": varying(_count, axes=(3, 2, 4)),
    "search.price": varying(_price, hidden=(2048, 8192, 512)),
    "search.by_hand": task(
        "Find a strategy for the classifier on four ranks with a shorter step than the best table of rules, which "
        f"takes {ms(one_rule(IMAGES).seconds)}. Answer with a dict from each operator to the dim that i cuts in it; "
        '"" means none.',
        _by_hand,
        (
            "Begin with data parallelism in the picture. Which bar is far longer than all others, and what does it "
            "show?",
            "The gradient of A is all-reduced because hidden is cut along B. Cut one of the three dims of A instead.",
            "Use data parallelism for the operators before hidden. Cut F in hidden and all later operators, but "
            "nothing in the loss.",
        ),
        objective="Choose cuts operator by operator.",
        difficulty=2,
        minutes=6,
    ),
    "search.chain": task(
        "Write `my_chain(own, between)`. `own[n][c]` is the cost of operator n with choice c; `between[n][a][b]` is "
        "the cost of resharding if operator n takes choice a and operator n + 1 takes choice b. Return the choices "
        "with the least total cost, as a list with the index of one choice for each operator. So "
        f"`my_chain{CHAINS[0]!r}` is [0, 0, 1]. If several are best, any of them is right. Your function is also "
        "tested on a chain of 24 operators, where trying all takes too long.",
        Function(CHAINS, judged_chain, "Answer with your function itself: my_chain, without parentheses."),
        (
            "Go along the chain. For each choice of operator n, find the cheapest way to get there and its cost. "
            "Keep only this way and this cost for each choice; the next operator needs nothing else.",
            "Keep a pair for each choice: the cost so far, and the list of choices so far. From operator n to n + 1, "
            "take for each new choice b the minimum over a of cost[a] + between[n][a][b], and add own[n + 1][b].",
            "ways = [(cost, [c]) for c, cost in enumerate(own[0])]; then for each n from 1: ways = [min((cost + "
            "between[n - 1][path[-1]][b] + own[n][b], [*path, b]) for cost, path in ways) for b in "
            "range(len(own[n]))]; at the end min(ways)[1].",
        ),
        objective="Find the best of exponentially many strategies of a chain.",
        difficulty=2,
        minutes=12,
    ),
    "search.walk": task(
        "Write `my_walk(prices, start, proposals, alpha)`. `prices` is `{strategy: ms}`; a strategy is a string "
        "with one letter for each operator. A proposal `(place, dim, drawn)` changes the letter at this place to "
        "`dim`. Its last item, `drawn`, is a random number from 0 to 1. Accept a strategy that is faster. Accept one "
        "that is slower by Δ ms if `drawn < exp(−α·Δ)`. Return the list of current strategies after each proposal. So "
        f"`my_walk{WALKS[0]!r}` is ['FB', 'FF', 'BF'].",
        Function(WALKS, judged_walk, "Answer with your function itself: my_walk, without parentheses."),
        (
            "A proposal changes the current strategy of the walk, not the first one.",
            "there = here[:place] + dim + here[place + 1:]. Compare prices[there] with prices[here].",
            "if prices[there] < prices[here] or drawn < math.exp(-alpha * (prices[there] - prices[here])): here = "
            "there; and append here in either case.",
        ),
        objective="Write a random walk that always takes faster strategies and sometimes slower ones.",
        difficulty=2,
        minutes=8,
    ),
}
