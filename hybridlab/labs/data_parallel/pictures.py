"""Notebook 21: the predicted backward and all-reduces of a large model, its explorer, and charts of measured times."""

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import ipywidgets

import hybridlab as hl
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.packs import packed
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.time.buckets import Overlap, made_by_work, overlap
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.still import Still
from hybridlab.show.timelines.buckets import Row, buckets

PENS = ((5, "solid", "circle"), (1, "solid", "square"), (1, "dot", "square-open"), (2, "dash", "diamond"))
KiB, MiB = 1 << 10, 1 << 20
SHAPE = hl.Shape(layers=12, width=768, heads=12, context=1024)
RANKS, SEQUENCES, FLOPS = 8, 8, 100e12  # sequences and floating-point operations per second of one rank
LINK = Link(alpha=30e-6, beta=1 / 25e9)  # 30 µs, 25 GB/s
FIRST, OTHER = MiB, 25 * MiB  # the sizes that PyTorch uses
ALL = float("inf")
SIZES = {"one gradient": 0, **{f"{n} MiB": n * MiB for n in (5, 10, 25, 50, 100)}, "the whole model": ALL}
FIRSTS = {"1 MiB": MiB, "like the others": ALL}
ALPHAS = {f"{n} µs": n * 1e-6 for n in (1, 3, 10, 30, 100, 300)}
RATES = {f"{n} GB/s": 1e-9 / n for n in (1, 5, 10, 25, 50, 100, 200)}  # as beta


class Model(NamedTuple):
    """A model to predict: the layout of its parameters, and the times at which its backward makes their gradients, in
    seconds.
    """

    layout: Layout
    made: dict[str, float]

    def packed(self, first: float, other: float) -> Layout:
        """The layout with packs of at most these bytes, filled by the runtime's own rule."""
        return _packed(self.layout, other if other == ALL else min(first, other), other)

    def sums(self, first: float, other: float, link: Link = LINK, early: bool = True) -> Overlap:
        """The all-reduces and the backward, for buckets of these sizes in bytes; size 0: each gradient alone."""
        return overlap(self.packed(first, other), self.made, link, early=early)

    def grouped(self, groups) -> Layout:
        """The layout with packs given as lists of names, in the order in which they are sent.

        raises  ValueError when a name is unknown, or a gradient is in no group or in several
        """
        return grouped(self.layout, groups)

    @property
    def gradients(self) -> list[tuple[str, int]]:
        """(name, bytes) of every gradient, in the order in which the backward makes them."""
        return [(param.name, 4 * math.prod(param.shape)) for param in reversed(self.layout.params)]


def grouped(layout: Layout, groups) -> Layout:
    """A layout with packs given as lists of names, in the order in which they are sent.

    raises  ValueError in one sentence when a name is unknown, or a gradient is in no group or in several

    >>> two = Layout(hl.Mesh(dp=2), (Param("a", (1,)), Param("b", (1,))))
    >>> grouped(two, [["b"], ["a"]]).packs
    {1: ['a'], 0: ['b']}
    """
    if not isinstance(groups, list | tuple) or not all(isinstance(group, list | tuple) and group for group in groups):
        raise ValueError("A bucket must be a non-empty list of names: give a list of buckets.")
    names = [name for group in groups for name in group]
    for name in names:
        if not isinstance(name, str) or name not in layout.named:
            raise ValueError(f"There is no gradient {name!r}: use the names in `gradients`.")
    for name in layout.named:
        if names.count(name) != 1:
            raise ValueError(f"{name} is in {names.count(name)} buckets: put every gradient into one.")
    number = {name: pack for pack, group in enumerate(groups) for name in group}
    return layout.with_params(lambda param: {"pack": number[param.name]})


@functools.cache
def _packed(layout, first, other):
    return packed(layout, dict.fromkeys(layout.named, (0,)), (first, other))


