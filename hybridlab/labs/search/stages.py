"""Alpa's stages in notebook 43: a small cluster on which they are searched; and the exercise on the recurrence."""

import math
import random
from collections.abc import Callable
from functools import cache, partial

from hybridlab.core.what.programs import mlp
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.exercises.task import Task, Verdict
from hybridlab.labs.exercises.words import so_many
from hybridlab.labs.search.sizes import NODE
from hybridlab.labs.trials.trial import Function, Gave
from hybridlab.predict.plans.on_submeshes import Submesh
from hybridlab.predict.search.chain import chain
from hybridlab.predict.search.problem import Problem

task = partial(Task, notebook="43_search")

WIDTHS = (4096, 4096, 8192)  # hidden units of the MLPs of a small model
DEVICES = Submesh(1, 4)


@cache
def alone(width: int, devices: int) -> float:
    """The seconds of one MLP layer on some devices of a node, with the best strategy of its operators: Alpa's inner
    level, here by the exact search for a chain.

    width    of the hidden layer
    devices  of one node

    >>> alone(4096, 1) > alone(4096, 4)
    True
    """
    mesh = Mesh(**({"i": devices} if devices > 1 else {}))
    return chain(Problem(mlp(4, 1024, 2048, width), mesh, NODE)).seconds


def inside(layers: range, submesh: Submesh, later: int, widths: tuple[int, ...] = WIDTHS) -> float:
    """The seconds of a stage of these layers on a submesh, as `hl.plans.on_submeshes` asks for them.

    layers   of the model;  submesh  within one node
    later    stages after it: memory does not limit the stage here
    widths   of the MLPs

    >>> inside(range(3), DEVICES, 0) > inside(range(2), DEVICES, 0)
    True
    """
    return sum(alone(widths[layer], submesh.devices) for layer in layers)


# --- the exercise -------------------------------------------------------------------------------------------------


def _drawn(seed: int, layers: int, devices: int, limit: float) -> tuple[dict, int, int, float]:
    """Random times of stages, {(first layer, end, devices): time}."""
    draw = random.Random(seed)
    own = [draw.randint(2, 9) for _ in range(layers)]
    sizes = [2**power for power in range(devices.bit_length()) if 2**power <= devices]
    spans = ((a, b) for a in range(layers) for b in range(a + 1, layers + 1))
    times = {(a, b, n): round(sum(own[a:b]) / n ** draw.uniform(0.5, 1), 1) for a, b in spans for n in sizes}
    return times, layers, devices, limit


PAIR = {(0, 1, 1): 4, (1, 2, 1): 3, (0, 2, 1): 7, (0, 1, 2): 3, (1, 2, 2): 2, (0, 2, 2): 5}
STAGED = (
    (PAIR, 2, 2, 6),
    (PAIR, 2, 2, 4.5),
    (PAIR, 2, 2, 4),
    ({(0, 1, 1): 2, (0, 1, 2): 3}, 1, 2, 9),  # more devices may take longer
    _drawn(1, 4, 4, 9.0),
    _drawn(2, 5, 4, 99.0),
    _drawn(3, 5, 8, 4.0),
    _drawn(4, 3, 2, 0.5),
    _drawn(5, 14, 8, 12.0),
    _drawn(5, 32, 16, 25.0),  # a function without a table takes years
)


def least(times: dict, layers: int, devices: int, limit: float, both: Callable = sum) -> float:
    """The smallest sum of the stages' times; with `max` for `both`, the smallest longest time.

    >>> least(*STAGED[0]), least(*STAGED[1])
    (5, 7)
    """
    sizes = sorted({n for _, _, n in times})

    @cache
    def rest(first: int, left: int) -> float:
        if first == layers:
            return 0 if left == 0 else math.inf
        ways = ((end, n, times[first, end, n]) for end in range(first + 1, layers + 1) for n in sizes if n <= left)
        return min((both((t, rest(end, left - n))) for end, n, t in ways if t <= limit), default=math.inf)

    return rest(0, devices)


def judged_stages(gave: list[Gave]) -> Verdict:
    """The verdict on a student's recurrence."""
    for number, ((times, layers, devices, limit), one) in enumerate(zip(STAGED, gave)):
        sizes = f"{so_many(layers, 'layer')}, {so_many(devices, 'device')}"
        case = "On the example" if not number else f"With {sizes} and limit {limit:g}"
        if one.raised:
            return False, f"{case} it raised {one.raised}"
        right, value = least(times, layers, devices, limit), one.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False, f"{case}: return one number, the smallest sum, not {str(value)[:40]}."
        if not math.isclose(value, right, rel_tol=1e-9):
            if math.isclose(value, least(times, layers, devices, limit, max)):
                return (
                    False,
                    f"{case}: you returned {value:g}, the longest stage; the question asks for the sum, {right:g}.",
                )
            told = _slip(times, layers, devices, limit, value, right)
            return False, f"{case}: you returned {value:g}; the smallest sum is {right:g}. {told}"
    return True, f"Right on {len(STAGED)} tables, also on one with {layers} layers."


def _slip(times, layers, devices, limit, value, right) -> str:
    """The probable mistake, in a sentence."""
    fewer = min(least(times, layers, used, limit) for used in range(1, devices + 1))
    if math.isclose(value, fewer):
        return "All devices must be used: at the end, none is left."
    if math.isclose(value, least(times, layers, devices, math.inf)):
        return "A stage of yours takes longer than the limit."
    if math.isclose(value, least(times, layers, devices, math.nextafter(limit, 0))):
        return "A stage may take exactly the limit."
    if value == math.inf and right > limit:
        return "The limit is for each stage, not for their sum."
    return "Try every end of the first stage with every number of devices."


TASKS: dict[str, Task] = {
    "search.stages": task(
        "Write `my_stages(times, layers, devices, limit)`. `times[first, end, n]` is the time of a stage that has the "
        "layers first to end - 1 and runs on n devices; it has a key for every stage that is possible. Cut all layers "
        "into stages that use all devices, with no stage longer than `limit`. Return the smallest sum of the stages' "
        "times, or `math.inf` if no such cut exists. In the example, `times` is {(0, 1, 1): 4, (1, 2, 1): 3, (0, 2, "
        "1): 7, (0, 1, 2): 3, (1, 2, 2): 2, (0, 2, 2): 5}: two layers, two devices. With limit 6 the sum is 5, with "
        "limit 4 it is 7. It is also tested on a table where trying all stages takes too long.",
        Function(STAGED, judged_stages, "Answer with your function itself: my_stages, without parentheses."),
        (
            "Let rest(first, left) be the smallest sum for the layers from first on, on as many devices as are left. "
            "Which first stages are possible?",
            "rest(layers, 0) is 0. Otherwise, take the smallest times[first, end, n] + rest(end, left - n) over all "
            "end and n.",
            "@cache over rest(first, left): if first == layers: return 0 if left == 0 else math.inf; else min((t + "
            "rest(end, left - n) for (begin, end, n), t in times.items() if begin == first and n <= left and t <= "
            "limit), default=math.inf).",
        ),
        objective="Find the best stages and submeshes by dynamic programming.",
        difficulty=2,
        minutes=10,
    ),
}
