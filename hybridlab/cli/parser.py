"""Parse the command line: report an error in one sentence, and show the many flags of a job in groups.

Every flag of a command with a job is in one line of `GROUPS` or `FURTHER`; a test finds missing ones.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from hybridlab.signatures import Argument, nearest

WITH_A_JOB = ("run", "check", "train", "reshard", "dry-run")  # commands that have some seventy flags
ALL_FLAGS = "--help-all"

GROUPS = {  # of the commands with a job: what a user wants, and the flags for it
    "layout": "schedule microbatches dp pp tp cp ep ranks chunks copies",
    "model and data": "model layers width heads context data weights batch",
    "training": "steps optimizer rate dtype seed zero recompute sequence",
    "the second layout": "to check at svg",
    "one rank of the job": "rank machine memory",
    "timed runs": "work F B I W latency jitter",
    "checkpoints and results": "checkpoint every resume async_save log save json",
}
FURTHER = {  # the same, shown by --help-all
    "further axes": "overlap directions x h w attend ulysses zigzag zigzag_over dispatch fold expert_copies scatter",
    "sizes of a transformer": "kv_heads per_head vocabulary inner dropout tied skips latent query_latent rotary",
    "experts of a transformer": "experts chosen shared scores balance pace capacity",
    "the optimizer's step": "warmup anneal betas clip validated accumulate decay sums sum_dtype master_dtype owners "
    "two_levels secondary offload muon predict_weights",
    "local steps": "sync_every fragments sync_delay mix outer_rate outer_momentum",
    "memory of a device": "device_memory make_room copy_time",
    "time limits": "hang_s",
    "order of the actions": "cut slices slicing ahead driven lost",
}
ADDED = "modes from outside the package"
GROUP_OF = {name: title for title, names in (GROUPS | FURTHER).items() for name in names.split()}
KINDS, METAVARS = {"int": int, "float": float, "str": str}, {"int": "N", "float": "X", "str": "NAME"}


class Mistyped(Exception):
    """An error in the command line, in one sentence."""


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one sentence.

    flagged  its arguments, as objects of argparse
    """

    def __init__(self, *given, **named):
        self.flags, self.flagged, self.sections, self.hidden, self.open = [], [], {}, (), self
        super().__init__(
            *given, formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=32), **named
        )

    def in_groups(self, everything: bool):
        """Show the following flags in groups; show those of `FURTHER` and of external modes only with --help-all."""
        self.hidden = () if everything else (*FURTHER, ADDED)
        self.add_argument(ALL_FLAGS, action="help", help="show the rarely used flags too")
        self.sections = {title: self.add_argument_group(title) for title in (*GROUPS, *FURTHER, ADDED)}

    def begin(self, title: str):
        """Show the flags that follow under a title."""
        self.open = self.add_argument_group(title)

    @contextmanager
    def either(self) -> Iterator[None]:
        """Inside, add flags of which a user may give only one."""
        titled, self.open = self.open, self.open.add_mutually_exclusive_group()
        yield
        self.open = titled

    def flag(self, *names, otherwise="", **how):
        """Add a flag, in its group if there are groups."""
        self.flags.append(names[0])
        title = GROUP_OF.get(names[0].lstrip("-").replace("-", "_"), otherwise)
        if title in self.hidden:
            how["help"] = argparse.SUPPRESS
        self.flagged.append(self.sections.get(title, self.open).add_argument(*names, **how))

    def error(self, message):
        see = " See" if message.endswith("?") else "; see"
        raise Mistyped(f"{self.prog}: {message}{see} {self.prog} --help")

    def unknown(self, words: list[str]):
        """Exit with a sentence about unknown words that names the nearest flag."""
        flag = words[0].split("=")[0]
        if not flag.startswith("-"):
            self.error(f"{flag!r} is one word too many: leave it out, or write its flag before it")
        self.error(f"there is no {flag}: {nearest(flag, self.flags)}")


def add(one, name: str, argument: Argument, otherwise="", **how):
    """Add a flag for an argument, with the argument's type, default and meaning."""
    kind = argument.type.split(" | ")[0]  # what can be typed comes first
    if kind == "bool":
        how = {"action": "store_true"} | how
    elif kind in KINDS:
        how = {"type": KINDS[kind], "metavar": METAVARS[kind]} | how
    elif kind.startswith("Literal"):
        how = {"metavar": "|".join(re.findall(r"'(\w+)'", kind))} | how
    usual = how.get("default", argument.usual)
    told = re.sub(r"\bwith (\w+)(?=:|$)", lambda found: f"with --{found[1].replace('_', '-')}", argument.meaning)
    typed = ",".join(map(str, usual)) if isinstance(usual, tuple) else usual
    told += "" if usual is None or usual is False else f" (default {typed})"
    told = told.replace("None: ", "if not given: ")
    one.flag(f"--{name.replace('_', '-')}", otherwise=otherwise, **{"default": usual, "help": told} | how)


def reader(kind: Callable) -> Callable:
    """The function with which argparse reads a value: a type, or our function, whose error message is then shown."""
    if isinstance(kind, type):
        return kind

    def typed(text: str):
        try:
            return kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed
