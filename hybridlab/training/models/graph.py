"""The layer graph: the earlier layers that are the inputs of each layer. By default a chain.

Layers are numbered in a sequence in which each layer comes after its inputs. Two layers with the same input, of which
none is an input of the other, are *branches*. A layer with several inputs is a *join*, called with one argument for
each:

    0 ─┬─ 1 ── 2 ─┬─ 4        takes={3: (0,), 4: (2, 3)}
       └─ 3 ──────┘           layer 4 is called as layer(y2, y3)

A *skip* is the short form of a join with the previous layer: skips={6: 3} means takes={6: (5, 3)}.

Relatives: `training.stages.Links`, the edges of this graph between stages; `scheduling.subgraph`, branches on disjoint
sets of ranks.
"""


def graph_of(layers: int, skips: dict[int, int], takes: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """{layer: the layers that are its inputs, in order}, for every layer; the first one takes the model's inputs, -1.

    >>> graph_of(4, skips={}, takes={2: (0,), 3: (1, 2)})
    {0: (-1,), 1: (0,), 2: (0,), 3: (1, 2)}
    >>> graph_of(3, skips={2: 0}, takes={})
    {0: (-1,), 1: (0,), 2: (1, 0)}
    """
    for name, links in (("skips", skips), ("takes", takes)):
        for there, sources in links.items():
            every = (there, *sources) if isinstance(sources, tuple | list) else (there, sources)
            if not all(isinstance(one, int) for one in every):
                raise ValueError(f"{name}={{{there!r}: {sources!r}}} does not name layers: give their indices, from 0")
    told = {there: (there - 1, source) for there, source in skips.items()} | {n: tuple(takes[n]) for n in takes}
    return {number: (number - 1,) for number in range(layers)} | told


def through(layers: list, graph: dict, inputs):
    """The output of all layers together for the given inputs."""
    return in_sequence(dict(enumerate(layers)), graph, {-1: inputs})[len(layers) - 1]


def in_sequence(layers: dict, takes: dict, made: dict) -> dict:
    """Run some layers of a model in sequence: {layer: its output}, starting with `made`, the outputs of earlier layers.

    takes  of the full model, see `graph_of`
    """
    for number, layer in layers.items():
        made[number] = layer(*(made[one] for one in takes[number]))
    return made


def refuse_lost(takes: dict[int, tuple[int, ...]], layers: int):
    """Raise an error unless every layer takes earlier layers as inputs, and every output is used.

    raises  ValueError that names the layer

    >>> refuse_lost({0: (-1,), 1: (0,), 2: (0,)}, 3)
    Traceback (most recent call last):
    ...
    ValueError: no layer takes the output of layer 1: give it to a later layer, takes={layer: (1, …)}
    """
    for there, sources in takes.items():
        earlier = range(there) if there else (-1,)
        if not sources or there >= layers or not set(sources) <= set(earlier):
            raise ValueError(
                f"takes={{{there}: {sources}}} does not lead from an earlier layer to a later one: choose layers from "
                f"0 to {layers - 1}"
            )
    taken = {source for sources in takes.values() for source in sources}
    for lost in sorted(set(range(layers - 1)) - taken):
        raise ValueError(
            f"no layer takes the output of layer {lost}: give it to a later layer, takes={{layer: ({lost}, …)}}"
        )
