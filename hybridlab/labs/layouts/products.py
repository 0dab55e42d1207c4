"""Exercise layouts.sums: legal rules for one matmul and the sums that it needs; a student's derivation is judged."""

from hybridlab.core.what.operators import Operator
from hybridlab.core.where.rules import Rules
from hybridlab.core.where.states import made, used
from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.trials.trial import Gave

CASES: tuple[tuple[str, Rules], ...] = (
    ("BD,FD->BF", {"B": "dp"}),
    ("BD,FD->BF", {"F": "tp"}),
    ("BF,DF->BD", {"F": "tp"}),
    ("BD,FD->BF", {"D": "i", "F": "i"}),
    ("BD,FD->BF", {"B": "dp", "F": "tp"}),
    ("BF,DF->BD", {"B": "dp", "F": "tp"}),
    ("BD,FD->BF", {}),
    ("BTD,HKD->BTHK", {"H": "tp", "T": "cp"}),
    ("BTHK,BSHK->BTHS", {"H": "i", "F": "i"}),
    ("BTHK,BSHK->BTHS", {"T": "i", "S": "i"}),
    ("BTHK,BSHK->BTHS", {"B": "i", "S": "j", "V": "k"}),
    ("ECD,EFD->ECF", {"E": "ep", "F": "tp"}),
    ("BTHS,BSHK->BTHK", {"S": "cp", "H": "tp"}),
)
GIVE = "Answer with your function itself: my_sums, without parentheses."


def sums(signature: str, rules: Rules) -> list[list[str]] | None:
    """For each operand, the axes along which its gradient is a partial sum; then the axes along which the result is a
    partial sum.

    >>> sums("BD,FD->BF", {"B": "dp", "F": "tp"}), sums("BF,DF->BD", {"F": "tp"})
    ([['tp'], ['dp'], []], [[], [], ['tp']])
    >>> sums("BD,FD->BF", {"D": "i", "F": "i"})
    """
    product, axes = Operator("product", signature, ()), sorted(set(rules.values()))
    cutters = [cut_by(axis, product, rules) for axis in axes]
    if any(len(dims) > 1 for dims in cutters):
        return None
    choice = tuple("".join(dims) for dims in cutters)
    along = lambda state, kind: [axis for axis, one in zip(axes, state) if one == kind]
    return [*(along(used(dims, choice), "R") for dims in product.operands), along(made(product.result, choice), "P")]


def cut_by(axis: str, product: Operator, rules: Rules) -> list[str]:
    """The dims of a matmul that an axis cuts."""
    return [dim for dim in product.dims if rules.get(dim) == axis]


def judged(gave: list[Gave]) -> Verdict:
    for (signature, rules), one in zip(CASES, gave):
        call = f'my_sums("{signature}", {rules})'
        if one.raised:
            return False, f"{call} raised {one.raised}"
        if told := _wrong(signature, rules, one.value):
            return False, f"{call}: {told}"
    return True, f"Legal or not, and every sum: right for all {len(CASES)} matmuls."


def _wrong(signature, rules, value) -> str:
    """The mistake in one answer, in a sentence; empty if there is none."""
    product, right = Operator("product", signature, ()), sums(signature, rules)
    twice = [(axis, cut_by(axis, product, rules)) for axis in rules.values() if len(cut_by(axis, product, rules)) > 1]
    if twice:
        (axis, dims), *_ = twice
        told = f"{axis} would cut {' and '.join(dims)} of one matmul: that is illegal, return None."
        return "" if value is None else told
    tensors = [*product.operands, product.result]
    if value is None:
        return "returned None, but no axis cuts two dims of this matmul. A rule for a dim that it lacks does nothing."
    if not _is_lists(value, len(tensors)):
        return f"return a list with a set of axes for each of its {len(tensors)} tensors: operands, then the result."
    for place, (dims, mine, its) in enumerate(zip(tensors, value, right)):
        what = f"the result ({dims})" if place == len(tensors) - 1 else f"the gradient of operand {place} ({dims})"
        if lost := sorted(set(its) - set(mine)):
            (dim,) = cut_by(lost[0], product, rules)
            return f"{what} is a partial sum along {lost[0]}: {lost[0]} cuts {dim}, which {dims} lacks."
        if more := sorted(set(mine) - set(its)):
            cut = cut_by(more[0], product, rules)
            why = f"{more[0]} cuts {cut[0]}, which it has" if cut else f"{more[0]} cuts no dim of this matmul"
            return f"{what} needs no sum along {more[0]}: {why}."
    return ""


def _is_lists(value, count) -> bool:
    is_axes = lambda one: isinstance(one, list | tuple) and all(isinstance(axis, str) for axis in one)
    return isinstance(value, list | tuple) and len(value) == count and all(map(is_axes, value))
