"""What workers may claim: the rate of a queue, as in the Node libraries, and what a group of jobs may run at once.

A slot claims with these limits and its other settings. When a worker starts or ends slots follows from its backlog and
from what it has measured.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from statistics import fmean
from typing import Any, Final, NamedTuple

from spark_bull.core.errors import OptionError, encodable, expected

_EXPECTED_OF_GROUP: Final = (
    'an object such as {"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}: positive integers, '
    "and `max` only with `duration_ms`"
)


@dataclass(frozen=True)
class GroupLimits:
    """`by`: the field of the payload that names the group of a job, with dots for fields within fields.

    At most `max` jobs of a group start in `duration_ms`, and at most `concurrency` run at the same time. None: any
    number, unless the group has a limit of its own.
    """

    by: str
    max: int | None = None
    duration_ms: int | None = None
    concurrency: int | None = None

    @property
    def given(self) -> dict[str, str | int]:
        """The parameters that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Group:
    """A group of jobs of a queue. None: the group has no such limit of its own, the workers' limit holds.

    Parameters:
      queue: name of the queue.
      group: name of the group.
      waiting: number of its jobs that are delayed by limits, a pause or a rest, or promoted since. Jobs that no claim
        has met yet are not counted.
      active: number of its running jobs.
      max: maximum number of its jobs that start in `duration_ms`.
      duration_ms: the period of `max`, ms.
      concurrency: maximum number of its jobs that run at the same time.
      is_paused: whether its jobs wait until it is resumed.
      rests_until: when its jobs may start again after a RateLimitError, ms since 1970; None: it does not rest.
    """

    queue: str
    group: str
    waiting: int
    active: int
    max: int | None = None
    duration_ms: int | None = None
    concurrency: int | None = None
    is_paused: bool = False
    rests_until: int | None = None


def group_limits(name: str, value: str) -> GroupLimits:
    """Parses a JSON object with the parameters of GroupLimits. Raises OptionError."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not _is_valid(parsed):
        raise expected(name, _EXPECTED_OF_GROUP, value)
    encodable(f"{name}.by", parsed["by"])
    return GroupLimits(**parsed)


def _is_valid(parsed: Any) -> bool:
    if not isinstance(parsed, dict) or not isinstance(parsed.get("by"), str) or not all(parsed["by"].split(".")):
        return False
    limits = {name: limit for name, limit in parsed.items() if name != "by"}
    if not set(limits) <= {"max", "duration_ms", "concurrency"} or ("max" in limits) != ("duration_ms" in limits):
        return False
    return all(type(limit) is int and limit >= 1 for limit in limits.values())


_EXPECTED: Final = (
    'an object such as {"max": 100, "duration": 1000} (jobs, ms), both positive integers; `groupKey` may name a field '
    "of the payload, `bounceBack` be true or false"
)

_MEMBERS: Final = {"max", "duration", "groupKey", "bounceBack"}


class Limiter(NamedTuple):
    """At most `max` jobs of the queue start in `duration` ms.

    group_key: the limit applies to each group of jobs by itself (Bull 3 and 4). The group of a job is the part of its
    id behind the last colon. Node's queues with this `groupKey` append the field of the payload to the ids of new jobs.
    bounce_back: jobs over the limit stay in `wait` (Bull 3 and 4, which delay them otherwise). In the other dialects
    they always do.
    """

    max: int
    duration: int
    group_key: str | None = None
    bounce_back: bool = False

    @property
    def given(self) -> dict[str, str | int]:
        """The limiter as it is given in options."""
        group = {} if self.group_key is None else {"groupKey": self.group_key}
        back = {"bounceBack": True} if self.bounce_back else {}
        return {"max": self.max, "duration": self.duration, **group, **back}


def parse_limiter(name: str, value: str) -> Limiter:
    """Parses a JSON object with max, duration and, optionally, groupKey or bounceBack. Raises OptionError."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or not {"max", "duration"} <= set(parsed) <= _MEMBERS:
        raise expected(name, _EXPECTED, value)
    group_key, bounce_back = parsed.get("groupKey"), parsed.get("bounceBack", False)
    limits = (parsed["max"], parsed["duration"])
    is_valid = all(type(number) is int and number >= 1 for number in limits) and isinstance(bounce_back, bool)
    if not is_valid or not (group_key is None or (isinstance(group_key, str) and group_key)):
        raise expected(name, _EXPECTED, value)
    if group_key and bounce_back:
        raise OptionError(
            f"expected one of `groupKey` and `bounceBack` in `{name}`, got both: jobs of a group over its limit would "
            "keep the jobs of other groups from starting; leave one out"
        )
    return Limiter(*limits, group_key and encodable(f"{name}.groupKey", group_key), bounce_back)


#: The settings of a worker for jobs that end without one: no limits of groups, and no metrics.
NO_WORKER: Final = {"group": "", "max_metrics": 0}


