"""Parses the arguments, runs the command, and prints its output or error."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentError, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from spark_bull.core.errors import SparkBullError, did_you_mean
from spark_bull.core.options.table import PROTOCOLS
from spark_bull.core.version import VERSION
from spark_bull.ops.cli.command import Command, Ended, Output
from spark_bull.ops.cli.commands import all_commands, commands_like
from spark_bull.ops.cli.shards import run_command
from spark_bull.ops.cli.tables import as_json, as_text, one_line

#: Exit codes as in shells: after SIGINT, and after a broken pipe.
INTERRUPTED, PIPE_BROKEN = 130, 141
#: The file for spark-submit, which takes no console script.
_SUBMIT_FILE: Final = Path(__file__).with_name("__main__.py")


#: The defaults of the arguments of all commands.
_COMMON: Final = {"url": None, "prefix": None, "protocol": None, "shards": None, "no_scan": False, "json": False}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, or the command's, or 1 with one line on standard error.

    Invalid usage exits with 2.
    """
    args = _parsed(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, TextIOWrapper):
        # Texts of jobs can have characters that the terminal has no form for, and unpaired surrogates.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        output, status = _ended(run_command(args))
        if output is not None:
            print(as_json(output) if args.json else as_text(output), flush=True)
    except SparkBullError as error:
        print(f"spark-bull {args.command}: {one_line(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Otherwise Python reports the broken pipe again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_BROKEN
    return status


def _parsed(given: Sequence[str]) -> Namespace:
    """Parses the arguments. For an option that the command does not have, the error names the nearest one."""
    args, unknown = parser(commands_like(_name_of_command(given))).parse_known_args(given)
    if unknown:
        near = did_you_mean(unknown[0].partition("=")[0], args.of_command._option_string_actions)
        args.of_command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
    return args


def _ended(output: Output) -> tuple[Output, int]:
    return (output.output, output.status) if isinstance(output, Ended) else (output, 0)


def _name_of_command(argv: Sequence[str]) -> str | None:
    """Returns the name of the command; None without a command, with --help, and for invalid arguments."""
    first = ArgumentParser(add_help=False, exit_on_error=False)
    _add_common(first, _COMMON)
    first.add_argument("--help", "-h", action="store_true")
    first.add_argument("command", nargs="?")
    try:
        args, _ = first.parse_known_args(argv)
    except ArgumentError:
        return None
    return None if args.help else args.command


def parser(commands: Sequence[Command] | None = None) -> ArgumentParser:
    """Creates the argument parser of these commands; None: of all."""
    root = ArgumentParser(
        prog="spark-bull",
        description="Manages and processes queues of Bull and BullMQ.",
        epilog="Redis: --url, else $SPARK_BULL_URL, else redis://localhost:6379/0.",
    )
    _add_common(root, _COMMON)
    root.add_argument("--version", action="version", version=f"spark-bull {VERSION}")
    root.add_argument(
        "--submit-file", action="version", version=str(_SUBMIT_FILE), help="print the path of the file for spark-submit"
    )
    by_name = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in all_commands() if commands is None else commands:
        _add_command(by_name, command)
    root.set_defaults(whole=parser)
    return root


def _add_command(by_name: Any, command: Command) -> None:
    parser: ArgumentParser = by_name.add_parser(
        command.name,
        help=command.help,
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=f"example:\n  spark-bull {command.example}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    if command.of_queue:
        parser.add_argument("queue", help="name of the queue")
    for one in command.arguments:
        parser.add_argument(*one.names, **one.settings)
    # Also accepted after the command; SUPPRESS keeps values given before it.
    _add_common(parser, dict.fromkeys(_COMMON, SUPPRESS))
    parser.set_defaults(run=command.run, of_command=parser)


def _add_common(parser: ArgumentParser, defaults: Mapping[str, Any]) -> None:
    parser.add_argument(
        "--url", default=defaults["url"], help="URL of Redis: redis://, rediss:// or unix://; several for shards"
    )
    parser.add_argument("--prefix", default=defaults["prefix"], help="prefix of all keys (default: bull)")
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, default=defaults["protocol"], help="dialect of the queue (default: auto)"
    )
    parser.add_argument(
        "--shards",
        metavar="N",
        default=defaults["shards"],
        help="number of shards of the queue, or auto (default: none)",
    )
    parser.add_argument(
        "--no-scan",
        action="store_true",
        default=defaults["no_scan"],
        help="list only queues that spark_bull has used; skips the scan of all keys",
    )
    parser.add_argument("--json", action="store_true", default=defaults["json"], help="print JSON")
