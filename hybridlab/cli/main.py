"""From what was typed to an exit code: one command is run, and what goes wrong is told in one sentence.

Bad arguments end with exit code 2, a failing rank with 1; so does a check that finds ranks not equal to one device.
"""

import contextlib
import sys

import hybridlab
from hybridlab.cli import output
from hybridlab.cli.commands import COMMANDS, ON_RANKS
from hybridlab.cli.flags import open_exports
from hybridlab.cli.parser import ALL_FLAGS, WITH_A_JOB, Parser
from hybridlab.lazily import how_to_install

INTERRUPTED = 130  # as shells say it


@output.to_the_end
def main(arguments=None) -> int:
    """Run one command; returns the exit code."""
    try:
        typed = sys.argv[1:] if arguments is None else arguments
        if arguments is None:
            _foresee(typed)
        chosen, left = _parser(typed).parse_known_args(typed)
        if left:
            chosen.parser.unknown(left)
    except SystemExit as leaving:
        return leaving.code or 0
    except ModuleNotFoundError as error:  # flags of jobs are those of modes, which need torch
        return _not_installed(error, typed[0])
    try:
        open_exports(chosen)
        result = chosen.command(chosen)
    except (ValueError, FileNotFoundError) as error:
        sys.stderr.write(f"hybridlab {chosen.name}: {error}\n")
        return 2
    except ModuleNotFoundError as error:
        return _not_installed(error, chosen.name)
    except RuntimeError as error:
        if type(error).__name__ != "RankError":
            raise
        sys.stderr.write(f"hybridlab {chosen.name}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"hybridlab {chosen.name}: interrupted\n")
        return INTERRUPTED
    if chosen.json:
        print(output.as_json(result))
    return 0 if result.get("ok", True) else 1


def _not_installed(error: ModuleNotFoundError, command: str) -> int:
    """Say how to get the missing package; any other is a mistake of ours."""
    sentence = how_to_install(error)
    if not sentence:
        raise error
    sys.stderr.write(f"hybridlab {command}: {sentence}\n")
    return 2


def _foresee(typed):
    """Where a command needs ranks, their parent imports torch while this process does, to read the flags."""
    from hybridlab.world.processes.launch import foresee

    if typed and typed[0] in ON_RANKS and not {"-h", "--help", ALL_FLAGS} & set(typed):
        with contextlib.suppress(RuntimeError):  # the command says it
            foresee(ON_RANKS[typed[0]])


def _parser(arguments):
    """The parser of all commands; flags are those of the command that was typed, because some of them need torch."""
    parser = Parser(prog="hybridlab", description="Learn and do hybrid-parallel training.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {hybridlab.__version__}")
    commands = parser.add_subparsers(dest="name", required=True, parser_class=Parser, metavar="COMMAND")
    for name, (function, text, add) in COMMANDS.items():
        one = commands.add_parser(name, help=text, description=text)
        if name in WITH_A_JOB:
            one.in_groups(everything=ALL_FLAGS in arguments)
        one.flag("--json", action="store_true", help=f"print one JSON object on the last line; {output.NUMBERS}")
        one.set_defaults(command=function, parser=one)
        if name in arguments[:1]:
            add(one)
    return parser
