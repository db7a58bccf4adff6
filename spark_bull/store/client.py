"""The client of a process for a Redis: created once, and retrying while Redis is unreachable or unavailable."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from spark_bull.clock import monotonic_s
from spark_bull.errors import OptionError, RedisUnavailable, check_encodable
from spark_bull.store.errors import code_of, hint, is_unknown_host, reason, translated
from spark_bull.store.modes import sentinel_error
from spark_bull.store.settings import RedisSettings

try:
    from redis.driver_info import DriverInfo
except ImportError:  # an older redis-py
    _DRIVER: dict[str, Any] = {}
else:
    # Otherwise redis-py 8 reads its version from a file for each connection, which takes longer than connecting.
    _DRIVER = {"driver_info": DriverInfo()}

try:
    from redis.maint_notifications import MaintNotificationsConfig
except ImportError:  # an older redis-py
    _NOTIFICATIONS: dict[str, Any] = {}
else:
    # redis-py 8 would subscribe each new connection to messages about maintenance of the server, which takes a round
    # trip, and raw_replies.py skips them. Calls are repeated instead.
    _NOTIFICATIONS = {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}

log = logging.getLogger("spark_bull")

CONNECT_TIMEOUT_S: Final = 5.0
MIN_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
#: Time without an answer, after which a warning is logged.
WARN_AFTER_S: Final = 1.0
#: Errors of a server that has been replaced as primary; connections to it must be closed.
_REPLACED: Final = ("READONLY", "UNBLOCKED", "MASTERDOWN")

T = TypeVar("T")


class RetryingClient:
    """redis-py's client with retries for transient error replies and a log, which redis-py's own retries do not have.

    A call is repeated with exponential backoff until `retryMs` have passed. Unless `retryMs` is 0 it is repeated at
    least once, because the server may have closed an idle connection.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._client = _new_client(settings)
        self._reached = False
        self._reported = False
        self._retries = True

    def run(self, send: Callable[[redis.Redis], T], what: str = "a command") -> T:
        """Returns the result of `send(client)`. Raises ConnectionLost and the other errors of `translated`."""
        give_up_at, pause_s, tries = monotonic_s() + self._settings.retry_ms / 1000, MIN_PAUSE_S, 0
        # Counted from the first error: a blocking command may have waited for long before.
        warn_at = None
        while True:
            try:
                with self.errors(what):
                    if not self._reached or tries > 1:
                        self._reach()
                    answer = send(self._client)
            except RedisUnavailable as error:
                tries += 1
                left_s = give_up_at - monotonic_s()
                if not self._retries or (left_s <= 0 and (tries > 1 or not self._settings.retry_ms)):
                    raise
                warn_at = warn_at or monotonic_s() + WARN_AFTER_S
                if monotonic_s() >= warn_at:
                    self._log_waiting(reason(error.__cause__ or error))
                time.sleep(min(pause_s, max(left_s, MIN_PAUSE_S)))
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
            else:
                self._log_reconnected()
                return answer

    def stop_retrying(self) -> None:
        """Lets calls that wait in other threads raise their next error: nobody needs their answer."""
        self._retries = False

    def close(self) -> None:
        """Closes the connections that are not in use; other threads may use the rest."""
        self._client.connection_pool.disconnect(inuse_connections=False)

    def _reach(self) -> None:
        """Checks the connection with a PING: a blocking command would not show that Redis is unreachable."""
        with _unless_done(WARN_AFTER_S, lambda: self._log_waiting("no answer")), suppress(NoPermissionError):
            self._client.ping()
        self._reached = True

    def _log_waiting(self, why: str) -> None:
        """Logs that the call waits for Redis, once until Redis is available again."""
        if not self._reported:
            self._reported = True
            where, max_s = self._settings.where, self._settings.retry_ms / 1000
            advice = "" if self._reached else hint(self._settings)
            log.warning("waiting for Redis at %s, %g s at most: %s%s", where, max_s, why, advice)

    def _log_reconnected(self) -> None:
        if self._reported:
            self._reported = False
            log.warning("Redis at %s is back", self._settings.where)

    @contextmanager
    def errors(self, what: str = "a command") -> Iterator[None]:
        """Translates the errors of redis-py and its encoder to ours; messages never contain secrets of the URL."""
        try:
            yield
        except UnicodeEncodeError as error:
            check_encodable(f"{what} of Redis", error.object)
            raise
        except redis.RedisError as error:
            if code_of(error) in _REPLACED:
                # A new connection may reach the new primary.
                self._client.connection_pool.disconnect(inuse_connections=False)
            is_unknown = isinstance(error, ResponseError) and "unknown command" in str(error)
            if is_unknown and (sentinel := sentinel_error(self._client, self._settings)):
                raise sentinel from error
            ours = translated(error, self._settings, what, was_reached=self._reached)
            if self._reached and is_unknown_host(error):
                # The name was resolved before, so the name service is unavailable.
                ours = RedisUnavailable(str(ours))
            raise ours from error


@contextmanager
def _unless_done(within_s: float, do: Callable[[], None]) -> Iterator[None]:
    """Calls `do` in another thread if the block takes longer than `within_s`."""
    timer = threading.Timer(within_s, do)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_clients: dict[tuple[int, RedisSettings], RetryingClient] = {}


def client_of(settings: RedisSettings) -> RetryingClient:
    """Returns this process' client for these settings. A forked process creates its own."""
    key = (os.getpid(), settings)
    if key not in _clients:
        _clients[key] = RetryingClient(settings)
    return _clients[key]


def close_client(settings: RedisSettings) -> None:
    """Closes this process' client for these settings; the next call opens a new one."""
    client = _clients.pop((os.getpid(), settings), None)
    if client is not None:
        client.close()


def _new_client(settings: RedisSettings) -> redis.Redis:
    arguments: dict[str, Any] = {
        "socket_timeout": settings.timeout_ms / 1000,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, settings.timeout_ms / 1000),
        "retry": Retry(NoBackoff(), 0),
        **_NOTIFICATIONS,
    }
    arguments.update((name, _typed(name, text)) for name, text in settings.extra)
    try:
        client = redis.Redis.from_url(settings.url, **arguments)
        pool = client.connection_pool
        if not {"lib_name", "lib_version"} & set(pool.connection_kwargs):
            pool.connection_kwargs.update(_DRIVER)
        # Set here because from_url() gives precedence to the URL.
        for name, value in (("username", settings.username), ("password", settings.password)):
            if value is not None:
                pool.connection_kwargs[name] = value
        # Validates the settings, which the pool does only with the first command. Opens no socket.
        pool.connection_class(**pool.connection_kwargs)
        return client
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected settings that redis-py accepts: {error}") from None


def _typed(name: str, text: str) -> Any:
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
