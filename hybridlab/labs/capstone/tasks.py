"""The exercises of notebook 50, the capstone. As in `labs.exercises.all_tasks`, the package computes every number."""

import re
from functools import partial
from itertools import product

from hybridlab.labs.capstone.given import BASELINE, GIVEN, chosen, foreseen_bytes, plans, played
from hybridlab.labs.exercises.task import Number, Task, Verdict
from hybridlab.predict.plans.bytes_of_rank import SUM, layers_at, weights_at
from hybridlab.predict.plans.plan import check_plan, named
from hybridlab.predict.plans.reasons import WORDS

task = partial(Task, notebook="50_capstone")
ASK = 'Answer with dict(p=…, t=…, d=…, b=…, zero=1, sequence=True), and if you need them v=… and recompute="full".'
SAVES = {"zero": 1, "sequence": True}  # available, and easily forgotten
RIVALS = {"t=8": {"t": 8}, "p=16": {"p": 16}, "recompute='full'": {"recompute": "full"}}
SHORTEST, LONGEST = 120, 700  # words of a page


def _plan(answer) -> Verdict:
    """A legal plan for all devices that keeps the three limits."""
    if not isinstance(answer, dict) or not answer or None in answer.values():
        return False, ASK
    try:
        one = named({"fused": True} | answer)
        if one.devices != GIVEN.gpus:  # first, or a size that divides the layers only would be recommended
            return (
                False,
                f"The plan's sizes multiply to {one.devices}, but there are {GIVEN.gpus} devices: give sizes "
                f"whose product is {GIVEN.gpus}.",
            )
        check_plan(one, GIVEN.shape, GIVEN.batch)
        choice = chosen(answer)
    except (ValueError, TypeError) as error:
        return False, f"{error}."
    seconds, held = choice.step.total, choice.memory.total
    told = f"{choice.plan}: {seconds:.2f} s a step, {held / 1e9:.1f} GB"
    if one.zero > GIVEN.zero:
        return False, f"{told}, but the programs here shard only the optimizer state: use zero={GIVEN.zero} at most."
    if held > GIVEN.room and seconds > GIVEN.longest:
        return False, f"{told}: too slow, and too large."
    if held > GIVEN.room:
        without = [f"{name}={value}" for name, value in SAVES.items() if not getattr(one, name)]
        spare = f" The plan lacks {' and '.join(without)}: that would save memory." if without else ""
        return False, f"{told}: fast enough, but it needs more than {GIVEN.room / 1e9:.0f} GB.{spare}"
    if seconds > GIVEN.longest:
        return False, f"{told}: it fits, but a step may take {GIVEN.longest:.2f} s."
    return True, f"{told}. This is within all limits."


def _start(answer) -> Verdict:
    """The same, and the dry run fits too; the reply compares the margin in time with the model's error."""
    right, told = _plan(answer)
    if not right:
        return False, told
    one = chosen(answer)
    held = played(one).peak_bytes
    told = f"{told} In the dry run the first rank holds {held / 1e9:.1f} GB"
    if held > GIVEN.room:
        return False, f"{told}, which is too much."
    margin, error = 1 - one.step.total / GIVEN.longest, plans().error.median
    bet = ": would you bet on it?" if margin < error else "."
    return True, f"{told}, and that fits. The step is {margin:.1%} below the limit; the model errs by {error:.0%}{bet}"


def grows_most(rival: dict) -> str:
    """The term that grows by most seconds from the best plan of all to the best plan of a rival.

    >>> grows_most({"t": 8})
    'tensor'
    """
    one, best = plans().only(**rival).best.step, plans().best.step
    more = {name: mine - its for name, mine, its in zip(one._fields, one, best)}
    return max(more, key=more.get)


def _rivals(answer) -> Verdict:
    """The verdict on the term of each rival."""
    ask = f"Answer with a dict: for each of {', '.join(map(repr, RIVALS))} one of {', '.join(map(repr, WORDS))}."
    if not isinstance(answer, dict) or answer.keys() != RIVALS.keys():
        return False, ask
    short = {words: name for name, words in WORDS.items()}  # as `defended` prints them
    answer = {name: short.get(term, term) for name, term in answer.items()}
    if not set(answer.values()) <= WORDS.keys():
        return False, ask
    off = [name for name, rival in RIVALS.items() if answer[name] != grows_most(rival)]
    if off:
        return False, f"Look again at {', '.join(off)}: a different term grows more there."
    return True, "; ".join(f"{name} loses by {WORDS[answer[name]]}" for name in RIVALS) + "."


