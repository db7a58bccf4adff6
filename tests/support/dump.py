"""Comparable dumps of all keys of a queue.

    left = normalise(dump(client, prefix, "by-node"), window)
    right = normalise(dump(client, prefix, "by-us"), window)
    assert difference(left, right) == []

`dump` reads every key of a queue. `normalise` removes values that differ between two queues: times during the test,
stream ids, lock tokens. Times that the test has set stay. `difference` lists the remaining differences as sentences.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from redis import Redis

from spark_bull.core.keys import literal_glob

NOW = "<now>"
TOKEN = "<token>"
PRIVATE = "spark:"
DELAYED_SCALE = 0x1000
JSON_FIELDS = {"opts", "returnvalue", "stacktrace", "parent"}
#: Keys that a running worker uses; their values at the end are random.
_PASSING = {"marker", "stalled", "stalled-check", "id"}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class Key:
    """One Redis key: a list in order, a zset as (member, score) by score, a set sorted, a stream as (id, fields)."""

    type: str
    expires: bool
    value: Any


Dump = dict[str, Key]


@dataclass
class Window:
    """The duration of a test so far: a time inside it is "now", a time outside was set by the test."""

    start: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def __contains__(self, moment: float) -> bool:
        # A second of tolerance: Redis, Node and Python may run on different machines.
        return self.start - 1000 <= moment <= time.time_ns() / 1e6 + 1000


def dump(client: Redis, prefix: str, queue: str) -> Dump:
    """Every key of a queue by its name after `<prefix>:<queue>:`."""
    base = f"{prefix}:{queue}:"
    return {
        name.removeprefix(base): Key(kind, ttl_ms >= 0, value)
        for name, kind, ttl_ms, value in read_keys(client, f"{literal_glob(base)}*")
    }


def read_keys(client: Redis, pattern: str) -> Iterator[tuple[str, str, int, Any]]:
    """The name, type, time to live and value of each key, sorted. Bytes that are no UTF-8 are surrogates."""
    for key, kind, ttl_ms, value in sorted(client.eval(_READ_ALL, 0, pattern)):
        yield _text(key), _text(kind), ttl_ms, _VALUE[_text(kind)](value)


#: Name, type, time to live and value of each key. A script takes less CPU than three commands for each key.
_READ_ALL = """
local read = {
  string = {'GET'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'}, zset = {'ZRANGE', 0, -1, 'WITHSCORES'},
  hash = {'HGETALL'}, stream = {'XRANGE', '-', '+'},
}
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local command = read[kind]
  local value = redis.call(command[1], key, unpack(command, 2))
  found[#found + 1] = {key, kind, redis.call('PTTL', key), value}
end
return found
"""
_VALUE: dict[str, Callable[[Any], Any]] = {
    "string": lambda value: _text(value),
    "list": lambda items: [_text(item) for item in items],
    "set": lambda items: sorted(_text(item) for item in items),
    "zset": lambda items: [(member, float(score)) for member, score in _pairs(items)],
    "hash": lambda items: dict(_pairs(items)),
    "stream": lambda entries: [(_text(number), dict(_pairs(fields))) for number, fields in entries],
}


def _pairs(items: list[bytes]) -> Iterator[tuple[str, str]]:
    texts = map(_text, items)
    return zip(texts, texts, strict=True)


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="surrogateescape")


def normalise(raw: Dump, window: Window, named: Callable[[Dump, Window], Moments] | None = None) -> Dump:
    """The dump without times of the test, stream ids, tokens and private keys. `named`: the class that names times."""
    public = {name: key for name, key in raw.items() if not name.startswith(PRIVATE)}
    moments = (named or Moments)(public, window)
    return {name: Key(key.type, key.expires, _normal(name, key, moments)) for name, key in public.items()}


class Moments:
    """Names for times: times in the window of the test, and due times of jobs that were delayed in it."""

    def __init__(self, raw: Dump, window: Window) -> None:
        self.window = window
        # BullMQ numbers the jobs of one millisecond; how many jobs share one is random.
        self._numbered = "events" in raw
        self._due: dict[int, str] = {}
        for key in raw.values():
            if is_job(key) and (delay := int(_number(key.value.get("delay")))):
                timestamp = int(_number(key.value.get("timestamp")))
                if timestamp in window:
                    self._due[timestamp + delay] = f"<now + {delay}>"

    def name(self, moment: float | str) -> Any:
        """The time itself, or a name for it if it is in the window of the test. A fraction is kept."""
        number = _number(moment)
        whole, fraction = int(number), number - int(number)
        if whole in self._due:
            return f"{self._due[whole]}+{round(fraction * DELAYED_SCALE)}"
        return NOW if number in self.window else moment

    def delayed(self, score: float) -> Any:
        """A delayed job's score: due time, and the low 12 bits that keep the order."""
        due, order = divmod(int(score), DELAYED_SCALE)
        return (self.name(due), None if self._numbered and due in self._due else order)


def is_job(key: Key) -> bool:
    return key.type == "hash" and "data" in key.value and "opts" in key.value


def _normal(name: str, key: Key, moments: Moments) -> Any:
    if name.endswith(":lock"):
        return TOKEN
    if is_job(key):
        return {field: _field(field, value, moments) for field, value in key.value.items()}
    match name, key.type:
        case "delayed", "zset":
            return [(member, moments.delayed(score)) for member, score in key.value]
        case "prioritized" | "priority", _:
            return key.value
        case _, "zset":
            return [(member, moments.name(score)) for member, score in key.value]
        case _, "stream":
            return [{field: moments.name(value) for field, value in entry.items()} for _, entry in key.value]
        case _, "hash":
            return {field: moments.name(value) for field, value in key.value.items()}
        case _:
            return key.value


def _field(name: str, value: str, moments: Moments) -> Any:
    if name == "data":
        return value
    if name not in JSON_FIELDS:
        return moments.name(value)
    try:
        parsed = json.loads(value)
    except ValueError:
        return value
    if name == "opts" and isinstance(parsed, dict) and "timestamp" in parsed:
        return {**parsed, "timestamp": moments.name(parsed["timestamp"])}
    if name == "stacktrace" and isinstance(parsed, list):
        # Stack frames depend on language and machine; only the first line is compared.
        return [str(trace).splitlines()[:1] for trace in parsed]
    return parsed


def comparable(raw: Dump, window: Window) -> Dump:
    """The comparable values: streams without order, as Node promotes at other times; numbers of traces."""
    normal = {name: key for name, key in normalise(raw, window).items() if name not in _PASSING}
    return {name: replace(key, value=_reported(name, key)) for name, key in normal.items()}


def _reported(name: str, key: Key) -> Any:
    if key.type == "stream":
        return sorted(json.dumps(entry, sort_keys=True) for entry in key.value if entry["event"] != "drained")
    if name == "meta":
        return {field: value for field, value in key.value.items() if field != "version"}
    if key.type == "hash" and "stacktrace" in key.value and isinstance(key.value["stacktrace"], list):
        return {**key.value, "stacktrace": len(key.value["stacktrace"])}
    if key.type == "zset":
        return sorted(key.value, key=str)
    return key.value


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0


def normalise_messages(
    messages: Iterable[tuple[str, str]],
    prefix: str,
    raw: Dump,
    window: Window,
    named: Callable[[Dump, Window], Moments] | None = None,
) -> list[tuple[str, Any]]:
    """Published (channel, message) pairs without prefix, queue, tokens and times of the test."""
    moments = (named or Moments)(raw, window)
    normal = []
    for channel, message in messages:
        if channel.startswith(f"{prefix}:"):
            channel = channel.removeprefix(f"{prefix}:").partition(":")[2]
        else:
            channel = channel.partition("@")[0] + "@<queue>"
        normal.append((UUID.sub(TOKEN, channel), _message(message, moments)))
    return normal


def _message(message: str, moments: Moments) -> Any:
    try:
        parsed = json.loads(message)
    except ValueError:
        return message
    if isinstance(parsed, int | float):
        return moments.name(message)
    return _without_time(parsed, moments)


def _without_time(value: Any, moments: Moments) -> Any:
    match value:
        case dict():
            return {name: _without_time(item, moments) for name, item in value.items()}
        case list():
            return [_without_time(item, moments) for item in value]
        case str():
            return UUID.sub(TOKEN, value)
        case bool() | None:
            return value
        case _:
            return moments.name(value)


def difference(left: Any, right: Any, place: str = "") -> list[str]:
    """One sentence for each place where the two differ.

    A place is a path, such as `17.opts.attempts`, `wait[3]` or `events[9].event`.
    """
    if isinstance(left, Key) and isinstance(right, Key) and replace(left, value=right.value) == right:
        return difference(left.value, right.value, place)
    for kind, inner in ((dict, "{}.{}"), (list, "{}[{}]")):
        if isinstance(left, kind) and isinstance(right, kind):
            one, other = (side if kind is dict else dict(enumerate(side)) for side in (left, right))
            return [
                sentence
                for name in one | other
                for sentence in difference(
                    one.get(name, _ABSENT), other.get(name, _ABSENT), inner.format(place, name).lstrip(".")
                )
            ]
    if left == right and isinstance(left, bool) == isinstance(right, bool):
        return []
    has = {side: f"{value!r:.160}" for side, value in (("left", left), ("right", right)) if value is not _ABSENT}
    if len(has) == 1:
        return [f"{place}: only {side} has {value}" for side, value in has.items()]
    return [f"{place}: {has['left']} left, {has['right']} right"]


_ABSENT = object()
