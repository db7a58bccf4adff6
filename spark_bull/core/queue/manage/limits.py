"""The limits of a BullMQ queue over all its workers: how many jobs are active at once, and how many start in a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha1
from typing import Final

import msgpack

from spark_bull.core.clock import LAST_ETA_MS
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.errors import OptionError, encodable, expected
from spark_bull.core.model.jobs import QueueLimits
from spark_bull.core.model.limits import Group
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage import verbs
from spark_bull.core.queue.manage.verbs import GroupChange

#: Number of started jobs that exhausts every rate limit, as in BullMQ: the largest integer of JavaScript.
_EXHAUSTED: Final = 2**53 - 1
#: Field of `meta` with a limit that has another name.
_FIELDS: Final = {"duration_ms": "duration"}


def set_limits(
    handle: QueueHandle,
    *,
    concurrency: int | None = None,
    max: int | None = None,
    duration_ms: int | None = None,
) -> None:
    """Sets the limits that are given. Raises OptionError or DialectError."""
    handle.dialect.require("queue-limits")
    given = given_limits({"concurrency": concurrency, "max": max, "duration_ms": duration_ms})
    verbs.set_limits(handle, {_FIELDS.get(name, name): value for name, value in given.items()}, ())


def given_limits(limits: Mapping[str, int | None], duration: str = "duration_ms") -> dict[str, int]:
    """The limits that are given: `concurrency`, `max` and a duration. Raises OptionError for none, and wrong ones.

    duration: the name of the duration, ms.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        raise OptionError(f"expected `concurrency`, or `max` and `{duration}`, got none")
    if ("max" in given) != (duration in given):
        missing = duration if "max" in given else "max"
        raise OptionError(f"expected `max` and `{duration}` together, got no `{missing}`")
    for name, value in given.items():
        _check_positive(name, value)
    return given


def remove_limits(handle: QueueHandle, *, concurrency: bool = True, rate: bool = True) -> None:
    """Removes the limits. Raises DialectError."""
    handle.dialect.require("queue-limits")
    names = [*(["concurrency"] if concurrency else []), *(["max", "duration"] if rate else [])]
    verbs.set_limits(handle, {}, names)


def limits(handle: QueueHandle) -> QueueLimits:
    """Reads the limits. Raises DialectError."""
    handle.dialect.require("queue-limits")
    keys = handle.keys
    fields, active, started, left, left_of_spark = handle.connection.pipeline(
        [
            ("HMGET", keys["meta"], "concurrency", "max", "duration"),
            ("LLEN", keys["active"]),
            ("GET", keys["limiter"]),
            ("PTTL", keys["limiter"]),
            ("PTTL", keys["rate_limited"]),
        ]
    )
    concurrency, most, duration = map(integer_of, fields)
    is_exhausted = (integer_of(started) or 0) >= (most or _EXHAUSTED)
    limited_ms = max(left if is_exhausted else 0, left_of_spark, 0)
    return QueueLimits(concurrency, most, duration, limited_ms, concurrency is not None and active >= concurrency)


def rate_limit(handle: QueueHandle, duration_ms: int) -> None:
    """Keeps jobs from starting for a time. Raises OptionError or DialectError."""
    handle.dialect.require("queue-limits")
    _check_positive("duration_ms", duration_ms)
    keys = handle.keys
    # The first key is for workers with a limiter, also Node's, the second one for all workers of Spark.
    handle.connection.pipeline(
        [
            ("SET", keys["limiter"], _EXHAUSTED, "PX", duration_ms),
            ("SET", keys["rate_limited"], 1, "PX", duration_ms),
        ]
    )


def remove_rate_limit(handle: QueueHandle) -> None:
    """Ends the current rate limit, and forgets how many jobs have started in its period. Raises DialectError."""
    handle.dialect.require("queue-limits")
    handle.connection.call("DEL", handle.keys["limiter"], handle.keys["rate_limited"])


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LAST_ETA_MS:
        raise expected(name, f"an integer from 1 to {LAST_ETA_MS}", value)


#: Groups that one call reads, and that one changes, which may promote up to 200 delayed jobs.
GROUPS: Final = 25
CHANGED_GROUPS: Final = 10
#: The keys of the groups that a read needs.
_KEYS: Final = ("group_own", "group_active", "group_delayed", "group_promoted", "group_settings")
#: What a group has that its rate limit consists of.
_RATE: Final = ("max", "duration_ms")


