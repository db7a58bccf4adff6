"""Checks of limits, and the limits of groups of jobs: how many are active at once, and how many start in a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha1
from typing import Final, NamedTuple

import msgpack

from spark_bull.core.clock import LAST_ETA_MS
from spark_bull.core.errors import OptionError, encodable, expected
from spark_bull.core.model.limits import Group
from spark_bull.core.model.queues import QueueLimits
from spark_bull.core.queue.handle.handle import QueueHandle


class GroupChange(NamedTuple):
    """What a group gets of its own, a limit or a pause, and what it has no longer; see core/lua/lib/groups.lua."""

    group: str
    set: Mapping[str, int | bool]
    removed: Sequence[str] = ()


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
        check_positive(name, value)
    return given


def check_positive(name: str, value: object) -> None:
    """Raises OptionError unless a limit is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LAST_ETA_MS:
        raise expected(name, f"an integer from 1 to {LAST_ETA_MS}", value)


def set_limits(handle: QueueHandle, limits: Mapping[str, int], removed: Sequence[str] = ()) -> None:
    """Sets limits of the queue by the names of their fields in `meta`, and removes others."""
    pairs = [str(item) for pair in limits.items() for item in pair]
    packed = {"set": msgpack.packb(pairs, use_bin_type=False), "removed": msgpack.packb([*removed], use_bin_type=False)}
    handle.run("set_limits", packed)


#: Groups that one call reads, and that one changes, which may promote up to 200 delayed jobs.
GROUPS: Final = 25
CHANGED_GROUPS: Final = 10
#: The keys of the groups that a read needs.
_KEYS: Final = ("group_own", "group_active", "group_delayed", "group_promoted", "group_settings")


def change_groups(handle: QueueHandle, changes: Sequence[GroupChange]) -> None:
    """Changes what groups have of their own, also before a worker has claimed by groups."""
    for change in changes:
        checked_name(change.group)
    for start in range(0, len(changes), CHANGED_GROUPS):
        part = [change._asdict() for change in changes[start : start + CHANGED_GROUPS]]
        handle.run_once("change_groups", {"changes": msgpack.packb(part, use_bin_type=False)})


def checked_name(group: object) -> str:
    """The name of a group. Raises OptionError for another value."""
    if not isinstance(group, str):
        raise expected("group", "the name of a group, a text", group)
    return encodable("group", group)


def read_groups(handle: QueueHandle, after: str | None = None) -> Iterator[Group]:
    """The groups that have jobs, or something of their own, a chunk per call, from behind `after` on."""
    yield from _read_behind(handle, b"" if after is None else _digits(after))


def limits_of_group(handle: QueueHandle, group: str) -> QueueLimits:
    """The limits of one group; without any, all of them are None."""
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
