"""Refuse sizes that no model can have.

Relatives: `core.what.shape`, whose constructor calls it; `core.what.routing`.
"""

from typing import TYPE_CHECKING

from hybridlab.core.what.routing import Routing

if TYPE_CHECKING:
    from hybridlab.core.what.shape import Shape


def divisors(n: int) -> list[int]:
    """The integers that divide n, in rising order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


def refuse(shape: "Shape", styles: tuple[str, ...], most: int) -> None:
    """Raise ValueError unless the sizes fit together, and are at most `most`."""
    sizes = {"layers": 1, "width": 1, "heads": 0, "context": 1, "vocabulary": 1, "experts": 1, "chosen": 1}
    sizes |= dict.fromkeys(("shared", "latent", "query_latent", "rotary"), 0)
    sizes |= {name: 1 for name in ("inner", "plain_inner") if getattr(shape, name) is not None}
    for name, least in sizes.items():
        if not least <= getattr(shape, name) <= most:
            span = f"from {least} to {most:.0e}"
            raise ValueError(f"{name}={getattr(shape, name)} is not a valid size: give a whole number {span}")
    if shape.heads and shape.per_head is None and shape.width % shape.heads:
        ways = divisors(shape.width)
        raise ValueError(f"heads={shape.heads} does not divide width={shape.width}: choose heads from {ways}")
    if shape.per_head is not None and shape.per_head < 1:
        raise ValueError(f"per_head={shape.per_head} is not a valid width of a head: give a whole number, 1 or more")
    if shape.kv_heads is not None and (shape.kv_heads < 1 or shape.heads % shape.kv_heads):
        ways = divisors(shape.heads)
        raise ValueError(f"kv_heads={shape.kv_heads} does not divide heads={shape.heads}: choose it from {ways}")
    if not 0 <= shape.dropout < 1:
        raise ValueError(f"dropout={shape.dropout} is not a probability below 1: give 0 or more, and less than 1")
    if shape.style not in styles:
        raise ValueError(f"style={shape.style!r} is not known: choose one of {', '.join(styles)}")
    if shape.chosen > shape.experts:
        raise ValueError(
            f"chosen={shape.chosen} is more than the {shape.experts} experts: give at most {shape.experts}"
        )
    if shape.shared and shape.experts == 1:
        raise ValueError(f"shared={shape.shared} needs routed experts too: give experts=2 or more")
    if shape.routing != Routing() and shape.experts == 1:
        raise ValueError("capacity, balance, pace and scores need several experts: give experts=2 or more")
    if shape.parallel and (not shape.heads or shape.skips):
        raise ValueError("parallel=True needs attention next to the MLP: give heads=1 or more, and no skips")
    _refuse_latents(shape)
    _refuse_plain(shape)
    if shape.documents and (min(shape.documents) < 1 or sum(shape.documents) != shape.context):
        raise ValueError(
            f"documents={shape.documents} have {sum(shape.documents)} positions, but a sequence has "
            f"{shape.context}: give lengths, 1 or more, that add up to the context"
        )


def _refuse_latents(shape: "Shape") -> None:
    for name in ("query_latent", "rotary"):
        if getattr(shape, name) and not shape.latent:
            raise ValueError(f"{name}={getattr(shape, name)} applies only with a latent: give latent=1 or more")
    if not shape.latent:
        return
    if shape.style != "llama" or not shape.heads or shape.kv_heads not in (None, shape.heads):
        raise ValueError(
            f"latent={shape.latent} makes the keys and values of all heads, without biases: give style='llama', "
            "heads=1 or more, and no kv_heads"
        )
    if shape.rotary < 2 or shape.rotary % 2:
        raise ValueError(
            f"rotary={shape.rotary} is not even, and features are rotated in pairs: give an even number, 2 or more"
        )


def _refuse_plain(shape: "Shape") -> None:
    if shape.plain_inner is not None and not shape.plain:
        raise ValueError(f"plain_inner={shape.plain_inner} has no effect without plain blocks: give plain too")
    if not shape.plain:
        return
    if shape.experts == 1 or shape.skips or shape.parallel:
        raise ValueError(
            f"plain={shape.plain} names blocks without experts: give experts=2 or more, and no skips or parallel"
        )
    if list(shape.plain) != sorted(set(shape.plain)) or not 0 <= shape.plain[0] <= shape.plain[-1] < shape.layers:
        raise ValueError(
            f"plain={shape.plain} is not valid: give indices of blocks from 0 to {shape.layers - 1}, in order"
        )
    if len(shape.plain) == shape.layers:
        raise ValueError(f"all {shape.layers} blocks are plain: leave out plain= and experts=, and give inner=")
