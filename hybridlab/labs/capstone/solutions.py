"""Solutions of notebook 50, the capstone, and the rubric for its page."""

from hybridlab.labs.capstone.rubric import told
from hybridlab.labs.exercises.solution import Solution

PAGE = """\
A step may take 38.05 s: 400 billion tokens in 21 days, 1024 sequences of 8192 tokens in each of 47 684 steps.
By the formula the fastest plan takes 30.63 s with p = 4, t = 4, d = 16 and ten chunks, in 69.9 GB. The dry run of its
first rank holds 113 GB: gradients are summed in single precision, and every block saves the gated activation of its
MLP and copies of its norms in single precision, which the formula does not count. So it does not fit into 72 GB.
I take p = 4, t = 2, d = 32 with ten chunks, and all blocks are recomputed: 35.42 s a step, 46.6 GB by the formula and
69.2 GB in the dry run. So no activations of a block are saved, and t may be small: all-reduces along tp take 1.4 s.
Four stages are enough for the weights, ten chunks make the bubble short, and the other GPUs hold copies.
Its nearest rival saves the activations, with t = 8, d = 8 and two chunks: 37.67 s and 68.7 GB in the dry run. It
saves 6.75 s of GEMMs, but loses 5.92 s along tp and 4.23 s of kernel launches. With t = 4 and no recomputation a step
would take 30.63 s, but the program would need 113 GB.
Scaled to two ranks along each axis, my plan ran on real ranks. It was equal to one device, and all bytes were those of
the formula. This proves the program correct, but says nothing about time. The step is 6.9 % below the limit, and the
model errs by 4 % in half of the published runs, but by 17 % in some. So the assumption that I would measure first is
the speed of the GEMMs of one block with t = 2. If they are a tenth slower than assumed, I ask for more days."""

SOLUTIONS: dict[str, Solution] = {
    "capstone.budget": Solution(
        'labs.answer("capstone.budget", 21 * 86_400 / (400e9 / (1024 * 8192)))',
        "47,684 steps share 21 days.",
        (
            (21 * 86_400 / (400e9 / (1024 * 8192)) / 1024, "one sequence"),
            (38.05 / 256, "do not divide"),
            ("s", "one number"),
        ),
        also=(38.05, "38.05"),
    ),
    "capstone.plan": Solution(
        'labs.answer("capstone.plan", dict(p=4, t=4, d=16, b=1, zero=1, sequence=True))',
        "With t = 4 GEMMs are large and all-reduces small; four stages and ZeRO 1 save the memory for that.",
        (
            (dict(p=8, t=8, d=4, b=1, zero=1, sequence=True), "it fits, but a step may take"),
            (dict(p=1, t=4, d=64, b=1, zero=3, sequence=True), "zero=1 at most"),
            (dict(p=2, t=2, d=64, b=1, zero=1), "needs more than 72 GB"),
            (dict(p=4, t=4, d=8, b=1), "128, but there are 256"),
            (dict(p=3, t=4, d=16), "192, but there are 256"),
            (dict(p=4, t=4, d=16, b=1), "lacks zero=1 and sequence=True"),
            ("p=4", "Answer with dict"),
        ),
        also=(dict(p=8, t=4, d=8, b=1, zero=1, sequence=True),),
    ),
    "capstone.start": Solution(
        'labs.answer("capstone.start", dict(p=4, t=2, d=32, b=1, v=10, recompute="full", zero=1, sequence=True))',
        "Recomputation frees the activations of blocks. It costs time, but a small t saves time. The step is 6.9 % "
        "below the limit.",
        (
            (dict(p=4, t=4, d=16, b=1, zero=1, sequence=True), "too much"),
            (dict(p=8, t=8, d=4, b=1, zero=1, sequence=True), "it fits, but a step may take"),
            ("t=8", "Answer with dict"),
        ),
        also=(dict(p=4, t=8, d=8, b=1, v=2, zero=1, sequence=True),),
    ),
    "capstone.rivals": Solution(
        """labs.answer("capstone.rivals", {"t=8": "tensor", "p=16": "head", "recompute='full'": "multiply"})""",
        "A large t costs more time in all-reduces than it saves. A last stage of five layers takes long because of its "
        "head. Recomputing blocks needs a third more GEMMs.",
        (
            ({"t=8": "multiply", "p=16": "head", "recompute='full'": "multiply"}, "t=8"),
            ({"t=8": "tensor", "p=16": "bubble", "recompute='full'": "multiply"}, "p=16"),
            ({"t=8": "tensor"}, "Answer with a dict"),
            ("tensor", "Answer with a dict"),
        ),
        also=({"t=8": "tp all-reduces", "p=16": "the head on the last stage", "recompute='full'": "GEMMs"},),
    ),
    "capstone.dry": Solution(
        'labs.answer("capstone.dry", 4.80 - 2.40)',
        "The program sums gradients in four bytes for each weight, but the formula counts two.",
        ((-2.4, "the other way"), (4.8, "Too large"), ("GB", "one number")),
        also=(2.4, "2.4"),
    ),
    "capstone.crossing": Solution(
        'labs.answer("capstone.crossing", 2 * 8 * 8 * 16 * 2)',
        "Every microbatch crosses once in each direction, in parts that together are the tensor.",
        ((2048, "Forward and backward"), (8192, "sends only its part"), ("bytes", "one number")),
        also=(4096, "4096"),
    ),
    "capstone.page": Solution(
        f'page = """\\\n{PAGE}"""\nlabs.answer("capstone.page", page)',
        f"A person grades it with ten points. {told()}",
        (
            ("", "three of them"),
            ("Too short.", "a page has"),
            (" ".join(["word"] * 200), "Some parts of the page are missing"),
            (PAGE.replace("46.6 GB", "20 GB").replace("69.9 GB", "20 GB"), "keeps the limits"),
            (PAGE.replace("p = 4", "p = 99").replace("Four stages", "They"), "names no sizes"),
            (4, "quotes"),
        ),
    ),
}
