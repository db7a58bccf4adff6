"""The type of a command, and what several do: open queues, ask for confirmation, end on a signal."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.parse import as_texts, parse_options
from spark_bull.core.options.parts import Sharded
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.core.queue.monitor.find import exists, is_glob, matches, select_queues
from spark_bull.core.queue.shards.layout import spread
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli.arguments import Argument
from spark_bull.ops.cli.status import NotFound
from spark_bull.ops.cli.tables import one_line

if TYPE_CHECKING:
    from spark_bull.core.queue.bull_queue import BullQueue


#: The output of a command: rows, the properties of one object, or lines.
Output = Any


@dataclass(frozen=True)
class Exit:
    """The output of a command that ends with another exit status than 0."""

    output: Output
    status: int


@dataclass(frozen=True)
class Command:
    """A command of the command line; `command` makes one."""

    name: str
    help: str
    example: str
    run: Callable[[Namespace], Output]
    arguments: Sequence[Argument]
    of_queue: bool
    empty: Callable[[Namespace], str]


def command(
    name: str,
    help: str,
    example: str,
    run: Callable[[Namespace], Output],
    *arguments: Argument,
    of_queue: bool = True,
    empty: Callable[[Namespace], str] = lambda args: "nothing",
) -> Command:
    """A command. run: called with the parsed arguments; of_queue: whether the first argument is a queue.

    empty: what is said for people in place of an empty list.
    """
    return Command(name, help, example, run, arguments, of_queue, empty)


def name_of(args: Namespace) -> str:
    """The name of the queue in the arguments; with `--shards`, the name of the logical queue."""
    return str(args.logical[0] if args.logical else args.queue)


def open_queue(args: Namespace, queue: str | None = None, **options: Any) -> BullQueue:
    """Opens the queue in the arguments, which may not exist."""
    # It has all verbs, and so imports far more than commands that count or list.
    from spark_bull.core.queue.bull_queue import BullQueue

    return BullQueue(queue or args.queue, url=args.url, prefix=args.prefix, protocol=args.protocol, **options)


def existing_queue(args: Namespace, queue: str | None = None) -> BullQueue:
    """Opens the queue in the arguments. Raises NotFound if it does not exist, unless it is a shard."""
    opened = open_queue(args, queue)
    check_exists(args, opened.handle)
    return opened


def existing_handle(args: Namespace, queue: str) -> QueueHandle:
    """Opens a queue for functions of `spark_bull.core.queue`. Raises SparkBullError as `existing_queue`."""
    handle = open_handle(options_of(args), queue)
    check_exists(args, handle)
    return handle


def check_exists(args: Namespace, handle: QueueHandle) -> None:
    """Raises SparkBullError if the queue does not exist, unless it is a shard, which may be to come."""
    if not args.logical and not exists(handle.connection, handle.keys):
        raise no_queue(handle.keys.queue, handle.keys.prefix, handle.connection)


def no_queue(what: str, prefix: str, connection: Connection) -> NotFound:
    """The error for queues that do not exist. what: their names."""
    return NotFound(f"no such queue: {what} (prefix {prefix}, {connection.where}); `spark-bull queues` lists all")


def check_queues(options: Sharded, queues: Sequence[str]) -> None:
    """Raises NotFound if none of these queues, names and globs, exists."""
    connection, prefix, names = Connection(options.redis), options.prefix, spread(options, queues)
    if not any(exists(connection, QueueKeys(queue, prefix)) for queue in select_queues(connection, prefix, names)):
        raise no_queue(", ".join(queues), prefix, connection)


def say_missing(args: Namespace, options: Sharded, queues: Iterable[str]) -> None:
    """Says which of these names and globs have no queue yet: a name may be misspelled. Other errors are not raised."""
    with suppress(SparkBullError):
        for queue in queues:
            try:
                check_queues(options, [queue])
            except NotFound as missing:
                waits = "" if vars(args).get("once") else "; waiting for it"
                print(f"spark-bull {args.command}: {missing}{waits}", file=sys.stderr, flush=True)


def queues_of(args: Namespace, names: Sequence[str]) -> list[str]:
    """Resolves names and globs to queue names without duplicates. Raises SparkBullError if a glob matches none."""
    options = options_of(args)
    found = select_queues(Connection(options.redis), options.prefix, names)
    for name in names:
        if is_glob(name) and not matches(found, name):
            raise NotFound(f"no such queue: none matches {name} (prefix {options.prefix})")
    return found


def options_of(args: Namespace, **further: Any) -> ReadOptions:
    """Returns the connection arguments, and further ones, as options of the data source."""
    given = {"url": args.url, "prefix": args.prefix, "protocol": args.protocol, "queue": "*", "shards": args.shards}
    return parse_options(as_texts(given | {"scanKeys": not args.no_scan} | further), ReadOptions)


@dataclass(frozen=True)
class Deletion:
    """What a command deletes, once the user has typed `answer`: `delete` does it, and returns the output."""

    what: str
    delete: Callable[[], Any]
    answer: str = "yes"


def confirmed(args: Namespace, outputs: Sequence[Any]) -> list[Any]:
    """The outputs of a command, each of one queue. Deletions are confirmed at once, then made."""
    deletions = [output for output in outputs if isinstance(output, Deletion)]
    if deletions:
        what = "; ".join(dict.fromkeys(deletion.what for deletion in deletions))
        confirm(args, f"this deletes {what}", deletions[0].answer)
    return [output.delete() if isinstance(output, Deletion) else output for output in outputs]


def confirm(args: Namespace, consequence: str, answer: str) -> None:
    """Asks the user to type `answer`, unless `--yes` is set.

    Raises OptionError without a terminal, SparkBullError if the user types something else.
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(f"{consequence}: expected a terminal to ask for confirmation, got none; use --yes to confirm")
    # Standard output may be redirected.
    print(f"{one_line(consequence)}. Type {one_line(answer)} to continue: ", file=sys.stderr, end="", flush=True)
    if sys.stdin.readline().strip() != answer:
        raise SparkBullError("not confirmed, nothing was changed")


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Lets SIGINT and SIGTERM end what runs within: the regular way to stop it."""
    with suppress(KeyboardInterrupt):
        yield
