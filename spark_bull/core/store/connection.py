"""Commands, pipelines, scripts and channels of one Redis: a server, or a cluster.

Every command goes through `Connection`, which repeats calls while Redis is unavailable (all scripts are idempotent)
and removes passwords from errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import redis

from spark_bull.core.errors import OptionError, PermissionDenied, RedisUnavailable, check_encodable
from spark_bull.core.keys import hash_tag
from spark_bull.core.options.redis_settings import RedisSettings, without_secrets
from spark_bull.core.store.client import RetryingClient, client_of, close_client
from spark_bull.core.store.errors import code_of
from spark_bull.core.store.scripts import CallStart, Command, RepeatedKeys, Value, key_of, load, packed
from spark_bull.core.store.server import Server, denials, exchange, warn_of_eviction
from spark_bull.core.store.servers import Node, Place, Servers, ShardServers

#: Maximum number of messages that one call receives.
MAX_RECEIVED: Final = 1_000
#: Maximum time until the answer to a blocking command, after the time for which it blocks.
BLOCKING_TIMEOUT_MS: Final = 10_000


class Connection:
    """Sends commands, pipelines and scripts to one Redis, which may be a cluster, or several servers that share shards.
    Cheap to create; picklable.

    With several servers, a call goes to the server of its first key. home: where calls without a key go, such as TIME:
    to the server of this key; None: to any server. A Node gets all calls.
    """

    def __init__(self, settings: RedisSettings, home: Place = None) -> None:
        self.settings = settings
        self.home = home

    def at(self, home: Place) -> Connection:
        """The same Redis with another home."""
        return Connection(self.settings, home)

    def having(self, **changes: Any) -> Connection:
        """The same Redis and home with other settings."""
        return Connection(replace(self.settings, **changes), self.home)

    @property
    def where(self) -> str:
        """The address, without secrets: the node's, if this is one."""
        return without_secrets(self.home.url) if isinstance(self.home, Node) else self.settings.where

    @property
    def arguments(self) -> Mapping[str, Any]:
        """redis-py's arguments of a connection to the server of this home, with the password."""
        return self._client.run_at(lambda servers: servers.at(self.home).settings)

    @property
    def is_cluster(self) -> bool:
        return self._client.run_at(lambda servers: servers.is_cluster)

    @property
    def is_divided(self) -> bool:
        """Whether keys are on several servers."""
        return self._client.run_at(lambda servers: servers.is_divided)

    def primaries(self) -> list[Connection]:
        """A connection to each of several primaries; to one server, and to one node, this connection."""
        if isinstance(self.home, Node) or not self.is_divided:
            return [self]
        return [self.at(node) for node in self._client.run_at(lambda servers: servers.primaries())]

    def site_of(self, key: str) -> int:
        """The number of the slot or the server of a key, else 0: one script can reach keys with the same number."""
        return self._client.run_at(lambda servers: servers.site_of(key))

    def hub_of(self, channel: str) -> int:
        """Channels with the same number can have one subscription."""
        return self._client.run_at(lambda servers: servers.hub_of(channel))

    def call(self, *command: Value) -> Any:
        """Sends one command; strings in the reply are bytes."""
        return self._client.run(lambda server: server.ask(*command), place=self._place_of(key_of(command)))

    def pipeline(self, commands: Sequence[Command], what: str = "a command", *, raw: bool = False) -> list[Any]:
        """Sends commands, also of several servers, in one round trip, without a transaction.

        Raises the first error, which names `what`. A script is a command by `script_command`. raw: replies as Redis
        sends them, for many large ones; None for a command on a key of another type.
        """

        def send(servers: Servers | ShardServers) -> list[Any]:
            if not servers.is_divided:
                server = servers.at(self.home)
                (replies,) = exchange([(server, commands)])
            else:
                parts = self._parts(servers, commands)
                server = next(iter(parts))
                exchanged = exchange([(one, [commands[n] for n in numbers]) for one, numbers in parts.items()])
                by_number = dict(zip(chain(*parts.values()), chain(*exchanged), strict=True))
                replies = [by_number[number] for number in range(len(commands))]
            if any(issubclass(kind, Exception) for kind in {*map(type, replies)}):
                replies = [_without_error(reply, raw) for reply in replies]
            return replies if raw else server.converted(commands, replies)

        return self._client.run_at(send, what) if commands else []

    def _parts(self, servers: Servers | ShardServers, commands: Sequence[Command]) -> Mapping[Server, list[int]]:
        """The numbers of the commands for each server. One without a key goes where the first one with a key goes."""
        places = [self._place_of(key_of(command)) for command in commands]
        first = next((place for place in places if place is not None), None)
        parts: dict[Server, list[int]] = defaultdict(list)
        for number, place in enumerate(places):
            parts[servers.at(first if place is None else place)].append(number)
        return parts

    def _place_of(self, key: str | bytes | None) -> Place:
        """Where a call with this first key goes: to this node, to the node of the key, or home."""
        return self.home if key is None or isinstance(self.home, Node) else key

    def script(self, name: str, keys: Mapping[str, Any], args: Mapping[str, Any] | None = None) -> Any:
        """Runs `lua/<name>.lua` with keys and arguments by the names in its contract."""
        script = load(name)
        args = args or {}
        start = keys.start_of(script) if isinstance(keys, RepeatedKeys) else CallStart(script, keys)
        values = script.bind_args(args)

        def send(server: Server) -> Any:
            try:
                return server.ask_packed(start.with_args(values))
            except redis.exceptions.NoScriptError:
                return server.ask_packed(packed(start.in_full(values)))
            except UnicodeEncodeError:
                check_encodable("args", args)
                raise

        return self._client.run(send, f"script `{script.name}`", self._place_of(start.keys[0] if start.keys else None))

    def subscribe(self, channels: Sequence[str], patterns: Sequence[str] = ()) -> Subscription:
        """Subscribes to channels of one hub, and to those that match patterns, on a separate connection.

        When it returns, no later message is missed, unless the connection is lost.
        """
        return Subscription(self._client, channels, patterns, self.settings.timeout_ms / 1000)

    def now_ms(self) -> int:
        """Time of Redis, ms since 1970."""
        return ms_of(self.call("TIME"))

    def denials(self, names: Sequence[str], key: str) -> dict[str, str]:
        """Returns which commands the ACL of the user denies, and why; names are as in an ACL: `xadd`, `client|list`.

        key: key, channel and argument of the commands, none of which is run: MULTI queues them, which includes the
        check of the rights, and the connection is closed. Raises ConnectionLost without permission for this itself.
        """
        return self._client.run(lambda server: denials(server.client, names, key), place=self.home or key)

    def clients(self) -> list[Mapping[str, str]]:
        """Returns the connections of this Redis, as CLIENT LIST describes them.

        In a cluster, of all nodes that can be reached. Raises ConnectionLost if none can.
        """
        found: list[Mapping[str, str]] = []
        nodes = self.primaries()
        lost: list[RedisUnavailable] = []
        for node in nodes:
            try:
                found += self._client.run(lambda server: list(server.client.client_list()), place=node.home)
            except RedisUnavailable as error:
                lost.append(error)
        if lost and len(lost) == len(nodes):
            raise lost[0]
        return found

    def close(self) -> None:
        """Closes the idle connections of this process; the next command opens a new one."""
        close_client(self.settings)

    @property
    def _client(self) -> RetryingClient:
        return client_of(self.settings)

    def check(self, prefix: str, queues: Sequence[str], *, write: bool) -> None:
        """Checks that this Redis can be used for `queues`, and warns if it may evict what is written to it.

        Raises ConnectionLost if it cannot be reached, rejects the password, is too old, or, with `write`, remains a
        replica. Raises OptionError if it is a cluster and a queue has no hash tag.
        """
        for server in [self] if self.is_cluster else self.primaries():
            info = server.server_info(write)
            if write:
                warn_of_eviction(server.where, info)
        self.check_tags(prefix, queues)

    def check_tags(self, prefix: str, queues: Sequence[str]) -> None:
        """Raises OptionError if this is a cluster and a queue has no hash tag."""
        for queue in queues if self.is_cluster else ():
            if not hash_tag(prefix, queue):
                raise OptionError(
                    f"{self.settings.where} is a Redis Cluster, where all keys of a queue must share a hash tag: "
                    f"expected one in `prefix` or `queue`, such as prefix={{{prefix}}}, got: prefix={prefix}, "
                    f"queue={queue}"
                )

    def replication(self, replicas: int = 0) -> Mapping[str, Any]:
        """Returns INFO about replication. Raises RedisUnavailable while fewer replicas than these are connected."""

        def send(server: Server) -> Mapping[str, Any]:
            info: Mapping[str, Any] = server.ask("INFO", "replication")
            if info["connected_slaves"] < replicas:
                raise redis.ResponseError(f"NOREPLICAS {info['connected_slaves']} of {replicas} are connected")
            return info

        return self._client.run(send, place=self.home)

    def server_info(self, write: bool = False) -> Mapping[str, Any]:
        """Returns INFO, empty without permission for it.

        Raises ConnectionLost for a Sentinel and, with `write`, ReadOnlyError for a replica.
        """

        def send(server: Server) -> Mapping[str, Any]:
            info: Mapping[str, Any] = server.ask("INFO")
            if write and info.get("role") == "slave":
                raise redis.exceptions.ReadOnlyError("INFO says role:slave")
            return info

        self.call("PING")
        try:
            return self._client.run(send, place=self.home)
        except PermissionDenied:
            return {}