def set_group_limit(
    handle: QueueHandle,
    group: str,
    *,
    concurrency: int | None = None,
    max: int | None = None,
    duration_ms: int | None = None,
) -> None:
    """Sets those limits of a group that are given. Raises OptionError."""
    checked = checked_name(group)
    given = given_limits({"concurrency": concurrency, "max": max, "duration_ms": duration_ms})
    change_groups(handle, [GroupChange(checked, given)])


def remove_group_limit(handle: QueueHandle, group: str, *, concurrency: bool = True, rate: bool = True) -> None:
    """Removes limits of a group: then the workers' limits hold. Raises OptionError."""
    removed = [*(["concurrency"] if concurrency else []), *(_RATE if rate else [])]
    change_groups(handle, [GroupChange(group, {}, removed)])


def pause_group(handle: QueueHandle, group: str) -> None:
    """Keeps jobs of a group from starting until it is resumed. Raises OptionError."""
    change_groups(handle, [GroupChange(group, {"paused": True})])


def resume_group(handle: QueueHandle, group: str) -> None:
    """Lets jobs of a group start again. Raises OptionError."""
    change_groups(handle, [GroupChange(group, {}, ["paused"])])


def change_groups(handle: QueueHandle, changes: Sequence[GroupChange]) -> None:
    """Changes what groups have of their own. Raises OptionError for a queue that has no groups; nothing is changed."""
    for change in changes:
        checked_name(change.group)
    for start in range(0, len(changes), CHANGED_GROUPS):
        if not verbs.change_groups(handle, changes[start : start + CHANGED_GROUPS]):
            raise _without_groups(handle)


def checked_name(group: object) -> str:
    """The name of a group. Raises OptionError for another value."""
    if not isinstance(group, str):
        raise expected("group", "the name of a group, a text", group)
    return encodable("group", group)


def check_groups(handle: QueueHandle) -> None:
    """Raises OptionError for a queue that has no groups."""
    if not handle.connection.call("EXISTS", handle.keys["group_settings"]):
        raise _without_groups(handle)


def _without_groups(handle: QueueHandle) -> OptionError:
    return OptionError(
        f"expected queue {handle.keys.queue} to have groups of jobs, got one from which no worker has claimed by "
        'groups: start a Worker with `group`, such as {"by": "tenant"}, on it first'
    )


def read_groups(handle: QueueHandle, after: str | None = None) -> Iterator[Group]:
    """The groups that have jobs, or something of their own, a chunk per call, from behind `after` on."""
    yield from _read_behind(handle, b"" if after is None else _digits(after))


def limits_of_group(handle: QueueHandle, group: str) -> QueueLimits:
    """The limits of one group. Raises OptionError for a queue that has no groups."""
    check_groups(handle)
    found = next(_read_behind(handle, b"%016d" % (int(_digits(group)) - 1)), None)
    if found is None or found.group != group:
        return QueueLimits(None, None, None)
    rest_ms = max(0, found.rests_until - handle.connection.now_ms()) if found.rests_until else 0
    is_maxed = found.concurrency is not None and found.active >= found.concurrency
    return QueueLimits(found.concurrency, found.max, found.duration_ms, rest_ms, is_maxed)


def _read_behind(handle: QueueHandle, position: bytes) -> Iterator[Group]:
    while True:
        args = {"base": handle.keys.base, "position": position, "limit": GROUPS}
        position, *found = handle.connection.script("read/groups", {name: handle.keys[name] for name in _KEYS}, args)
        for name, waiting, active, packed in found:
            # Lua packs an empty table as a list.
            own = msgpack.unpackb(packed, raw=False, unicode_errors="replace") or {}
            yield Group(
                queue=handle.keys.queue,
                group=name.decode("utf-8", "replace"),
                waiting=waiting,
                active=active,
                max=own.get("max"),
                duration_ms=own.get("duration_ms"),
                concurrency=own.get("concurrency"),
                is_paused=own.get("paused", False),
                rests_until=own.get("rests_until"),
            )
        if not position:
            return


def _digits(group: str) -> bytes:
    """What a group is sorted by; see core/lua/lib/groups.lua."""
    digest = sha1(encodable("after", group).encode(), usedforsecurity=False).hexdigest()
    return b"%016d" % int(digest[:13], 16)
