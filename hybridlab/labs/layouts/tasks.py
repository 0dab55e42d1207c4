"""The exercises of notebook 35. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import partial
from typing import NamedTuple

from hybridlab.core.what.operators import Graph, shared
from hybridlab.core.what.programs import block, mlp
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.exercises.plain import single
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.layouts.products import CASES, GIVE, judged
from hybridlab.labs.layouts.trial import try_layers
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.trial import Function
from hybridlab.predict.bytes.arrows import arrows, sent
from hybridlab.predict.time.operators import times, work

task = partial(Task, notebook="35_layouts")


# --- how much a rank sends ----------------------------------------------------------------------------------------

SEQUENCES, POSITIONS, TIMES = 80, 16, 4


def without_loss(graph: Graph) -> Graph:
    """The same graph without the loss."""
    given = {name: dims for name, dims in graph.given.items() if name != "t"}
    return graph._replace(operators=graph.operators[:-1], given=given)


def _words(width: int, i: int, j: int) -> Task:
    mesh, hidden = Mesh(i=i, j=j), TIMES * width
    graph = without_loss(mlp(SEQUENCES, POSITIONS, width, hidden))
    right = sent(arrows(graph, shared(graph, {"B": "i", "F": "j"}, mesh), mesh), mesh)
    tokens, ring = SEQUENCES * POSITIONS * width, lambda ranks: 2 * (ranks - 1) / ranks
    activations, weights = 2 * ring(j) * tokens / i, 2 * ring(i) * hidden * width / j
    return task(
        f"Two layers with B, T, D, F = {SEQUENCES}, {POSITIONS}, {width}, {hidden} run on {i} × {j} ranks under the "
        "rules {B: i, F: j}. How many words does a rank send in a step, forward and backward, by ring all-reduces? Do "
        "not count the one number of the loss.",
        Number(
            lambda: right,
            "words",
            within=1e-6,
            slips=[
                (activations, "That is x and down. The weights' gradients are also all-reduced along i."),
                (
                    weights,
                    "That is the weights' gradients. Which tensors are all-reduced along j, forward and backward?",
                ),
                (
                    activations / 2 + weights,
                    "Along j there are two all-reduces: down in the forward, x's gradient in the backward.",
                ),
                (activations + weights / 2, "There are two weights, A and W."),
                (activations * i + weights, "A rank has only a part of the sequences: i cuts B."),
                (activations + weights * j, "A rank has only a part of each weight: j cuts F."),
                (
                    activations * i + weights * j,
                    "These are full tensors. A rank all-reduces only the parts that it has.",
                ),
                ((activations + weights) / 2, "A ring all-reduce sends 2·(p − 1)/p of its tensor, not (p − 1)/p."),
            ],
        ),
        (
            "Which four tensors are resharded? Look at the table of {B: i, F: j} for the small layers: the same four.",
            f"Along j: down in the forward and the gradient of x in the backward, each of B/{i} · T · D words. Along "
            f"i: the gradients of A and of W, each of D · F/{j} words.",
            f"2 · 2·({j} − 1)/{j} · {tokens // i} + 2 · 2·({i} − 1)/{i} · {hidden * width // j}.",
        ),
        objective="Count the words that a rank sends under a table of rules.",
        difficulty=2,
        minutes=5,
    )


# --- by hand, on ranks --------------------------------------------------------------------------------------------


class On(NamedTuple):
    """Two layers under {B: i, F: j} on a mesh of i × j ranks, with lengths of B, T, D, F."""

    grid: tuple[int, int]
    sizes: tuple[int, int, int, int]

    @property
    def ranks(self) -> Mesh:
        return Mesh(i=self.grid[0], j=self.grid[1])

    @property
    def graph(self) -> Graph:
        return without_loss(mlp(*self.sizes))

    def __str__(self):
        """
        >>> print(On((2, 2), (4, 2, 6, 8)))
        2 × 2 ranks with B, T, D, F = 4, 2, 6, 8
        """
        return f"{self.grid[0]} × {self.grid[1]} ranks with B, T, D, F = {', '.join(map(str, self.sizes))}"


BY_HAND = (On((2, 2), (4, 2, 6, 8)), On((1, 3), (2, 3, 4, 9)), On((3, 1), (6, 1, 5, 4)))


# --- work done twice ----------------------------------------------------------------------------------------------

TWICE = {"H": "i", "F": "i"}
PAIR = Mesh(i=2)


def repeated() -> set[str]:
    """The operators of the block that every rank does in full under these rules."""
    return {one.operator for one in work(block(), shared(block(), TWICE, PAIR), PAIR) if one.times > 1}


def _twice(answer) -> Verdict:
    names = {one.name for one in block().operators}
    if not isinstance(answer, list | tuple | set | frozenset) or not all(isinstance(one, str) for one in answer):
        return False, 'Answer with names of operators: {"up", …}.'
    given, right = set(answer), repeated()
    if strange := sorted(given - names):
        return False, f"There is no operator {strange[0]}: take names from the table."
    if more := sorted(given - right):
        return False, f"{more[0]} has a dim with a rule: its ranks compute different parts of it."
    if lost := sorted(right - given):
        return False, f"{len(lost)} more: which operators have neither H nor F among their dims?"
    return True, "Every rank computes all norms, sums and the loss: Megatron's tensor parallelism repeats them too."


def _keys(answer) -> Verdict:
    """Choices of some operators of the block, by name, that leave no work to be done twice."""
    graph = block()
    names = {one.name for one in graph.operators}
    answer = {name: single(dim) for name, dim in answer.items()} if isinstance(answer, dict) else answer
    is_dict = isinstance(answer, dict) and all(isinstance(one, str) for pair in answer.items() for one in pair)
    if not is_dict or not answer.keys() <= names:
        return False, 'Answer with a dict from operators to the dim that i cuts in each, such as {"up": "F"}.'
    strategy = shared(graph, {"T": "i"}, PAIR) | {name: (dim,) for name, dim in answer.items()}
    try:
        words = sent(arrows(graph, strategy, PAIR), PAIR)
    except ValueError as error:
        return False, f"Not possible: {error}."
    if (found := times(work(graph, strategy, PAIR))) > 1:
        return False, (
            f"Legal, but a rank still does {found:.2f} times its share. Which operators does every rank compute in "
            "full?"
        )
    before = sent(arrows(graph, shared(graph, {"T": "i"}, PAIR), PAIR), PAIR)
    return True, f"No work is repeated. A rank sends {words:,.0f} words; under the rule it sent {before:,.0f}."


TASKS: dict[str, Task] = {
    "layouts.sums": task(
        "Write `my_sums(signature, rules)`, for one matmul of two tensors. `signature` is a string such as BD,FD->BF; "
        "`rules` is `{dim: axis}`, and may name dims that the matmul lacks. Return None if an axis would cut two dims "
        "of the matmul. Otherwise return a list with one set of axes for each tensor. The set of an operand holds the "
        "axes along which its gradient must be all-reduced in the backward. The last set is that of the result: the "
        "axes along which the result must be all-reduced in the forward. "
        f'So `my_sums("{CASES[0][0]}", {CASES[0][1]})` is [set(), {{"dp"}}, set()]: data parallelism.',
        Function(CASES, judged, GIVE),
        (
            "Take one axis at a time. Which dims of the matmul does it cut: none, one, or two?",
            "If it cuts one dim, look at each tensor of the matmul. What does it mean if a tensor lacks this dim?",
            "If the result lacks the dim, each rank has summed over only its part of it. If an operand lacks it, the "
            "same is true of its gradient. So for every tensor: if dim not in tensor, add the axis.",
        ),
        objective="Derive from rules whether they are legal, and which tensors must be all-reduced.",
        difficulty=2,
        minutes=10,
    ),
    "layouts.words": varying(_words, width=(128, 256, 512), i=(4, 2, 8), j=(2, 4, 2)),
    "layouts.by_hand": task(
        "Write the two layers under the rules {B: i, F: j} by hand: `my_layers(comm, x, A, W)` with this rank's parts "
        "of x (BTD), A (FD) and W (DF). Z = gelu(x·Aᵀ)·Wᵀ. Return this rank's part of Z, cut along i only. All three "
        f"gradients must be right, and only the derived messages may be sent. Your code is tested on {BY_HAND[0]}, "
        "then on other meshes.",
        OnCases(try_layers, first_found, BY_HAND, "Z, all gradients and every message are right, on all meshes."),
        (
            "Four tensors are resharded. Your table of {B: i, F: j} names them: from I to R, or from P to I.",
            "From I to R is typed.enter(comm, tensor, axis); from P to I is typed.all_reduce(comm, tensor, axis, "
            'to="I").',
            'typed.enter(comm, x, "j"), typed.enter(comm, A, "i"), typed.enter(comm, W, "i"); then the two matmuls, '
            'and at the end typed.all_reduce(comm, z, "j", to="I").',
        ),
        objective="Execute a layout with typed collectives.",
        difficulty=2,
        minutes=8,
    ),
    "layouts.twice": task(
        "The block runs on 2 ranks under the rules {H: i, F: i}. Which of its operators does every rank compute in "
        "full? Answer with a set of their names.",
        _twice,
        (
            "An operator is divided if one of its dims has a rule, in any of its tensors.",
            "Go through the table of the block and cross out every line with an H or an F.",
            "Three lines are left. One is a norm, one a sum, one the loss.",
        ),
        objective="Find the work that a table of rules leaves to every rank.",
        difficulty=1,
        minutes=3,
    ),
    "layouts.keys": task(
        "Start with the strategy of {T: i} for the block on 2 ranks, and change it so that no work is repeated. "
        "Answer with a dict of the operators that you change, each with the dim that i cuts in it: "
        '{"up": "F"} would change one.',
        _keys,
        (
            "Which lines of the table of work say 2 ×? What are the dims of these operators?",
            "keys and values have no T. Their positions are called S, because attention needs all of them.",
            '{"keys": "S", "values": "S"}: each rank computes keys and values for its own positions.',
        ),
        objective="Fix one operator's layout, which a table of rules cannot do.",
        difficulty=2,
        minutes=5,
    ),
}
