"""Runs a command for its queue, or with `--shards` for all shards of a logical queue."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import QueueKeys, shard
from spark_bull.core.queue.monitor.find import exists
from spark_bull.core.queue.shards.layout import forget_layout, read_layout, spread
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli.command import Output, confirmed, no_queue, options_of

#: Commands that run for each shard.
EACH: Final = frozenset(
    {"page", "workers", "writes", "schedulers", "pause", "resume", "close-intake", "open-intake", "groups", "recover"}
    | {"retry", "delay", "prioritize", "update", "complete", "fail", "remove", "free", "discard-children"}
    | {"clean", "drain", "obliterate", "trim-events", "remove-orphans"}
)
#: Commands that have several queues: they take the shards.
SEVERAL: Final = frozenset({"counts", "tail", "metrics", "doctor"})
#: Commands that know the argument.
OWN: Final = frozenset({"reshard", "promote", "dispatch", "work", "collect", "report"})


def run_command(args: Namespace) -> Output:
    """Runs the command of these arguments; with `--shards`, for all shards of its queues, which are `logical`."""
    args.logical = []
    if args.shards is None or args.command in OWN:
        (output,) = confirmed(args, [args.run(args)])
        return _together(args.queue, [(args.queue, output)]) if args.json and args.command in EACH else output
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
    given, shards = {"shards": None, "logical": [args.queue]}, _existing(args, args.queue)
    outputs = [args.run(Namespace(**vars(args) | given | {"queue": name})) for name in shards]
    output = _together(args.queue, [*zip(shards, confirmed(args, outputs), strict=True)])
    if args.command == "obliterate":
        forget_layout(options_of(args), args.queue)
    return output


def _existing(args: Namespace, queue: str) -> list[str]:
    """The shards of a logical queue. Raises SparkBullError if none exists."""
    options = options_of(args)
    names, connection, prefix = spread(options, [queue]), Connection(options.redis), options.prefix
    if read_layout(connection, prefix, queue) or any(exists(connection, QueueKeys(name, prefix)) for name in names):
        return names
    raise no_queue(f"{queue} with shards, such as {names[0]}", prefix, connection)


def _together(queue: str, outputs: Sequence[tuple[str, Output]]) -> Output:
    """The outputs of a command for parts of a queue as one: rows with the names of the parts, or sums and all ids."""
    _, first = outputs[0]
    if not isinstance(first, Mapping):
        return [{"queue": name, **row} for name, rows in outputs for row in rows]
    sums: dict[str, Any] = {
        name: sum((output[name] for _, output in outputs), () if isinstance(value, tuple) else 0)
        for name, value in first.items()
        if isinstance(value, (int, tuple))
    }
    return {**first, **sums, "queue": queue}
