"""The question before jobs are deleted."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from spark_bull.errors import OptionError


def takes_yes(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="don't ask")


def confirm(args: Namespace, consequence: str, answer: str) -> None:
    """Asks the user to type `answer`, unless `--yes` was given.

    Raises OptionError when there is no terminal, or when something else is typed.
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(f"{consequence}, and there is no terminal to ask: say --yes if you mean it")
    # Standard output may go to a file or program.
    print(f"{consequence}. Type {answer} to go on: ", file=sys.stderr, end="", flush=True)
    if sys.stdin.readline().strip() != answer:
        raise OptionError("nothing deleted")
