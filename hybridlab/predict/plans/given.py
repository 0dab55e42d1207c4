"""Fields of a plan that are given: the wider search that they need, and the assumptions that they rule out.

Relatives: `predict.plans.plan`, the fields; `predict.plans.planner` and `what_if`, which search.
"""

from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import RECOMPUTE, SELECTIVE
from hybridlab.predict.bytes.local_steps import EVERY
from hybridlab.predict.plans import divisions
from hybridlab.predict.plans.equal_parts import refuse_without_effect
from hybridlab.predict.plans.plan import ASKED, NAMED, Plan, named


def beyond(field: str, given: dict) -> bool:
    """Whether a field is fixed to a value that only a wider search includes (`ASKED`).

    >>> beyond("cp", {"cp": 2}), beyond("cp", {"cp": 1}), beyond("attend", {"attend": "gather"})
    (True, False, False)
    """
    usual = Plan._field_defaults[field]
    return given.get(field, usual) not in (usual, NAMED[field][usual] if field in NAMED else usual)


def wider(shape: Shape, given: dict) -> dict[str, bool]:
    """{switch: whether given fields need the wider search that it names}.

    >>> [switch for switch, needed in wider(Shape(layers=6), {"p": 2, "v": 2, "cp": 2}).items() if needed]
    ['contexts', 'stages']
    """
    found = {switch: any(beyond(name, given) for name in fields) for switch, fields in ASKED.items()}
    return found | {"stages": found["stages"] or (given.get("uneven") is None and unequal(shape, given))}


def saves_scores(given: dict) -> bool:
    """Whether given fields recompute the scores of attention, which a fused kernel does not save."""
    return given.get("recompute") in (SELECTIVE, RECOMPUTE[SELECTIVE])


def unequal(shape: Shape, given: dict) -> bool:
    """Whether the given stages divide the layers unequally, so that some have one more block.

    >>> unequal(Shape(layers=6), {"p": 2, "v": 2}), unequal(Shape(layers=6), {"p": 2})
    (True, False)
    """
    return shape.layers % (given.get("p", 1) * given.get("v", 1)) > 0


def summed(sums: str | None, shape: Shape, given: dict) -> dict:
    """The given fields of a plan, with those that `sums` fixes.

    raises  ValueError for a value other than None and "local", and for fields that contradict it or have no effect

    >>> summed("local", Shape(), {"d": 2}), summed("local", Shape(), {"sync_every": 64})
    ({'sync_every': 2, 'd': 2}, {'sync_every': 64})
    """
    if sums not in (None, "local"):
        raise ValueError(f"sums={sums!r} cannot be planned: give 'local', or software, which determines the overlap")
    if sums and given.get("sync_every") == 0:
        raise ValueError("sync_every=0 sums gradients in every step: give 1 or more, or leave out sums='local'")
    found = ({"sync_every": EVERY} if sums else {}) | given
    one = named({"p": shape.layers} | found)  # with a spread head, the more stages, the more layers
    divisions.refuse(shape.sizes, one.division(shape), "sums")
    refuse_without_effect(one, shape)
    return found
