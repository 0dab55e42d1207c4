"""Notebook 02: choose a model from the catalog, its batch, dtypes, recomputation and cards; does it fit?"""

import math

from hybridlab.core.what import catalog
from hybridlab.core.what.shape import Shape
from hybridlab.labs.one_device.memory import states
from hybridlab.labs.zero.plan import POLICIES
from hybridlab.predict.bytes.activations import RECOMPUTE, kept_for
from hybridlab.predict.plans.footprint import Footprint
from hybridlab.show.layouts.anatomy import Bar, anatomy
from hybridlab.show.layouts.memory_bars import size
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.still import Still

MODELS = ("gpt2-1.5b", "gpt-7.5b", "llama3-8b", "llama3-70b", "gpt3-175b", "llama3-405b", "gpt-1t")
SEQUENCES, CARDS, KINDS = (1, 4, 16), (1, 8, 64, 512, 4096), ("v100", "a100", "h200")
LONGEST = 2.5  # cards' sizes at which a bar is cut off


def anatomy_explorer(model: str = "gpt3-175b", cards: int = 64) -> Chooser:
    """The anatomy of one card's memory, with buttons."""
    choices = {
        "model": ("model", list(MODELS), model),
        "sequences": ("batch", list(SEQUENCES), SEQUENCES[0]),
        "precision": ("precision", ["mixed", "single"], "mixed"),
        "recompute": ("recompute", list(RECOMPUTE), "full"),
        "cards": ("cards", list(CARDS), cards),
        "card": ("card", list(KINDS), "a100"),
    }
    return Chooser(fits, choices, [{}])


def fits(model: str, sequences: int, precision: str, recompute: str, cards: int, card: str) -> Still:
    """One card of many: weights alone; training with a copy of the model on each card; and training with its state
    sharded equally. Each card has its own batch of this many sequences.

    >>> one = fits("gpt3-175b", 1, "mixed", "full", 64, "a100")
    >>> one.summary.split("; ")[1]
    'all sharded, 43.7 GB of the model and 8.12 GB of activations on each of 64 cards: fits in 80 GB'
    """
    shape, room = catalog.model(model).shape, catalog.machine(card).memory
    model_s, active = states(shape.parameters, POLICIES[precision]), activations(shape, sequences, precision, recompute)
    shared = Footprint(*(part / cards for part in model_s[:3]), active)
    bars = [
        Bar("weights alone", f"an equal part on each of {cards}" if cards > 1 else "on one card", shared[:1]),
        Bar("training, copies", "all of the model on each", model_s._replace(activations=active)),
        Bar("training, sharded", f"an equal part on each of {cards}" if cards > 1 else "on one card", shared),
    ]
    whole = sum(model_s)
    left = room - active
    needed = f"at least {math.ceil(whole / left)} such cards" if left > 0 else "no number of cards helps"
    where = f"on each of {cards} cards" if cards > 1 else "on one card"
    told = (
        f"{catalog.model(model).label}: {shape.parameters / 1e9:.4g} billion parameters; all sharded, "
        f"{size(whole / cards)} of the model and {size(active)} of activations {where}: "
        f"{'fits' if sum(shared) <= room else 'does not fit'} in {size(room)}; {needed}"
    )
    title = f"{model}, {sequences} sequence{'s' * (sequences > 1)} on each card, {precision}, recompute {recompute}"
    return anatomy(bars, title, told, room, LONGEST * room)


def activations(shape: Shape, sequences: int, precision: str = "mixed", recompute: str = "none") -> float:
    """Bytes of one microbatch's activations on a card that has all layers: those saved by each block, those of one more
    block while it is recomputed, and the scores of all tokens in single precision.

    In single precision numbers have twice the bytes, but masks of dropout do not.

    >>> gpt3 = catalog.model("gpt3-175b").shape
    >>> [round(activations(gpt3, 1, recompute=how) / 1e9, 1) for how in RECOMPUTE]
    [275.8, 84.6, 8.1]
    """
    each, again = kept_for(shape, sequences, recompute=recompute)
    tokens = sequences * shape.context
    blocks = shape.layers * each + again
    if precision == "single":
        blocks = 2 * blocks - tokens * _masks(shape, recompute)
    return blocks + 4 * tokens * shape.vocabulary


def _masks(shape, recompute):
    """Bytes of all dropout masks for each token, of both branches and of the scores; a recomputed block has its own."""
    if shape.style != "gpt":
        return 0
    branches, scores = 2 * shape.width, shape.heads * shape.context
    kept, again = {"none": (branches + scores, 0), "selective": (branches, scores), "full": (0, branches + scores)}[
        recompute
    ]
    return shape.layers * kept + again
