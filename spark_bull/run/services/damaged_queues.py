"""Lets the other queues of a service go on when one of them is damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from spark_bull.core.errors import QueueDamaged
from spark_bull.core.keys import QueueKeys
from spark_bull.run.claims.damage import Damage

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
