"""Commands, pipelines, scripts and channels of one Redis: a server, or a cluster.

Every command goes through `Connection`, which repeats calls while Redis is unavailable (all scripts are idempotent)
and removes passwords from errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import redis

from spark_bull.core.errors import OptionError, PermissionDenied, RedisUnavailable, check_encodable
from spark_bull.core.keys import hash_tag
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.urls import without_secrets
from spark_bull.core.store.client import RetryingClient, client_of, close_client
from spark_bull.core.store.commands import CallStart, RepeatedKeys, naming, raw_replies, raw_reply
from spark_bull.core.store.scripts import Value, load
from spark_bull.core.store.server_checks import denials, warn_of_eviction
from spark_bull.core.store.servers import Node, Place, Servers, ShardServers

#: Maximum number of messages that one call receives.
MAX_RECEIVED: Final = 1_000
#: Maximum time until the answer to a blocking command, after the time for which it blocks.
BLOCKING_TIMEOUT_MS: Final = 10_000

Command = tuple[Value, ...]


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
        place = self._place_of(key_of(command))

        def send(client: redis.Redis) -> Any:
            try:
                return client.execute_command(*command, **_conversion(command))
            except redis.TimeoutError as error:
                raise naming(client, error) from error

        return self._client.run(send, place=place)

    def pipeline(self, commands: Sequence[Command], what: str = "a command") -> list[Any]:
        """Sends commands in one round trip, without a transaction; raises the first error, which names `what`."""

        def send(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command, **_conversion(command))
            # raise_on_error=True would prepend the command to the message, which hides the error code.
            try:
                replies: list[Any] = pipeline.execute(raise_on_error=False)
            except redis.TimeoutError as error:
                raise naming(client, error) from error
            for reply in replies:
                if isinstance(reply, redis.RedisError):
                    raise reply
            return replies

        return self._client.run_at(lambda servers: self._divided(servers, commands, send), what)

    def replies(self, commands: Sequence[Command]) -> list[Any]:
        """Sends commands in one round trip, without a transaction; see `raw_replies`.

        Takes a third of the CPU of `pipeline`, which looks up a conversion for each reply. Unless the settings name a
        version of the protocol, replies have the form of RESP2.
        """
        return client_of(self._in_resp2).run_at(lambda servers: self._divided(servers, commands, raw_replies))

    def _divided(
        self,
        servers: Servers | ShardServers,
        commands: Sequence[Command],
        send: Callable[[redis.Redis, Sequence[Command]], list[Any]],
    ) -> list[Any]:
        """The replies to commands, which are sent to all servers at the same time.

        A command without a key goes where the first one with a key goes.
        """
        if not servers.is_divided or not commands:
            return send(servers.at(self.home), commands)
        places = [self._place_of(key_of(command)) for command in commands]
        first = next((place for place in places if place is not None), None)
        numbers: dict[redis.Redis, list[int]] = {}
        for number, place in enumerate(places):
            numbers.setdefault(servers.at(first if place is None else place), []).append(number)
        if len(numbers) == 1:
            return send(next(iter(numbers)), commands)
        with ThreadPoolExecutor(len(numbers), thread_name_prefix="spark-bull-nodes") as pool:
            parts = [pool.submit(send, client, [commands[number] for number in own]) for client, own in numbers.items()]
        replies: list[Any] = [None] * len(commands)
        for own, part in zip(numbers.values(), parts, strict=True):
            for number, reply in zip(own, part.result(), strict=True):
                replies[number] = reply
        return replies

    def _place_of(self, key: str | bytes | None) -> Place:
        """Where a call with this first key goes: to this node, to the node of the key, or home."""
        return self.home if key is None or isinstance(self.home, Node) else key

    def script(self, name: str, keys: Mapping[str, Any], args: Mapping[str, Any] | None = None) -> Any:
        """Runs `lua/<name>.lua` with keys and arguments by the names in its contract."""
        script = load(name)
        args = args or {}
        start = keys.start_of(script) if isinstance(keys, RepeatedKeys) else CallStart(script, keys)
        values = script.bind_args(args)

        def send(client: redis.Redis) -> Any:
            # Takes half of the CPU of `execute_command`, for which the next script of a write or a worker has to wait.
            try:
                return raw_reply(client, start.with_args(values))
            except redis.exceptions.NoScriptError:
                return raw_reply(client, ("EVAL", script.source, len(start.keys), *start.keys, *values))
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
        return self._client.run(lambda client: denials(client, names, key), place=self.home or key)

    def clients(self) -> list[Mapping[str, str]]:
        """Returns the connections of this Redis, as CLIENT LIST describes them.

        In a cluster, of all nodes that can be reached. Raises ConnectionLost if none can.
        """
        found: list[Mapping[str, str]] = []
        nodes = self.primaries()
        lost: list[RedisUnavailable] = []
        for node in nodes:
            try:
                found += self._client.run(lambda client: list(client.client_list()), place=node.home)
            except RedisUnavailable as error:
                lost.append(error)
        if lost and len(lost) == len(nodes):
            raise lost[0]
        return found

    def close(self) -> None:
        """Closes the idle connections of this process; the next command opens a new one."""
        close_client(self.settings)
        close_client(self._in_resp2)

    @cached_property
    def _in_resp2(self) -> RedisSettings:
        """hiredis parses a list of names and values in a fifth of the time of a map of RESP3."""
        return replace(self.settings, extra=(("protocol", "2"), *self.settings.extra))

    @property
    def _client(self) -> RetryingClient:
        return client_of(self.settings)

    def check(self, prefix: str, queues: Sequence[str], *, write: bool) -> None:
        """Checks that this Redis can be used for `queues`, and warns if it may evict what is written to it.

        Raises ConnectionLost if it cannot be reached, rejects the password, is too old, or, with `write`, remains a
        replica; OptionError if it is a cluster and a queue has no hash tag.
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

        def send(client: redis.Redis) -> Mapping[str, Any]:
            info: Mapping[str, Any] = client.execute_command("INFO", "replication")
            if info["connected_slaves"] < replicas:
                raise redis.ResponseError(f"NOREPLICAS {info['connected_slaves']} of {replicas} are connected")
            return info

        return self._client.run(send, place=self.home)

    def server_info(self, write: bool = False) -> Mapping[str, Any]:
        """Returns INFO, empty without permission for it.

        Raises ConnectionLost for a Sentinel and, with `write`, ReadOnlyError for a replica.
        """

        def send(client: redis.Redis) -> Mapping[str, Any]:
            info: Mapping[str, Any] = client.execute_command("INFO")
            if write and info.get("role") == "slave":
                raise redis.exceptions.ReadOnlyError("INFO says role:slave")
            return info

        self.call("PING")
        try:
            return self._client.run(send, place=self.home)
        except PermissionDenied:
            return {}


