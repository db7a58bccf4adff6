"""One way to Redis: settings, a client per process, bounded retries, errors in our words.

The only file that imports redis. Every command goes through `Connection`, so that a lost
connection is retried (all scripts may be sent twice) and no error shows a password.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import AbstractBackoff, ExponentialBackoff
from redis.retry import Retry

from spark_bull.errors import ConnectionLost, DialectError, OptionError, ScriptError, SparkBullError
from spark_bull.keys import has_hash_tag
from spark_bull.options import Options, check_url
from spark_bull.scripts import Script, Value, load

log = logging.getLogger("spark_bull")

URL_VARIABLE: Final = "SPARK_BULL_URL"
PASSWORD_VARIABLE: Final = "SPARK_BULL_PASSWORD"
OLDEST_REDIS: Final = (6, 2)
CONNECT_TIMEOUT_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

Command = tuple[Value, ...]


@dataclass(frozen=True)
class RedisSettings:
    """Where Redis is and how to talk to it. Picklable; its repr holds no secret."""

    url: str = field(repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000
    retry_ms: int = 20_000
    extra: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    where: str = field(init=False, default="")

    def __post_init__(self) -> None:
        check_url(self.url)
        object.__setattr__(self, "where", _without_secrets(self.url))


def settings_of(options: Options) -> RedisSettings:
    """The settings that options describe: `url`, else $SPARK_BULL_URL, else host and port.

    The password is that of the option, else that in the URL, else $SPARK_BULL_PASSWORD. Raises OptionError for what
    would not count beside a URL.
    """
    url, source = options["url"], "`url`"
    if url is None and not {"host", "port"} & options.given:
        url, source = os.environ.get(URL_VARIABLE) or None, f"${URL_VARIABLE}"
    if url is None:
        scheme = "rediss" if options["ssl"] else "redis"
        url = f"{scheme}://{options['host']}:{options['port']}/{options['db']}"
    else:
        _check_beside_url(options, source)
    password = options["password"] or None
    if password is None and "password" not in options.given and not _has_password(url):
        password = os.environ.get(PASSWORD_VARIABLE) or None
    extra = tuple(sorted(options.redis.items()))
    return RedisSettings(url, options["username"], password, options["timeoutMs"], options["retryMs"], extra)


#: What belongs to host and port, and what to write into a URL instead.
_IN_URL: Final = {
    "db": "put the database into the URL, as in redis://localhost:6379/2 or unix:///run/redis.sock?db=2",
    "ssl": "start the URL with rediss:// for TLS, with redis:// for none",
}


def _check_beside_url(options: Options, source: str) -> None:
    for name, cure in _IN_URL.items():
        if name in options.given:
            raise OptionError(f"expected no option `{name}` beside {source}, which says it already: {cure}")


def _has_password(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.password or parse_qs(parts.query).get("password"))


def resolved(options: Options) -> Options:
    """The options with what this process' environment adds, for processes that have another one, such as executors."""
    settings = settings_of(options)
    values = {**options.values, "url": settings.url, "password": settings.password}
    # All that a URL says is in it now, and the password, or that there is none, is settled.
    given = (options.given - {"host", "port", *_IN_URL}) | {"url", "password"}
    return replace(options, values=values, given=given)


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _typed(name: str, text: str) -> Any:
    """A setting that passes through to redis-py, as a bool, a number or the text itself."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


#: When the call that this thread makes right now is to be given up, by the monotonic clock, s.
_give_up = threading.local()


class _PatientRetry(Retry):
    """Waits for a Redis that is away: for so long from the first try on, whatever time tries and pauses take.

    redis-py makes a connection, with tries of its own, inside the tries of a command: all have one time limit. A second
    try there is even when the first one took too long, as a connection that has lain idle may be dead. A refused
    password comes as a lost connection too, but no pause will mend it.
    """

    def __init__(self, backoff: AbstractBackoff, retries: int, patience_s: float) -> None:
        super().__init__(backoff, retries)
        self._patience_s = patience_s

    def call_with_retry(self, do: Any, fail: Any, *rest: Any, **settings: Any) -> Any:
        outermost = getattr(_give_up, "at", None) is None
        if outermost:
            _give_up.at = time.monotonic() + self._patience_s
        failures = 0

        def fail_for_good(error: Exception, *counted: Any) -> None:
            nonlocal failures
            failures += 1
            fail(error, *counted)
            if isinstance(error, (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError)):
                raise error
            if time.monotonic() >= _give_up.at and (failures > 1 or not outermost):
                raise error

        try:
            return super().call_with_retry(do, fail_for_good, *rest, **settings)
        finally:
            if outermost:
                _give_up.at = None


_clients: dict[tuple[int, RedisSettings], redis.Redis] = {}


def _client(settings: RedisSettings) -> redis.Redis:
    """The client of this process for these settings; made after a fork, never shared across it."""
    key = (os.getpid(), settings)
    if key not in _clients:
        _clients[key] = _new_client(settings)
    return _clients[key]


def _new_client(settings: RedisSettings) -> redis.Redis:
    chosen: dict[str, Any] = {
        "socket_timeout": settings.timeout_ms / 1000,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, settings.timeout_ms / 1000),
        "retry": _PatientRetry(
            ExponentialBackoff(LONGEST_PAUSE_S, FIRST_PAUSE_S), _tries(settings), settings.retry_ms / 1000
        ),
        "retry_on_error": [redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError],
    }
    chosen.update((name, _typed(name, text)) for name, text in settings.extra)
    try:
        client = redis.Redis.from_url(settings.url, **chosen)
        pool = client.connection_pool
        # Set afterwards, as from_url() prefers what the URL says.
        for name, value in (("username", settings.username), ("password", settings.password)):
            if value is not None:
                pool.connection_kwargs[name] = value
        # The pool itself would look at its settings only with the first command. This opens no socket.
        pool.connection_class(**pool.connection_kwargs)
        return client
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected settings that redis-py takes: {error}") from None


def _tries(settings: RedisSettings) -> int:
    """How many pauses, doubling from the first to the longest, fill `retry_ms`."""
    pause, left, tries = FIRST_PAUSE_S, settings.retry_ms / 1000, 0
    while left > 0:
        left -= pause
        pause = min(2 * pause, LONGEST_PAUSE_S)
        tries += 1
    return tries


class Connection:
    """Commands, pipelines and scripts on one Redis. Cheap to make; picklable."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings

    def call(self, *command: Value) -> Any:
        """Sends one command; the reply has bytes for strings."""
        with self.errors():
            return _client(self.settings).execute_command(*command)

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Sends commands in one round trip, not as a transaction; the first error is raised."""
        with self.errors():
            pipeline = _client(self.settings).pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()

    def script(self, name: str, keys: Mapping[str, Any], args: Mapping[str, Any] | None = None) -> Any:
        """Runs `lua/<name>.lua`; keys and args by the names of its contract."""
        script = load(name)
        bound_keys, bound_args = script.bind_keys(keys), script.bind_args(args or {})
        with self.errors(script):
            return self._evaluate(script, bound_keys, bound_args)

    def _evaluate(self, script: Script, keys: list[str], args: list[Value]) -> Any:
        client = _client(self.settings)
        try:
            return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            return client.execute_command("EVAL", script.source, len(keys), *keys, *args)

    def subscribe(self, channels: Sequence[str]) -> Subscription:
        """Listens to channels, on a connection of its own."""
        with self.errors():
            listener = _client(self.settings).pubsub(ignore_subscribe_messages=True)
            listener.subscribe(*channels)
        return Subscription(self, listener)

    def now_ms(self) -> int:
        """Redis' own clock, ms since 1970."""
        seconds, micros = self.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def close(self) -> None:
        """Closes this process' client for these settings; the next command opens a new one."""
        client = _clients.pop((os.getpid(), self.settings), None)
        if client is not None:
            client.close()

    def check(self, prefix: str, queues: Sequence[str], *, write: bool) -> None:
        """Finds out before any work whether this Redis will do, for `queues`; '' stands for any queue.

        Raises ConnectionLost when it can't be reached, refuses the password, is too old, or is a
        replica and `write` is asked for; OptionError when it is a cluster and a queue has no hash
        tag.
        """
        info = self._server_info()
        if not info:
            return
        version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
        if version < OLDEST_REDIS:
            raise ConnectionLost(
                f"expected Redis {OLDEST_REDIS[0]}.{OLDEST_REDIS[1]} or newer at "
                f"{self.settings.where}, got: {info['redis_version']}"
            )
        if write and info.get("role") == "slave":
            raise ConnectionLost(
                f"expected a Redis that takes writes, got a read-only replica at "
                f"{self.settings.where}: give the address of its primary"
            )
        if info.get("cluster_enabled") in (1, "1"):
            for queue in queues:
                if not has_hash_tag(prefix, queue):
                    raise OptionError(
                        f"{self.settings.where} is a Redis Cluster, where all keys of a queue must "
                        f"share a hash tag: expected one in `prefix`{' or `queue`' if queue else ''}, such as "
                        f"prefix={{{prefix}}}, got: prefix={prefix}{f', queue={queue}' if queue else ''}"
                    )

    def _server_info(self) -> Mapping[str, Any]:
        """INFO, or nothing when an ACL forbids it."""
        self.call("PING")
        try:
            info: Mapping[str, Any] = self.call("INFO")
        except ConnectionLost as error:
            if isinstance(error.__cause__, redis.exceptions.NoPermissionError):
                return {}
            raise
        return info

    @contextmanager
    def errors(self, script: Script | None = None) -> Iterator[None]:
        """redis-py's errors in our words; the message never holds the URL's secrets."""
        where = self.settings.where
        try:
            yield
        except (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError) as error:
            raise ConnectionLost(
                f"Redis at {where} refused the user or password: check `url`, `username` and "
                f"`password` ({_first_line(error)})"
            ) from error
        except redis.exceptions.NoPermissionError as error:
            raise ConnectionLost(f"Redis at {where} forbids the user what we need: {_first_line(error)}") from error
        except redis.exceptions.ReadOnlyError as error:
            raise ConnectionLost(f"Redis at {where} is a read-only replica: give the address of its primary") from error
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ConnectionLost(
                f"expected Redis at {where}, got none within {self.settings.retry_ms / 1000:g} s "
                f"of trying: {_first_line(error)}"
            ) from error
        except redis.exceptions.ResponseError as error:
            # Scripts tell of it in a message of their own.
            if isinstance(error, redis.exceptions.OutOfMemoryError) or "OOM command not allowed" in str(error):
                raise ConnectionLost(
                    f"Redis at {where} is out of memory (maxmemory reached): free some, or raise maxmemory"
                ) from error
            if refused := _refused_by_cluster(where, error):
                raise refused from error
            if "WRONGTYPE" in str(error):
                raise DialectError(
                    f"a key of the queue has another type than expected at Redis {where}: give the option `protocol` "
                    f"the dialect of the queue, or leave it out ({_first_line(error)})"
                ) from error
            what = f"script `{script.name}`" if script else "a command"
            raise ScriptError(f"{what} failed at Redis {where}: {_first_line(error)}") from error


