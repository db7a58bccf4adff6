"""How a worker waits: for jobs, while Redis is unreachable, and while a queue is damaged.

It waits for jobs with the blocking command of each dialect. A damaged queue has a key of the wrong type: its calls fail
until the key is repaired; other queues are not affected.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost, QueueDamaged, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import BlockingConnection

log = logging.getLogger("spark_bull")


T = TypeVar("T")

#: Pause between attempts while Redis has been unreachable for longer than `retryMs`.
RECONNECT_PAUSE_S: Final = 1.0
#: Maximum timeout of a blocking command, after which it is sent again.
BLOCK_S: Final = 5.0
#: A timeout of 0 blocks forever, and some versions of Redis round 1 ms down to 0.
_MIN_TIMEOUT_S: Final = 0.002


def retry_until_connected(
    call: Callable[[], T],
    warn: Callable[[str, object], None],
    *,
    pause: Callable[[float], object] = time.sleep,
    on_reconnect: Callable[[], None] = lambda: None,
    until_repaired: bool = False,
) -> T:
    """Returns the result of `call`, which is repeated for as long as it raises ConnectionLost.

    warn: called with a message and the error when the connection is lost. pause: how long to wait, s, before the next
    attempt. on_reconnect: called when `call` succeeds in the end. until_repaired: whether to repeat it, and to warn,
    also while the queue is damaged.
    """
    passing = (ConnectionLost, QueueDamaged) if until_repaired else (ConnectionLost,)
    warned = ""
    while True:
        try:
            result = call()
        except passing as error:
            what = "lost Redis, retrying" if isinstance(error, ConnectionLost) else "tries again until it is repaired"
            if what != warned:
                warn(what, error)
            warned = what
            pause(RECONNECT_PAUSE_S)
            continue
        if warned:
            on_reconnect()
        return result


class JobSignal:
    """Waits until there may be a job. Uses its own connection, with the client name that Node's workers have."""

    def __init__(self, handle: QueueHandle, worker: str, max_wait_s: float) -> None:
        settings = handle.connection.settings
        extra = dict(settings.extra)
        extra.setdefault("client_name", handle.dialect.worker_client_name(handle.keys, worker))
        self._handle = handle
        self.client = 0
        # No retries: a retry would block on a connection whose id is unknown.
        settings = replace(settings, extra=tuple(sorted(extra.items())), retry_ms=0)
        self._connection = BlockingConnection(settings, max_wait_s, handle.keys.base)

    def wait(self, timeout_s: float) -> bytes:
        """Waits until a job may be there, or `timeout_s` has passed.

        Returns the id of a job that the command has moved to `active` (Bull), or b"" if there is none or it must be
        claimed (BullMQ). Raises ConnectionLost.
        """
        self.identify()
        dialect = self._handle.dialect
        command = dialect.wait_command(self._handle.keys, max(_MIN_TIMEOUT_S, timeout_s))
        return dialect.moved_job(self._connection.call(*command))

    def pause(self, worker: str, timeout_s: float) -> None:
        """Waits for `timeout_s`, or until CLIENT UNBLOCK ends the wait. Raises ConnectionLost."""
        self.identify()
        self._connection.call("BLPOP", self._handle.keys.idle(worker), max(_MIN_TIMEOUT_S, timeout_s))

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def identify(self) -> None:
        """Sets `client` to the id for CLIENT UNBLOCK, which changes with the connection; to 0 if Redis denies it."""
        try:
            self.client = int(self._connection.call("CLIENT", "ID"))
        except SparkBullError:
            self.client = 0


#: Interval at which a damaged queue is tried again, s.
RETRY_S: Final = 1.0


class Damage:
    """What keeps calls for one queue from succeeding. error: its text; "": nothing.

    log: gets the text once, until it changes, and "" when the damage is repaired.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self.error = ""
        self._log = log
        self._retry_at = 0.0

    @property
    def rest_s(self) -> float:
        """The time until the queue is tried again, s; 0: at once."""
        return max(0.0, self._retry_at - monotonic_s())

    def begin(self, error: BaseException) -> None:
        """A call has failed: the queue rests for RETRY_S."""
        self._retry_at = monotonic_s() + RETRY_S
        self._change(str(error))

    def end(self) -> None:
        """A call has succeeded."""
        self._retry_at = 0.0
        self._change("")

    def _change(self, error: str) -> None:
        if error != self.error:
            self.error = error
            self._log(error)


class DamagedQueues:
    """The damage of the queues of a service, each of which is worked on in steps that have names."""

    def __init__(self) -> None:
        self._found: dict[tuple[QueueKeys, str], Damage] = {}

    def attempt(self, keys: QueueKeys, step: str, run: Callable[[], T]) -> T | None:
        """The result of a step; None if the queue is damaged, which is logged once until that changes."""
        damage = self._found.get((keys, step))
        if damage is not None and damage.rest_s:
            return None
        try:
            result = run()
        except QueueDamaged as error:
            damage = damage or self._found.setdefault((keys, step), Damage(partial(_log, keys.queue, step)))
            damage.begin(error)
            return None
        if damage is not None:
            damage.end()
            del self._found[keys, step]
        return result


def _log(queue: str, step: str, error: str) -> None:
    if error:
        log.error("queue %s: could not %s, trying again until it is repaired: %s", queue, step, error)
    else:
        log.warning("queue %s is no longer damaged (%s)", queue, step)
