"""Asks for confirmation before something is deleted or repaired."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_bull.core.errors import OptionError
from spark_bull.ops.cli.tables import one_line


@dataclass(frozen=True)
class Deletion:
    """What a command deletes, once the user has typed `answer`: `delete` does it, and returns the output."""

    what: str
    delete: Callable[[], Any]
    answer: str = "yes"


def confirmed(args: Namespace, outputs: Sequence[Any]) -> list[Any]:
    """The outputs of a command, each of one queue. Deletions are confirmed at once, then made. Raises OptionError."""
    deletions = [output for output in outputs if isinstance(output, Deletion)]
    if deletions:
        what = "; ".join(dict.fromkeys(deletion.what for deletion in deletions))
        confirm(args, f"this deletes {what}", deletions[0].answer)
    return [output.delete() if isinstance(output, Deletion) else output for output in outputs]


def confirm(args: Namespace, consequence: str, answer: str) -> None:
    """Asks the user to type `answer`, unless `--yes` is set.

    Raises OptionError without a terminal, or if the user types something else.
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(f"{consequence}: expected a terminal to ask for confirmation, got none; use --yes to confirm")
    # Standard output may be redirected.
    print(f"{one_line(consequence)}. Type {one_line(answer)} to continue: ", file=sys.stderr, end="", flush=True)
    if sys.stdin.readline().strip() != answer:
        raise OptionError("not confirmed, nothing was changed")
