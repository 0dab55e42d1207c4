"""Define a search problem: a graph, a mesh and a machine, with the seconds and bytes of any strategy.

Without overlap, as `modes.products.layouts` runs it, the time of a step is a sum over each operator's work on one rank,
forward and backward, and every arrow's collectives. With `overlap` the step is simulated as a schedule, with reductions
of gradients during the backward: then it is no longer a sum, and the cost of a choice depends on distant choices.

Memory is counted at the end of the forward: a rank's parts of all given tensors, with a gradient for each trained one,
every result, and every copy made by a collective. `room` limits it in a search.

Source: Jia, Zaharia, Aiken 2018, arXiv:1807.05358, section 5. Relatives: `core.what.operators`, `predict.bytes.arrows`,
`predict.search.played`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.operators import Choice, Graph, Operator, Strategy, choices
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.states import State, conjugate, dim_of, made, spoken
from hybridlab.doors import BYTES, guarded
from hybridlab.predict.bytes.arrows import Arrow, arrows, resting
from hybridlab.predict.bytes.halos import Window
from hybridlab.predict.search.pieces import Seconds, piece
from hybridlab.predict.search.played import Part, played
from hybridlab.predict.search.profile import Measured, Rated


class Price(NamedTuple):
    """Seconds of a reshard's collectives in the forward and in the backward, and bytes of the copy that they create."""

    there: float
    back: float
    bytes: float


@guarded(room=BYTES)
@dataclass(frozen=True, eq=False)
class Problem:
    """A graph, a mesh and the costs of a machine, for which a search finds the fastest strategy.

    graph    of operators and tensors
    mesh     the mesh over which it is sharded
    profile  the times of operators and messages
    room     bytes that a rank may hold;  overlap  whether reductions of gradients overlap with the backward

    >>> from hybridlab.core.what.operators import shared
    >>> from hybridlab.core.what.programs import mlp
    >>> problem = Problem(mlp(), Mesh(x=2), Rated())
    >>> sorted(problem.choices["down"])
    [('',), ('B',), ('D',), ('F',), ('T',)]
    """

    graph: Graph
    mesh: Mesh
    profile: Rated | Measured
    room: float = math.inf
    overlap: bool = False

    @cached_property
    def choices(self) -> dict[str, list[Choice]]:
        """{operator: its legal choices}."""
        return {one.name: choices(one, self.graph.sizes, self.mesh) for one in self.graph.operators}

    @cached_property
    def count(self) -> int:
        """The number of strategies."""
        return prod(map(len, self.choices.values()))

    def seconds(self, strategy: Strategy) -> float:
        """The time of a step, forward and backward.

        raises  ValueError for an illegal strategy
        """
        parts = self.parts(strategy)
        return played(parts).length if self.overlap else added(part.seconds for part in parts)

    def parts(self, strategy: Strategy) -> list[Part]:
        """The parts of a step, operator by operator. A reshard belongs to the first operator that uses its result."""
        there, back, sums = ({one.name: 0.0 for one in self.graph.operators} for _ in range(3))
        for arrow in arrows(self.graph, strategy, self.mesh):
            price, user = self.price(arrow), (arrow.users or (self.graph.result.name,))[0]
            there[user] += price.there
            (sums if arrow.value in self.graph.given else back)[user] += price.back
        return [
            Part(one.name, *self.work(one, strategy[one.name]), there[one.name], back[one.name], sums[one.name])
            for one in self.graph.operators
        ]

    def bytes(self, strategy: Strategy) -> float:
        """The bytes that a rank holds at the end of the forward."""
        every, rest = arrows(self.graph, strategy, self.mesh), resting(self.graph, strategy, self.mesh)
        given = added(self.at_rest(name, state) for name, state in rest.items())
        results = added(self.result(one, strategy[one.name]) for one in self.graph.operators)
        return given + results + added(self.price(arrow).bytes for arrow in every)

    def fits(self, strategy: Strategy) -> bool:
        """Whether a rank has enough memory for the strategy."""
        return self.room == math.inf or self.bytes(strategy) <= self.room

    # --- the parts of these sums ------------------------------------------------------------------------------

    def work(self, operator: Operator, choice: Choice) -> Seconds:
        """The time of a rank's part of an operator."""
        return self._once(("work", operator, choice), lambda: self.profile.of(self._piece(operator, choice)))

    def price(self, arrow: Arrow) -> Price:
        """The time of a reshard's collectives, and the bytes of their result."""
        key = arrow.dims, arrow.before, arrow.after, arrow.halo, arrow.learns
        return self._once(key, lambda: self._price(arrow))

    def at_rest(self, name: str, state: State) -> float:
        """Bytes of an input, and of its gradient if it is trained."""
        return (1 + (name in self.graph.learns)) * self._bytes(self.graph.given[name], state)

    def result(self, operator: Operator, choice: Choice) -> float:
        """Bytes of an operator's output."""
        return self._bytes(operator.result, made(operator.result, choice))

    def _piece(self, operator, choice):
        return piece(self.graph, operator, choice, self.mesh)

    def _price(self, arrow: Arrow) -> Price:
        there = [self._takes(move.arrow, move) for move in arrow.moves]
        there += [self._fetches(window, window.busiest()) for window in arrow.halo]
        back = [self._takes(conjugate(move.arrow), move) for move in arrow.moves if arrow.learns]
        back += [self._fetches(window, window.busiest(backward=True)) for window in arrow.halo if arrow.learns]
        return Price(added(there), added(back), self._bytes(arrow.dims, arrow.after) if any(there) else 0.0)

    def _takes(self, arrow, move) -> float:
        op, ways = spoken(arrow), self.mesh.length(move.axis)
        if not op or ways == 1:
            return 0.0
        return self.profile.link(op, move.axis).seconds(op, ways, move.elements * self.profile.word)

    def _fetches(self, window: Window, elements) -> float:
        """Messages to both neighbours, sent at the same time."""
        if not elements:
            return 0.0
        return self.profile.link("send", "+".join(window.axes)).seconds("send", 2, elements * self.profile.word)

    def _bytes(self, dims, state) -> float:
        ways = prod(self.mesh[axis] for axis, one in zip(self.mesh.axes, state) if dim_of(one))
        return self.profile.word * prod(self.graph.lengths(dims)) / ways

    @cached_property
    def _known(self) -> dict:
        return {}

    def _once(self, key, compute):
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]