@functools.cache
def model(shape: hl.Shape = SHAPE, ranks: int = RANKS) -> Model:
    """A GPT on `ranks` replicas; each has SEQUENCES sequences and computes FLOPS operations per second.

    Its parameters are those of the reference model. All its blocks are equal, so one is built and counted repeatedly.
    """
    from hybridlab.training.models.gpt import GPT

    shapes = [(name, tuple(weight.shape)) for name, weight in GPT(replace(shape, layers=1)).named_parameters()]
    block = [one for one in shapes if one[0].startswith("blocks.0.")]
    start = shapes.index(block[0])
    every = [(name.replace("blocks.0.", f"blocks.{k}."), size) for k in range(shape.layers) for name, size in block]
    every = shapes[:start] + every + shapes[start + len(block) :]
    layout = Layout(hl.Mesh(dp=ranks), tuple(Param(name, size, partial=("dp",)) for name, size in every))
    return Model(layout, made_by_work(layout, SEQUENCES * shape.context, FLOPS))


def three() -> Still:
    """The three forms of data parallelism on one time axis: after, each, buckets."""
    one = model()
    forms = {
        "after: wait for the whole backward, then one all-reduce for each gradient": one.sums(0, 0, early=False),
        "each: an all-reduce for every gradient as soon as it is made": one.sums(0, 0),
        "buckets: one all-reduce for 25 MiB of gradients": one.sums(FIRST, OTHER),
    }
    return buckets(*(Row(name, one.made, predicted=sums) for name, sums in forms.items()), title="Three forms")


def state(size: str, first: str, alpha: str, rate: str, waits: bool) -> Still:
    """The explorer's picture for one setting of its controls."""
    other, link = SIZES[size], Link(ALPHAS[alpha], RATES[rate])
    one = model()
    found = one.sums(FIRSTS[first], other, link, early=not waits)
    name = f"bucket: {size}, first bucket: {first}, link: {alpha} and {rate}"
    return buckets(Row(name, one.made, predicted=found), title="Explorer of buckets", least=1.6 * found.end)


class Explorer(ipywidgets.VBox):
    """Controls over a picture of a backward and its buckets; `summary` is the picture in words.

    Two buttons next to the sliders make buckets smaller and larger; Tab and Space on the keyboard reach them.
    """

    def __init__(self):
        wide = {"style": {"description_width": "110px"}, "layout": {"width": "420px"}}
        slider = lambda name, options, value: ipywidgets.SelectionSlider(
            description=name, options=list(options), value=value, **wide
        )
        self.size = slider("bucket", SIZES, "25 MiB")
        self.first = slider("first bucket", FIRSTS, "1 MiB")
        self.alpha, self.rate = slider("α of the link", ALPHAS, "30 µs"), slider("1/β of the link", RATES, "25 GB/s")
        apart = {"margin": "2px 2px 2px 24px"}
        self.waits = ipywidgets.Checkbox(description="wait for the whole backward", indent=False, layout=apart)
        self._picture = ipywidgets.HTML()
        controls = self.size, self.first, self.alpha, self.rate, self.waits
        for one in controls:
            one.observe(self._show, "value")
        rows = [[self._button("◀", "smaller buckets", -1), self._button("▶", "larger buckets", 1), self.size]]
        rows += [[self.first, self.waits], [self.alpha, self.rate]]
        super().__init__([*(ipywidgets.HBox(row) for row in rows), self._picture])
        self._show()

    def _button(self, sign, told, by):
        button = ipywidgets.Button(description=sign, tooltip=told, layout={"width": "48px"})
        button.on_click(lambda _: self._move(by))
        return button

    def _move(self, by):
        names = list(SIZES)
        self.size.value = names[min(max(names.index(self.size.value) + by, 0), len(names) - 1)]

    def _show(self, _=None):
        self._still = state(self.size.value, self.first.value, self.alpha.value, self.rate.value, self.waits.value)
        self._picture.value = self._still.svg

    @property
    def summary(self) -> str:
        """The picture in words."""
        return self._still.summary

    def _repr_mimebundle_(self, **more):
        bundle = super()._repr_mimebundle_(**more)
        return {**bundle, "image/svg+xml": self._still.svg, "text/plain": self.summary}


def mine(groups) -> Still:
    """The large model's backward with given buckets, which are lists of names."""
    one = model()
    found = overlap(one.grouped(groups), one.made, LINK)
    return buckets(Row("your buckets", one.made, predicted=found), title="Your buckets", least=1.6 * found.end)


