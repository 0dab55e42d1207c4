"""Solutions of notebook 32."""

from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.experts import build_solutions

DISPATCH = Cell("""\
def my_dispatch(comm, x, chosen, weights, experts, owned):
    order, counts = token_order.in_order(chosen, sum(owned))
    every = comm.all_gather(counts[None], "ep")
    mine = every.split(owned, 1)[comm.coordinates["ep"]]
    sent, received = [int(one.sum()) for one in counts.split(owned)], mine.sum(1).tolist()
    rows = x[order // chosen.shape[1]]
    came = typed.all_to_all(comm, rows, "ep", cut=0, join=0, sent=sent, received=received)
    expert = torch.arange(mine.shape[1]).repeat(len(owned)).repeat_interleave(mine.flatten())
    sort = expert.argsort(stable=True)
    made = experts(came[sort], mine.sum(0).tolist())
    home = typed.all_to_all(comm, made[sort.argsort()], "ep", cut=0, join=0, sent=received, received=sent)
    return token_order.combine(home, order, weights)

labs.answer("experts.dispatch", my_dispatch)""")
GATHER = 'every = comm.all_gather(counts[None], "ep")'
ALONE = f"every = counts[None].repeat(len(owned), 1)\n    if comm.rank == 0:\n        {GATHER}"
HOME = 'home = typed.all_to_all(comm, made[sort.argsort()], "ep", cut=0, join=0, sent=received, received=sent)'
CAME = 'came = typed.all_to_all(comm, rows, "ep", cut=0, join=0, sent=sent, received=received)'

MENDED = Cell("""\
def mended(comm, gradients):
    for name, gradient in gradients.items():
        axes = ("dp",) if name.startswith("experts") else ("dp", "ep")
        comm.all_reduce(gradient, axes)
        gradient /= comm.mesh["dp"] * comm.mesh["ep"]

labs.answer("experts.clinic", ("b", mended))""")
DIVIDE = 'comm.mesh["dp"] * comm.mesh["ep"]'

