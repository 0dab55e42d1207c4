"""Loans: saved activations that another rank holds for a while, because it has memory to spare.

A move of a loan is a message. The rank that lends its memory receives it, and later, when it has arrived and the rank's
list requires it, sends it back. No move stops its rank: while a rank waits for something else, its loans continue.

Relatives: `scheduling.bpipe`, which makes loans; `core.when.law`; `runtime.player`, which submits the moves;
`modes.out_of_core.KeepingWork.move` and `emulated.EmulatedWork.move`, which start the messages. Source: BPipe, Kim et
al. 2023, ICML.
"""

import time

from hybridlab.world.talk.message import LOOK_SECONDS


class Loan:
    """One half of a move, on the rank that sends or on the one that receives.

    post    starts its message, and returns it;  before  copies that must be over first, such as the loan's arrival
    begin, end  marks of the clock
    """

    begin = end = 0

    def __init__(self, post, before: list, clock):
        self._post, self._before, self._clock, self._message, self._over = post, before, clock, None, False

    def go_on(self):
        """Start the loan's message if it can start, and settle it if it is over."""
        if not self._message and all(one.done() for one in self._before):
            self._start()
        if self._message and not self._over and self._message.done():
            self.wait()

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._over

    def wait(self):
        """Wait until it is over."""
        if not self._message:
            for one in self._before:
                one.wait()
            self._start()
        if not self._over:
            self._message.wait()
            self._over = True

    def _start(self):
        self.begin = self._clock.mark()
        self._message = self._post()
        self._message.when_over(self._note, self._clock)

    def _note(self, mark):
        self.end = mark


def carry_on(loans: list[Loan]):
    """Continue all loans of a rank; those that are over are removed from the list."""
    for one in loans:
        one.go_on()
    loans[:] = [one for one in loans if not one.done()]


def until_over(one, loans: list[Loan]):
    """Wait for a copy or a message, and continue the rank's loans meanwhile; returns the result of its `wait`."""
    while loans and not one.done():
        carry_on(loans)
        time.sleep(LOOK_SECONDS)
    return one.wait()
