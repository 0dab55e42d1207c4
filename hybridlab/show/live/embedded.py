"""Live pictures inside a page without a kernel; those of the explorer are computed here, for some sizes."""

import json

from hybridlab.core.when.schedule import Schedule
from hybridlab.show.live.explorer import SLIDERS, explore
from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.live.page import COMPARED, grid
from hybridlab.show.live.shown import SHOWS
from hybridlab.show.timelines.picture import picture, to_json

STOPS = {"ranks": (2, 3, 4, 6, 8), "microbatches": (1, 2, 4, 8, 12, 16)}  # of the two sliders


def embedded(
    *shown: str | Schedule,
    ranks: int = 4,
    microbatches: int = 8,
    machine: bool = False,
    play: bool = False,
    **choices,
) -> str:
    """`hl.explore` with the same arguments, for `grid.js`: JSON with a picture for every stop of the two sliders.

    shown    names of schedules; or schedules, and then there is one picture and no slider. Unless `controls` is "two",
             the reader may change a single name for another one of `COMPARED`
    ranks, microbatches  of the first picture
    choices  the other arguments of `hl.explore`; they do not change

    >>> sizes = json.loads(embedded("1f1b", ranks=5))
    >>> [axis["values"] for axis in sizes["axes"]], sizes["first"]
    ([[2, 3, 4, 5, 6, 8], [1, 2, 4, 8, 12, 16]], [0, 3, 3])
    >>> sizes["names"], json.loads(embedded("1f1b", controls="two"))["names"]
    (['1f1b', 'naive', 'gpipe', 'zb_h1'], ['1f1b'])
    """
    if not any(isinstance(one, str) for one in shown):
        return grid([""], {}, [0], [_picture(shown, **choices)], machine=machine, play=play)
    labels = {trait: label for trait, label, *_ in SLIDERS}
    first = {"ranks": ranks, "microbatches": microbatches}
    stops = {name: sorted({*values, first[name]}) for name, values in STOPS.items()}
    alone = len(shown) == 1 and choices.get("controls") != "two"
    stacks = [shown, *((name,) for name in COMPARED if alone and name not in shown)]
    points = [(stack, p, m) for stack in stacks for p in stops["ranks"] for m in stops["microbatches"]]
    pictures = [_picture(stack, ranks=p, microbatches=m, **choices) for stack, p, m in points]
    axes = {labels[name]: values for name, values in stops.items()}
    at = [0, *(stops[name].index(first[name]) for name in stops)]
    return grid([", ".join(map(str, stack)) for stack in stacks], axes, at, pictures, machine=machine, play=play)


def _picture(shown, **choices):
    try:
        return to_json(picture(*explore(*shown, **choices).timelines))
    except ValueError as error:
        return json.dumps({"problem": str(error).split("\n")[0]})


def program() -> str:
    """The style sheet and the module that bring every element of the class `hl-live` to life, as HTML."""
    text = module("grid.js", *SHOWS, "embedded.js")
    return f'<style>{stylesheet("shows.css")}</style>\n<script type="module">\n{text}\n</script>'
