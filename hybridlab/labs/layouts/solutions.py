"""Solutions of notebook 35."""

from hybridlab.labs.exercises.solution import Cell, Solution

SUMS = Cell("""\
def my_sums(signature, rules):
    operands, result = signature.split("->")
    tensors = [*operands.split(","), result]
    sums = [set() for _ in tensors]
    for axis in set(rules.values()):
        dims = {dim for tensor in tensors for dim in tensor if rules.get(dim) == axis}
        if len(dims) > 1:
            return None
        for dim in dims:
            for tensor, axes in zip(tensors, sums):
                if dim not in tensor:
                    axes.add(axis)
    return sums

labs.answer("layouts.sums", my_sums)""")

LAYERS = Cell("""\
def my_layers(comm, x, A, W):
    x = typed.enter(comm, x, "j")
    A, W = typed.enter(comm, A, "i"), typed.enter(comm, W, "i")
    h = torch.nn.functional.gelu(x @ A.T)
    return typed.all_reduce(comm, h @ W.T, "j", to="I")

labs.answer("layouts.by_hand", my_layers)""")
SUM = 'typed.all_reduce(comm, h @ W.T, "j", to="I")'

SOLUTIONS: dict[str, Solution] = {
    "layouts.sums": Solution(
        SUMS,
        "If a tensor lacks the dim that an axis cuts, each rank has summed over only its part of this dim.",
        (
            (SUMS.but("if len(dims) > 1", "if len(dims) > 2"), "would cut D and F of one matmul"),
            (SUMS.but("for tensor in tensors for dim in tensor if rules.get(dim) == axis",
                      "for dim in rules if rules[dim] == axis"), "returned None, but no axis cuts two"),
            (SUMS.but("if dim not in tensor", "if dim in tensor"), "the gradient of operand 0 (BD) needs no sum"),
            (SUMS.but("zip(tensors, sums)", "zip(tensors[:-1], sums)"), "the result (BD) is a partial sum along tp"),
            (SUMS.but("zip(tensors, sums)", "zip(tensors[-1:], sums[-1:])"), "the gradient of operand 1 (FD)"),
            (SUMS.but("for dim in dims:", "for dim in dims or 'z':"), "cuts no dim of this matmul"),
            (SUMS.but("return sums", "return sums[:2]"), "each of its 3 tensors"),
            (SUMS.but("return sums", 'return ["dp"] * 3'), "each of its 3 tensors"),
            (SUMS.but("return None", "return sums"), "that is illegal, return None"),
            (SUMS.but("rules.get(dim)", "rules[dim]"), "raised KeyError"),
            ([[], ["dp"], []], "your function itself"),
        ),
    ),
    "layouts.words": Solution(
        """\
ring = lambda ranks, words: 2 * (ranks - 1) / ranks * words
activations = 80 * 16 * $width / $i
weights = 4 * $width * $width / $j
labs.answer("layouts.words", 2 * ring($j, activations) + 2 * ring($i, weights))""",
        "Along j, down and the gradient of x are all-reduced, for this rank's sequences. Along i, the gradients of A "
        "and W are, for this rank's parts.",
        (
            (81920, "That is x and down"),
            (98304, "That is the weights' gradients"),
            (139264, "Along j there are two all-reduces"),
            (131072, "two weights"),
            (425984, "only a part of the sequences"),
            (278528, "only a part of each weight"),
            (524288, "full tensors"),
            (90112, "not (p − 1)/p"),
            ("much", "one number"),
        ),
        also=(180224,),
    ),
    "layouts.by_hand": Solution(
        LAYERS,
        "Ranks along j use x, and ranks along i use the weights, for different work: so they enter. Z is partial along "
        "j.",
        (
            (LAYERS.but("gelu(x @ A.T)", "gelu(typed.all_reduce(comm, x @ A.T, 'j', to='R'))"), "has no partial sums"),
            (LAYERS.but("torch.nn.functional.gelu(x @ A.T)", "x @ A.T").but(SUM, f"torch.nn.functional.gelu({SUM})"),
             "it comes between the two"),
            (LAYERS.but('enter(comm, x, "j")', 'enter(comm, typed.enter(comm, x, "j"), "i")'),
             "a gradient of x that is added along i, where each rank has a different part"),
            (LAYERS.but(SUM, "h @ W.T"), "along j every rank has used only its own hidden units"),
            (LAYERS.but('    x = typed.enter(comm, x, "j")\n', ""), "a different gradient of x from"),
            (LAYERS.but('typed.enter(comm, A, "i"), ', "A, "), "a different gradient of A from that of one device"),
            (LAYERS.but('typed.enter(comm, W, "i")', "W"), "a different gradient of W from that of one device"),
            (LAYERS.but('to="I"', 'to="R"'), "2 times too large"),
            (LAYERS.but(SUM, 'comm.all_reduce((h @ W.T).detach(), "j")'), "it has no backward"),
            (LAYERS.but("    return typed", "    typed"), "returned None"),
            (LAYERS.but(SUM, f"typed.all_reduce(comm, {SUM}, 'j', to='I')"), "2 times its part of Z"),
            (LAYERS.but("gelu(x @ A.T)", 'gelu(0 * typed.all_reduce(comm, x.sum(), "j", to="R") + x @ A.T)'),
             "that nothing needs"),
            (LAYERS.but("h @ W.T", "h @ W.T[:, :3]"), "returned a tensor of shape"),
            (LAYERS.but('enter(comm, A, "i")', 'enter(comm, A, "j")'), "gradient of A"),
            (1, "your function itself"),
        ),
    ),
    "layouts.twice": Solution(
        'labs.answer("layouts.twice", {"norm", "sum", "loss"})',
        "These three have neither H nor F, so i cuts none of their dims.",
        (
            ({"norm"}, "2 more"),
            ({"norm", "sum", "loss", "gelu"}, "gelu has a dim with a rule"),
            ({"norms"}, "no operator norms"),
            (3, "names of operators"),
        ),
        also=(["sum", "loss", "norm"],),
    ),
    "layouts.keys": Solution(
        'labs.answer("layouts.keys", {"keys": "S", "values": "S"})',
        "S is T under another name. Each rank computes keys and values for its own positions, and they are gathered.",
        (
            ({"keys": "S"}, "still does"),
            ({"keys": "T"}, "Not possible: keys has no dimension T"),
            ({"attention": "S"}, "Not possible: attention needs all of S"),
            ({"key": "S"}, "a dict from operators"),
            ({}, "still does"),
            ("S", "a dict from operators"),
        ),
        also=({"keys": "H", "values": "H"}, {"keys": "B", "values": "S"}, {"keys": ("S",), "values": ["S"]}),
    ),
}  # fmt: skip
