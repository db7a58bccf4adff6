"""Sends all commands and scripts: one round trip to one or several servers, with as little CPU as possible.

redis-py itself takes 50 µs of CPU for a command where this takes 20, and 12 ms for a pipeline of 1,000 HMGET where this
takes 1.7. It makes the connections: plain clients, with the settings of a connection. Clients warn of a Redis that
deletes keys when its memory is full.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from os import getpid
from typing import Any, Final

import hiredis
import redis
from hiredis import Reader
from redis.backoff import NoBackoff
from redis.connection import DefaultParser
from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from spark_bull.core.errors import OptionError
from spark_bull.core.options.redis_settings import RedisSettings, at_address
from spark_bull.core.store.errors import check_files, is_denied
from spark_bull.core.store.scripts import Command, packed

log = logging.getLogger("spark_bull")


#: Bytes that are received at once; hiredis moves what it has not parsed yet.
BUFFER_BYTES: Final = 1 << 16
_NONE_YET: Final = object()
#: What Redis sends without being asked; hiredis before 3.2 has no type for it.
_PUSHED: Final[Any] = getattr(hiredis, "PushNotification", ())


class Server:
    """A server, and the connections to it that are idle. Thread-safe.

    The connections are taken from redis-py's pool once: the pool takes as long to lend one as the whole command here.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._callbacks: Mapping[str, Any] = client.response_callbacks
        #: Lists add and remove their last element at once for all threads.
        self._idle: list[Any] = []
        self._pid = getpid()

    @property
    def client(self) -> redis.Redis:
        """redis-py's client, for what only its methods can; its pool has the idle connections again."""
        self._return_idle()
        return self._client

    @property
    def settings(self) -> Mapping[str, Any]:
        """redis-py's settings of the connections."""
        return self._client.connection_pool.connection_kwargs

    def ask(self, *command: Any) -> Any:
        """Sends a command, and returns its reply in the form of redis-py. Raises an error of Redis."""
        return self.converted([command], [self.ask_packed(packed(command))])[0]

    def ask_packed(self, command: bytes) -> Any:
        """As `ask`, for a command as it is sent, but returns the reply as Redis sends it."""
        ((reply,),) = exchange([(self, [command])])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def converted(self, commands: Sequence[Command], replies: list[Any]) -> list[Any]:
        """The replies to commands in the forms of redis-py, which are the same in RESP2 and RESP3."""
        found = {name: self._callbacks.get(str(name)) for name in {command[0] for command in commands}}
        if not any(found.values()):
            return replies
        return [
            reply if convert is None else convert(reply, **({"withscores": True} if "WITHSCORES" in command else {}))
            for command, reply in zip(commands, replies, strict=True)
            for convert in [found[command[0]]]
        ]

    def close(self) -> None:
        """Closes the connections that are not in use; other threads may use the rest."""
        self.client.connection_pool.disconnect(inuse_connections=False)

    def send(self, commands: bytes) -> Any:
        """Sends packed commands; returns the connection, which has to be put back."""
        try:
            connection = self._take()
            try:
                connection.send_packed_command([commands])
            except BaseException:
                # A reply that was not read must not answer the next command.
                connection.disconnect()
                self.put_back(connection)
                raise
        except redis.TimeoutError as error:
            # It may be one of many nodes.
            known = {"host": "localhost", "port": 6379, **self.settings}
            where = known.get("path") or f"{known['host']}:{known['port']}"
            raise redis.TimeoutError(f"{error} ({where})") from error
        return connection

    def put_back(self, connection: Any) -> None:
        """Makes a connection idle."""
        self._idle.append(connection)

    def _take(self) -> Any:
        """A connection that is open and has nothing to read: the one that was used last."""
        if self._pid != getpid():
            # After a fork, the connections are the other process's.
            self._idle, self._pid = [], getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._client.connection_pool.get_connection()
        try:
            # Does nothing if it is open.
            connection.connect()
            try:
                is_sound = not connection.can_read()
            except (redis.ConnectionError, redis.TimeoutError, OSError):
                is_sound = False
            if not is_sound:
                connection.disconnect()
                connection.connect()
        except BaseException:
            # The handshake may be incomplete.
            connection.disconnect()
            self.put_back(connection)
            raise
        return connection

    def _return_idle(self) -> None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # Another thread has taken the last one.
                return
            self._client.connection_pool.release(connection)


def exchange(parts: Sequence[tuple[Server, Sequence[Command | bytes]]]) -> list[list[Any]]:
    """Sends commands to all servers, then receives their replies: as Redis sends them, errors among them.

    Commands are bytes as they are sent, or their parts.
    """
    requests = [
        b"".join([command if isinstance(command, bytes) else packed(command) for command in commands])
        for _, commands in parts
    ]
    used: list[tuple[Server, Any]] = []
    try:
        for (server, _), request in zip(parts, requests, strict=True):
            used.append((server, server.send(request)))
        replies = [
            _received(connection, len(commands)) for (_, connection), (_, commands) in zip(used, parts, strict=True)
        ]
    except BaseException:
        # Replies that were not read must not answer the next command. An interruption here loses a connection.
        for server, connection in used:
            connection.disconnect()
            server.put_back(connection)
        raise
    for server, connection in used:
        server.put_back(connection)
    return replies


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
        # The one private part of redis-py: its `read_response` takes 3.9 ms for 1,000 replies to HMGET, this 1.7 ms.
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


try:
    from redis.driver_info import DriverInfo
except ImportError:  # an older redis-py
    _DRIVER: dict[str, Any] = {}
else:
    # Otherwise redis-py 8 reads its version from a file for each connection, which takes longer than connecting.
    _DRIVER = {"driver_info": DriverInfo(lib_version=redis.__version__)}

