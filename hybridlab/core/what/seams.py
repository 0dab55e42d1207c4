"""Seams: the attributes of a layer that a mode may use or replace. A layer declares each seam as a base class.

A mode that shards positions has to replace the attention of a model, so it needs to find the attention layers. It does
not guess from a name: an attribute `attend` of a layer without this declaration is left alone.

    class Attention(nn.Module, Attends):       # this line is the declaration
        def attend(self, q_BNTH, k_BKTH, v_BKTH): ...

  seam           the layer has                     used by
  `Attends`      attend(q, k, v), widths           context parallelism, which replaces it; selective recomputation
  `Recalls`      recall(*kept)                     a model in slices, to join keys and values of earlier slices
  `Positions`    first                             context and sequence parallelism, which set the positions of a rank
  `Features`     feature                           grid parallelism, which sets the features of a rank
  `Dispatches`   dispatch(x, chosen, …), experts   expert parallelism; tensor parallelism of experts
  `Routes`       routing                           the rules of legal divisions; the messages to experts
  `ByExpert`     share                             the same; tensor parallelism, which scales the bias added on a rank
  `Normalises`   normalise(x, weight, bias, eps)   spatial parallelism
  `Tallies`      tally, settle()                   the end of a step, which all-reduces tallies over replicas
  `DrawsByPlace` draws, site                       the training loop, which sets the step and the rows
  `Branches`     skips, takes                      the model, to find layers with several inputs

A mode from outside the package tests `isinstance(layer, Attends)` in the same way. It may also add a seam, as a
subclass of `Seam`. Each declaration is checked before work begins (`refuse`). Declarations are classes, so pickles,
copies and subclasses keep them, and they are found inside modules that wrap a layer.

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
    """The place in training, such as seed and step; together with the place in a tensor, it determines every random
    draw.

    seed  the seed of the training;  step  the step of the optimizer
    row   the index, in the global batch, of the first sequence of the next call
    on    whether numbers are drawn; not during evaluation
    """

    seed: int = 0
    step: int = 0
    row: int = 0
    on: bool = True


class Seam:
    """A declaration that a layer makes to the modes: the base class of all seams, including those from outside the
    package.

    asked  {attribute: the arguments of its call, or the type of its value}
    """

    asked: ClassVar[dict[str, tuple[str, ...] | type]] = {}


class Attends(Seam):
    """Attention without its projections: it maps queries, keys and values, by head, to the outputs of all heads.

    attend     attend(q_BNTH, k_BKTH, v_BKTH) -> (B, N, T, H), causal attention: the values of a position and of those
               before it, weighted by the softmax of q·k/√H; if there are fewer queries than keys, they belong to the
               last positions. A mode may replace it by a function of the same arguments, so `forward` calls
               `self.attend`
    widths     how many numbers a position has in queries, keys, values and attention outputs, to count bytes
    documents  the lengths of the documents packed into one row, if there are several
    """

    asked = {"attend": ("q_BNTH", "k_BKTH", "v_BKTH"), "widths": tuple, "documents": tuple}
    attend: Callable
    widths: tuple[int, int, int, int]
    documents: tuple[int, ...] = ()


class Recalls(Seam):
    """A layer that attends to earlier positions: later positions need its keys and values, or the latents from which
    they are computed.

    recall  recall(*kept) -> the same tensors for all positions so far, each (…, positions, features). For whole rows it
            returns its arguments. `training.models.slices` replaces it for one slice
    """

    asked = {"recall": ("kept",)}
    recall: Callable


class Positions(Seam):
    """A layer whose result depends on the position, such as a positional embedding, a rotation or a random draw.

    first  the position of the first token of its input, initially 0: token t has position first + t. If the positions
           are not consecutive, a tensor (T,) with one offset for each token
    """

    asked = {"first": int}
    first: Any


class Features(Seam):
    """A layer whose result depends on the index of a feature.

    feature  the index of the first feature of its input, initially 0
    """

    asked = {"feature": int}
    feature: int


class Dispatches(Seam):
    """A layer with experts: it sends tokens to the experts that the router chose, and returns the weighted sum of their
    outputs.

    dispatch  dispatch(x_ND, chosen_NC, weights_NC, experts) -> y_ND: every token through its experts. A mode may
              replace it
    experts   a module whose forward takes the tokens, sorted by expert, and the number of tokens of each expert; its
              `down`, a `ByExpert`, holds the last matrix of every expert
    """

    asked = {"dispatch": ("x_ND", "chosen_NC", "weights_NC", "experts"), "experts": object}
    dispatch: Callable
    experts: Any


class Routes(Seam):
    """A layer that chooses the experts of each token.  routing  the method, a `core.what.shape.Routing`."""

    asked = {"routing": object}
    routing: Any


class ByExpert(Seam):
    """A layer with weights for each expert.

    share  the factor of its biases on this rank, initially 1; less if other ranks add to the same outputs
    """

    asked = {"share": int}
    share: float


class Normalises(Seam):
    """A batch norm.

    normalise  normalise(x_BCYX, weight_C, bias_C, eps) -> (B, C, Y, X), with the statistics of a microbatch. A mode may
               replace it
    """

    asked = {"normalise": ("x_BCYX", "weight_C", "bias_C", "eps")}
    normalise: Callable


class Tallies(Seam):
    """A layer that counts during the forwards of a step and updates its state at the end of the step.

    tally   a buffer that sums over rows, so replicas can all-reduce it;  settle  settle() updates the state from it
    """

    asked = {"tally": object, "settle": ()}
    tally: Any
    settle: Callable


class DrawsByPlace(Seam):
    """A layer that draws random numbers; each depends on the seed, the step and its position.

    draws  the model's seed and step: one value for all its layers, set when the model is made
    site   the index of this layer
    """

    asked = {"draws": Draws}
    draws: Draws
    site: int


class Branches(Seam):
    """A model whose layers are not a simple chain.

    skips  {layer: the earlier layer whose output it takes as a second argument}
    takes  {layer: all layers whose outputs it takes, in order}
    """

    asked = {"skips": dict, "takes": dict}
    skips: dict[int, int]
    takes: dict[int, tuple[int, ...]]


def draws_of(module: Any) -> Draws:
    """The `Draws` that all random layers of a model share; a new one if the model has none.

    module  an nn.Module
    """
    return next((layer.draws for layer in module.modules() if isinstance(layer, DrawsByPlace)), Draws())


def refuse(module: Any) -> None:
    """Check that each layer of an nn.Module has what it declares.

    raises  ValueError that names the layer, the seam, and what to add
    """
    for name, layer in module.named_modules():
        for seam in declared(layer):
            for attribute, asked in seam.asked.items():
                _refuse(f"{name} ({type(layer).__name__})".lstrip(), layer, seam.__name__, attribute, asked)


def declared(layer: object) -> list[type[Seam]]:
    """The seams that a layer declares as its base classes, directly or through another base class.

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
        wrong = "" if _takes(value, asked) else f"its {attribute} cannot be called as required"
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
