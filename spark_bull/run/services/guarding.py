"""The rules of a promoter, which looks at its queues at an interval.

Ageing gives jobs that have waited for long a higher priority, so that others can't keep them from running. Guards pause
a queue, and the log says why.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from math import inf
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.features import lacks
from spark_bull.core.dialects.terms import priority_number
from spark_bull.core.errors import OptionError, expected
from spark_bull.core.keys import logical_queue
from spark_bull.core.model.guards import Guard
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.monitor.find import is_glob, matches
from spark_bull.core.queue.work import verbs
from spark_bull.core.queue.work.verbs import guard
from spark_bull.run.claims.waits import DamagedQueues

_PRIORITY: Final = "critical"
_EXPECTED: Final = 'an object such as {"after_ms": 600000, "priority": "high"} (by default critical)'
#: How often jobs are looked at within the time that they have to wait, and the limits of this interval, s.
_ROUNDS, _MIN_S, _MAX_S = 10, 1.0, 60.0


class Ageing(NamedTuple):
    """Jobs that have waited for `after_ms` get this priority, if theirs is lower."""

    after_ms: int
    priority: int

    @property
    def interval_s(self) -> float:
        """How often to look for such jobs, s."""
        return min(_MAX_S, max(_MIN_S, self.after_ms / 1000 / _ROUNDS))


def ageing_of(given: Mapping[str, Any] | None) -> Ageing | None:
    """Checks the argument `ageing` of a Promoter. Raises OptionError."""
    if given is None:
        return None
    rule = given if isinstance(given, Mapping) else {}
    after = rule.get("after_ms") if set(rule) <= {"after_ms", "priority"} else None
    if not isinstance(after, int) or isinstance(after, bool) or after < 1:
        raise OptionError(f"expected `ageing` to be {_EXPECTED}, got: {given!r}")
    try:
        priority = priority_number(rule.get("priority", _PRIORITY))
    except OptionError as error:
        raise OptionError(f"`ageing`: {error}") from None
    if priority == 0:
        raise OptionError("expected the priority of `ageing` to be at least 1, got: 0")
    return Ageing(after, priority)


def age_jobs(handle: QueueHandle, ageing: Ageing) -> int:
    """Ages the jobs of a queue of BullMQ; returns their number. Other queues have no place for them."""
    if not handle.dialect.has("ageing"):
        _warn_of_dialect(handle.keys.base, handle.dialect.name)
        return 0
    moved, first = 0, 1
    while first:
        some, first = verbs.age(handle, ageing.priority, ageing.after_ms, first=first)
        moved += some
    return moved


@cache
def _warn_of_dialect(base: str, dialect: str) -> None:
    log.warning("queue %s: %s", base.rstrip(":"), lacks("ageing", dialect, "`ageing`"))


log = logging.getLogger("spark_bull")

#: Maximum time between two looks, so that a pause ends in time, s.
_MAX_INTERVAL_S: Final = 1.0


class Guarding:
    """Runs guards. Of several promoters with equal guards, one pauses a queue, and any resumes it.

    Raises OptionError for what is no guard, or for one of a queue that is none of `queues`.
    """

    def __init__(self, guards: Guard | Iterable[Guard], queues: Sequence[str], damaged: DamagedQueues) -> None:
        self._damaged = damaged
        self._guards = [guards] if isinstance(guards, Guard) else [*guards]
        for one in self._guards:
            if not isinstance(one, Guard):
                raise expected("guards", "a list of Guard(queue, pause_when)", one)
            known = {*queues, *map(logical_queue, queues)}
            if not any(is_glob(name) for name in (one.queue, *queues)) and one.queue not in known:
                raise OptionError(
                    f"expected the queue of a guard to be one of the promoter's ({', '.join(queues)}), "
                    f"got: {one.queue!r}"
                )
        intervals = [one.condition.interval_ms / 1000 for one in self._guards]
        self._interval_s = min([*intervals, _MAX_INTERVAL_S])
        self.next_at = 0.0 if self._guards else inf

    def run(self, handles: Sequence[QueueHandle]) -> Counter[str]:
        """Looks at the queues if it is time; returns how many were `paused` and `resumed`."""
        done = Counter[str]()
        if monotonic_s() < self.next_at:
            return done
        for handle in handles:
            for one in self._guards:
                if _is_of(one, handle.keys.queue):
                    done.update(self._damaged.attempt(handle.keys, "run guards", partial(_apply, handle, one)) or ())
        self.next_at = monotonic_s() + self._interval_s
        return done


def _is_of(one: Guard, queue: str) -> bool:
    return one.queue == logical_queue(queue) or bool(matches([queue], one.queue))


def _apply(handle: QueueHandle, one: Guard) -> list[str]:
    """Looks at a queue until all its jobs are moved; returns what was done."""
    done = []
    is_moving = True
    while is_moving:
        reply = guard(handle, one)
        is_moving = reply.is_moving
        if reply.done == "paused":
            log.warning(
                "queue %s: a guard has paused it for %g s: %s", handle.keys.queue, one.resume_after_s, reply.why
            )
        elif reply.done == "resumed":
            log.warning("queue %s: a guard has resumed it, which was paused: %s", handle.keys.queue, reply.why)
        if reply.done:
            done.append(reply.done)
    return done