SOLUTIONS: dict[str, Solution] = {
    **build_solutions.SOLUTIONS,
    "experts.route": Solution(
        'labs.answer("experts.route", [(1, 2, 0.5 / 0.8), (3, 0, 0.54 / 0.78), (1, 3, 0.7 / 0.9), (1, 2, 0.45 / 0.8)])',
        "Take the two highest scores of each row, and divide the first by their sum.",
        (
            ([(2, 1, 0.375), (3, 0, 0.69), (1, 3, 0.78), (1, 2, 0.56)], "the higher score comes first"),
            ([(1, 2, 0.5), (3, 0, 0.54), (1, 3, 0.7), (1, 2, 0.45)], "that is the score"),
            ([(1, 2, 0.625), (3, 1, 0.69), (1, 3, 0.78), (1, 2, 0.56)], "Token 1: other scores are higher"),
            ([(1, 2, 0.625), (3, 0, 0.6), (1, 3, 0.78), (1, 2, 0.56)], "the weight is not"),
            ([(1, 2), (3, 0), (1, 3), (1, 2)], "must be (first expert"),
            ([(1, 2, "0.6"), (3, 0, 0.69), (1, 3, 0.78), (1, 2, 0.56)], "must be (first expert"),
            ([(1, 2, float("nan")), (3, 0, 0.69), (1, 3, 0.78), (1, 2, 0.56)], "the weight is not"),
            ([(1, 2, [0.6]), (3, 0, 0.69), (1, 3, 0.78), (1, 2, 0.56)], "must be (first expert"),
            ((1, 2), "4 rows"),
        ),
        also=(
            ((1, 2, 0.63), (3, 0, 0.69), (1, 3, 0.78), (1, 2, 0.56)),
            Cell(
                'labs.answer("experts.route", torch.tensor([[1, 2, 0.63], [3, 0, 0.69], [1, 3, 0.78], [1, 2, 0.56]]))'
            ),
        ),
    ),
    "experts.dispatch": Solution(
        DISPATCH,
        "Counts say how many rows come. Arriving rows are sorted by expert, and sorted back before they return.",
        (
            (DISPATCH.but("experts(came[sort]", "experts(came"), "Rows arrive rank by rank"),
            (DISPATCH.but("made[sort.argsort()]", "made"), "Rows arrive rank by rank"),
            (DISPATCH.but("made[sort.argsort()]", "made[sort]"), "Rows arrive rank by rank"),
            (DISPATCH.but("combine(home, order, weights)", "combine(home, order, weights.detach())"), "the weights"),
            (
                DISPATCH.but("combine(home, order, weights)", "combine(home, order, torch.ones_like(weights))"),
                "returned y as a sum without the weights: give weights to combine",
            ),
            (
                DISPATCH.but(
                    "combine(home, order, weights)", "combine(home, order, 0 * weights + 1 / weights.shape[1])"
                ),
                "returned y as a mean without the weights",
            ),
            (DISPATCH.but(CAME, CAME.replace("rows,", "rows.detach(),")), "no gradient came to x"),
            (DISPATCH.but(CAME, 'came = comm.all_to_all(rows, "ep", 0, 0, sent, received)'), "no gradient came to x"),
            (
                DISPATCH.but(HOME, "home = made[sort.argsort()]"),
                "Number of indices",
            ),
            (DISPATCH.but("    return token_order", "    token_order"), "returned None"),
            (
                DISPATCH.but(
                    GATHER,
                    'all_of_them = comm.all_gather(chosen, "ep").split(len(x))\n'
                    "    every = torch.stack([token_order.in_order(one, sum(owned))[1] for one in all_of_them])",
                ),
                "all counts are",
            ),
            (DISPATCH.but(GATHER, "every = counts[None].repeat(len(owned), 1)"), "are expected by"),
            (DISPATCH.but(GATHER, GATHER + '\n    comm.all_gather(torch.zeros(99), "ep")'), "all counts are"),
            (
                DISPATCH.but("received=received)", "received=[len(rows) // len(owned)] * len(owned))"),
                "are expected by",
            ),
            (DISPATCH.but("mine.sum(0).tolist()", "mine.sum(1).tolist()"), "Rank"),
            (DISPATCH.but(GATHER, ALONE), "do not call the same"),
            (
                DISPATCH.but("    home =", "    if comm.rank == 1:\n        return x\n    home ="),
                "do not call the same",
            ),
            (DISPATCH.but("order, weights)\n", "order, weights).flip(0)\n"), "in another order"),
            (DISPATCH.but("order, weights)\n", "order, weights).detach()\n"), "no gradient can flow back"),
            (
                DISPATCH.but("return token_order.combine(home, order, weights)", "return home"),
                "returned a tensor of shape",
            ),
            (DISPATCH.but("(home, order", "(2 * home - home.detach(), order"), "a different gradient of x"),
            (3, "your function itself"),
        ),
        also=(
            Cell(
                DISPATCH.but(
                    GATHER,
                    'every = comm.all_to_all(counts, "ep", 0, 0, owned, [owned[comm.rank]] * len(owned))',
                ).but('mine = every.split(owned, 1)[comm.coordinates["ep"]]', "mine = every.view(len(owned), -1)")
            ),
            DISPATCH.but("int(one.sum()) for one", "one.sum() for one").but("mine.sum(1).tolist()", "mine.sum(1)"),
        ),
    ),
    "experts.clinic": Solution(
        MENDED,
        "The tokens of all ranks along ep came to the expert, so its gradient is a sum over them; it is divided by "
        "the same number of ranks as all others.",
        (
            (MENDED.but('"b", mended', '"a", mended'), "sums over fewer tokens"),
            (MENDED.but('"b", mended', '"c", mended'), "different experts would be mixed"),
            (MENDED.but('"b", mended', '"d", mended'), "the gradient of the router"),
            (MENDED.but('("b", mended)', '("b", 2)'), "Now fix it"),
            (MENDED.but(DIVIDE, 'comm.mesh["dp"]'), "that is 2.00 times"),
            (MENDED.but(DIVIDE, 'comm.mesh["ep"]'), "Right on dp=1, ep=2"),
            (MENDED.but("gradient /= ", "gradient = gradient / "), "gradient /= … divides in place"),
            (MENDED.but(DIVIDE, "1"), "router.weight that is 2.00 times"),
            (MENDED.but('("dp",) if name.startswith("experts") else ("dp", "ep")', '("dp", "ep")'), "not a multiple"),
            (
                MENDED.but(
                    "comm.all_reduce(gradient, axes)",
                    'if axes != ("dp",):\n            comm.all_reduce(gradient, axes)',
                ),
                "Right on dp=1, ep=2",
            ),
            ("b", "Answer with the letter of the cause"),
        ),
    ),
    "experts.hot": Solution(
        'labs.answer("experts.hot", ($share + (100 - $share) / 7) / 25)',
        "The rank with the hot expert has another expert too. With even loads it would have a quarter of the choices.",
        (
            (2.4, "over the mean"),
            (1.2, "the hot expert alone"),
            (3.0, "compares two experts"),
            (1, "which rank do the others wait for"),
            (9, "Too large"),
            ("hot", "one number"),
        ),
        also=(1.6,),
    ),
    "experts.bytes": Solution(
        'labs.answer("experts.bytes", $ranks / $chosen)',
        "An all-to-all sends a token once for each choice, an all-gather once to every rank.",
        (
            (0.25, "Upside down"),
            (16, "more than one expert"),
            (64, "is sent once"),
            (8, "Both ways"),
            (32, "Too large"),
            ("p", "one number"),
        ),
        also=(4.0,),
    ),
    "experts.fine": Solution(
        'labs.answer("experts.fine", (4 * 16 - 1, 4 * 2 - 1, 1, 4096 // 4))',
        "There are four experts for each old one. One is shared, so one fewer is routed, and one fewer is chosen.",
        (
            ((64, 8, 1, 1024), "that is a different number"),
            ((63, 8, 1, 1024), "a different amount of work"),
            ((64, 8, 0, 1024), "One expert must be shared"),
            ((16, 2, 1, 4096), "4 times narrower"),
            ((63, 7, 1), "four whole numbers"),
            ("63", "four whole numbers"),
        ),
        also=(
            [63, 7, 1, 1024],
            (63.0, 7.0, 1.0, 1024.0),
            Cell('labs.answer("experts.fine", torch.tensor([63, 7, 1, 1024]))'),
        ),
    ),
    "experts.further": Solution(
        'labs.answer("experts.further", math.floor(129_280 / (($stages - 1) * $tokens)) + 1)',
        "The embedding of each microbatch crosses every boundary twice. The copy sends two vocabularies once per step.",
        (
            (129_280 / (7 * 512), "is an integer"),
            (36, "still sends more"),
            (32, "Count the boundaries"),
            (73, "Gradients cross"),
            (19, "each sends"),
            (200, "Too large"),
            ("m", "one number"),
        ),
        also=(37.0,),
    ),
}
