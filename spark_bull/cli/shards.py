"""`--shards`: a command for all shards of a logical queue."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from spark_bull.cli.command import Output, options_of
from spark_bull.errors import OptionError, SparkBullError
from spark_bull.keys import QueueKeys, shard
from spark_bull.queue.monitor.find import exists
from spark_bull.queue.shards.layout import forget_layout, read_layout, spread
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

#: Commands that run for each shard.
EACH: Final = frozenset(
    {"page", "workers", "writes", "schedulers", "pause", "resume", "close-intake", "open-intake", "retry", "manage"}
    | {"groups", "clean", "drain", "obliterate", "recover", "trim-events", "remove-orphans"}
)
#: Commands that have several queues: they take the shards.
SEVERAL: Final = frozenset({"counts", "tail", "metrics", "doctor"})
#: Commands that know the argument.
OWN: Final = frozenset({"reshard", "promote", "dispatch", "work", "collect", "report"})


def run_command(args: Namespace) -> Output:
    """Runs the command of these arguments; with `--shards`, for all shards of its queues, which are `logical`."""
    args.logical = []
    if args.shards is None or args.command in OWN:
        return args.run(args)
    if args.command in SEVERAL:
        queues = [name for queue in args.queues for name in _existing(args, queue)]
        given = {"queues": queues, "shards": None, "logical": args.queues}
        return args.run(Namespace(**vars(args) | given))
    ids = getattr(args, "ids", None)
    if args.command not in EACH or ids:
        queue = getattr(args, "queue", None)
        name = shard(queue if isinstance(queue, str) else "mail", 0)
        raise OptionError(
            f"expected the name of a shard, such as {name}, got --shards, which `{args.command}` does not take"
            f"{' with ids of jobs' if ids else ''}: leave it out"
        )
    given = {"shards": None, "logical": [args.queue]}
    rows = [
        row
        for queue in _existing(args, args.queue)
        for row in _rows(queue, args.run(Namespace(**vars(args) | given | {"queue": queue})))
    ]
    if args.command == "obliterate":
        forget_layout(options_of(args), args.queue)
    return rows


def _existing(args: Namespace, queue: str) -> list[str]:
    """The shards of a logical queue. Raises SparkBullError if none exists."""
    options = options_of(args)
    names, connection, prefix = spread(options, [queue]), Connection(settings_of(options)), options["prefix"]
    if read_layout(connection, prefix, queue) or any(exists(connection, QueueKeys(name, prefix)) for name in names):
        return names
    raise SparkBullError(
        f"no such queue: {queue} with shards, such as {names[0]} (prefix {prefix}, {connection.settings.where}); "
        "`spark-bull queues` lists all"
    )


def _rows(queue: str, output: Output) -> list[dict[str, Any]]:
    """The output of a command for one shard, as rows with its name."""
    rows = [output] if isinstance(output, Mapping) else output or []
    return [{"queue": queue, **row} for row in rows]
