"""Progress of the ranks, reported by them during a run and drawn by the kernel as one bar."""

import contextlib
import time

QUIET_SECONDS = 0.1  # minimum time between two reports of one rank


def progress(comm, items):
    """Yield the items of a sequence, and regularly report to the kernel how many are done."""
    told = 0.0
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - told > QUIET_SECONDS or done == len(items):
            told = time.monotonic()
            comm.emit(done=done, of=len(items))


class Bar(contextlib.AbstractContextManager):
    """One bar for all ranks, at the progress of the slowest: `with Bar(4) as bar: pool.run(f, on_event=bar)`.

    Events without progress are ignored. The bar appears with the first report, and disappears at the end.
    """

    def __init__(self, ranks: int):
        self._done = dict.fromkeys(range(ranks), 0)
        self._bar = None

    def __call__(self, rank: int, event: dict):
        """Process one event of one rank."""
        if not event.keys() >= {"done", "of"}:
            return
        if self._bar is None or self._bar.total != event["of"]:
            self._restart(event["of"])
        self._done[rank] = event["done"]
        slowest = min(self._done, key=self._done.get)
        self._bar.set_description(f"rank {slowest} is last", refresh=False)
        self._bar.update(self._done[slowest] - self._bar.n)

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.close()

    def _restart(self, total):
        from tqdm.auto import tqdm  # imported here, because ranks also run without a notebook's packages

        self.__exit__()
        self._done = dict.fromkeys(self._done, 0)
        self._bar = tqdm(total=total, leave=False)


class Steps(contextlib.AbstractContextManager):
    """One line on stderr for a training run, from its first step on: the number of steps done, and the last loss."""

    def __init__(self, steps: int):
        self._steps, self._bar = steps, None

    def __call__(self, rank: int, event: dict):
        """Process one event of one rank. Of other events, only the checkpoint from which a run resumes is printed."""
        if "resumed" in event:
            print(event["resumed"])
        if "loss" not in event:
            return
        if self._bar is None:
            from tqdm.auto import tqdm  # imported here, because ranks also run without a notebook's packages

            self._bar = tqdm(total=self._steps, unit="step")
        self._bar.set_postfix_str(f"loss {event['loss']:.4f}", refresh=False)
        self._bar.update(event["step"] + 1 - self._bar.n)

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.close()
