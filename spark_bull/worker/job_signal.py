"""How an idle slot waits for a job, by the signal of its dialect, and how long all wait for a Redis that is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from spark_bull.errors import ConnectionLost, SparkBullError
from spark_bull.queue.handle import QueueHandle
from spark_bull.store.connection import Connection
from spark_bull.store.settings import RedisSettings

T = TypeVar("T")

#: Between attempts to reach a Redis that has been away for longer than `retryMs`.
AWAY_S: Final = 1.0
#: How long a thread that waits for signals waits at most, before it sends a command again.
IDLE_S: Final = 5.0
#: Redis takes a timeout of 0 for "for ever", and some versions take a millisecond for 0.
_MIN_TIMEOUT_S: Final = 0.002


def patiently(
    ask: Callable[[], T],
    say: Callable[[str, object], None],
    *,
    pause: Callable[[float], object] = time.sleep,
    back: Callable[[], None] = lambda: None,
) -> T:
    """What `ask` returns; it is asked again for as long as Redis is away, or refuses.

    say: tells, once, that Redis is waited for, and why. pause: waits so many s before the next try. back: called once
    Redis has been waited for and is there.
    """
    away = False
    while True:
        try:
            answer = ask()
        except ConnectionLost as error:
            if not away:
                say("lost Redis, retrying", error)
            away = True
            pause(AWAY_S)
            continue
        if away:
            back()
        return answer


def blocking(settings: RedisSettings, wait_s: float) -> Connection:
    """The same Redis, for commands that block for up to `wait_s`: a client of its own, which nobody else closes."""
    return Connection(replace(settings, timeout_ms=settings.timeout_ms + int(wait_s * 1000)))


class JobSignal:
    """Waits until there may be a job. Has a connection of its own, named as Node names its workers' connections."""

    def __init__(self, handle: QueueHandle, worker: str, longest_s: float) -> None:
        settings = handle.connection.settings
        extra = dict(settings.extra)
        extra.setdefault("client_name", handle.dialect.worker_client_name(handle.keys, worker))
        self._handle = handle
        self._connection = blocking(replace(settings, extra=tuple(sorted(extra.items()))), longest_s)

    def wait(self, timeout_s: float) -> str:
        """Waits until a job may be there, or `timeout_s` has passed.

        Returns the id of a job that has come to `active` this way (Bull), or '' when it is to be claimed (BullMQ) or
        there is none. Raises ConnectionLost.
        """
        dialect = self._handle.dialect
        command = dialect.wait_command(self._handle.keys, max(_MIN_TIMEOUT_S, timeout_s))
        return dialect.moved_job(self._connection.call(*command))

    def pause(self, worker: str, timeout_s: float) -> None:
        """Waits until `timeout_s` has passed, or CLIENT UNBLOCK ends the wait. Raises ConnectionLost."""
        self._connection.call("BLPOP", self._handle.keys.idle(worker), max(_MIN_TIMEOUT_S, timeout_s))

    def client_id(self) -> int:
        """By what CLIENT UNBLOCK ends a wait; 0 when Redis doesn't tell."""
        try:
            return int(self._connection.call("CLIENT", "ID"))
        except SparkBullError:
            return 0
