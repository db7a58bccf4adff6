"""What a command is, and the queues that its arguments name."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from spark_bull.errors import SparkBullError
from spark_bull.options import READ, Options, as_texts, parse_options
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.find import exists, find_queues, is_glob
from spark_bull.queue.handle import QueueHandle
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

#: What a command has found: rows, the properties of one thing, or lines.
Found = Any


@dataclass(frozen=True)
class Command:
    """One verb of the command line. `run` gets the arguments; `of_queue` says that a queue is the first of them."""

    name: str
    help: str
    example: str
    run: Callable[[Namespace], Found]
    arguments: Callable[[ArgumentParser], None] = lambda parser: None
    of_queue: bool = True


def open_queue(args: Namespace, queue: str | None = None) -> BullQueue:
    """The queue of the arguments, which need not exist."""
    return BullQueue(queue or args.queue, url=args.url, prefix=args.prefix, protocol=args.protocol)


def existing_queue(args: Namespace, queue: str | None = None) -> BullQueue:
    """The queue of the arguments. Raises SparkBullError when it does not exist."""
    opened = open_queue(args, queue)
    check_exists(opened.handle)
    return opened


def check_exists(handle: QueueHandle) -> None:
    """Raises SparkBullError when there is no such queue."""
    if not exists(handle):
        keys, where = handle.keys, handle.connection.settings.where
        raise SparkBullError(
            f"no such queue: {keys.queue} (prefix {keys.prefix}, {where}); `spark-bull queues` lists all"
        )


def queues_of(args: Namespace, names: Sequence[str]) -> list[str]:
    """The queues that names and globs stand for, each once. Raises SparkBullError when a glob matches none."""
    options = options_of(args)
    there: list[str] = []
    if any(map(is_glob, names)):
        there = find_queues(Connection(settings_of(options)), options["prefix"])
    found: dict[str, None] = {}
    for name in names:
        matching = [queue for queue in there if fnmatchcase(queue, name)] if is_glob(name) else [name]
        if not matching:
            raise SparkBullError(f"no such queue: none matches {name} (prefix {options['prefix']})")
        found |= dict.fromkeys(matching)
    return list(found)


def options_of(args: Namespace) -> Options:
    """How Redis is reached, as options of the data source."""
    given = {"url": args.url, "prefix": args.prefix, "protocol": args.protocol, "queue": "*"}
    return parse_options(as_texts(given), READ)
