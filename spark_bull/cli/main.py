"""Arguments in, a table or JSON out, and errors in one line."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spark_bull.cli.command import Command
from spark_bull.cli.commands import COMMANDS
from spark_bull.cli.tables import as_json, as_text
from spark_bull.errors import SparkBullError
from spark_bull.options import PROTOCOLS
from spark_bull.version import VERSION

#: As shells say it: ended by Ctrl-C, and by a reader that went away.
INTERRUPTED, PIPE_BROKEN = 130, 141
#: spark-submit wants a file, and not the command.
_SUBMIT_FILE: Final = Path(__file__).with_name("__main__.py")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, or 1 with one line on standard error. Bad usage exits with 2."""
    args = parser().parse_args(argv)
    try:
        found = args.run(args)
        if found is not None:
            print(as_json(found) if args.json else as_text(found), flush=True)
    except SparkBullError as error:
        print(f"spark-bull {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_BROKEN
    return 0


def parser() -> ArgumentParser:
    """The arguments of all commands."""
    whole = ArgumentParser(
        prog="spark-bull",
        description="Queues of Bull and BullMQ, from a shell.",
        epilog="Redis is the one of --url, else of $SPARK_BULL_URL, else the one on this machine.",
    )
    _add_common(whole, {"url": None, "prefix": None, "protocol": None, "json": False})
    whole.add_argument("--version", action="version", version=f"spark-bull {VERSION}")
    whole.add_argument(
        "--submit-file", action="version", version=str(_SUBMIT_FILE), help="print what spark-submit takes"
    )
    verbs = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        _add_command(verbs, command)
    return whole


def _add_command(verbs: Any, command: Command) -> None:
    parser: ArgumentParser = verbs.add_parser(
        command.name,
        help=command.help,
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=f"example:\n  spark-bull {command.example}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    if command.of_queue:
        parser.add_argument("queue", help="name of the queue")
    command.arguments(parser)
    # Also behind the verb; what isn't said there leaves alone what was said in front of it.
    _add_common(parser, dict.fromkeys(("url", "prefix", "protocol", "json"), SUPPRESS))
    parser.set_defaults(run=command.run)


def _add_common(parser: ArgumentParser, defaults: dict[str, Any]) -> None:
    parser.add_argument("--url", default=defaults["url"], help="redis://, rediss:// or unix://")
    parser.add_argument("--prefix", default=defaults["prefix"], help="first part of every key (bull)")
    parser.add_argument("--protocol", choices=PROTOCOLS, default=defaults["protocol"], help="dialect (auto)")
    parser.add_argument("--json", action="store_true", default=defaults["json"], help="JSON, for programs")
