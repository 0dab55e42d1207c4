"""Pending operations during compute: reductions of gradients, gathers of weights, and the work after their end."""


class Sum:
    """A reduction in progress, and the function to call when it is over."""

    def __init__(self, message, take):
        self.message, self.take = message, take

    def wait(self):
        """Wait once until the reduction is over; its tensor is then freed, unless the function keeps it."""
        if self.take:
            take, self.take = self.take, None
            take(self.message.wait())
            self.message = None

    def arrive(self):
        """Wait for the message alone."""
        if self.message:
            self.message.wait()


class Sums(list):
    """A group of reductions with a single `wait`."""

    def wait(self):
        """Wait for all reductions of the group."""
        for one in self:
            one.wait()

    def when_over(self, note, clock):
        """Call note(mark) as each ends, see `Message.when_over`."""
        for one in self:
            one.message.when_over(note, clock)
        if not self:
            note(clock.mark())


class Arrival:
    """The weights of a stage while they are being sent."""

    def __init__(self, weights, packs):
        self.weights, self.packs = weights, packs

    def wait(self):
        """Wait until the weights have arrived."""
        for pack in self.packs:
            self.weights.arrive(pack)

    def when_over(self, note, clock):
        """Call note(mark) when each pack arrives; see `Message.when_over`."""
        for pack in self.packs:
            self.weights.gathering[pack].when_over(note, clock)