try:
    from redis.maint_notifications import MaintNotificationsConfig
except ImportError:  # an older redis-py
    _NOTIFICATIONS: dict[str, Any] = {}
else:
    # redis-py 8 would subscribe each new connection to messages about maintenance of the server, which takes a round
    # trip, and server.py skips them. Calls are repeated instead.
    _NOTIFICATIONS = {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


#: A connection that is silent for a minute is probed. Otherwise a balancer that forgets it without a word, after some
#: minutes, would leave a listener waiting for ever. TCP_KEEPALIVE is the name on macOS.
_PROBES: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
_KEEPALIVE: Final = {
    "socket_keepalive": True,
    "socket_keepalive_options": {getattr(socket, name): n for name, n in _PROBES.items() if hasattr(socket, name)},
}
CONNECT_TIMEOUT_S: Final = 5.0
#: Settings `redis.sentinel_…` are for the connections to Sentinels.
_OF_SENTINELS: Final = "sentinel_"


def new_client(settings: RedisSettings, url: str) -> redis.Redis:
    """A client of the server at `url`. Opens no socket. Raises OptionError for settings that redis-py refuses."""
    # hiredis parses a list of names and values in a fifth of the time of a map of RESP3.
    arguments = {"protocol": 2, **_timeouts(settings), **({} if url.startswith("unix:") else _KEEPALIVE)}
    arguments.update((name, _typed(text)) for name, text in settings.extra if not name.startswith(_OF_SENTINELS))
    try:
        client = redis.Redis.from_url(url, **arguments)
        pool = client.connection_pool
        if not {"lib_name", "lib_version"} & set(pool.connection_kwargs):
            pool.connection_kwargs.update(_DRIVER)
        # Set here because from_url() gives precedence to the URL.
        if settings.password is not None:
            pool.connection_kwargs["password"] = settings.password
        # Set here as redis-py fails to connect without the right to set a name.
        name = pool.connection_kwargs.pop("client_name", None)
        pool.connection_kwargs["redis_connect_func"] = partial(_prepare, name)
        # Validates the settings, which the pool does only with the first command. Opens no socket.
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected settings that redis-py accepts: {error}") from None
    check_files(pool.connection_kwargs)
    return client


def _prepare(name: str | None, connection: Any) -> None:
    """Prepares a new connection, and gives it a name, which is not needed, if Redis permits that."""
    connection.on_connect()
    if name:
        connection.send_command("CLIENT", "SETNAME", name)
        try:
            connection.read_response()
        except redis.ResponseError as error:
            if not is_denied(error):
                raise
            log.info("connections to Redis have no name: %s", error)


def sentinel_arguments(settings: RedisSettings) -> dict[str, Any]:
    """The arguments of clients of Sentinels, which have a user and a password of their own."""
    of_primary = new_client(settings, at_address(settings.url, "localhost", 0)).connection_pool.connection_kwargs
    shared = {name: value for name, value in of_primary.items() if name.startswith("ssl_")}
    own = {n.removeprefix(_OF_SENTINELS): _typed(text) for n, text in settings.extra if n.startswith(_OF_SENTINELS)}
    timeouts = {**_timeouts(settings), "socket_timeout": CONNECT_TIMEOUT_S}
    return {"ssl": settings.url.startswith("rediss"), **timeouts, **shared, **own}


def _timeouts(settings: RedisSettings) -> dict[str, Any]:
    return {
        "socket_timeout": settings.timeout_ms / 1000,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, settings.timeout_ms / 1000),
        "retry": Retry(NoBackoff(), 0),
        **_NOTIFICATIONS,
    }


def _typed(text: str) -> Any:
    """Parses a setting for redis-py as a bool, a number or a string."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


#: The policy with which Redis refuses writes instead.
NO_EVICTION: Final = "noeviction"
#: Where the servers are that this process has warned of.
_told: Final[set[str]] = set()


def warn_of_eviction(where: str, info: Mapping[str, Any]) -> None:
    """Logs once per process and server if its policy evicts keys. info: the reply of INFO, which may be empty."""
    policy = info.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION and where not in _told:
        _told.add(where)
        log.warning(
            "expected maxmemory-policy noeviction at %s, got %s: Redis may delete jobs when its memory is full; set "
            "it in redis.conf, and run spark-bull doctor",
            where,
            policy,
        )


def denials(client: redis.Redis, names: Sequence[str], key: str) -> dict[str, str]:
    """See `Connection.denials`."""
    single = client.client()
    try:
        rows = _replies(single, [("COMMAND", "INFO", *(name.partition("|")[0] for name in names))])[0]
        _raise_error(rows)
        known = {name: abs(row[1]) for name, row in zip(names, rows, strict=True) if row}
        # Without MULTI, the commands would run.
        _raise_error(_replies(single, [("MULTI",)])[0])
        replies = _replies(single, [_example(name, arity, key) for name, arity in known.items()])
    finally:
        # Closing the connection discards the queued commands.
        if single.connection:
            single.connection.disconnect()
        single.close()
    return {name: str(r) for name, r in zip(known, replies, strict=True) if isinstance(r, NoPermissionError)}


def _example(name: str, arity: int, key: str) -> list[str]:
    """A call with as many arguments as the command needs: Redis checks their number before the rights."""
    words = name.split("|")
    return words + [key] * (arity - len(words))


def _replies(single: redis.Redis, commands: Sequence[Sequence[str]]) -> list[Any]:
    """Sends commands in one round trip; returns the replies as they are, errors included."""
    connection: Any = single.connection
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


def _raise_error(reply: Any) -> None:
    if isinstance(reply, redis.RedisError):
        raise reply
