"""From the command line to an exit code: one command runs, and an error is reported in one sentence.

Bad arguments end with exit code 2. A failing rank ends with 1; so do a check that finds ranks not equal to one device,
and a dry run whose rank does not fit. A training run that was asked to stop ends as an interrupted command does, so
that no script continues with half of the training.
"""

import contextlib
import sys

import hybridlab
from hybridlab.cli import output
from hybridlab.cli.commands import COMMANDS, ON_RANKS
from hybridlab.cli.examples import shown
from hybridlab.cli.exports import open_exports
from hybridlab.cli.parser import ALL_FLAGS, WITH_A_JOB, Mistyped, Parser
from hybridlab.lazily import how_to_install, refuse_lost_folder

WITHOUT_TORCH = ("schedule", "simulate", "plan", "notebooks", "--version", "--help", "-h")


@output.to_the_end
def main(arguments=None) -> int:
    """Run one command, and return the exit code. With --json an error is the last line, as an object."""
    typed = sys.argv[1:] if arguments is None else arguments
    name = next((f"hybridlab {word}" for word in typed[:1] if word in COMMANDS), "hybridlab")
    try:
        if typed[:1] and typed[0] not in WITHOUT_TORCH:
            refuse_lost_folder()
        if arguments is None:
            _foresee(typed)
        chosen = _read(typed)
        open_exports(chosen)
        result = chosen.command(chosen)
    except Mistyped as error:
        return _ended(str(error), 2, typed)
    except SystemExit as leaving:  # help and version
        return leaving.code or 0
    except (ValueError, FileNotFoundError) as error:
        return _ended(f"{name}: {error}", 2, typed)
    except ModuleNotFoundError as error:  # flags of jobs are those of modes, which need torch
        if not (sentence := how_to_install(error)):
            raise  # a mistake of ours
        return _ended(f"{name}: {sentence}", 2, typed)
    except RuntimeError as error:
        if type(error).__name__ != "RankError":
            raise
        return _ended(f"{name}: {error}", 1, typed)
    except KeyboardInterrupt as error:
        return _ended(f"{name}: {str(error) or 'interrupted'}", output.INTERRUPTED, typed)
    if chosen.json:
        print(output.as_json(result))
    return result.get("code", 0 if result.get("ok", True) else 1)


def _ended(sentence: str, code: int, typed) -> int:
    """Report an error."""
    sys.stderr.write(f"{sentence}\n")
    if "--json" in typed:
        print(output.as_json({"error": sentence, "code": code}))
    return code


def _read(typed):
    """The parsed command line: a command with its values.

    raises  Mistyped in a sentence
    """
    chosen, left = _parser(typed).parse_known_args(typed)
    if left:
        chosen.parser.unknown(left)
    for action in chosen.parser.flagged:
        if getattr(chosen, action.dest, None) == "":
            what = action.option_strings[0] if action.option_strings else action.metavar or action.dest
            chosen.parser.error(f"{what} is empty: give a value, or leave it out")
    return chosen


def _foresee(typed):
    """If a command needs ranks, their parent imports torch while this process imports it to read the flags."""
    from hybridlab.world.processes.launch import foresee

    if typed and typed[0] in ON_RANKS and not {"-h", "--help", ALL_FLAGS} & set(typed):
        with contextlib.suppress(RuntimeError):  # the command says it
            foresee(ON_RANKS[typed[0]])


def _parser(arguments):
    """The parser of all commands, with the flags of the typed command only, because some flags need torch."""
    parser = Parser(prog="hybridlab", description=f"Learn and use hybrid-parallel training.\n\n{shown('')}")
    parser.add_argument("--version", action="version", version=f"%(prog)s {hybridlab.__version__}")
    commands = parser.add_subparsers(dest="name", required=True, parser_class=Parser, metavar="COMMAND")
    for name, (function, text, add) in COMMANDS.items():
        one = commands.add_parser(name, help=text, description=f"{text}\n\n{shown(name)}")
        if name in WITH_A_JOB:
            one.in_groups(everything=ALL_FLAGS in arguments)
        one.flag(
            "--json",
            action="store_true",
            help=f"also print the result as JSON, on the last line ({output.NUMBERS})",
        )
        one.set_defaults(command=function, parser=one)
        if name in arguments[:1]:
            add(one)
    return parser
