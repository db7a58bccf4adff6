"""`--shards`: a command for all shards of a logical queue."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from spark_bull.cli.command import Output, options_of
from spark_bull.errors import OptionError
from spark_bull.keys import shard
from spark_bull.queue.shards.layout import spread

#: Commands that run for each shard.
EACH: Final = frozenset(
    {"page", "workers", "writes", "schedulers", "pause", "resume", "close-intake", "open-intake", "retry", "manage"}
    | {"clean", "drain", "obliterate", "recover"}
)
#: Commands that have several queues: they take the shards.
SEVERAL: Final = frozenset({"counts", "tail", "metrics"})
#: Commands that know the argument.
OWN: Final = frozenset({"reshard", "promote", "dispatch", "work", "collect", "report"})


def run_command(args: Namespace) -> Output:
    """Runs the command of these arguments; with `--shards`, for all shards of its queues, which are `logical`."""
    args.logical = []
    if args.shards is None or args.command in OWN:
        return args.run(args)
    if args.command in SEVERAL:
        given = {"queues": spread(options_of(args), args.queues), "shards": None, "logical": args.queues}
        return args.run(Namespace(**vars(args) | given))
    if args.command not in EACH or getattr(args, "ids", None):
        name = shard(getattr(args, "queue", "mail"), 0)
        raise OptionError(
            f"expected the name of a shard, such as {name}, got --shards, which `{args.command}` does not take for "
            "single jobs and settings: leave it out"
        )
    given = {"shards": None, "logical": [args.queue]}
    queues = spread(options_of(args), [args.queue])
    return [
        row for queue in queues for row in _rows(queue, args.run(Namespace(**vars(args) | given | {"queue": queue})))
    ]


def _rows(queue: str, output: Output) -> list[dict[str, Any]]:
    """The output of a command for one shard, as rows with its name."""
    rows = [output] if isinstance(output, Mapping) else output or []
    return [{"queue": queue, **row} for row in rows]