def over_sizes(link: Link = LINK) -> dict[str, tuple[int, float]]:
    """{bucket size: (number of all-reduces, exposed seconds)}, predicted for the large model."""
    found = {name: model().sums(FIRST, size, link) for name, size in SIZES.items()}
    return {name: (len(one.buckets), one.exposed) for name, one in found.items()}


def over_sizes_chart() -> Figure:
    """The predicted exposed time of the large model over the bucket size, labelled with the number of all-reduces; the
    curve has a minimum."""
    found = {name: one for name, one in over_sizes().items() if name != "one gradient"}
    at, ms = list(range(len(found))), [1e3 * exposed for _, exposed in found.values()]
    curve = Curve("predicted", at, ms, 1, "dash", "square-open", [f"{count}" for count, _ in found.values()])
    told = "; ".join(f"{name} {one:.1f} ms" for name, one in zip(found, ms))
    x = Axis("bytes in a bucket", -0.4, len(at) - 0.5, marks=dict(zip(at, found)))
    title = "Exposed communication over the size of a bucket; a number counts the all-reduces"
    return chart([curve], x, Axis("ms", 0, 1.15 * max(ms)), title, f"Exposed: {told}")


def enough_tokens(rate: float, link: float, width: int = 2) -> float:
    """Tokens on a GPU whose backward takes as long as an all-reduce among many ranks: K = gC/(2W).

    rate  FLOP/s of a GPU, C;  link  bytes/s that it sends, W;  width  bytes of a gradient, g

    >>> enough_tokens(312e12, 25e9), enough_tokens(FLOPS, 25e9, width=4)
    (12480.0, 8000.0)
    """
    return width * rate / (2 * link)


# --- measured -----------------------------------------------------------------------------------------------------


def valley(runs: dict[int, Row]) -> Figure:
    """Backward and all-reduces over the size of a bucket: the fastest measured step, and its prediction."""
    at = [math.log2(size) for size in runs]
    seen, said = ([1e3 * _whole(getattr(row, name)) for row in runs.values()] for name in ("measured", "predicted"))
    sums = [f"sums: {len(row.measured.buckets)}" for row in runs.values()]
    curves = [
        Curve("measured", at, seen, 5, "solid", "circle", sums),
        Curve("predicted", at, said, 1, "dash", "square-open"),
    ]
    x = Axis("bytes in a bucket", at[0] - 0.4, at[-1] + 1.2, marks={math.log2(n): f"{n // KiB} KiB" for n in runs})
    told = "; ".join(f"{n // KiB} KiB: {a:.0f} ms, predicted {b:.0f} ms" for n, a, b in zip(runs, seen, said))
    y = Axis("ms", 0, 1.15 * max(seen + said))
    return chart(curves, x, y, "Backward and all-reduces on two ranks, over the size of a bucket", f"Measured: {told}")


def _whole(one):
    return one.end + one.exposed - one.start


def learned(runs: dict[str, list[float]], batches: dict[str, int], each: int = 512) -> Figure:
    """Loss over sequences seen, for runs with several batch sizes; a point is the mean over `each` sequences."""
    curves, told = [], []
    for (name, losses), (colour, dash, marker) in zip(runs.items(), PENS):
        points = means(losses, batches[name], each)
        curves.append(Curve(name, [each * (i + 1) for i in range(len(points))], points, colour, dash, marker))
        told.append(f"{name}: {points[-1]:.2f}")
    x = Axis("sequences seen", 0, curves[0].x[-1] * 1.03)
    most = max(max(curve.y) for curve in curves)
    y = Axis("nats per byte", 2, most * 1.05)
    return chart(curves, x, y, "Loss over sequences seen, measured on two ranks", f"Last point: {'; '.join(told)}")


def means(losses: list[float], batch: int, samples: int) -> list[float]:
    """The mean loss of every `samples` sequences, from one loss for every step of `batch` sequences.

    >>> means([4.0, 2.0, 1.0, 1.0], batch=8, samples=16)
    [3.0, 1.0]
    """
    each = max(1, samples // batch)
    return [sum(losses[i : i + each]) / each for i in range(0, len(losses), each)]