class WorkSettings(NamedTuple):
    """Settings of a slot's claims. `sender` names its receipt.

    lock_ms: lifetime of locks without `extend`. worker: name that BullMQ shows as processedBy, or empty. limiter: at
    most `max` jobs of the queue start per `duration` ms, unless the queue's meta has other values. max_metrics: minutes
    of metrics to keep, 0: none are written. control: key that says "stop", "end" or "pause". counters: key of
    the numbers of jobs of the worker. at_once: how many claimed jobs start at once; while the queue or its groups have
    a limit, no more are claimed. None: all. group: the limits of each group of jobs.
    """

    sender: str
    lock_ms: int = 30_000
    worker: str = ""
    limiter: Limiter | None = None
    max_metrics: int = 0
    control: str = ""
    counters: str = ""
    at_once: int | None = None
    group: GroupLimits | None = None


def default_worker(worker_id: str) -> str:
    """The name that BullMQ shows as processedBy when the user gave none."""
    return f"spark-{worker_id}"


#: More slots are started when the backlog needs more than this multiple of their number, and some are ended when less
#: than the second multiple was enough at each of the last LOOKS looks. No need is both.
GROW_ABOVE: Final = 1.1
SHRINK_BELOW: Final = 0.8
LOOKS: Final = 15
#: The part of the slots that must be busy before more are started: jobs that wait beside free slots wait for another
#: reason, such as a limit of the queue.
_FULL: Final = 0.9
#: Slots that were busy at least if attempts have ended since the last look, although no slot is busy now.
_SOME: Final = 0.1
#: From this number of attempts on, older ones count for less: their weight is multiplied by this at each look.
_ENOUGH: Final = 20
_KEEP: Final = 0.9


class SlotRange(NamedTuple):
    """The smallest and the largest number of slots of a worker."""

    least: int
    most: int


class Look(NamedTuple):
    """What a worker does at a moment.

    at_s: the time, s. waiting: jobs that could start. busy: slots that process jobs. running: slots that have started.
    ended: attempts that have ended so far.
    """

    at_s: float
    waiting: int
    busy: float
    running: int
    ended: int


class Need(NamedTuple):
    """Slots that are busy, and slots with which the waiting jobs start in time."""

    busy: float
    for_backlog: float


def slots_for(waiting: int, per_s: float | None, target_wait_s: float) -> float:
    """How many slots start `waiting` jobs within `target_wait_s`.

    per_s: jobs that a busy slot ends per second; None: unknown, then one slot, which shows it.
    """
    if not waiting:
        return 0.0
    return 1.0 if per_s is None else waiting / (per_s * target_wait_s)


def wanted_slots(recent: Sequence[Need], current: int, limits: SlotRange) -> int:
    """How many slots a worker should have.

    The number grows at once, at most to the double. It shrinks when fewer were enough for LOOKS looks, to what these
    needed: so it does not follow each change of the load. Busy slots never make it grow, but keep it from shrinking.

    recent: the last needs, the newest last; at least one. current: the number of slots, without those that are to end.
    """
    if current < limits.least:
        return limits.least
    now = recent[-1].for_backlog
    if now > GROW_ABOVE * current:
        return max(current, min(ceil(now), 2 * current or 1, limits.most))
    if len(recent) >= LOOKS:
        last = recent[-LOOKS:]
        enough = max(fmean(one.busy for one in last), *(one.for_backlog for one in last))
        if enough < SHRINK_BELOW * current:
            return max(limits.least, min(ceil(enough), current))
    return current


class SlotRate:
    """Measures how many attempts a busy slot ends per second."""

    def __init__(self) -> None:
        self._ended = self._busy_s = 0.0

    def add(self, ended: int, busy_s: float) -> None:
        """Adds the attempts that slots have ended, and the time for which they were busy, in total, s."""
        keep = _KEEP if self._ended > _ENOUGH else 1.0
        self._ended = keep * self._ended + ended
        self._busy_s = keep * self._busy_s + busy_s

    @property
    def per_s(self) -> float | None:
        """Attempts per second; None: no slot was busy yet. One more counts as ended: those that run end at any time."""
        return (self._ended + 1) / self._busy_s if self._busy_s else None


class SlotScale:
    """Turns looks at a worker into the number of slots that it should have."""

    def __init__(self, target_wait_s: float) -> None:
        self._target_wait_s = target_wait_s
        self._rate = SlotRate()
        self._last: Look | None = None
        self._recent: deque[Need] = deque(maxlen=LOOKS)

    def wanted(self, look: Look, current: int, limits: SlotRange) -> int:
        """The number of slots after another look; see `wanted_slots`."""
        busy = look.busy
        if self._last is not None:
            ended = max(0, look.ended - self._last.ended)
            busy = max(busy, _SOME if ended else 0.0)
            self._rate.add(ended, (busy + self._last.busy) / 2 * (look.at_s - self._last.at_s))
        self._last = look
        for_backlog = slots_for(look.waiting, self._rate.per_s, self._target_wait_s)
        is_full = busy >= _FULL * look.running
        self._recent.append(Need(busy, for_backlog if is_full else min(1.0, for_backlog)))
        return wanted_slots(list(self._recent), current, limits)