def gap_of_gradients() -> float:
    """The GB by which the baseline plan's gradients in the dry run exceed those of the formula: gradients are summed in
    single precision, but the formula counts two bytes for each weight."""
    weights = weights_at(GIVEN.shape, BASELINE, layers_at(GIVEN.shape, BASELINE, 0))
    return SUM * sum(weights) / 1e9 - chosen(None).memory.gradients / 1e9


def crossing() -> float:
    """Bytes that all ranks of the scaled-down baseline plan send between stages in a step, in 16-bit numbers."""
    small = chosen(None).scaled().plan
    return foreseen_bytes(chosen(None))["messages"] * small.t * small.d


def _page(answer) -> Verdict:
    """The verdict on a text of about a page that contains the numbers of its plan."""
    if not isinstance(answer, str) or not answer.strip():
        return False, "Answer with a text in quotes: three of them at its beginning, and three at its end."
    words = len(answer.split())
    if not SHORTEST <= words <= LONGEST:
        return False, f"The text has {words} words: a page has {SHORTEST} to {LONGEST}."
    missing = [what for what, found in SAID.items() if not re.search(found, answer, re.IGNORECASE)]
    if missing:
        return False, f"Some parts of the page are missing: {', '.join(missing)}."
    if not list(_named_sizes(answer)):
        return False, f"The page names no sizes whose product p·t·d is {GIVEN.gpus}."
    if not any(_holds(sizes, answer) for sizes in _named_sizes(answer)):
        return False, (
            "No plan with the sizes on the page keeps the limits and has the seconds and GB on the page: take both "
            "numbers from capstone.bills."
        )
    return True, f"{words} words, and all parts are there. A person will grade them."


def _sizes(text: str, axis: str) -> set[int]:
    """The sizes of an axis that a text names, as p = 8 or in words."""
    number = rf"(\d+|{'|'.join(NUMBERS)})"
    found = re.findall(rf"\b{axis}\s*=\s*{number}\b|\b{number}{IN_WORDS[axis]}", text, re.IGNORECASE)
    return {NUMBERS.get(size.lower()) or int(size) for pair in found for size in pair if size}


def _named_sizes(text: str):
    """The sizes p, t, d in a text that use all devices.

    >>> list(_named_sizes("eight pipeline stages, t = 4 and 8 copies"))
    [(8, 4, 8)]
    """
    every = product(*(sorted(_sizes(text, axis)) for axis in IN_WORDS))
    return (one for one in every if one[0] * one[1] * one[2] == GIVEN.gpus)


def _holds(sizes: tuple[int, int, int], text: str) -> bool:
    """Whether a plan with these sizes keeps the limits, and the text contains its seconds and GB."""
    mine = plans().having(dict(zip(IN_WORDS, sizes)))
    keeps = mine.fits & (mine.seconds <= GIVEN.longest)
    read = lambda unit: [float(one) for one in re.findall(rf"(\d+(?:\.\d+)?)\s*{unit}\b", text)]
    seconds, held = read("(?:s|seconds)"), read("GB")
    near = lambda number, those: any(abs(number - one) <= 0.06 for one in those)
    return any(near(s, seconds) and near(b / 1e9, held) for s, b in zip(mine.seconds[keeps], mine.bytes[keeps]))


NUMBERS = dict(one=1, two=2, four=4, five=5, eight=8, ten=10, sixteen=16)  # as a page may write them
IN_WORDS = {  # the words after the number of an axis
    "p": r"\s+(?:pipeline\s+)?stages",
    "t": r"(?:\s+ways of tp|[ -]way tensor|\s+tensor[ -]parallel)",
    "d": r"\s+copies",
}
SAID = {  # {part of a page: how it is found}
    "the seconds of a step": r"\d(\.\d+)?\s*(s\b|seconds)",
    "the memory of a device": r"\d(\.\d+)?\s*GB",
    "the dry run": r"\bdry\b",
    "a rival": r"rival|instead of|alternative",
    "the run on real ranks": r"real ranks|ran small|scaled",
    "an assumption that you would measure": r"assum|measure",
}

