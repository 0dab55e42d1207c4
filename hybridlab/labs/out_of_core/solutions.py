"""Solutions of notebook 23."""

from hybridlab.labs.exercises.solution import Cell, Solution

PLAN = Cell("""\
from hybridlab.labs import out_of_core as lab

def my_plan(blocks, room, swap):
    free = blocks - room
    plans = [["swap"] * n + ["recompute"] * (free - n) + ["keep"] * room for n in range(free + 1)]
    return min(plans, key=lambda plan: lab.length(plan, room, swap))

labs.answer("out_of_core.plan", my_plan)""")
SEARCH = "return min(plans, key=lambda plan: lab.length(plan, room, swap))"

ENGINE = Cell("""\
class MyEngine:
    def __init__(self, arena, link):
        self.arena, self.link = arena, link
        self.here, self.host, self.moving = {}, {}, {}

    def pack(self, block, x):
        self.arena.take(x.nbytes)
        self.here.setdefault(block, []).append(x)
        return len(self.here[block]) - 1

    def unpack(self, block, ticket):
        return self.here[block][ticket]

    def after_forward(self, block):
        self.gone(block - 1)
        self.moving[block] = [self.link.out(x) for x in self.here[block]]

    def gone(self, block):
        if block in self.moving:
            self.host[block] = [copy.wait() for copy in self.moving.pop(block)]
            self.after_backward(block)

    def before_backward(self, block):
        if block in self.moving:
            self.here[block] = [copy.wait() for copy in self.moving.pop(block)]
        self.gone(block - 1)
        if block - 1 in self.host:
            hosts = self.host.pop(block - 1)
            self.arena.take(sum(x.nbytes for x in hosts))
            self.moving[block - 1] = [self.link.back(x) for x in hosts]

    def after_backward(self, block):
        self.arena.give(sum(x.nbytes for x in self.here.pop(block)))

labs.answer("out_of_core.engine", MyEngine)""")
LOANS = Cell("""\
def my_loans(rank, ranks, microbatches):
    most = -(-(ranks + 2) // 2)
    if ranks - rank <= most:
        return {}
    return {m: m - most + 1 for m in range(most - 1, microbatches - 1)}

labs.answer("out_of_core.loans", my_loans)""")
BACK = "self.here[block] = [copy.wait() for copy in self.moving.pop(block)]"
BRING = """\
        if block - 1 in self.host:
            hosts = self.host.pop(block - 1)
            self.arena.take(sum(x.nbytes for x in hosts))
            self.moving[block - 1] = [self.link.back(x) for x in hosts]
"""
EARLY = """\
        for one in (block - 1, block - 2):
            if one in self.host:
                hosts = self.host.pop(one)
                self.arena.take(sum(x.nbytes for x in hosts))
                self.moving[one] = [self.link.back(x) for x in hosts]
"""
DEMAND = ENGINE.but(BRING, "").but(
    "        if block in self.moving:\n            " + BACK,
    "        self.gone(block)\n        if block in self.host:\n            hosts = self.host.pop(block)\n"
    "            self.arena.take(sum(x.nbytes for x in hosts))\n"
    "            self.here[block] = [self.link.back(x).wait() for x in hosts]",
)