def ms_of(time: Sequence[Any]) -> int:
    """A reply to TIME as ms since 1970."""
    seconds, micros = time
    return int(seconds) * 1000 + int(micros) // 1000


def _without_error(reply: Any, raw: bool) -> Any:
    """The reply; if raw, None for one to a command on a key of another type. Raises any other error."""
    if not isinstance(reply, Exception):
        return reply
    if raw and code_of(reply) == "WRONGTYPE":
        return None
    raise reply


class BlockingConnection(Connection):
    """A connection for commands that block for up to `wait_s`. Nothing else in the process uses its client."""

    def __init__(self, settings: RedisSettings, wait_s: float, home: Place = None) -> None:
        # Shorter than for other calls, so that a worker that waits soon notices a server that does not answer any more.
        timeout_ms = min(settings.timeout_ms, BLOCKING_TIMEOUT_MS)
        super().__init__(replace(settings, timeout_ms=timeout_ms + int(wait_s * 1000)), home)
        self._own = RetryingClient(self.settings)

    def close(self) -> None:
        """Closes the connection."""
        self._own.close()

    def stop_retrying(self) -> None:
        """Lets a call that waits in another thread raise its next error."""
        self._own.stop_retrying()

    @property
    def _client(self) -> RetryingClient:
        return self._own


