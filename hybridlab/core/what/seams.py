"""Seams: what a mode may ask of a layer inside a model. A layer declares each of them, as a base class.

A mode that cuts positions has to put another attention into a model, so it must know which layers attend. It does not
guess from a name: of a layer that does not say so, an attribute `attend` is the layer's own affair.

    class Attention(nn.Module, Attends):       # this line is the declaration
        def attend(self, q_BNTH, k_BKTH, v_BKTH): ...

  seam           the layer has                     who asks
  `Attends`      attend(q, k, v), widths           context parallelism puts another one there; selective recomputation
  `Positions`    first                             context and sequence parallelism say which positions are here
  `Features`     feature                           grid parallelism says which features are here
  `Dispatches`   dispatch(x, chosen, …), experts   expert parallelism; tensor parallelism of experts
  `Routes`       routing                           what may be divided; what a layer sends to its experts
  `ByExpert`     share                             the same; tensor parallelism says how much of a bias is added here
  `Normalises`   normalise(x, weight, bias, eps)   spatial parallelism
  `Tallies`      tally, settle()                   the end of a step adds up tallies over replicas
  `DrawsByPlace` draws, site                       whoever trains says where in the training the model stands
  `Branches`     skips, takes                      the whole model: which layers take more than what the last one made

A mode from outside asks in the same way, `isinstance(layer, Attends)`, and may bring a seam of its own, a subclass of
`Seam`. Before work begins each declaration is tried (`refuse`). Declarations are classes, so they go with pickles and
copies, and with subclasses; modules that wrap a layer are walked through.

Shape suffixes
    B batch · T positions · N heads · K heads of keys and values · H width of a head · C channels, Y rows, X columns; of
    experts N tokens, C choices of each, D width
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

MISSING = object()  # not None, which an attribute may be


@dataclass
class Draws:
    """Where in the training a model stands: all that its random draws depend on, beside a place in a tensor.

    seed  of the training;  step  of the optimizer
    row   the number, in the global batch, of the first sequence that comes next
    on    whether anything is drawn: evaluation draws nothing
    """

    seed: int = 0
    step: int = 0
    row: int = 0
    on: bool = True


class Seam:
    """A promise of a layer to the modes: the base of those below, and of one that a mode from outside brings.

    asked  {attribute: the arguments that it is called with, or the type of its value}
    """

    asked: ClassVar[dict[str, tuple[str, ...] | type]] = {}


class Attends(Seam):
    """Attention in the middle: between what makes queries, keys and values by head, and what reads what heads found.

    attend     attend(q_BNTH, k_BKTH, v_BKTH) -> (B, N, T, H), what every position finds at itself and before itself:
               the values, weighted by the softmax of q·k/√H. A mode may put a function of the same arguments in its
               place, so `forward` calls `self.attend`
    widths     how many numbers a position has of queries, keys, values, and of what its heads find: bytes are counted
    documents  the lengths of those that share a row, if there are several
    """

    asked = {"attend": ("q_BNTH", "k_BKTH", "v_BKTH"), "widths": tuple, "documents": tuple}
    attend: Callable
    widths: tuple[int, int, int, int]
    documents: tuple[int, ...] = ()


class Positions(Seam):
    """A layer that treats positions by where they are: an embedding of positions, a rotation, a draw.

    first  the position at which what comes in begins, 0 as made; where positions do not follow each other, a tensor
           (T,) with a first one for each: position t of what comes in is first + t
    """

    asked = {"first": int}
    first: Any


class Features(Seam):
    """A layer that treats features by where they are.  feature  at which what comes in begins, 0 as made."""

    asked = {"feature": int}
    feature: int


class Dispatches(Seam):
    """A layer with experts: between a router and what reads their sum.

    dispatch  dispatch(x_ND, chosen_NC, weights_NC, experts) -> y_ND: every token through its experts. A mode may put
              another one in its place
    experts   a module called with tokens in the order of their experts and how many each one has; its `down` is the
              last matrix of all of them, a `ByExpert`
    """

    asked = {"dispatch": ("x_ND", "chosen_NC", "weights_NC", "experts"), "experts": object}
    dispatch: Callable
    experts: Any


class Routes(Seam):
    """A layer that chooses the experts of each token.  routing  how it does, a `core.what.shape.Routing`."""

    asked = {"routing": object}
    routing: Any


class ByExpert(Seam):
    """A layer with weights for each expert.  share  of its biases that is added here, 1 as made: less where others add
    to the same outputs."""

    asked = {"share": int}
    share: float


class Normalises(Seam):
    """A batch norm.

    normalise  normalise(x_BCYX, weight_C, bias_C, eps) -> (B, C, Y, X), by the statistics of a microbatch. A mode may
               put another one in its place
    """

    asked = {"normalise": ("x_BCYX", "weight_C", "bias_C", "eps")}
    normalise: Callable


class Tallies(Seam):
    """A layer that counts in the forwards of a step, and draws its conclusions when the step is over.

    tally   a buffer: a sum over rows, so that replicas may add theirs;  settle  settle() makes of it what is kept
    """

    asked = {"tally": object, "settle": ()}
    tally: Any
    settle: Callable


class DrawsByPlace(Seam):
    """A layer that draws at random, each number by its place in the training.

    draws  where the model stands: one value for all its layers, set when the model is made;  site  this one's number
    """

    asked = {"draws": Draws}
    draws: Draws
    site: int


class Branches(Seam):
    """A whole model whose layers do not only follow each other.

    skips  {layer: the earlier layer whose output it takes as a second argument}
    takes  {layer: all whose outputs it takes, in order}
    """

    asked = {"skips": dict, "takes": dict}
    skips: dict[int, int]
    takes: dict[int, tuple[int, ...]]


def draws_of(module: Any) -> Draws:
    """Where in the training a model stands, as all its layers that draw know; a new value where none draws.

    module  an nn.Module
    """
    return next((layer.draws for layer in module.modules() if isinstance(layer, DrawsByPlace)), Draws())


def refuse(module: Any) -> None:
    """Nothing, where each layer of an nn.Module has what it declares.

    raises  ValueError in one sentence that names the layer, the seam, and what to add
    """
    for name, layer in module.named_modules():
        for seam in declared(layer):
            for attribute, asked in seam.asked.items():
                _refuse(f"{name} ({type(layer).__name__})".lstrip(), layer, seam.__name__, attribute, asked)


def declared(layer: object) -> list[type[Seam]]:
    """The seams that a layer declares, itself or as a subclass of one that does.

    >>> class Turned(Positions, list):
    ...     first = 0
    >>> declared(Turned())
    [<class 'hybridlab.core.what.seams.Positions'>]
    """
    return [
        one
        for one in type(layer).__mro__[:-1]
        if one is not Seam and all(issubclass(base, Seam) for base in one.__bases__)
    ]


def _refuse(called: str, layer, seam: str, attribute: str, asked):
    wanted = attribute + (f"({', '.join(asked)})" if isinstance(asked, tuple) else f", of type {asked.__name__}")
    value = getattr(layer, attribute, MISSING)
    if value is MISSING:
        wrong = f"has no {attribute}"
    elif not isinstance(asked, tuple):
        wrong = "" if isinstance(value, asked) else f"its {attribute} is of type {type(value).__name__}"
    elif attribute in dict(layer.named_children()):
        wrong = f"its {attribute} is a submodule, where a mode puts a function"
    else:
        wrong = "" if _takes(value, asked) else f"its {attribute} cannot be called so"
    if wrong:
        raise ValueError(f"{called} declares {seam} and {wrong}: give it {wanted}, or leave {seam} out of its bases")


def _takes(function, arguments: tuple[str, ...]) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # one of torch's own in C, which has no signature to read
        return True
    return True
