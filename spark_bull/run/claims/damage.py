"""A queue with a key of the wrong type: its calls fail until the key is repaired; other queues are not affected."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import QueueDamaged
from spark_bull.core.keys import QueueKeys

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


log = logging.getLogger("spark_bull")

T = TypeVar("T")


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