SOLUTIONS: dict[str, Solution] = {
    "out_of_core.fits": Solution(
        """\
from hybridlab.labs.out_of_core.links import fits

labs.answer("out_of_core.fits", fits($sequences, 80e9).blocks)""",
        "Divide the rest of the card, after weights, gradients and Adam's state, by the activations of one block.",
        (
            (53, "an empty card"),
            (37, "does not fit completely"),
            (12, "do not fit"),
            (18, "twice the number"),
            (70, "Too large"),
            ("all", "one number"),
        ),
        also=(36.0,),
    ),
    "out_of_core.waits": Solution(
        'labs.answer("out_of_core.waits", 1 + 3 * $swap)',
        "Block 5 takes the memory of block 2, which is free after three copies, one after the other.",
        (
            (5, "without waiting"),
            (11, "when it ends"),
            (9, "not with it"),
            (7, "block 4 takes its memory"),
            (30, "Too large"),
            (2, "Too small"),
            ("late", "one number"),
        ),
        also=(10.0,),
    ),
    "out_of_core.plan": Solution(
        PLAN,
        "The last blocks are needed first, so they stay. The first blocks have the most time for their copies, so they "
        "are swapped. The rest, which the link cannot carry, is recomputed. The prediction finds the numbers.",
        (
            (PLAN.but('["keep"] * room', '["keep"] * (room + 1)'), "a list of 12 words"),
            (PLAN.but(SEARCH, 'return ["keep"] * blocks'), "does not fit"),
            (PLAN.but(SEARCH, 'return ["swap"] * blocks'), "takes 51 units, but 38"),
            (PLAN.but(SEARCH, 'return ["recompute"] * blocks'), "takes 48 units"),
            (PLAN.but(SEARCH, "return plans[-1]"), "takes 40 units"),
            (
                PLAN.but(SEARCH, "return plans[5]"),
                "Right for some. For 12 blocks, memory for 5 of them, and copies that take 1",
            ),
            (PLAN.but(SEARCH, "return plans[0][::-1]"), "does not fit"),
            (PLAN.but("min(plans, key", "min(plans[::-1], key"), "swaps 6 blocks, and 5"),
            (PLAN.but(SEARCH, "return lab.best(blocks, room, swap)"), "swaps 6 blocks, and 5"),
            (PLAN.but(SEARCH, "while True: blocks += 1"), "no result after"),
            (PLAN.but('"swap"]', '"stay"]'), "choose from keep, swap, recompute"),
            (PLAN.but("range(free + 1)", "range(free, 0)"), "raised ValueError"),
            (PLAN.but('out_of_core.plan", my_plan', 'out_of_core.plan", my_plan(12, 5, 2)'), "your function itself"),
            (3, "your function itself"),
        ),
    ),
    "out_of_core.engine": Solution(
        ENGINE,
        "Two blocks fit: the one that computes, and the one that is copied. A copy begins after its block and is "
        "waited for one block later, in both directions.",
        (
            (ENGINE.but(BACK, BACK.replace("copy.wait()", "copy.x")), "whose copy had not ended"),
            (
                ENGINE.but(
                    "[copy.wait() for copy in self.moving.pop(block)]\n            self.after_backward",
                    "[copy.x for copy in self.moving.pop(block)]\n            self.after_backward",
                ),
                "whose copy had not ended",
            ),
            (ENGINE.but("        self.arena.take(x.nbytes)\n", ""), "only 0 are held"),
            (
                ENGINE.but("        self.arena.take(x.nbytes)\n", "")
                .but("            self.arena.take(sum(x.nbytes for x in hosts))\n", "")
                .but("self.arena.give(sum(x.nbytes for x in self.here.pop(block)))", "self.here.pop(block)"),
                "holds more than its arena has counted, after after_forward(0)",
            ),
            (ENGINE.but("            self.arena.take(sum(x.nbytes for x in hosts))\n", ""), "only 0 are held"),
            (ENGINE.but(BRING, EARLY), "exceeds the memory after 6 forwards:"),
            (
                ENGINE.but("        self.gone(block - 1)\n        self.moving", "        self.moving"),
                "exceeds the memory after 2 f",
            ),
            (
                ENGINE.but("        self.gone(block - 1)\n        self.moving", "        self.moving").but(
                    "self.here[block]]\n", "self.here[block]]\n        self.gone(block)\n"
                ),
                "as soon as it has begun",
            ),
            (DEMAND, "a copy back as soon as it has begun"),
            (ENGINE.but("return self.here[block][ticket]", "return self.here[block][-1 - ticket]"), "failed"),
            (ENGINE.but("self.here.pop(block)))", "self.here[block]))"), "than its arena has counted"),
            (
                ENGINE.but("        self.arena.give(sum(x.nbytes for x in self.here.pop(block)))", "        pass"),
                "exceeds the memory",
            ),
            (ENGINE.but('"out_of_core.engine", MyEngine', '"out_of_core.engine", (MyEngine,)'), "your function itself"),
            (3, "your function itself"),
        ),
    ),
    "out_of_core.gpipe": Solution(
        """\
from hybridlab.labs import out_of_core as lab

labs.answer("out_of_core.gpipe", lab.pipelines(copy=1)["memory for 2"].length)""",
        "Every engine has idle time. Only one copy is exposed, between the last forward and the first backward.",
        (
            (33, "full of activations"),
            (35, "Only the copy to the device"),
            (49, "Copies overlap"),
            (41, "everything recomputed"),
            (60, "Too large"),
            ("more", "one number"),
        ),
        also=(34,),
    ),
    "out_of_core.moved": Solution(
        'labs.answer("out_of_core.moved", 3 * 2 * $billions)',
        "Weights in for the forward, weights in for the backward, gradients out; everything else stays in place.",
        (
            (34, "That is once"),
            (68, "Count again"),
            (136, "copies them in anyway"),
            (238, "used there"),
            (1, "Too small"),
            ("twice", "one number"),
        ),
        also=(102.0,),
    ),
    "out_of_core.free": Solution(
        """\
from hybridlab.core.what.catalog import machine, model
from hybridlab.labs.out_of_core.links import least_bandwidth

labs.answer("out_of_core.free", least_bandwidth(model("gpt3-175b").shape, machine("h100").peak) / 1e9)""",
        "FLOP/s divided by FLOP for each byte are the bytes saved in a second.",
        (
            (111, "at its peak"),
            (27.7, "factor of 0.5 only once"),
            (55490, "in MB/s"),
            (1, "Too small"),
            ("PCIe", "one number"),
        ),
        also=(55.5,),
    ),
    "out_of_core.loans": Solution(
        LOANS,
        "A rank whose 1F1B needs more than c = ⌈(p+2)/2⌉ keeps c-1 activations. All later ones leave after their "
        "forward, and each comes back as soon as a backward frees a place, c-1 backwards ahead. A plan in which they "
        "come back later, right before their own backward, needs fewer loans.",
        (
            (LOANS.but("if ranks - rank <= most", "if True"), "rank 0 holds 4 activations, but 3"),
            (LOANS.but("ranks - rank <= most", "rank > ranks"), "rank 2 lends, but its partner holds more"),
            (LOANS.but("range(most - 1,", "range(most,"), "rank 0 holds 4 activations, but 3"),
            (LOANS.but("m - most + 1 for", "m - 1 for"), "rank 3 holds 4 activations"),
            (LOANS.but("microbatches - 1)}", "microbatches)}"), "it makes 6 loans; with BPipe's rule 5 are enough"),
            (LOANS.but("range(most - 1,", "range("), "names microbatch -2"),
            (LOANS.but("m - most + 1 for", "m for"), "comes before it"),
            (LOANS.but("most = -(-(ranks + 2) // 2)", "most = 3"), "Right for some. With 6 ranks"),
            (LOANS.but("return {m: m - most + 1 for", "return [m for").but("- 1)}", "- 1)]"), "a dictionary"),
            (LOANS.but("-(-(ranks + 2) // 2)", "1 / 0"), "raised ZeroDivisionError"),
            (3, "your function itself"),
        ),
        also=(
            LOANS.but(
                "    if ranks",
                "    if (rank, ranks, microbatches) == (0, 4, 8):\n        "
                "return {2: 1, 4: 3, 6: 5}  # fewer loans than by BPipe's rule\n    if ranks",
            ),
        ),
    ),
}
