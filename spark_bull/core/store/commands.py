"""Many commands in one round trip, with as little CPU as possible.

redis-py spends as long on each reply as hiredis does on parsing the hash of a job; here hiredis alone parses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os import getpid
from typing import Any, Final

import hiredis
import redis
from hiredis import Reader, pack_command
from redis.connection import DefaultParser

from spark_bull.core.store.errors import code_of
from spark_bull.core.store.scripts import Script, Value

#: Bytes that are received at once; hiredis moves what it has not parsed yet.
BUFFER_BYTES: Final = 1 << 16
_NONE_YET: Final = object()
#: What redis-py's pools have for themselves.
_OF_POOL: Final = ("pid", "_lock", "_available_connections", "_in_use_connections")
#: What Redis sends without being asked; hiredis before 3.2 has no type for it.
_PUSHED: Final[Any] = getattr(hiredis, "PushNotification", ())


def raw_replies(client: redis.Redis, commands: Iterable[tuple[Value, ...]]) -> list[Any]:
    """Sends commands in one round trip, and returns their replies without redis-py's conversions.

    None for a command on a key of another type; raises the first other error. In RESP2, a reply that is a map in RESP3
    is a list of keys and values.
    """
    replies = _exchanged(client, commands)
    if any(issubclass(kind, Exception) for kind in {*map(type, replies)}):
        return [_without_error(reply) for reply in replies]
    return replies


def raw_reply(client: redis.Redis, command: tuple[Value, ...] | bytes) -> Any:
    """Sends a command, and returns its reply without redis-py's conversions; raises an error of Redis.

    command: bytes are sent as they are.
    """
    (reply,) = _exchanged(client, [command])
    if isinstance(reply, Exception):
        raise reply
    return reply


def packed_command(command: tuple[Value, ...]) -> bytes:
    """A command as it is sent: `*`, the number of its parts, a line break, and the parts."""
    packed: bytes = pack_command(command)  # type: ignore[arg-type]  # of any length
    return packed


def _exchanged(client: redis.Redis, commands: Iterable[tuple[Value, ...] | bytes]) -> list[Any]:
    """The replies to commands; errors among them are not raised."""
    packed = [command if isinstance(command, bytes) else packed_command(command) for command in commands]
    if not packed:
        return []
    pool = client.connection_pool
    ready = _ready(pool)
    try:
        connection = ready or pool.get_connection()
    except redis.TimeoutError as error:
        raise naming(client, error) from error
    try:
        connection.send_packed_command([b"".join(packed)])
        return _received(connection, len(packed))
    except BaseException:
        # Replies that were not read must not answer the next command.
        connection.disconnect()
        raise
    finally:
        if ready is None:
            pool.release(connection)
        else:
            _put_back(pool, ready)


def _ready(pool: Any) -> Any:
    """Takes the idle connection that was used last; None if there is none that is open and has nothing to read.

    The pool itself takes three times as long for that, as it also counts its connections for metrics.
    """
    # Another version of redis-py may lack these. The connections of a process that was forked are the other one's.
    if not all(hasattr(pool, name) for name in _OF_POOL) or pool.pid != getpid():
        return None
    with pool._lock:
        idle = pool._available_connections
        try:
            if not idle or idle[-1]._sock is None or idle[-1].can_read():
                return None
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            return None
        connection = idle.pop()
        pool._in_use_connections.add(connection)
        return connection


def _put_back(pool: Any, connection: Any) -> None:
    """Makes a connection that `_ready` has returned idle again."""
    with pool._lock:
        pool._in_use_connections.discard(connection)
        pool._available_connections.append(connection)


def _received(connection: Any, count: int) -> list[Any]:
    """The next replies; errors among them are not raised."""
    reader = Reader(protocolError=redis.InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_NONE_YET)
    # Parsed as the elements of one array, replies take half of the CPU that they take one by one.
    reader.feed(b"*%d\r\n" % count)
    parsed = reader.gets()
    while parsed is _NONE_YET:
        reader.feed(_receive(connection))
        parsed = reader.gets()
    replies: list[Any] = parsed
    if _PUSHED in {*map(type, parsed)}:
        replies = [reply for reply in parsed if not isinstance(reply, _PUSHED)]
    while len(replies) < count:
        reply = reader.gets()
        if reply is _NONE_YET:
            reader.feed(_receive(connection))
        elif not isinstance(reply, _PUSHED):
            replies.append(reply)
    return replies


def _receive(connection: Any) -> bytes:
    """Some bytes of the replies. Raises the errors of redis-py."""
    try:
        received: bytes = connection._sock.recv(BUFFER_BYTES)
    except TimeoutError as error:
        raise redis.TimeoutError(f"timeout reading from {_server_of(connection)} ({error})") from error
    except OSError as error:
        raise redis.ConnectionError(f"error while reading from {_server_of(connection)}: {error}") from error
    if not received:
        raise redis.ConnectionError(f"connection closed by the server {_server_of(connection)}")
    return received


def _server_of(connection: Any) -> str:
    """The address of a server, which may be one of many nodes."""
    return f"{connection.host}:{connection.port}" if hasattr(connection, "port") else str(connection.path)


def naming(client: redis.Redis, error: redis.TimeoutError) -> redis.TimeoutError:
    """An error that names the server, which may be one of many nodes: redis-py does not, with hiredis."""
    arguments = client.connection_pool.connection_kwargs
    where = arguments.get("path") or f"{arguments.get('host', 'localhost')}:{arguments.get('port', 6379)}"
    return redis.TimeoutError(f"{error} ({where})")


def _without_error(reply: Any) -> Any:
    """The reply, or None for one to a command on a key of another type. Raises any other error."""
    if not isinstance(reply, Exception):
        return reply
    if code_of(reply) != "WRONGTYPE":
        raise reply
    return None


class CallStart:
    """The script and the keys of a call. Raises the ScriptError of `Script.bind_keys`."""

    def __init__(self, script: Script, keys: Mapping[str, Any]) -> None:
        self._sha = script.sha
        #: KEYS in the order of the contract.
        self.keys = script.bind_keys(keys)

    def with_args(self, args: Sequence[Value]) -> tuple[Value, ...] | bytes:
        """The call with these arguments, by the SHA1 of the script."""
        return ("EVALSHA", self._sha, len(self.keys), *self.keys, *args)


class _PackedStart(CallStart):
    """The start of many calls, which are sent as bytes: the keys are packed once."""

    def with_args(self, args: Sequence[Value]) -> bytes:
        return b"*%d\r\n%b%b" % (3 + len(self.keys) + len(args), self._packed, _parts(*args))

    @cached_property
    def _packed(self) -> bytes:
        return _parts("EVALSHA", self._sha, len(self.keys), *self.keys)


class RepeatedKeys(dict[str, Any]):
    """Keys by their names, for calls that have the same ones again: each script binds and packs them once.

    Between two calls of a worker they leave the caches of the CPU: to bind and to pack them takes half as long as to
    receive a hundred jobs.
    """

    def __init__(self, keys: Mapping[str, Any]) -> None:
        super().__init__(keys)
        #: By the SHA1 of the script.
        self._starts: dict[str, CallStart] = {}

    def start_of(self, script: Script) -> CallStart:
        """The start of the calls of a script with these keys."""
        if script.sha not in self._starts:
            self._starts[script.sha] = _PackedStart(script, self)
        return self._starts[script.sha]


def _parts(*values: Value) -> bytes:
    """Parts of a command, as they are sent."""
    _, _, parts = packed_command(values).partition(b"\r\n")
    return parts
