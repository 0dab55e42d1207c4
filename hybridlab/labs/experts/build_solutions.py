"""Solutions of the exercises in `build_tasks`."""

from hybridlab.labs.exercises.solution import Cell, Solution

PLACES = Cell("""\
def my_places(loads, ranks, slots):
    copies = [1] * len(loads)
    for _ in range(slots - len(loads)):
        copies[max(range(len(loads)), key=lambda expert: loads[expert] / copies[expert])] += 1
    each = [(loads[expert] / n, expert) for expert, n in enumerate(copies) for _ in range(n)]
    places, totals = [[] for _ in range(ranks)], [0] * ranks
    for load, expert in sorted(each, reverse=True):
        free = [rank for rank in range(ranks) if len(places[rank]) < slots // ranks]
        rank = min(free, key=lambda rank: totals[rank])
        places[rank].append(expert)
        totals[rank] += load
    return places

labs.answer("experts.copies", my_places)""")
ROUND = PLACES.but("min(free, key=lambda rank: totals[rank])", "sum(map(len, places)) % ranks")  # dealt in turn

LOANS = Cell("""\
def my_loans(comm, weight, lent):
    here = comm.coordinates["ep"]
    every = range(comm.mesh["ep"])
    sent = [int(rank in lent.get(here, ())) for rank in every]
    received = [int(here in lent.get(rank, ())) for rank in every]
    rows = weight.repeat(sum(sent), 1)
    return typed.all_to_all(comm, rows, "ep", cut=0, join=0, sent=sent, received=received)

labs.answer("experts.loans", my_loans)""")
TYPED = 'typed.all_to_all(comm, rows, "ep", cut=0, join=0, sent=sent, received=received)'

SOLUTIONS: dict[str, Solution] = {
    "experts.fold": Solution(
        'labs.answer("experts.fold", $ways)',
        "Each row was sent to all ranks along tp, and now it is sent to one. Both sums have the factor 1 - 1/(ep·tp).",
        (
            (1, "to how many ranks"),
            (8, "not sent to all of them"),
            (3, "the number of messages along tp"),
            (5, "to itself"),
            (3.43, "Nearly"),
            (7, "how many of them stay"),
            (0.25, "folded over sharded"),
            (1.75, "the folded part alone"),
            (2, "That is ep"),
            (100, "Too large"),
            ("tp", "one number"),
        ),
    ),
    "experts.copies": Solution(
        PLACES,
        "A copy goes where one copy has the largest load, and the largest copies are placed first.",
        (
            (PLACES.but("loads[expert] / copies[expert])] += 1", "loads[expert])] += 1"), "has different copies"),
            (PLACES.but("key=lambda expert: loads[expert] / copies[expert])", "key=lambda expert: -copies[expert])"),
             "A copy of expert"),
            (PLACES.but("sorted(each, reverse=True)", "sorted(each)"), "is possible"),
            (PLACES.but("key=lambda rank: totals[rank]", "key=lambda rank: rank"), "In which order"),
            (ROUND, "with the same copies on other ranks"),
            (PLACES.but("range(slots - len(loads))", "range(0)"), "slots, and all of them"),
            (PLACES.but(" if len(places[rank]) < slots // ranks", ""), "slots, and all of them"),
            (PLACES.but("append(expert)", "append(expert + 1)"), "the indices of the experts"),
            (PLACES.but("append(expert)", "append(0)"), "is on no rank"),
            (PLACES.but("return places", "return places[0]"), "one for each rank"),
            ([[0, 0, 2], [0, 1, 3]], "your function itself"),
        ),
    ),
    "experts.loans": Solution(
        LOANS,
        "The rows of an all-to-all are the loans. Autograd sends their gradients back, and adds them at the owner.",
        (
            (LOANS.but(TYPED, 'comm.all_to_all(rows, "ep", 0, 0, sent, received)'),
             "has the right lent rows, but they have no backward: use typed collectives"),
            (LOANS.but(TYPED, "2 * " + TYPED), "returned other lent rows than one device"),
            (
                LOANS.but(TYPED, TYPED + ".detach().requires_grad_()"),
                "the gradients of its copies have not returned",
            ),
            (
                LOANS.but(
                    TYPED,
                    'typed.all_gather(comm, weight, "ep", 0, to="R")[[one for one in every if received[one]]]',
                ),
                "the weights that it lends have",
            ),
            (LOANS.but("    return typed", "    typed"), "returned None"),
            (
                LOANS.but("sent = [int(rank in lent.get(here, ()))", "sent = [int(here in lent.get(rank, ()))"),
                "are expected by",
            ),
            (3, "your function itself"),
        ),
        also=(LOANS.but("sent=sent", "sent=torch.tensor(sent)"),),
    ),
}  # fmt: skip
