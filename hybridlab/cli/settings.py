"""Read settings in one word, such as p=4,t=8: a plan, a layout."""

from argparse import ArgumentTypeError
from contextlib import suppress


def settings(text: str, example: str) -> dict[str, str]:
    """The typed settings, {name: value}.

    raises  ArgumentTypeError for another form, or a name that is given twice

    >>> settings("tp=4, two-levels=yes", "such as tp=4")
    {'tp': '4', 'two_levels': 'yes'}
    """
    found: dict[str, str] = {}
    for part in filter(str.strip, text.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        if not (name and value):
            raise ArgumentTypeError(f"{text!r} has another form: give settings with commas, {example}")
        name = name.replace("-", "_")
        if name in found:
            raise ArgumentTypeError(f"{text!r} sets {name} twice: give each setting once")
        found[name] = value
    if not found:
        raise ArgumentTypeError(f"there is no setting in {text!r}: give settings with commas, {example}")
    return found


def fields(text: str) -> dict[str, int | float | bool | str]:
    """The typed fields of a plan.

    >>> fields("p=4,skew=0.5,zigzag=False,recompute=full")
    {'p': 4, 'skew': 0.5, 'zigzag': False, 'recompute': 'full'}
    """
    return {name: _value(value) for name, value in settings(text, "such as p=4,t=8").items()}


def _value(text: str) -> int | float | bool | str:
    """A number, a switch, or a name."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"True": True, "False": False}.get(text, text)
