"""The client of a process for a Redis: created once, and retrying while Redis is unreachable or unavailable."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeVar

import redis

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost, RedisUnavailable, SparkBullError, check_encodable, restated
from spark_bull.core.options.redis_settings import RedisSettings, urls_of
from spark_bull.core.store.errors import code_of, hint, is_unknown_host, reason, translated
from spark_bull.core.store.server import Server
from spark_bull.core.store.servers import Place, Servers, ShardServers

log = logging.getLogger("spark_bull")

MIN_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
#: Time without an answer, after which a warning is logged.
WARN_AFTER_S: Final = 1.0
#: Errors of a server that has been replaced as primary; connections to it must be closed.
_REPLACED: Final = ("READONLY", "UNBLOCKED", "MASTERDOWN")
#: Errors of redis-py and its encoder.
_TRANSLATED: Final = (redis.RedisError, UnicodeEncodeError)

T = TypeVar("T")

#: This machine, if many run tasks, and errors are shown elsewhere.
_machine = ""


def name_machine(name: str) -> None:
    """Lets the errors of the connections of this process name its machine."""
    global _machine
    _machine = name


class RetryingClient:
    """redis-py's clients with retries for transient error replies and a log, which redis-py's own retries do not have.

    A call is repeated with exponential backoff until `retryMs` have passed. Unless `retryMs` is 0 it is repeated at
    least once, because the server may have closed an idle connection.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._servers = Servers(settings) if len(urls_of(settings.url)) == 1 else ShardServers(settings)
        self._reached = False
        #: Whether the servers have to be found: at first, and after an error.
        self._is_lost = True
        self._reported = False
        self._retries = True

    def run(self, send: Callable[[Server], T], what: str = "a command", place: Place = None) -> T:
        """Returns the result of `send(server)`. Raises as `run_at` does."""
        return self.run_at(lambda servers: send(servers.at(place)), what)

    def run_at(self, send: Callable[[Servers | ShardServers], T], what: str = "a command") -> T:
        """Returns the result of `send(servers)`. Raises ConnectionLost and the other errors of `translated`."""
        give_up_at, pause_s, tries = monotonic_s() + self._settings.retry_ms / 1000, MIN_PAUSE_S, 0
        # Counted from the first error: a blocking command may have waited for long before.
        warn_at = None
        while True:
            try:
                # Not in a block of `errors`, which takes more CPU than all else here.
                try:
                    if self._is_lost:
                        self._find()
                    answer = send(self._servers)
                except _TRANSLATED as error:
                    raise self._ours(error, what) from error
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
                if self._reported:
                    self._reported = False
                    log.warning("Redis at %s is back", self._settings.where)
                return answer

    def stop_retrying(self) -> None:
        """Lets calls that wait in other threads raise their next error: nobody needs their answer."""
        self._retries = False

    def close(self) -> None:
        """Closes the connections that are not in use; other threads may use the rest."""
        self._servers.close()

    def _find(self) -> None:
        """Finds the servers, and checks that they answer: a blocking command would not show that they do not."""
        timer = threading.Timer(WARN_AFTER_S, self._log_waiting, ["no answer"])
        timer.daemon = True
        timer.start()
        try:
            self._servers.find()
        finally:
            timer.cancel()
        self._reached, self._is_lost = True, False

    def _log_waiting(self, why: str) -> None:
        """Logs that the call waits for Redis, once until Redis is available again."""
        if not self._reported:
            self._reported = True
            where, max_s = self._settings.where, self._settings.retry_ms / 1000
            limit = f", {max_s:g} s at most" if max_s else ""
            advice = "" if self._reached else hint(self._settings)
            log.warning("waiting for Redis at %s%s: %s%s", where, limit, why, advice)

    @contextmanager
    def errors(self, what: str = "a command") -> Iterator[None]:
        """Translates the errors of redis-py and its encoder to ours; messages never contain secrets of the URL.

        Nothing in the block is tried again.
        """
        try:
            yield
        except _TRANSLATED as error:
            raise self._ours(error, what, replace(self._settings, retry_ms=0)) from error

    def _ours(
        self, error: redis.RedisError | UnicodeEncodeError, what: str, settings: RedisSettings | None = None
    ) -> SparkBullError:
        """Translates an error. Raises OptionError for a text that cannot be encoded. settings: if others were used."""
        if isinstance(error, UnicodeEncodeError):
            check_encodable(f"{what} of Redis", error.object)
            raise error
        if code_of(error) in _REPLACED:
            # A new connection may reach the new primary.
            self._servers.close()
        announced = self._servers.announced_in(str(error))
        ours = translated(error, settings or self._settings, what, was_reached=self._reached, announced=announced)
        if self._reached and not announced and is_unknown_host(error):
            # The name was resolved before, so the name service is unavailable.
            ours = RedisUnavailable(str(ours))
        self._is_lost |= isinstance(ours, RedisUnavailable)
        return restated(ours, f"{ours} (on {_machine})") if _machine and isinstance(ours, ConnectionLost) else ours


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
