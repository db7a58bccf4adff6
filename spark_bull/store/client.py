"""The client of this process for a Redis: made once, and patient with a Redis that is away or can't serve now."""

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
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from spark_bull.clock import monotonic_s
from spark_bull.errors import OptionError, RedisUnavailable
from spark_bull.store.errors import code_of, hint, in_our_words, is_unknown_host, reason
from spark_bull.store.settings import RedisSettings

log = logging.getLogger("spark_bull")

CONNECT_TIMEOUT_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
#: A call that lost Redis, retrying says nothing for so long.
SILENT_S: Final = 1.0
#: The connections lead to a server that another one has replaced.
_REPLACED: Final = ("READONLY", "UNBLOCKED", "MASTERDOWN")

T = TypeVar("T")


class PatientClient:
    """redis-py's client, with our own way to try again: redis-py's tries know only lost connections, and say nothing.

    A call that meets a Redis that is away, or in a state that passes, is made again with growing pauses until `retryMs`
    are over. It is made twice at least, unless `retryMs` is 0, as a connection that has lain idle may be dead.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._client = _new_client(settings)
        self._reached = False
        self._reported = False

    def ask(self, send: Callable[[redis.Redis], T], what: str = "a command") -> T:
        """What `send` returns for the client. Raises ConnectionLost and what else is in redis_errors."""
        now = monotonic_s()
        tell_at, give_up_at, pause_s, tries = now + SILENT_S, now + self._settings.retry_ms / 1000, FIRST_PAUSE_S, 0
        while True:
            try:
                with self.errors(what):
                    if not self._reached or tries > 1:
                        self._reach()
                    answer = send(self._client)
            except RedisUnavailable as error:
                tries += 1
                left_s = give_up_at - monotonic_s()
                if left_s <= 0 and (tries > 1 or not self._settings.retry_ms):
                    raise
                if monotonic_s() >= tell_at:
                    self._tell(reason(error.__cause__ or error))
                time.sleep(min(pause_s, max(left_s, FIRST_PAUSE_S)))
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
            else:
                self._tell_the_end()
                return answer

    def close(self) -> None:
        """Closes the connections that are not in use: other threads may be in the middle of a call."""
        self._client.connection_pool.disconnect(inuse_connections=False)

    def _reach(self) -> None:
        """Makes sure of a connection first: a command that waits for jobs is silent for long, too."""
        with _unless_done(SILENT_S, lambda: self._tell("no answer")), suppress(NoPermissionError):
            self._client.ping()
        self._reached = True

    def _tell(self, why: str) -> None:
        """Says, once while it lasts, that Redis is waited for."""
        if not self._reported:
            self._reported = True
            where, most_s = self._settings.where, self._settings.retry_ms / 1000
            log.warning("waiting for Redis at %s, %g s at most: %s%s", where, most_s, why, hint(self._settings))

    def _tell_the_end(self) -> None:
        if self._reported:
            self._reported = False
            log.warning("Redis at %s is back", self._settings.where)

    @contextmanager
    def errors(self, what: str = "a command") -> Iterator[None]:
        """redis-py's errors in our words; the message never holds the URL's secrets."""
        try:
            yield
        except redis.RedisError as error:
            if code_of(error) in _REPLACED:
                # A new connection may lead to the server that has taken its place.
                self._client.connection_pool.disconnect(inuse_connections=False)
            ours = in_our_words(error, self._settings, what)
            if self._reached and is_unknown_host(error):
                # The name was known before, so it is the name service that is away.
                ours = RedisUnavailable(str(ours))
            raise ours from error


@contextmanager
def _unless_done(within_s: float, do: Callable[[], None]) -> Iterator[None]:
    """Calls `do` in another thread when the block takes longer."""
    timer = threading.Timer(within_s, do)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_clients: dict[tuple[int, RedisSettings], PatientClient] = {}


def client_of(settings: RedisSettings) -> PatientClient:
    """The client of this process for these settings; made after a fork, never shared across it."""
    key = (os.getpid(), settings)
    if key not in _clients:
        _clients[key] = PatientClient(settings)
    return _clients[key]


def close_client(settings: RedisSettings) -> None:
    """Closes this process' client for these settings; the next call opens a new one."""
    client = _clients.pop((os.getpid(), settings), None)
    if client is not None:
        client.close()


def _new_client(settings: RedisSettings) -> redis.Redis:
    chosen: dict[str, Any] = {
        "socket_timeout": settings.timeout_ms / 1000,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, settings.timeout_ms / 1000),
        "retry": Retry(NoBackoff(), 0),
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
