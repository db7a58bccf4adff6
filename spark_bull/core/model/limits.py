"""Limits of workers: the rate of a queue, as in the Node libraries, and what a group of jobs may run at once.

And the settings of the claims of a slot, which the limits are part of.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from spark_bull.core.errors import OptionError, encodable, expected

_EXPECTED_OF_GROUP: Final = (
    'an object such as {"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}: `by` is a field of the '
    "payload, the numbers are positive integers, and `max` and `duration_ms`, and `concurrency`, may be left out"
)


@dataclass(frozen=True)
class GroupLimits:
    """`by`: the field of the payload that names the group of a job, with dots for fields within fields.

    At most `max` jobs of a group start in `duration_ms`, and at most `concurrency` run at the same time; None:
    any number, unless the group has a limit of its own.
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
    id behind the last colon: Node's queues with this `groupKey` append the field of the payload to the ids of new jobs.
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


@dataclass(frozen=True)
class ClaimSettings:
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
