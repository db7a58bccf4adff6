"""Comparable dumps of the job schedulers of a queue: times and numbers in job ids are replaced by their order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.dump import DELAYED_SCALE, Dump, Key, Window, is_job
from tests.support.pair import comparable

_SCHEDULED = re.compile(r"repeat:.+:(\d{13})")
#: Times are replaced by numbers from here on, in the order of the jobs, which are not times of a test.
_FIRST_LABEL = 7_000_000_000_001


def comparable_schedulers(raw: Dump, window: Window, queue: str) -> Dump:
    """The comparable values of two queues with the same job schedulers, including the id counter."""
    times = sorted({match[1] for name in [*raw, *_members(raw)] if (match := _SCHEDULED.fullmatch(name))})
    labels = {time: str(_FIRST_LABEL + number) for number, time in enumerate(times)}

    def renamed(text: str) -> str:
        """Replaces the name of the queue and the times, which are values or parts of ids."""
        text = text.replace(queue, "<queue>")
        for time, label in labels.items():
            text = label if text == time else text.replace(f":{time}", f":{label}")
        return text

    made = {renamed(name): replace(key, value=_without_times(name, key, renamed)) for name, key in raw.items()}
    apart = {name: made.pop(name) for name in ("id", "delayed", "repeat") if name in made}
    return comparable(made, window) | apart


def _members(raw: Dump) -> list[str]:
    members = [str(member) for name in ("delayed", "repeat") if name in raw for member, _ in raw[name].value]
    # Jobs that were removed are only there.
    events = raw["events"].value if "events" in raw else []
    return members + [fields["jobId"] for _, fields in events if "jobId" in fields]


def _without_times(name: str, key: Key, renamed: Callable[[str], str]) -> Any:
    if name == "delayed":
        return [[renamed(member), renamed(f"{int(score) // DELAYED_SCALE}")] for member, score in key.value]
    if name == "repeat":
        return [[renamed(member), renamed(f"{score:.0f}")] for member, score in key.value]
    if is_job(key) and "timestamp" in key.value:
        opts = json.loads(key.value["opts"])
        # Node's workers have no name in these tests, those of Spark always have one.
        named = {name: value for name, value in key.value.items() if name != "pb"}
        opts["delay"] = "<delay>"
        if "prevMillis" in opts:
            opts["prevMillis"] = renamed(str(opts["prevMillis"]))
        if "offset" in opts.get("repeat", {}):
            opts["repeat"]["offset"] = "<offset>"
        # These may equal the time of a job scheduler that began immediately.
        stamps = {name: named.pop(name) for name in ("timestamp", "processedOn", "finishedOn") if name in named}
        return _each(renamed, {**named, "opts": json.dumps(opts), "delay": "<delay>"}) | stamps
    made = _each(renamed, key.value)
    return {**made, "offset": "<offset>"} if key.type == "hash" and "offset" in made else made


def _each(renamed: Callable[[str], str], value: Any) -> Any:
    """The value with all its texts renamed."""
    match value:
        case str():
            return renamed(value)
        case dict():
            return {renamed(name): _each(renamed, item) for name, item in value.items()}
        case list() | tuple():
            return [_each(renamed, item) for item in value]
        case _:
            return value
