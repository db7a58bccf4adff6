"""Parses the arguments, runs the command, and prints its output or error."""

from __future__ import annotations

import os
import re
import sys
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from spark_bull.core.errors import DialectError, OptionError, SparkBullError, did_you_mean
from spark_bull.core.version import VERSION
from spark_bull.ops.cli.arguments import COMMON, CONNECTION, TIME, Argument
from spark_bull.ops.cli.command import Command, Exit, Output
from spark_bull.ops.cli.commands import MODULES, all_commands, commands_like
from spark_bull.ops.cli.shards import run_command
from spark_bull.ops.cli.status import INTERRUPTED, PIPE_BROKEN, TERMINATED, WRONG_USAGE, status_of
from spark_bull.ops.cli.tables import as_json, as_text, one_line
from spark_bull.run.job.interrupts import Terminated, sigterm_raises

#: The file for spark-submit, which takes no console script.
_SUBMIT_FILE: Final = Path(__file__).with_name("__main__.py")
_HELP: Final = ("--help", "-h")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status, see `status.py`. An error is one line on standard error."""
    try:
        # From the start: the first process of a container ignores a signal that nothing handles.
        with sigterm_raises(Terminated()):
            return _run(_parsed(sys.argv[1:] if argv is None else argv))
    except Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Otherwise Python reports the broken pipe again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_BROKEN


def _run(args: Namespace) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        # Texts of jobs can have characters that the terminal has no form for, and unpaired surrogates.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        output, status = _ended(run_command(args))
        if output is not None:
            print(as_json(output) if args.json else as_text(output) or one_line(args.empty(args)), flush=True)
    except SparkBullError as error:
        print(f"spark-bull {args.command}: {one_line(_as_typed(error, args))}", file=sys.stderr)
        return status_of(error)
    return status


def _ended(output: Output) -> tuple[Output, int]:
    return (output.output, output.status) if isinstance(output, Exit) else (output, 0)


def _as_typed(error: SparkBullError, args: Namespace) -> str:
    """The message, in which `duration_ms`, an argument of Python, is `--duration`, as the user has typed it.

    A name that --option or --opts has given stays, as do names of unknown options: only --option has these.
    """
    text = str(error)
    if not isinstance(error, (OptionError, DialectError)) or text.startswith("unknown option"):
        return text
    given, opts = {name.lower() for name, _ in vars(args).get("option", ())}, vars(args).get("opts") or ""
    typed: dict[str, str] = {}
    for action in args.of_command._actions:
        name = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
        units = ("", "_ms", "_s") if action.metavar == TIME else ("",)
        typed |= {f"{one}{unit}": name for one in (action.dest, name.lstrip("-").replace("-", "_")) for unit in units}

    def renamed(found: re.Match[str]) -> str:
        if found[1].lower() in given or f'"{found[1]}"' in opts:
            return found[0]
        return f"`{typed.get(re.sub('[A-Z]', lambda capital: f'_{capital[0].lower()}', found[1]), found[1])}`"

    return re.sub(r"(?<!column )`(\w+)`", renamed, text)


def _parsed(given: Sequence[str]) -> Namespace:
    """Parses the arguments. For an unknown command or option, the error names the nearest one."""
    name = _name_of_command(given)
    if name == "":
        name, given = "help", [*(one for one in given if one not in _HELP), "help"]
    if name is not None and name not in MODULES:
        near = did_you_mean(name, MODULES)
        print(f"spark-bull: unknown command `{one_line(name)}`{near}; `spark-bull help` lists all", file=sys.stderr)
        raise SystemExit(WRONG_USAGE)
    args, unknown = parser(all_commands().values() if name is None else commands_like(name)).parse_known_args(given)
    if unknown:
        near = did_you_mean(unknown[0].partition("=")[0], args.of_command._option_string_actions)
        args.of_command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
    return args


def _name_of_command(argv: Sequence[str]) -> str | None:
    """Returns the name of the command; "" if there is nothing to do but to help; None for other arguments."""
    first = ArgumentParser(add_help=False, exit_on_error=False)
    _add(first, COMMON)
    first.add_argument(*_HELP, action="store_true")
    first.add_argument("command", nargs="?")
    try:
        args, unknown = first.parse_known_args(argv)
    except ArgumentError:
        return None
    return args.command or (None if unknown else "")


class _Help(RawDescriptionHelpFormatter):
    """Leaves out the arguments of the connection, which all commands have."""

    _LEFT_OUT: Final = frozenset(name for one in CONNECTION for name in one.names)

    def add_usage(self, usage: str | None, actions: Iterable[Action], *others: Any) -> None:
        super().add_usage(usage, [action for action in actions if not self._is_left_out(action)], *others)

    def add_argument(self, action: Action) -> None:
        if not self._is_left_out(action):
            super().add_argument(action)

    def _is_left_out(self, action: Action) -> bool:
        return not self._LEFT_OUT.isdisjoint(action.option_strings)


def parser(commands: Iterable[Command] | None = None) -> ArgumentParser:
    """Creates the argument parser of these commands; None: of all."""
    root = ArgumentParser(prog="spark-bull", usage="spark-bull COMMAND …; `spark-bull help` lists the commands")
    _add(root, COMMON)
    root.add_argument("--version", action="version", version=f"spark-bull {VERSION}")
    root.add_argument(
        "--submit-file", action="version", version=str(_SUBMIT_FILE), help="print the path of the file for spark-submit"
    )
    root.set_defaults(whole=parser)
    by_name = root.add_subparsers(dest="command", required=True, metavar="COMMAND", prog="spark-bull")
    for command in all_commands().values() if commands is None else commands:
        _add_command(by_name, command)
    return root


def _add_command(by_name: Any, command: Command) -> None:
    parser: ArgumentParser = by_name.add_parser(
        command.name,
        help=command.help,
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=f"example:\n  spark-bull {command.example}\n\nRedis and the queue: spark-bull help connection",
        formatter_class=_Help,
    )
    if command.of_queue:
        parser.add_argument("queue", help="name of the queue")
    _add(parser, command.arguments)
    # Also accepted after the command; SUPPRESS keeps values given before it.
    _add(parser, COMMON, default=SUPPRESS)
    parser.set_defaults(run=command.run, empty=command.empty, of_command=parser)


def _add(parser: ArgumentParser, arguments: Iterable[Argument], **settings: Any) -> None:
    for one in arguments:
        parser.add_argument(*one.names, **{**one.settings, **settings})
