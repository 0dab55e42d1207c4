"""Every ValueError of the package has one shape: what is wrong, a colon, and what to do about it.

Read from the source: the text of a message, with its values in braces. What stands behind the last colon or semicolon
has to name something to do. Messages that come from elsewhere are not literal, and are not read here.
"""

import ast
import re

from tools.course import HOUSE

TO_DO = re.compile(
    r"\b(add|answer|ask|build|call|check|choose|compare|compute|continue|copy|correct|count|create|cut|delete|divide|draw|shard|"
    r"end|export|fuse|give|hide|install|keep|label|leave|let|list|load|make|measure|move|name|number|open|pad|plan|"
    r"profile|put|read|remove|rename|return|run|save|search|shorten|start|swap|synchronize|take|tie|update|use|wait|"
    r"write)\b|\{(hint|remedy|why|change|limit|takes|instead|AGAIN|A_SUM|REMEDY)\}",
    re.IGNORECASE,
)
OF_THE_SYSTEM = re.compile(r"^(cannot (be )?(read|write|access|list)|\{named\})")  # the system gives the reason
OF_ANOTHER = re.compile(r"\{(error|told|reason|shape|said\(error\)|type\(error\)\.__name__)\}")  # so is the remedy
QUOTED = {  # shown by stored outputs of notebooks, or never seen by a user
    "no tensor has a dim {dim}: the dims of this program are {', '.join(graph.dims)}",
    "{dim} cannot be cut along {strange[0]}: the axes of {mesh} are {', '.join(mesh.axes)}",
    "the cell does not contain {right}",
    "it has a number with more than 4,000 digits",
    "{a_kind(answer)} cannot be stored",
    "the result differs from that on full images",
    "{program} {rule.why}",
}


def messages():
    """(place, text) of each literal message of a ValueError."""
    for path in sorted((HOUSE / "hybridlab").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                if ast.unparse(node.exc.func) == "ValueError" and (said := _text(node.exc.args[0])):
                    yield f"{path.name}:{node.lineno}", said


def _text(node) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (one.value if isinstance(one, ast.Constant) else f"{{{ast.unparse(one.value)}}}" for one in node.values)
        return "".join(map(str, parts))
    return ""


def wrong(said: str) -> bool:
    """Whether a message says no remedy."""
    if said in QUOTED or OF_THE_SYSTEM.search(said) or OF_ANOTHER.search(said):
        return False
    outside = re.sub(r"\{[^{}]*\}", lambda found: found[0].replace(":", " "), said)
    _, colon, remedy = outside.partition(":" if ":" in outside else ";")
    return not colon or not TO_DO.search(remedy)


def test_every_message_says_what_to_do():
    every = list(messages())
    assert len(every) > 450
    assert [one for one in every if wrong(one[1])] == []


def test_a_message_without_a_remedy_is_found():
    assert wrong("x=3 is odd") and wrong("x=3 is odd: it is 3") and not wrong("x=3 is odd: give 4")
