"""Asks for confirmation before jobs are deleted or repaired."""

from __future__ import annotations

import sys
from argparse import Namespace

from spark_bull.errors import OptionError


def confirm(args: Namespace, consequence: str, answer: str) -> None:
    """Asks the user to type `answer`, unless `--yes` is set.

    Raises OptionError without a terminal, or if the user types something else.
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(f"{consequence}: expected a terminal to ask for confirmation, got none; use --yes to confirm")
    # Standard output may be redirected.
    print(f"{consequence}. Type {answer} to continue: ", file=sys.stderr, end="", flush=True)
    if sys.stdin.readline().strip() != answer:
        raise OptionError("not confirmed, nothing was changed")
