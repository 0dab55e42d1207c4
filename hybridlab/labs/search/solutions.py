"""Solutions of notebook 43."""

from hybridlab.labs.exercises.solution import Cell, Solution

CHAIN = Cell("""\
def my_chain(own, between):
    ways = [(cost, [choice]) for choice, cost in enumerate(own[0])]
    for costs, table in zip(own[1:], between):
        ways = [min((cost + table[path[-1]][here] + more, [*path, here]) for cost, path in ways)
                for here, more in enumerate(costs)]
    return min(ways)[1]

labs.answer("search.chain", my_chain)""")

GREEDY = """\
def my_chain(own, between):
    path = [own[0].index(min(own[0]))]
    for costs, table in zip(own[1:], between):
        path.append(min(range(len(costs)), key=lambda here: table[path[-1]][here] + costs[here]))
    return path

labs.answer("search.chain", my_chain)"""

WALK = Cell("""\
def my_walk(prices, start, proposals, alpha):
    here, stands = start, []
    for place, dim, drawn in proposals:
        there = here[:place] + dim + here[place + 1:]
        slower = prices[there] - prices[here]
        if slower < 0 or drawn < math.exp(-alpha * slower):
            here = there
        stands.append(here)
    return stands

labs.answer("search.walk", my_walk)""")

BEST = {"features": "B", "bent": "B", "hidden": "F", "gelu": "F", "classes": "F", "loss": ""}

STAGES = Cell("""\
from functools import cache

def my_stages(times, layers, devices, limit):
    @cache
    def rest(first, left):
        if first == layers:
            return 0 if left == 0 else math.inf
        return min((t + rest(end, left - n) for (begin, end, n), t in times.items()
                    if begin == first and n <= left and t <= limit), default=math.inf)

    return rest(0, devices)

labs.answer("search.stages", my_stages)""")

SOLUTIONS: dict[str, Solution] = {
    "search.stages": Solution(
        STAGES,
        "The best stages for the remaining layers and devices do not depend on the earlier stages.",
        (
            (STAGES.but(" and t <= limit", ""), "longer than the limit"),
            (STAGES.but("return 0 if left == 0 else math.inf", "return 0"), "All devices must be used"),
            (STAGES.but("t + rest(end, left - n)", "max(t, rest(end, left - n))"),
             "On the example: you returned 4, the longest stage; the question asks for the sum, 5"),
            (STAGES.but("t <= limit", "t < limit"), "A stage may take exactly the limit"),
            (
                STAGES.but(" and t <= limit", "").but(
                    "return rest(0, devices)",
                    "found = rest(0, devices)\n    return found if found <= limit else math.inf",
                ),
                "The limit is for each stage, not for their sum",
            ),
            (STAGES.but("    @cache\n", ""), "no result after"),
            (STAGES.but("first == layers:", "first == layers - (layers == 1):"), "With 1 layer, 2 devices and limit 9"),
            (STAGES.but("return rest(0, devices)", "return times"), "return one number"),
            (STAGES.but(", default=math.inf", ""), "it raised ValueError"),
            (5, "your function itself"),
        ),
    ),
    "search.count": Solution(
        'labs.answer("search.count", (5 * 4 * 5 * 4) ** $axes)',
        "For each axis an operator cuts one of its dims or nothing. The choices of operators and axes are independent.",
        (
            (400, "That is for one axis"),
            (1200, "Choices of different axes multiply"),
            (256**3, "may also cut nothing"),
            (256, "one more choice than it has dims"),
            (5**12, "three dims, not four"),
            ("many", "one number"),
            (10**9, "Too large"),
        ),
    ),
    "search.price": Solution(
        """\
size = $hidden * 64 * 64 * 4
labs.answer("search.price", 6 * 0.05 + 1.5 * size / 10e9 * 1000)""",
        "Six latencies, and one and a half times the bytes of A.",
        (
            (5.033, "six messages"),
            (2.667, "goes around the ring twice"),
            (3.655, "2 · 3/4 times"),
            (1.558, "4 bytes"),
            (20.433, "a quarter of the tensor"),
            (0.0053332, "not in s"),
            (10.366, "with 4096 hidden units"),
            (1, "Too small"),
        ),
    ),
    "search.by_hand": Solution(
        """\
labs.answer("search.by_hand", {
    "features": "B", "bent": "B", "hidden": "F", "gelu": "F", "classes": "F", "loss": "",
})""",
        "If small weights do much work, cut the samples; if large weights do little work, cut the weights.",
        (
            (BEST | {"hidden": "B", "gelu": "B"}, "The longest part is hidden, mostly sums of gradients"),
            (dict.fromkeys(BEST, "B"), "A step takes 16.059 ms"),
            (dict.fromkeys(BEST, ""), "The longest part is hidden, mostly its work"),
            (BEST | dict.fromkeys(("features", "bent", "hidden"), "P") | {"gelu": "", "classes": ""},
             "The longest part is gelu, mostly its messages"),
            (BEST | {"features": "F"}, "Not possible: features has no dimension F"),
            (BEST | {"soft": "B"}, "no operator soft"),
            ({"features": "B"}, "Say which dim i cuts in bent too"),
            ("B", "a dict from each operator"),
        ),
        also=(
            {name: (dim,) for name, dim in BEST.items()},
            BEST | {"features": "P", "bent": "P", "hidden": "P"},
            BEST | {"loss": "B"},
        ),
    ),
    "search.chain": Solution(
        CHAIN,
        "Of all ways to one choice of an operator, only the cheapest can be part of the best way to the end.",
        (
            (CHAIN.but("table[path[-1]][here] + more", "more"), "between neighbours costs more"),
            (CHAIN.but(" + more", ""), "is possible"),
            (Cell(GREEDY), "is possible"),
            (CHAIN.but("path[-1]", "path[0]"), "is possible"),
            (CHAIN.but("[path[-1]][here]", "[here][path[-1]]"), "b that of operator n + 1"),
            (CHAIN.but("zip(own[1:], between)", "zip(own[1:], between[-1:] + between)"), "b that of operator n + 1"),
            (CHAIN.but("return min(ways)[1]", "return ways[0][1]"), "is possible"),
            (CHAIN.but("return min(ways)[1]", "return min(ways)"), "return one number for each"),
            (CHAIN.but("min(ways)[1]", "[one + 9 for one in min(ways)[1]]"), "counted from 0"),
            (CHAIN.but("own[1:]", "own[2:]"), "one number for each"),
            ([0, 0, 1], "your function itself"),
        ),
        also=(CHAIN.but("return min(ways)[1]", "return torch.tensor(min(ways)[1])"),),
    ),
    "search.walk": Solution(
        WALK,
        "The rule depends only on the difference, and each proposal changes the current strategy.",
        (
            (WALK.but("slower < 0 or drawn < math.exp(-alpha * slower)", "slower < 0"), "so it is taken"),
            (WALK.but("slower < 0 or ", "slower < 0 and "), "so it is taken"),
            (WALK.but("-alpha", "alpha"), "so the walk stays"),
            (WALK.but("drawn <", "drawn >"), "Your test is inverted"),
            (WALK.but("alpha * slower", "slower"), "With α"),
            (WALK.but("here[:place] + dim + here[place + 1:]", "start[:place] + dim + start[place + 1:]"),
             "you changed the start, not the current strategy"),
            (WALK.but("stands.append(here)", "stands.append(there)"), "proposal"),
            (WALK.but("return stands", "return here"), "a list of 3 strategies"),
            (WALK.but("        stands.append(here)", "            stands.append(here)"), "even if it stays"),
            (1, "your function itself"),
        ),
    ),
}  # fmt: skip
