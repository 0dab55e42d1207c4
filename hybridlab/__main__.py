"""`python -m hybridlab …`, and the command `hybridlab`: the command line."""

import signal
import sys


def _without_interrupts(found):
    """An interrupt in a callback of the import system cannot be caught: it is not printed, and everything else is."""
    if found.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(found)


def main() -> int:
    """Run the typed command. An interrupt, and any further one, ends it with a sentence, even while libraries load."""
    sys.unraisablehook = _without_interrupts
    try:
        from hybridlab.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("hybridlab: interrupted\n")
        return 128 + signal.SIGINT  # the exit code that shells use
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt


if __name__ == "__main__":
    sys.exit(main())