class Subscription:
    """Channels that are listened to."""

    def __init__(self, connection: Connection, listener: redis.client.PubSub) -> None:
        self._connection = connection
        self._listener = listener

    def wait(self, timeout_s: float) -> bool:
        """Waits for a message, `timeout_s` at most; takes all that are there. Returns whether there was one."""
        with self._connection.errors():
            heard = self._listener.get_message(timeout=timeout_s) is not None
            while heard and self._listener.get_message(timeout=0) is not None:
                pass
        return heard

    def close(self) -> None:
        self._listener.close()


def _refused_by_cluster(where: str, error: redis.exceptions.ResponseError) -> SparkBullError | None:
    """What a node of a Redis Cluster means by its reply, or None when it is about something else."""
    if isinstance(error, redis.exceptions.ClusterCrossSlotError):
        return OptionError(
            f"{where} is a Redis Cluster, where all keys of a queue (and all queues of one write) must share a hash "
            "tag: put one into `prefix`, such as prefix={bull}, or into the name of the queue, such as {mail}"
        )
    if isinstance(error, redis.exceptions.AskError):  # MOVED, too
        return ConnectionLost(
            f"{where} is one of several nodes of a Redis Cluster, and the queue is on another one: give the address "
            f"of that ({error.host}:{error.port}) and make all keys of a queue share a hash tag, such as "
            "prefix={bull}, or use a Redis that is no cluster"
        )
    if isinstance(error, (redis.exceptions.ClusterError, redis.exceptions.TryAgainError)):
        return ConnectionLost(f"{where} is a Redis Cluster that doesn't serve the queue now: {_first_line(error)}")
    return None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
