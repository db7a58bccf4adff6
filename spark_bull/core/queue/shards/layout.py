"""Logical queues: `mail` with 8 shards is `mail{0}` to `mail{7}`, in slots of a cluster or on several servers.

Shard 0 has the layout: the number of shards, and the epoch, which grows when that number changes. Only what lists
queues or routes rows knows of shards: the rest of the package sees queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import QueueKeys, shard
from spark_bull.core.options.parts import Options, Reading, Sharded, SparkOptions
from spark_bull.core.options.redis_settings import urls_of
from spark_bull.core.options.values import AUTO
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle, opening
from spark_bull.core.queue.monitor.find import is_glob
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import run_all

D = TypeVar("D", bound=Options)


@dataclass(frozen=True)
class ShardLayout:
    """How many shards a logical queue has.

    most: the highest number that it has had, or is to have; jobs may be in any of them. next: the number that it gets
    when its shards are drained; None: no change is under way. writes: number of registered writes. servers: number of
    servers that share the shards. dialect: of all shards.
    """

    queue: str
    count: int
    most: int
    epoch: int
    writes: int
    servers: int
    dialect: str
    next: int | None = None

    @property
    def names(self) -> list[str]:
        """The queues that get jobs."""
        return shard_names(self.queue, self.count)

    @property
    def all_names(self) -> list[str]:
        """The queues that may have jobs."""
        return shard_names(self.queue, self.most)


def shard_names(queue: str, shards: int) -> list[str]:
    """The names of the queues that are the shards of a logical queue: `mail{0}`, `mail{1}`, …

    Parameters:
      queue: name of the logical queue.
      shards: number of its shards.

    Returns:
      The names, in the order of their numbers. A Node worker of each processes its jobs.
    """
    return [shard(queue, number) for number in range(shards)]


def layout_of(reply: Sequence[bytes] | dict[bytes, bytes], queue: str) -> ShardLayout | None:
    """The layout by the names and values that Redis has; None if there are none."""
    pairs = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    fields: dict[str, Any] = {name.decode(): value.decode() for name, value in pairs.items()}
    if not fields:
        return None
    dialect = fields.pop("dialect")
    return ShardLayout(queue, dialect=dialect, **{name: int(value) for name, value in fields.items()})


def read_layout(connection: Connection, prefix: str, queue: str) -> ShardLayout | None:
    """The layout of a logical queue; None if nothing was written to it yet."""
    return layout_of(connection.call("HGETALL", _first(prefix, queue)["shard_layout"]), queue)


def found_layout(options: Sharded, queue: str) -> ShardLayout | None:
    """As `read_layout`. Raises OptionError if it is not the layout of the options, or if there is none for `auto`."""
    _check_servers(options, queue)
    layout = read_layout(Connection(options.redis), options.prefix, queue)
    if layout is not None:
        _check_shards(layout, options)
    elif options.shards == AUTO:
        raise OptionError(
            f"expected queue {queue} to have shards, as {options.spelled('shards')}={AUTO} says, found no key of "
            f"{shard(queue, 0)} that says how many (prefix {options.prefix}): give their number"
        )
    return layout


def declared_layout(options: Sharded, queue: str) -> tuple[ShardLayout, QueueHandle]:
    """The layout of a queue, which is stored if there is none, and shard 0. Raises OptionError as `found_layout`."""
    layout = found_layout(options, queue)
    if layout is not None:
        return layout, open_handle(of_dialect(options, layout), shard(queue, 0))
    handle = open_handle(options, shard(queue, 0))
    args = {"count": options.shards, "dialect": handle.dialect.name, "servers": _servers(options)}
    reply = handle.connection.script("shards/declare", {"shard_layout": handle.keys["shard_layout"]}, args)
    layout = layout_of(reply, queue)
    assert layout is not None
    _check_shards(layout, options)
    for number, server in enumerate(_several(options)):
        server.call("SET", QueueKeys(queue, options.prefix)["shard_server"], number, "NX")
    _check_servers(options, queue)
    return layout, handle


def forget_layout(options: Options, queue: str) -> bool:
    """Removes the layout of a queue that was obliterated; returns whether nothing uses it."""
    connection, keys = Connection(options.redis), _first(options.prefix, queue)
    names = {"shard_layout": keys["shard_layout"], "open_writes": keys["open_writes"]}
    is_gone = bool(connection.script("shards/forget", names))
    for server in _several(options) if is_gone else ():
        server.call("DEL", QueueKeys(queue, options.prefix)["shard_server"])
    return is_gone


def queues_of(options: Sharded, queue: str) -> list[QueueHandle]:
    """Opens a queue; with the option `shards`, all of its shards that may have jobs. Raises OptionError."""
    if options.shards is None:
        return [open_handle(options, queue)]
    layout, _ = declared_layout(options, queue)
    own = of_dialect(options, layout)
    return run_all(Connection(options.redis), [opening(own, name) for name in layout.all_names])


def of_dialect(options: D, layout: ShardLayout) -> D:
    """The options with the dialect of the shards, some of which may not exist yet."""
    if options.protocol != AUTO:
        return options
    own = copy(options)
    own.protocol = layout.dialect
    return own


def spread(options: Sharded, queues: Iterable[str]) -> list[str]:
    """The queues that names and globs mean: with the option `shards`, all shards of each. Raises OptionError."""
    if options.shards is None:
        return list(queues)
    found = []
    for queue in queues:
        if is_glob(queue):
            raise OptionError(
                f"expected names of queues with `{options.spelled('shards')}`, got the glob {queue!r}: leave the "
                "option out, as a glob can match the shards"
            )
        layout = found_layout(options, queue)
        found += layout.all_names if layout else shard_names(queue, int(options.shards))
    return found


def selection_of(options: Reading) -> list[str]:
    """The names and globs in the option `queue`; names of shards as `spread` has them."""
    return spread(options, given_queues(options))


def given_queues(options: SparkOptions) -> list[str]:
    """The names and globs in the option `queue`; by default the glob of all queues."""
    return [part.strip() for part in (options.queue or "*").split(",") if part.strip()]


class Spread:
    """As `spread`, for programs that run for long: they follow changes of the number of shards. With `auto`, a queue
    that has no shards yet is left out.
    """

    def __init__(self, options: Sharded, queues: Iterable[str]) -> None:
        self._options, self._queues = options, [*queues]
        self._is_checked = False

    def names(self) -> list[str]:
        """Raises OptionError the first time, or ConnectionLost."""
        options = self._options
        if options.shards is None:
            return self._queues
        connection, found = Connection(options.redis), []
        layouts = {queue: read_layout(connection, options.prefix, queue) for queue in self._queues}
        if not self._is_checked:
            spread(options, [queue for queue in self._queues if layouts[queue] or options.shards != AUTO])
            self._is_checked = True
        for queue, layout in layouts.items():
            known = 0 if options.shards == AUTO else int(options.shards)
            found += layout.all_names if layout else shard_names(queue, known)
        return found


def _check_servers(options: Options, queue: str) -> None:
    """Raises OptionError if several servers are not in the order in which they got their shards."""
    for number, server in enumerate(_several(options)):
        was = server.call("GET", QueueKeys(queue, options.prefix)["shard_server"])
        if was is not None and int(was) != number:
            raise OptionError(
                f"expected the servers in `{options.spelled('shardUrls')}` in the same order as before, but number "
                f"{number + 1}, {server.where}, was number {int(was) + 1} of queue {queue}"
            )


def _several(options: Options) -> list[Connection]:
    """The servers that share shards; none if there is one."""
    return Connection(options.redis).primaries() if _servers(options) > 1 else []


def _check_shards(layout: ShardLayout, options: Sharded) -> None:
    if options.protocol not in (AUTO, layout.dialect):
        raise OptionError(
            f"expected `protocol` to be {layout.dialect}, the dialect of the shards of queue {layout.queue}, got: "
            f"{options.protocol}"
        )
    given, option = options.shards, options.spelled("shards")
    if given not in (AUTO, layout.count, layout.next):
        next_one = f", and is to have {layout.next}" if layout.next else ""
        raise OptionError(
            f"expected `{option}` to be {layout.count}, as queue {layout.queue} has as many shards{next_one}, got: "
            f"{given}; `spark-bull reshard {layout.queue} --shards {given}` changes it"
        )
    if layout.servers != _servers(options):
        raise OptionError(
            f"expected {layout.servers} servers in `{options.spelled('shardUrls')}`, on which the shards of queue "
            f"{layout.queue} are, got: {_servers(options)}"
        )


def _servers(options: Options) -> int:
    return len(urls_of(options.redis.url))


def _first(prefix: str, queue: str) -> QueueKeys:
    return QueueKeys(shard(queue, 0), prefix)
