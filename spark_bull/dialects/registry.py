"""The dialects, and how the dialect of a queue is detected."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.dialects.base import Dialect
from spark_bull.dialects.bull import Bull
from spark_bull.dialects.bull1 import Bull1
from spark_bull.dialects.bullmq import BullMQ
from spark_bull.errors import DialectError
from spark_bull.keys import QueueKeys
from spark_bull.store.connection import Connection

log = logging.getLogger("spark_bull")

DIALECTS: Final[dict[str, Dialect]] = {d.name: d for d in (Bull1(), Bull(), BullMQ())}
FALLBACK: Final = "bullmq"

#: Keys that only BullMQ has, and their types; a job of another dialect can have such an id, but is a HASH.
_BULLMQ_KEYS: Final = {"events": b"stream", "marker": b"zset", "prioritized": b"zset", "pc": b"string"}


def dialect_of(connection: Connection, keys: QueueKeys, protocol: str) -> Dialect:
    """The dialect `protocol`, or for `auto` the detected one.

    For a queue that does not exist yet, `auto` is bullmq, which is logged. Raises DialectError when the queue's keys
    can't belong to the given dialect.
    """
    return found_dialect(connection, keys, protocol) or _fallback(keys)


def found_dialect(connection: Connection, keys: QueueKeys, protocol: str) -> Dialect | None:
    """As `dialect_of`, but None for `auto` and a queue that does not exist yet."""
    return detect(connection, keys) if protocol == "auto" else checked_dialect(connection, keys, protocol)


def _fallback(keys: QueueKeys) -> Dialect:
    log.info("queue %s does not exist yet: using protocol %s (option `protocol`)", keys.queue, FALLBACK)
    return DIALECTS[FALLBACK]


def detect(connection: Connection, keys: QueueKeys) -> Dialect | None:
    """The dialect that a queue's keys belong to, or None when the queue does not exist."""
    signs = _look(connection, keys)
    possible = frozenset(DIALECTS)
    for shown in _evidence(connection, keys, signs):
        possible = possible & shown.by or shown.by
        if len(possible) == 1:
            return DIALECTS[next(iter(possible))]
    if possible < frozenset(DIALECTS) or signs.bull_like or signs.exists:
        return DIALECTS["bull"]
    return None


def checked_dialect(connection: Connection, keys: QueueKeys, protocol: str) -> Dialect:
    """The dialect of this name. Raises DialectError when the queue's keys can't belong to it."""
    for shown in _evidence(connection, keys, _look(connection, keys)):
        if protocol not in shown.by:
            found = " or ".join(sorted(shown.by))
            raise DialectError(
                f"expected queue {keys.queue} to speak {protocol} (option `protocol`), but it speaks {found}: "
                f"{shown.what}; leave `protocol` out, or use another queue or prefix"
            )
    return DIALECTS[protocol]


def conflicts(connection: Connection, keys: QueueKeys) -> list[str]:
    """What shows that libraries of different dialects use the queue; empty if one dialect can have all of its keys."""
    found = list(_evidence(connection, keys, _look(connection, keys)))
    if frozenset(DIALECTS).intersection(*(shown.by for shown in found)):
        return []
    return [f"{shown.what} ({' or '.join(sorted(shown.by))})" for shown in found]


@dataclass(frozen=True)
class _Evidence:
    """A property that only queues of some dialects have."""

    by: frozenset[str]
    what: str


@dataclass(frozen=True)
class _Signs:
    """Values in Redis by which dialects differ. `samples`: ids of some waiting and active jobs."""

    open_write: bytes | None
    meta: tuple[bytes | None, ...]
    types: dict[str, bytes]
    bull_like: bool
    exists: bool
    samples: tuple[bytes, ...]


def _look(connection: Connection, keys: QueueKeys) -> _Signs:
    typed = ("completed", "failed", "priority", *_BULLMQ_KEYS)
    open_writes, meta, stalled_check, others, newest, next_one, active, paused, delayed, *types = connection.pipeline(
        [
            ("ZRANGE", keys["open_writes"], 0, 0),
            ("HMGET", keys["meta"], "version", "opts.maxLenEvents"),
            ("EXISTS", keys["stalled_check"]),
            ("EXISTS", keys["id"], keys["meta_paused"]),
            ("LINDEX", keys["wait"], 0),
            ("LINDEX", keys["wait"], -1),
            ("LINDEX", keys["active"], 0),
            ("LINDEX", keys["paused"], 0),
            ("ZRANGE", keys["delayed"], 0, 0),
            *(("TYPE", keys[name]) for name in typed),
        ]
    )
    return _Signs(
        open_writes[0] if open_writes else None,
        tuple(meta),
        dict(zip(typed, types, strict=True)),
        bool(stalled_check),
        bool(others),
        tuple(sample for sample in (newest, next_one, active, paused, *delayed) if sample),
    )


def _evidence(connection: Connection, keys: QueueKeys, signs: _Signs) -> Iterator[_Evidence]:
    """The evidence, the strongest first; jobs are read only if the keys are not sufficient."""
    if signs.open_write is not None:
        written: Any = connection.call("HGET", keys.write(signs.open_write.decode()), "dialect")
        if written:
            yield _Evidence(frozenset({written.decode()}), "a write of this dialect is unfinished")
    is_bullmq = False
    for name, kind in _BULLMQ_KEYS.items():
        if signs.types[name] == kind:
            is_bullmq = True
            yield _Evidence(frozenset({"bullmq"}), f"it has a key `{name}`")
    if any(signs.meta):
        is_bullmq = True
        yield _Evidence(frozenset({"bullmq"}), "its `meta` is BullMQ's")
    finished = {name: signs.types[name] for name in ("completed", "failed")}
    for name, kind in finished.items():
        if kind == b"set":
            yield _Evidence(frozenset({"bull-1"}), f"`{name}` is a SET")
        elif kind == b"zset":
            yield _Evidence(frozenset({"bull", "bullmq"}), f"`{name}` is a ZSET")
    if signs.types["priority"] == b"zset":
        yield _Evidence(frozenset({"bull", "bullmq"}), "it has a key `priority`")
    if is_bullmq:
        return
    if signs.samples or b"zset" in finished.values() or b"set" in finished.values():
        yield _Evidence(frozenset({"bull", "bull-1"}), "it has jobs, but neither `events` nor `meta` of BullMQ")
    for sample in signs.samples:
        try:
            name, attempts = connection.call("HMGET", keys.job(sample.decode()), "name", "attempts")
        except DialectError:  # The key of a damaged job is not a hash.
            continue
        if name is not None:
            yield _Evidence(frozenset({"bull"}), "its jobs have names")
            return
        if attempts is not None:
            yield _Evidence(frozenset({"bull-1"}), "its jobs have no names")
            return
