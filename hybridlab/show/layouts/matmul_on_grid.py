"""SUMMA or Cannon's algorithm on a square grid of ranks: in each step blocks move, then every rank multiplies and adds.

A card is a rank: its own blocks of A and B; the two blocks that it multiplies; its block of C, with a stripe for each
part of k that is added. A colour is a part of k, so the two blocks that are multiplied have the same colour.
"""

import math
from collections import Counter

from hybridlab.show.layouts.moving_parts import Part
from hybridlab.show.layouts.ring_of_ranks import megabytes
from hybridlab.show.paper.sheet import heading, words
from hybridlab.show.paper.style import STYLE, dashed, ink_on

WIDTH, HEIGHT = 720, 590
TOP, MARGIN, GAP = 100, 20, 12  # of the grid: above it, beside it; between cards
CARD, LARGEST = (162, 111), 1.5  # of the smallest cards, in pixels; how much larger cards may be
BLOCK, LEFT, ROWS, BESIDE = (
    (50, 23),
    46,
    (28, 55, 82),
    8,
)  # in a card: a block, its x, the y of the rows; between A and B
PX, INK, MUTED, PAPER = STYLE["pixels"], STYLE["ink"], STYLE["muted"], STYLE["paper"]
GREEN = STYLE["kinds"]["message"]["fill"]
HUES = [tint["forward"]["fill"] for tint in STYLE["tints"]]
NAMES = {"summa": "SUMMA", "summa_ahead": "SUMMA, one panel ahead", "cannon": "Cannon"}
ALIGNED = (
    "in row i, blocks of A move i ranks to the left; in column j, blocks of B move j ranks up"  # Cannon's first step
)
SIDES = range(2, 5)