TASKS: dict[str, Task] = {
    "capstone.budget": task(
        f"The budget is {GIVEN.tokens / 1e9:.0f} billion tokens in {GIVEN.days:g} days, with {GIVEN.batch} sequences "
        f"of {GIVEN.shape.context} tokens in a step. How many seconds may a step take?",
        Number(
            lambda: GIVEN.longest,
            "s",
            slips=[
                (GIVEN.longest / GIVEN.batch, "That is for one sequence: a step has a whole batch."),
                (GIVEN.longest / GIVEN.gpus, "The GPUs work together on each step: do not divide by their number."),
                (GIVEN.longest / 86_400, "That is in days."),
            ],
        ),
        (
            "How many tokens are in a step, and so how many steps are there?",
            f"There are {GIVEN.tokens:g} / ({GIVEN.batch} · {GIVEN.shape.context}) steps in {GIVEN.days:g} days.",
            f"{GIVEN.tokens / GIVEN.batch / GIVEN.shape.context:.0f} steps take {GIVEN.days * 86_400:.0f} s.",
        ),
        objective="Convert a budget of days into seconds for a step.",
        difficulty=1,
        minutes=3,
    ),
    "capstone.plan": task(
        f"Find a plan for {GIVEN.gpus} H100s within three limits: a step of at most {GIVEN.longest:.1f} s, at most "
        f"{GIVEN.room / 1e9:.0f} GB on a device, and at most ZeRO {GIVEN.zero}.",
        _plan,
        (
            "Which terms of the baseline plan are large, and which size makes each of them small?",
            "With a smaller t, GEMMs are larger and fewer bytes are sent along tp, but more memory is needed. What "
            "else saves memory?",
            "t = 4, p = 4 or 8, and copies on all other devices; sequence parallelism and ZeRO 1; b = 1.",
        ),
        objective="Find a plan within a budget of time and memory.",
        difficulty=2,
        minutes=7,
    ),
    "capstone.start": task(
        "Find a plan that you would run tomorrow: the same limits hold, and the dry run of its first rank also needs "
        f"at most {GIVEN.room / 1e9:.0f} GB.",
        _start,
        (
            "Which part is largest in the dry run, and which choices make it smaller?",
            "Activations are the largest part. A larger t divides them, and full recomputation frees them. How many "
            "seconds does each cost?",
            'Four stages of ten chunks, t = 2, recompute="full", sequence parallelism, ZeRO 1.',
        ),
        objective="Correct a plan after a dry run.",
        difficulty=3,
        minutes=7,
    ),
    "capstone.rivals": task(
        "Compare three plans with the fastest plan that fits: the best with t = 8, the best with p = 16, and the best "
        "with full recomputation. Which term grows most in each?",
        _rivals,
        (
            "capstone.defended(planned.best, dict(t=8)) lists the terms that make it slower.",
            "In two of these plans ranks wait longer, and in the third they compute more. What do they wait for?",
            "The three are tp all-reduces, the head on the last stage and GEMMs, in some order.",
        ),
        objective="Say by which term each rival of a plan loses.",
        difficulty=2,
        minutes=5,
    ),
    "capstone.dry": task(
        "The gradients on the baseline plan's first rank take more GB in the dry run than in the formula. How many "
        "more?",
        Number(
            gap_of_gradients,
            "GB",
            within=0.03,
            slips=[(-gap_of_gradients(), "More, not less: the other way round.")],
        ),
        (
            "Both numbers are in the baseline plan's table, in the row of gradients.",
            "The formula counts two bytes for each weight, but gradients are summed in single precision, which takes "
            "four bytes.",
            "The difference equals the formula's number.",
        ),
        objective="Find a part of the memory that a formula does not count.",
        difficulty=2,
        minutes=4,
    ),
    "capstone.crossing": task(
        "Take one step of the scaled-down baseline plan, with two bytes per number. How many bytes do all ranks "
        "together send between stages?",
        Number(
            crossing,
            "bytes",
            slips=[
                (crossing() / 2, "Forward and backward both send: outputs forward, gradients back."),
                (crossing() * 2, "With sequence parallelism each rank of tp sends only its part."),
            ],
        ),
        (
            "Each microbatch of each copy sends one tensor of b · s · h numbers forward, and one back.",
            "The batch, the context and the width are printed. With sequence parallelism each of t ranks sends a part.",
            "2 · batch · s · h numbers in all, of two bytes each.",
        ),
        objective="Predict to the byte the messages between stages.",
        difficulty=2,
        minutes=5,
    ),
    "capstone.page": task(
        "Write one page: your plan and the reasons for it, its nearest rival, the results of the dry run and of the "
        "real ranks, and the assumption that you would measure first.",
        _page,
        (
            "Begin with the limit, then give the plan as p=…, t=…, d=…, with its seconds and GB from capstone.bills.",
            f"It needs at least {SHORTEST} words, and these parts: {', '.join(SAID)}.",
            "Write one sentence for each of these parts; then say why the rival loses, term by term.",
        ),
        objective="Defend a plan on one page.",
        difficulty=3,
        minutes=12,
    ),
}