#: Commands without a key.
_WITHOUT_KEY: Final = frozenset(["CLIENT", "CLUSTER", "CONFIG", "INFO", "PING", "SCAN", "TIME", "WAIT"])
#: Commands of two words, such as MEMORY USAGE.
_OF_TWO_WORDS: Final = frozenset(["MEMORY"])


def key_of(command: Command) -> str | bytes | None:
    """The first key of a command; None for one without a key."""
    name = str(command[0])
    if name in _WITHOUT_KEY or (name == "EVAL" and not command[2]):
        return None
    # EVAL <script> <number of keys> <key>…; XREAD … STREAMS <key>…. tools/access_table.py would take a text in capitals
    # for a command that every verb sends.
    at = (
        3
        if name == "EVAL"
        else command.index("STREAMS") + 1
        if name.lower() == "xread"
        else 1 + (name in _OF_TWO_WORDS)
    )
    key = command[at]
    return key if isinstance(key, bytes) else str(key)


def ms_of(time: Sequence[Any]) -> int:
    """A reply to TIME as ms since 1970."""
    seconds, micros = time
    return int(seconds) * 1000 + int(micros) // 1000


def script_command(name: str, keys: Mapping[str, Any], args: Mapping[str, Any]) -> Command:
    """The command that runs a script in a pipeline; `Connection.script` sends less when Redis knows the script."""
    script = load(name)
    bound = script.bind_keys(keys)
    return ("EVAL", script.source, len(bound), *bound, *script.bind_args(args))


def _conversion(command: Command) -> dict[str, bool]:
    """What redis-py must know of a command to return pairs of members and scores in RESP2, too, as in RESP3."""
    return {"withscores": True} if "WITHSCORES" in command and str(command[0]).startswith("Z") else {}


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
        self._listener = client.run(lambda client: self._listen(client, channels, patterns, timeout_s), place=first)

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
