"""Compute the bytes that one rank of a plan sends in a step, by purpose.

A collective counts its full tensor, as in ledgers.

The rank is the first one of its stage: its coordinate is 0 along all other axes. Numbers have 16 bits, gradients 32.
A plan does not determine everything, so four things are omitted: the padding of ZeRO's packs (`core.where.packs`), the
gathers before use in stage 3, whose number depends on the schedule, the skips between stages that are not neighbours,
and the odd token of a slice that ranks along t cannot divide among folded experts.

See also `training.dry`, which counts the same (`DryRun.bytes`; a test compares both), `predict.plans.weights_of_rank`
(the weights) and `predict.plans.performance` (seconds instead of bytes).
"""

from collections import defaultdict
from dataclasses import replace

from hybridlab.core.added import added
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes import context, experts, traffic
from hybridlab.predict.bytes.activations import FULL, NONE
from hybridlab.predict.plans import time_of_muon
from hybridlab.predict.plans.kinds import of_kinds
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.slicing import lengths
from hybridlab.predict.plans.time_of_context_and_experts import WIDTHS
from hybridlab.predict.plans.weights_of_rank import Held, of_block, of_embedding, of_head, of_norm, of_piece

VALUE, SUM, TALLY = 2, 4, 8  # bytes of a number; of a gradient in an all-reduce; of an expert's load
OF_A_PIECE = 2 * 4  # for a position: two numbers of a piece of the head in single precision, or their gradients
BOTH = ("forward", "backward")


def sent(shape: Shape, plan: Plan, batch: int, place: int = 0) -> dict[str, float]:
    """{purpose: bytes} for the first rank at an index along pp: of its stage, or of its chunks.

    "messages" between stages; "inside" along tp, "across" along x, "context" along cp, "experts" along ep; Muon's
    momenta as "matrices", on average if ZeRO distributes them; gradients as "sums", or "shares" with ZeRO; with local
    steps as "moves", in a step that exchanges the rank's largest fragment.

    >>> from hybridlab.core.what.catalog import model
    >>> one = sent(model("gpt3-175b").shape, Plan(p=8, t=8, d=16, sequence=True, zero=1), batch=1536, place=3)
    >>> print(*(f"{what} {size / 1e9:.1f} GB" for what, size in one.items()), sep=", ")
    inside 579.8 GB, messages 1.2 GB, shares 16.3 GB
    """
    m, found, layers = plan.microbatches(batch), defaultdict[str, float](float), layers_at(shape, plan, place)
    for layer in layers:
        for what, size in _in_layer(*_kind(shape, plan, layer), layer).items():
            found[what] += m * size
    for what, size in _between_stages(shape, plan, place).items():
        found[what] += m * size
    if plan.optimizer == time_of_muon.MUON:
        inner = [_kind(shape, plan, layer) for layer in layers if 0 < layer <= shape.layers]
        found["matrices"] = added(time_of_muon.gathered(*one) for one in inner)
    found["moves" if plan.sync_every else "shares" if plan.zero else "sums"] += _of_gradients(shape, plan, layers)
    return {what: size for what, size in found.items() if size}


def layers_at(shape: Shape, plan: Plan, place: int) -> list[int]:
    """The layers at an index along pp: 0 is the embedding, then come the blocks, then the head, or its norm and the
    pieces of the head.

    >>> layers_at(Shape(layers=4), Plan(p=2, v=2), 1), layers_at(Shape(layers=4), Plan(p=2, spread_head=True), 0)
    ([2, 4, 5], [0, 1, 2, 6])
    """
    stages, first, found = plan.p * plan.v, 1, []
    for stage, blocks in enumerate(dealt(shape.layers, stages)):
        if stage % plan.p == place:
            found += [0] * (stage == 0) + list(range(first, first + blocks))
            found += [shape.layers + 1] * (stage == stages - 1)
        first += blocks
    return found + [shape.layers + 2 + place] * plan.spread_head