class MatmulOnGrid:
    """A matmul on a grid, from its moments (`modes.products.steps.moments`) with one word in each block.

    size  bytes of each matrix; None: blocks are counted, not bytes
    sent  [step][rank]: the blocks that a rank has sent, before the first and after each step

    >>> from hybridlab.modes.products.steps import moments
    >>> one = MatmulOnGrid("cannon", moments("cannon", (2, 2, 2), (2, 2)), size=16)
    >>> one.sent
    [[0, 0, 0, 0], [0, 1, 1, 2], [2, 3, 3, 4]]
    >>> one.told[0]
    'before the first step: every rank has its own block of A and of B. Added: 0 of 2 parts.'
    """

    wide, tall = WIDTH, HEIGHT

    def __init__(self, algorithm: str, moments: list, size: float | None = None):
        self.algorithm, self.moments, self.size = algorithm, moments, size
        self.side, self.steps = math.isqrt(len(moments[0].a)), len(moments) - 1
        self.ranks, self.scale = range(self.side**2), self._scale()
        self.sent = [[0 for _ in self.ranks]]
        for moment in moments[1:]:
            leaving = Counter(one.source for one in moment.sends)
            self.sent.append([before + leaving[rank] for rank, before in enumerate(self.sent[-1])])
        self.told = [self._told(number) for number in range(self.steps + 1)]
        self.title = f"{NAMES[algorithm]}, {self.side} × {self.side} ranks"
        self.summary = self._summary()

    def _scale(self):
        across, down = WIDTH - 2 * MARGIN, HEIGHT - TOP - MARGIN / 2
        fits = [(space + GAP) / self.side / (length + GAP) for space, length in zip((across, down), CARD)]
        return min(LARGEST, *fits)

    # --- in words -----------------------------------------------------------------------------------------------------

    def mean(self, number: int) -> float:
        """The blocks that a rank has sent after some steps, on average."""
        return sum(self.sent[number]) / len(self.ranks)

    def _amount(self, blocks):
        if self.size:
            return f"{megabytes(blocks * self.size / len(self.ranks))} MB"
        return counted(blocks)

    def _summary(self):
        mean, most = self.mean(self.steps), max(self.sent[-1])
        of = f"of matrices of {megabytes(self.size)} MB " if self.size else ""
        at_most = f" on average, at most {self._amount(most)}" if most > mean else ""
        return f"{of}each rank sends {self._amount(mean)}{at_most}"

    def _told(self, number):
        added = f"Added: {len(self.moments[number].done[0])} of {self.side} parts."
        if number == 0:
            return f"before the first step: every rank has its own block of A and of B. {added}"
        return f"step {number} of {self.steps}: {self._moved(number)}. {self._multiplies(number)} {added}"

    def _moved(self, number):
        sends = self.moments[number].sends
        if not sends:
            return "nothing is sent"
        if self.algorithm == "cannon":
            return "blocks of A move one rank to the left, those of B one up" if number > 1 else ALIGNED
        of_a, of_b = (sorted({one.source for one in sends if one.what == what}) for what in "AB")
        along_rows = f"ranks {_list(of_a)} send their blocks of A along their rows"
        return f"{along_rows}, ranks {_list(of_b)} those of B along their columns"

    def _multiplies(self, number):
        before, now = self.moments[number - 1].done[0], self.moments[number].done
        if len(now[0]) == len(before):
            return "Nothing is multiplied yet."
        parts = [str(added[-1][0]) for added in now]
        who, which = "every rank multiplies", f"part {parts[0]} of k"
        if len(set(parts)) > 1:
            who, which = f"ranks 0 to {len(parts) - 1} multiply", f"parts {' '.join(parts)} of k"
        when = "Then" if self.algorithm != "summa_ahead" else "Meanwhile" if self.moments[number].sends else "Now"
        return f"{when} {who} {which}."

    # --- the drawing --------------------------------------------------------------------------------------------------

    def parts(self) -> list[Part]:
        """All that is drawn, from the back to the front."""
        out = [*self._head()]
        for rank in self.ranks:
            out += [Part(self._card(rank)), *self._counts(rank), *self._sums(rank)]
            out += [*self._own(rank, "A"), *self._own(rank, "B"), *self._multiplied(rank, "A")]
            out += self._multiplied(rank, "B")
        return out + [one for number in range(1, self.steps + 1) for one in self._moves(number)]

    def _corner(self, rank):
        """The left upper corner of a rank's card."""
        i, j = divmod(rank, self.side)
        across, down = ((length + GAP) * self.scale for length in CARD)
        left = (WIDTH - self.side * across + GAP * self.scale) / 2
        return left + j * across, TOP + i * down

    def _in_card(self, rank, x, y):
        """A place in a card, on the sheet."""
        left, top = self._corner(rank)
        return left + x * self.scale, top + y * self.scale

    def _slot(self, rank, what, row):
        """The place of a block: in row 0 are a rank's own blocks, in row 1 those that it multiplies."""
        return self._in_card(rank, LEFT + (BLOCK[0] + BESIDE) * (what == "B"), ROWS[row])

    def _box(self, place, size, pen):
        wide, tall = (length * self.scale for length in size)
        return f'<rect x="{place[0]:.1f}" y="{place[1]:.1f}" width="{wide:.1f}" height="{tall:.1f}" {pen}/>'

    def _text(self, rank, x, y, text, anchor="start", **more):
        return words(*self._in_card(rank, x, y), text, round(PX["axis"] * self.scale, 1), anchor, **more)

    def _card(self, rank):
        pen = f'rx="4" fill="{PAPER}" stroke="{STYLE["control"]}"'
        out = self._box(self._corner(rank), CARD, pen)
        out += self._text(rank, 8, 20, f"rank {rank}", fill=INK, **{"font-weight": "600"})
        for row, name in enumerate(("own", "A·B", "C")):
            out += self._text(rank, 8, ROWS[row] + 17, name, fill=INK)
        return out

    def _counts(self, rank):
        """The amount that a rank has sent, once for each of its values."""
        history = [one[rank] for one in self.sent]
        for at, until in _spells(history):
            yield Part(self._text(rank, CARD[0] - 8, 20, self._amount(history[at]), "end", fill=INK), at, until)

    def _sums(self, rank):
        """A rank's block of C: the parts of k that are added, each with a frame after its step."""
        wide, tall = (2 * BLOCK[0] + BESIDE) / self.side, BLOCK[1]
        place = lambda part: self._in_card(rank, LEFT + part * wide, ROWS[2])
        yield Part(self._empty(self._in_card(rank, LEFT, ROWS[2]), (wide * self.side, tall)))
        for number, span in enumerate(self.moments[-1].done[rank]):
            at = next(step for step, moment in enumerate(self.moments) if len(moment.done[rank]) > number)
            drawn = self._box(place(span[0]), (wide, tall), f'fill="{HUES[span[0]]}"')
            middle, base = LEFT + (span[0] + 0.5) * wide, ROWS[2] + 17
            drawn += self._text(rank, middle, base, str(span[0]), "middle", fill=ink_on(HUES[span[0]]))
            yield Part(drawn, at)
            yield Part(self._box(place(span[0]), (wide, tall), f'fill="none" {_pen(INK, 2)}'), at, at + 1)
        whole = self._box(self._in_card(rank, LEFT, ROWS[2]), (wide * self.side, tall), f'fill="none" {_pen(INK, 2)}')
        yield Part(whole, self.steps)

    def _own(self, rank, what):
        """A rank's own block; in Cannon's algorithm it leaves in the first step, and the place stays empty."""
        slot = self._slot(rank, what, 0)
        yield Part(self._block(rank, what, 0, slot), until=1 if self.algorithm == "cannon" else math.inf)
        if self.algorithm == "cannon":
            yield self._left(slot, 0)
            yield Part(self._empty(slot, BLOCK), 1)

    def _multiplied(self, rank, what):
        """The block in the second row of a card, from the step in which it comes until the next one comes."""
        slot = self._slot(rank, what, 1)
        yield Part(self._empty(slot, BLOCK))
        for number in range(1, self.steps + 1):
            last = number + 1 if number < self.steps else math.inf
            pen = _pen(GREEN) if self._source(rank, what, number) != rank else ""
            yield Part(self._block(rank, what, number, slot), number, last)
            if pen:
                yield Part(self._box(slot, BLOCK, f'fill="none" {pen}'), number, number + 1)
            if self.algorithm == "cannon" and number < self.steps:
                yield self._left(slot, number)

    def _source(self, rank, what, number):
        """The rank from which a block comes in a step."""
        sends = self.moments[number].sends
        return next((one.source for one in sends if (one.target, one.what) == (rank, what)), rank)

    def _moves(self, number):
        """All blocks on their way in one step; a block that stays on its rank goes to the second row."""
        if not self.moments[number].sends:
            return
        row = 1 if self.algorithm == "cannon" and number > 1 else 0
        come = [(self._source(rank, what, number), rank, what) for rank in self.ranks for what in "AB"]
        for source, rank, what in sorted(come, key=lambda one: one[0] != one[1]):  # messages lie on top
            begin, end = self._slot(source, what, row), self._slot(rank, what, 1)
            drawn = self._block(rank, what, number, begin)
            if source != rank:
                drawn += self._box(begin, BLOCK, f'fill="none" {_pen(GREEN)}')
            by = round(end[0] - begin[0], 1), round(end[1] - begin[1], 1)
            yield Part(drawn, number - 1, number, by)

    def _block(self, rank, what, number, place):
        """The block that a rank has after a step, with its row and column in the matrix."""
        moment, (i, j) = self.moments[number], divmod(rank, self.side)
        part = (moment.a if what == "A" else moment.b)[rank][0]
        name = f"{what} {i},{part}" if what == "A" else f"{what} {part},{j}"
        fill = HUES[part]
        x, y = place[0] + BLOCK[0] * self.scale / 2, place[1] + 17 * self.scale
        text = words(x, y, name, round(PX["axis"] * self.scale, 1), "middle", fill=ink_on(fill))
        return self._box(place, BLOCK, f'fill="{fill}" {_pen(PAPER, 1)}') + text

    def _left(self, slot, number):
        """The empty place of a block that is on its way: between two steps it covers the block that was there."""
        under = self._box(slot, BLOCK, f'fill="{PAPER}" {_pen(PAPER, 4)}')
        return Part(under + self._empty(slot, BLOCK), number, number + 1, (0, 0))

    def _empty(self, place, size):
        return self._box(place, size, f'fill="{PAPER}" stroke="{MUTED}" {dashed("absent tile")}')

    def _head(self):
        """The words above the grid: the algorithm, the step, what a rank has sent, and the formula."""
        yield Part(heading(MARGIN, 38, self.title))
        for number in range(self.steps + 1):
            until = number + 1 if number < self.steps else math.inf
            step = f"step {number} of {self.steps}" if number else "before the first step"
            yield Part(words(MARGIN, 60, step, PX["axis"]), number, until)
            sent = words(WIDTH - MARGIN, 38, self._amount(self.mean(number)), 36, "end", **{"font-weight": "600"})
            yield Part(sent, number, until)
        yield Part(words(WIDTH - MARGIN, 60, "sent by each rank, on average", PX["axis"], "end"))
        key = words(MARGIN, 84, "a colour: a part of k", PX["smallest"], fill=MUTED)
        key += f'<rect x="{MARGIN + 142}" y="72" width="18" height="14" fill="none" {_pen(GREEN)}/>'
        yield Part(key + words(MARGIN + 168, 84, "just arrived", PX["smallest"], fill=MUTED))
        if self.size:
            yield Part(words(WIDTH - MARGIN, 82, self.formula, PX["axis"], "end"))

    @property
    def formula(self) -> str:
        """The amount that a rank sends on average, as a formula in q, the side of the grid."""
        rule = "2·(q−1)·(q+1)/q" if self.algorithm == "cannon" else "2·(q−1)"
        mean = self.mean(self.steps)
        return f"{rule} = {counted(mean)} of {self._amount(1)} = {self._amount(mean)}"


def counted(blocks: float) -> str:
    """A number of blocks, to two decimals at most.

    >>> counted(4 / 3), counted(1)
    ('1.33 blocks', '1 block')
    """
    return f"{blocks:.2f}".rstrip("0").rstrip(".") + (" block" if blocks == 1 else " blocks")


def _list(ranks):
    return ", ".join(map(str, ranks))


def _pen(colour, wide=3):
    return f'stroke="{colour}" stroke-width="{wide}"'


def _spells(history):
    """The steps (from, to) between which a value stays the same."""
    begins = [at for at, value in enumerate(history) if not at or value != history[at - 1]]
    return zip(begins, [*begins[1:], math.inf])
