"""The arguments of commands that run guards."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import Final

from spark_bull.core.model.guards import Guard
from spark_bull.ops.cli.arguments import duration, repeated
from spark_bull.ops.cli.times import seconds

GUARDING: Final = (
    repeated(
        "--guard", "CONDITION", 'pause a queue while its jobs fail: "failedRate > 0.2 over 1m", "failed > 50 over 5m"'
    ),
    duration("--resume-after", "time until a guard resumes the queue (default: 5m)", type=seconds, default=300.0),
)


def guards_of(args: Namespace, queues: Iterable[str]) -> list[Guard]:
    """The guards of a command for queues, names or globs. Raises OptionError."""
    return [Guard(queue, condition, args.resume_after) for queue in queues for condition in args.guard]