class Subscription:
    """A subscription to channels. After ConnectionLost, messages may be missing: close it, and subscribe again."""

    def __init__(
        self, client: RetryingClient, channels: Sequence[str], patterns: Sequence[str], timeout_s: float
    ) -> None:
        self._client = client
        self._early: list[tuple[str, bytes]] = []
        first = next(iter([*channels, *patterns]))
        self._listener = client.run(
            lambda server: self._listen(server.client, channels, patterns, timeout_s), place=first
        )

    def _listen(
        self, client: redis.Redis, channels: Sequence[str], patterns: Sequence[str], timeout_s: float
    ) -> redis.client.PubSub:
        """Subscribes, and waits for the confirmation of each channel and pattern."""
        listener: redis.client.PubSub = client.pubsub()
        missing = len(channels) + len(patterns)
        try:
            for subscribe, names in ((listener.subscribe, channels), (listener.psubscribe, patterns)):
                if names:
                    subscribe(*names)
            while missing:
                message = listener.get_message(timeout=timeout_s)
                if message is None:
                    raise redis.TimeoutError("no answer to SUBSCRIBE")
                if _is_published(message):
                    self._early.append(_content(message))
                else:
                    missing -= 1
        except BaseException:
            listener.close()
            raise
        return listener

    def receive(self, timeout_s: float) -> list[tuple[str, bytes]]:
        """Waits for a message, at most `timeout_s`, and returns all that have arrived, as (channel, content)."""
        received, self._early = self._early, []
        with self._client.errors():
            message = self._listener.get_message(timeout=0 if received else timeout_s)
            while message is not None:
                if _is_published(message):
                    received.append(_content(message))
                message = self._listener.get_message(timeout=0) if len(received) < MAX_RECEIVED else None
        return received

    def close(self) -> None:
        self._listener.close()


def _is_published(message: Mapping[str, Any]) -> bool:
    return message["type"] in ("message", "pmessage")


def _content(message: Mapping[str, Any]) -> tuple[str, bytes]:
    return message["channel"].decode("utf-8", "replace"), message["data"]
