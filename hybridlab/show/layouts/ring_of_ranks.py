"""A ring all-reduce: ranks on a ring, each with its chunks; in each step every rank sends one chunk to the next one.

A chunk is a row of stripes, one for each rank: a stripe is filled if that rank's numbers are in the sum.
"""

import math

from hybridlab.show.layouts.moving_parts import Part
from hybridlab.show.paper.sheet import heading, words
from hybridlab.show.paper.style import STYLE, ink_on

WIDTH, HEIGHT = 900, 590
ACROSS, DOWN, MIDDLE = 372, 206, 290  # the ellipse on which the cards are, and its height
STRIPES, NARROW = 112, 88  # the width of a chunk; on eight ranks
ROWS, HEAD, GAP = 120, 26, 3  # of a card: the height of all its chunks, its title, between chunks
PX, INK, MUTED, GREEN = STYLE["pixels"], STYLE["ink"], STYLE["muted"], STYLE["kinds"]["message"]["fill"]
HUES = [tint["forward"] for tint in STYLE["tints"]]
MOST = len(HUES)


class Ring:
    """A ring all-reduce, from the steps of each rank (`world.talk.ring.route`).

    size  bytes of the tensor on each rank; None: chunks are counted, not bytes
    sums  [step][rank][chunk]: the ranks whose numbers are in it, before the first and after each step

    >>> from hybridlab.world.talk.ring import route
    >>> one = Ring([route(2, 0), route(2, 1)], size=8)
    >>> one.sums[1], one.sent
    ([[{0}, {0, 1}], [{0, 1}, {1}]], [0.0, 4.0, 8.0])
    >>> one.told[1]
    'step 1 of 2, the receiver adds: rank 0 sends chunk 0 to rank 1, rank 1 sends chunk 1 to rank 0. Complete: 2 of 4.'
    """

    wide, tall = WIDTH, HEIGHT

    def __init__(self, routes: list, size: float | None = None):
        self.routes, self.size, self.ranks = routes, size, len(routes)
        self.stripes = STRIPES if self.ranks < 8 else NARROW  # cards of eight would lie on each other
        self.steps, chunk = len(routes[0]), size / len(routes) if size else 1
        self.sums = [[[{rank}] * self.ranks for rank in range(self.ranks)]]
        for number in range(self.steps):
            self.sums.append(self._after(self.sums[-1], number))
        self.sent = [chunk * number for number in range(self.steps + 1)]
        self.told = [self._told(number) for number in range(self.steps + 1)]
        total = f"of {megabytes(size)} MB each rank sends" if size else "each rank sends"
        self.summary = f"{total} {self._amount(self.steps)}"
        self.title = f"ring all-reduce, {self.ranks} ranks, {self.ranks} chunks"

    def _after(self, before, number):
        after = [list(row) for row in before]
        for rank, route in enumerate(self.routes):
            step, left = route[number], (rank - 1) % self.ranks
            came = before[left][self.routes[left][number].sends]
            after[rank][step.gets] = before[rank][step.gets] | came if step.adds else came
        return after

    def _amount(self, number):
        """The amount that a rank has sent after some steps."""
        if self.size:
            return f"{megabytes(self.sent[number])} MB"
        return "1 chunk" if number == 1 else f"{number} chunks"

    def _whole(self, number):
        return sum(len(one) == self.ranks for row in self.sums[number] for one in row)

    def _told(self, number):
        whole = f"Complete: {self._whole(number)} of {self.ranks**2}."
        if number == 0:
            return f"before the first step: every rank has its own numbers, in {self.ranks} chunks. {whole}"
        moves = [(rank, route[number - 1].sends, (rank + 1) % self.ranks) for rank, route in enumerate(self.routes)]
        sends = ", ".join(f"rank {rank} sends chunk {chunk} to rank {to}" for rank, chunk, to in moves)
        does = "adds" if self.routes[0][number - 1].adds else "copies"
        return f"step {number} of {self.steps}, the receiver {does}: {sends}. {whole}"

    def parts(self) -> list[Part]:
        """All that is drawn, from the back to the front."""
        places = [self._place(rank) for rank in range(self.ranks)]
        out = [Part(self._wires(places)), *self._middle()]
        out += [Part(self._card(rank, *place)) for rank, place in enumerate(places)]
        for rank, (x, y) in enumerate(places):
            for chunk in range(self.ranks):
                out += self._states(rank, chunk, x, y)
        for number in range(self.steps):
            out += [self._move(rank, number, places) for rank in range(self.ranks)]
        return out

    def _place(self, rank):
        """The left upper corner of a rank's chunks; rank 0 is at the top, and the next ones follow clockwise."""
        angle = 2 * math.pi * rank / self.ranks
        x, y = WIDTH / 2 + ACROSS * math.sin(angle), MIDDLE - DOWN * math.cos(angle)
        return x - self.stripes / 2, y - ROWS / 2 + HEAD / 2

    def _row(self):
        return min(30, ROWS / self.ranks)

    def _wires(self, places):
        ends = [(x + self.stripes / 2, y + ROWS / 2) for x, y in places]
        return "".join(
            f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" stroke="{STYLE["control"]}" stroke-width="2"/>'
            for (a, b), (c, d) in zip(ends, ends[1:] + ends[:1])
        )

    def _card(self, rank, x, y):
        tall = self.ranks * self._row()
        return (
            f'<rect x="{x - 8:.1f}" y="{y - HEAD:.1f}" width="{self.stripes + 16}" height="{tall + HEAD + 6:.1f}" '
            f'rx="4" fill="{STYLE["paper"]}" stroke="{INK}"/>'
            f'<rect x="{x:.1f}" y="{y - HEAD + 6:.1f}" width="14" height="14" fill="{HUES[rank]["fill"]}"/>'
            + words(x + 21, y - HEAD + 19, f"rank {rank}", PX["axis"], fill=INK)
        )

    def _states(self, rank, chunk, x, y):
        """A chunk of a rank: each of the sums that it becomes, and a frame after each step in which a chunk arrives."""
        y += chunk * self._row()
        history, at = [state[rank][chunk] for state in self.sums], 0
        while at <= self.steps:
            until = next((n for n in range(at + 1, self.steps + 1) if history[n] != history[at]), math.inf)
            yield Part(self._sum(history[at], x, y), at, until)
            if at:
                frame = (
                    f'<rect x="{x - 2:.1f}" y="{y - 1:.1f}" width="{self.stripes + 4}" height="{self._row() - 1:.1f}"'
                )
                yield Part(f'{frame} fill="none" stroke="{GREEN}" stroke-width="3"/>', at, at + 1)
            at = until

    def _sum(self, inside, x, y):
        wide, tall = self.stripes / self.ranks, self._row() - GAP
        out = f'<rect x="{x:.1f}" y="{y:.1f}" width="{self.stripes}" height="{tall:.1f}" fill="{STYLE["paper"]}"/>'
        for rank in sorted(inside):
            fill, left = HUES[rank]["fill"], x + rank * wide
            out += f'<rect x="{left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{fill}"/>'
            size = PX["axis"] if tall > 20 else PX["smallest"]
            if wide > 13 and tall > size:
                out += words(left + wide / 2, y + tall / 2 + size * 0.36, str(rank), size, "middle", fill=ink_on(fill))
        edge, thick = (INK, 2) if len(inside) == self.ranks else (STYLE["grid"], 1)
        frame = f'x="{x:.1f}" y="{y:.1f}" width="{self.stripes}" height="{tall:.1f}"'
        return f'{out}<rect {frame} fill="none" stroke="{edge}" stroke-width="{thick}"/>'

    def _move(self, rank, number, places):
        """A chunk on its way to the next rank, in one step."""
        chunk = self.routes[rank][number].sends
        (x, y), (right, down) = places[rank], places[(rank + 1) % self.ranks]
        y += chunk * self._row()
        frame = f'x="{x:.1f}" y="{y:.1f}" width="{self.stripes}" height="{self._row() - GAP:.1f}"'
        drawn = self._sum(self.sums[number][rank][chunk], x, y)
        drawn += f'<rect {frame} fill="none" stroke="{GREEN}" stroke-width="3"/>'
        return Part(drawn, number, number + 1, (round(right - x, 1), round(down - y + chunk * self._row(), 1)))

    def _middle(self):
        """The words in the middle of the ring: the step, what each rank has sent, and the formula."""
        bold = {"font-weight": "600"}
        for number in range(self.steps + 1):
            adds = number and self.routes[0][number - 1].adds
            does = "the receiver adds" if adds else "the receiver copies" if number else "before the first step"
            until = number + 1 if number < self.steps else math.inf
            step = f"step {number} of {self.steps}: {does}" if number else does  # short: a chunk passes next to it
            lines = words(WIDTH / 2, MIDDLE - 38, step, PX["heading"], "middle")
            told = f"{self._amount(number)} sent by each rank"
            yield Part(lines + words(WIDTH / 2, MIDDLE + 2, told, 30, "middle", **bold), number, until)
        if self.size:
            formula = f"2·(p−1)/p·n = 2·{self.ranks - 1}/{self.ranks}·{megabytes(self.size)} MB"
            told = f"{formula} = {self._amount(self.steps)}"
            yield Part(words(WIDTH / 2, MIDDLE + 38, told, PX["heading"], "middle"))
        key = words(WIDTH - 24, HEIGHT - 36, "a number: this rank is in the sum", PX["smallest"], "end", fill=MUTED)
        key += words(WIDTH - 24, HEIGHT - 14, "on its way, or just arrived", PX["smallest"], "end", fill=MUTED)
        pen = f'fill="none" stroke="{GREEN}" stroke-width="3"'
        key += f'<rect x="{WIDTH - 226}" y="{HEIGHT - 26}" width="18" height="14" {pen}/>'
        yield Part(heading(24, HEIGHT - 14, self.title, PX["axis"]) + key)


def megabytes(size: float) -> str:
    """Bytes in megabytes, to two decimals at most.

    >>> megabytes(18e6), megabytes(13_714_285)
    ('18', '13.71')
    """
    return f"{size / 1e6:.2f}".rstrip("0").rstrip(".")