def _between_stages(shape: Shape, plan: Plan, place: int) -> dict[str, float]:
    """The bytes of one microbatch between stages. With scatter/gather the receiver gathers the parts, unless the tensor
    is sharded anyway; so does the last stage's own piece of the head, on the same rank."""
    here, features = shape.context // plan.cp, VALUE * plan.b * shape.width / plan.x
    narrow = plan.t > 1 and (plan.sequence or plan.scatter)
    gathered = plan.t * -(-here // plan.t) * (narrow and not plan.sequence)
    hops, pieces, own = _hops(plan, place), _pieces_met(plan, place), 2 * plan.spread_head * (place == plan.p - 1)
    at_a_position = lambda met: (hops + met) * features + met * plan.b * OF_A_PIECE
    return {
        "messages": at_a_position(pieces) * (-(-here // plan.t) if narrow else here),
        "inside": at_a_position(pieces + own) * gathered,
    }


def _hops(plan: Plan, place: int) -> int:
    """The number of tensors of one microbatch that the chunks at an index send to the next and to the previous
    chunk."""
    return 2 * plan.v - (place == 0) - (place == plan.p - 1) if plan.p > 1 else 0


def _pieces_met(plan: Plan, place: int) -> int:
    """The number of pieces of the head on other stages to which a stage sends the input, or its gradient."""
    return plan.spread_head * (plan.p - 1 if place == plan.p - 1 else 1)


def _in_layer(shape: Shape, plan: Plan, layer: int) -> dict[str, float]:
    """The bytes that one microbatch sends in one layer."""
    inner = 0 < layer <= shape.layers
    times = {"forward": 1 + (inner and plan.recompute == FULL), "backward": 1, "again": 1}  # recomputed: sent twice
    attends = times | {"forward": 1 + (plan.recompute != NONE)}
    found = {}
    if plan.t > 1 and not (plan.spread_head and (layer > shape.layers or (shape.tied and not layer))):
        found["inside"] = VALUE * _along_tp(shape, plan, layer, times)
    if plan.x > 1 and layer:
        found["across"] = _along_x(shape, plan, layer, times["forward"])
    if inner and plan.cp > 1 and shape.heads:
        way = context.ATTEND[plan.attend]
        keys = lambda when: context.exchanged(shape, plan.b, plan.cp, way, when, plan.t, plan.ulysses)
        found["context"] = VALUE * added(attends[when] * size for when in BOTH for _, size in keys(when))
    if inner and shape.experts > 1 and plan.expert_ways > 1:
        tokens, way = _tokens(shape, plan), experts.DISPATCH[plan.dispatch]
        moves = lambda when: experts.exchanged(shape, tokens, plan.expert_ways, way, when)
        often = {"counts": plan.n}  # of each slice
        found["experts"] = added(
            often.get(what, 1) * times[when] * WIDTHS[what] * size for when in BOTH for _, what, size in moves(when)
        )
    return found


def _tokens(shape, plan) -> float:
    return plan.b * shape.context / plan.cp / (plan.t if plan.sequence or plan.fold else 1)


def _along_tp(shape: Shape, plan: Plan, layer: int, times: dict) -> float:
    """Elements of a layer's collectives along tp: all-reduces, or gathers and scatters; or those of their hops."""
    part = replace(shape, context=shape.context // plan.cp, documents=())
    terms = traffic.tensor_of_layer(part, layer, plan.b, plan.t, bool(plan.sequence))
    if plan.overlap:  # t - 1 hops of a part; the embedding's sum and the loss are not in pieces
        hops = {"blocks": (plan.t - 1) / plan.t, "head": (plan.t - 1) / plan.t}
        terms = {(what, when): hops.get(what, 1) * size for (what, when), size in terms.items()}
    if not 0 < layer <= shape.layers or shape.experts == 1:
        return added(times[when] * size / (plan.x if what != "loss" else 1) for (what, when), size in terms.items())
    pairs = (shape.heads > 0) + shape.shared
    dense = added(times[when] * size for (_, when), size in terms.items()) / (1 + (shape.heads > 0)) * pairs
    return dense + _experts_along_tp(shape, plan, times["forward"])


def _experts_along_tp(shape: Shape, plan: Plan, forwards: int) -> float:
    """The elements along tp for a block's experts, see `modes.parts.cut_experts`; a count of eight bytes is four
    numbers.
    """
    tokens = plan.b * shape.context / plan.cp
    if plan.fold:
        every = lengths(shape, plan.n, "cost") if plan.n > 1 else (shape.context // plan.cp,)
        filled = plan.t * added(-(-plan.b * one // plan.t) for one in every)  # uneven parts are padded
        return (0 if plan.sequence else filled) * ((forwards + 1) * shape.width + shape.chosen)
    if plan.sequence:
        counts = plan.t * shape.experts / plan.ep * WIDTHS["counts"] / VALUE
        return forwards * counts + (forwards + 1) * 2 * tokens * shape.chosen * shape.width
    return (forwards + 1) * tokens * shape.width + tokens * shape.chosen


def _along_x(shape: Shape, plan: Plan, layer: int, forwards: int) -> float:
    """Bytes of a layer's all-reduces along x; those of norms have 32 bits, for the positions on this rank."""
    one = traffic.along_block(shape, plan.t) if layer <= shape.layers else traffic.along_head(shape, plan.t)
    if plan.spread_head and layer > shape.layers:
        norm, tokens = layer == shape.layers + 1, of_piece(shape, plan.p, place=layer - shape.layers - 2).whole
        one = one._replace(**{"forward": ()} if norm else {"forward": (tokens / shape.width,), "norms": ()})
    tokens = plan.b * shape.context / plan.cp
    norms = (forwards + 1) * len(one.norms) * 4 * tokens / (plan.t if plan.sequence else 1)
    return VALUE * tokens * (forwards * added(one.forward) + added(one.backward)) + norms


# --- gradients, and weights that are shared out --------------------------------------------------------------------


def weights_at(shape: Shape, plan: Plan, layers: list[int]) -> Held:
    """The weights of some layers on a rank."""
    return Held(*map(added, zip(*(_weights_of(shape, plan, layer) for layer in layers))))


def _kind(shape: Shape, plan: Plan, layer: int) -> tuple[Shape, Plan]:
    """The shape of a model whose blocks are all like this layer, with the plan as far as it concerns them."""
    kinds = of_kinds(shape, plan)
    return kinds[-1] if layer - 1 in shape.plain else kinds[0]


def _weights_of(shape: Shape, plan: Plan, layer: int) -> Held:
    shape = _kind(shape, plan, layer)[0]
    if 0 < layer <= shape.layers:
        return of_block(shape, plan.t, plan.x, plan.expert_ways, plan.expert_shards)
    if not plan.spread_head:
        return of_embedding(shape, plan.t, plan.x) if layer == 0 else of_head(shape, plan.t, plan.x, plan.p > 1)
    if layer == 0:  # a tied embedding is made of all pieces
        one = of_embedding(shape, plan.t, plan.x)
        return Held(whole=of_embedding(shape).alike) if shape.tied else one
    if layer == shape.layers + 1:
        return Held(whole=of_norm(shape, plan.x))
    piece = layer - shape.layers - 2
    return Held() if shape.tied and not piece else of_piece(shape, plan.p, plan.x, piece)


def _twice(shape: Shape, plan: Plan, layers: list[int]) -> Held:
    """The tied weights of these layers that another stage has too."""
    if not shape.tied or plan.p == 1:
        return Held()
    if plan.spread_head:
        first, *_, its = layers  # a stage ends with its piece of the head
        piece = of_piece(shape, plan.p, place=its - shape.layers - 2)
        return piece if first else Held(whole=shape.vocabulary * shape.width - piece.whole)
    return Held(of_head(shape, plan.t, plan.x).cut * (0 in layers or shape.layers + 1 in layers))


def _of_gradients(shape: Shape, plan: Plan, layers: list[int]) -> float:
    """Bytes to all-reduce gradients over copies, or to shard them and gather new weights; and the loads of experts."""
    held, tp = weights_at(shape, plan, layers), plan.t > 1
    twice = _twice(shape, plan, layers)
    its, others = plan.copies
    parts = (  # weights, their copies, and whether gradients are also reduced over ranks that do not shard them
        (held.cut - twice.cut, others, False),
        (twice.alike, others, True),
        (held.whole - twice.whole, others, tp and plan.sequence),
        (held.asked, others, tp),
        (held.keys, others, shape.heads > 0 and plan.t > shape.key_heads),
        (held.routed, its, False),
        (held.behind, its, tp and not plan.fold),
    )
    blocks = added(0 < layer <= shape.layers and layer - 1 not in shape.plain for layer in layers)
    tallies = blocks * shape.experts * TALLY * (shape.experts > 1 and (others > 1 or (tp and plan.sequence)))
    moves = SUM * max(_fragments(shape, plan, layers)) if plan.sync_every and plan.d > 1 else 0
    return moves + tallies + added(weights * _for_each(plan, copies, more) for weights, copies, more in parts)


def _fragments(shape: Shape, plan: Plan, layers: list[int]) -> list[float]:
    """The weights of each fragment on a rank. A tied matrix is in that of the first layer that uses it, the embedding;
    of a parallel block, attention and MLP are two layers."""
    found, pieces = [0.0] * plan.fragments, shape.pieces
    for layer in layers:
        held, number = _weights_of(shape, plan, layer), pieces * (layer - 1) + 1 if layer else 0
        if layer > shape.layers:
            number = pieces * shape.layers + layer - shape.layers
        elif layer and pieces > 1:
            mlp = added(_weights_of(replace(shape, heads=0, kv_heads=None, parallel=False), plan, layer))
            found[(number + 1) % plan.fragments] += mlp
            found[number % plan.fragments] -= mlp
        found[number % plan.fragments] += added(held)
        if shape.tied and layer > shape.layers:
            matrix = added(held) - of_norm(shape, plan.x) * (layer == shape.layers + 1)
            found[number % plan.fragments] -= matrix
            found[0] += matrix
    return found


def _for_each(plan: Plan, copies: int, more: bool) -> float:
    """The bytes that belong to one weight."""
    sharers = min(plan.z or copies, copies) if plan.zero else 1
    if sharers == 1:
        return SUM * (copies > 1 or more)
    if plan.two_levels and copies > sharers:
        return SUM + (SUM + VALUE) / sharers + SUM / copies * more + VALUE * (plan.zero < 3)
    return SUM + SUM / sharers * (copies > sharers or more) + VALUE * (plan.zero < 3)
