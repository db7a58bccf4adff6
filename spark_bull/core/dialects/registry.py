"""The dialects, and how the dialect of a queue is detected."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.bull import Bull, Bull1
from spark_bull.core.dialects.bullmq import BullMQ, OldBullMQ
from spark_bull.core.errors import DialectError, QueueDamaged
from spark_bull.core.keys import QueueKeys
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import RoundTrips, readable, run

log = logging.getLogger("spark_bull")

DIALECTS: Final[dict[str, Dialect]] = {d.name: d for d in (Bull1(), Bull(), BullMQ())}
FALLBACK: Final = "bullmq"
#: The version of a queue whose keys show that its BullMQ is old.
_OLD: Final = "bullmq:3 or 4"

#: Keys that only BullMQ has, and their types; a job of another dialect can have such an id, but is a HASH.
_BULLMQ_KEYS: Final = {"events": b"stream", "marker": b"zset", "prioritized": b"zset", "pc": b"string"}
#: The types, in all dialects, of the keys that lead to evidence.
_LEADING: Final = {
    "completed": (b"set", b"zset"),
    "failed": (b"set", b"zset"),
    "wait": (b"list",),
    "active": (b"list",),
    "paused": (b"list",),
    "delayed": (b"zset",),
}


def dialect_of(keys: QueueKeys, protocol: str, *, guesses: bool) -> RoundTrips[Dialect]:
    """The dialect `protocol`, or for `auto` the detected one.

    For a queue that does not exist yet, `auto` is bullmq, which is logged. guesses: whether a queue whose dialect a
    damaged key hides counts as one of the most usual dialect, as for a look at many queues; otherwise it is an error.

    Raises DialectError when the queue's keys can't belong to the given dialect, or are Bull 2's; QueueDamaged for a
    damaged key.
    """
    found = yield from _found(keys, protocol, guesses=guesses)
    if found is not None:
        return found
    log.info("queue %s does not exist yet: using protocol %s (option `protocol`)", keys.queue, FALLBACK)
    return DIALECTS[FALLBACK]


def found_dialect(connection: Connection, keys: QueueKeys, protocol: str) -> Dialect | None:
    """As `dialect_of` without guesses, but None for `auto` and a queue that does not exist yet."""
    return run(connection, _found(keys, protocol, guesses=False))


def _found(keys: QueueKeys, protocol: str, *, guesses: bool) -> RoundTrips[Dialect | None]:
    signs = yield from _look_for_signs(keys)
    if protocol == "auto":
        dialect = yield from _detected(keys, signs, guesses=guesses)
    else:
        dialect = DIALECTS[protocol]
        for shown in (yield from _evidence(keys, signs)):
            if protocol not in shown.by:
                found = " or ".join(sorted(shown.by))
                raise DialectError(
                    f"expected queue {keys.queue} to speak {protocol} (option `protocol`), but it speaks {found}: "
                    f"{shown.what}; leave `protocol` out, or use another queue or prefix"
                )
    if dialect is not DIALECTS["bullmq"]:
        return dialect
    return (yield from _older(keys, signs)) or dialect


def _detected(keys: QueueKeys, signs: _Signs, *, guesses: bool) -> RoundTrips[Dialect | None]:
    possible = _possible((yield from _evidence(keys, signs, is_enough=lambda found: len(_possible(found)) == 1)))
    kinds = {signs.types[name] for name in ("completed", "failed")}
    if b"set" in kinds and possible == {"bull-1"} and signs.types["priority"] == b"zset" and not guesses:
        raise DialectError(
            f"expected queue {keys.queue} to be of Bull 1, 3 or 4, or of BullMQ, got Bull 2: a SET of finished jobs, "
            "and a key `priority`. Use another queue or prefix"
        )
    if len(possible) == 1:
        return DIALECTS[next(iter(possible))]
    if not guesses:
        _check_leading(keys, signs)
    if possible < frozenset(DIALECTS) or signs.bull_like or signs.exists:
        return DIALECTS["bull"]
    return None


def _check_leading(keys: QueueKeys, signs: _Signs) -> None:
    for name, kinds in _LEADING.items():
        if signs.types[name] not in (b"none", *kinds):
            raise QueueDamaged(
                f"expected {keys[name]} to be a {b' or '.join(kinds).decode()}, found a {signs.types[name].decode()}, "
                "so that the dialect of the queue is unknown. Restore or delete the key, or set the option `protocol`"
            )


def _possible(found: Sequence[_Evidence]) -> frozenset[str]:
    """The dialects that evidence leaves; if some contradicts what is before it, the strongest one counts."""
    possible = frozenset(DIALECTS)
    for shown in found:
        possible = possible & shown.by or shown.by
        if len(possible) == 1:
            break
    return possible


def checked_dialect(connection: Connection, keys: QueueKeys, protocol: str) -> Dialect:
    """The dialect of this name. Raises DialectError when the queue's keys can't belong to it."""
    found = run(connection, _found(keys, protocol, guesses=False))
    assert found is not None
    return found


def others_spoken(connection: Connection, keys: QueueKeys, dialect: str) -> str:
    """The dialects that a queue's keys belong to, and what shows it, if this dialect is none of them; "" otherwise.

    Also if the keys belong to no dialect together, as when one of them is damaged.
    """
    found = run(connection, _all_evidence(keys))
    possible = frozenset(DIALECTS).intersection(*(shown.by for shown in found))
    if dialect in possible or not possible:
        return ""
    return f"{' or '.join(sorted(possible))} ({', '.join(shown.what for shown in found if dialect not in shown.by)})"


def conflicts(connection: Connection, keys: QueueKeys) -> list[str]:
    """What shows that libraries of different dialects use the queue; empty if one dialect can have all of its keys."""
    found = run(connection, _all_evidence(keys))
    if frozenset(DIALECTS).intersection(*(shown.by for shown in found)):
        return []
    return [f"{shown.what} ({' or '.join(sorted(shown.by))})" for shown in found]


class _Evidence(NamedTuple):
    """A property that only queues of some dialects have."""

    by: frozenset[str]
    what: str


class _Signs(NamedTuple):
    """Values in Redis by which dialects differ. `samples`: ids of some waiting and active jobs, `finished`: ids of the
    newest finished ones.
    """

    open_write: bytes | None
    meta: tuple[bytes | None, ...]
    types: dict[str, bytes]
    bull_like: bool
    exists: bool
    samples: tuple[bytes, ...]
    finished: tuple[bytes, ...]


def _look_for_signs(keys: QueueKeys) -> RoundTrips[_Signs]:
    typed = (*_LEADING, "priority", *_BULLMQ_KEYS)
    replies = yield from readable(
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
            ("ZRANGE", keys["completed"], -1, -1),
            ("ZRANGE", keys["failed"], -1, -1),
            *(("TYPE", keys[name]) for name in typed),
        ]
    )
    open_writes, meta, stalled_check, others, newest, next_one, active, paused, delayed, completed, failed, *types = (
        replies
    )
    return _Signs(
        open_writes[0] if open_writes else None,
        tuple(meta or ()),
        dict(zip(typed, types, strict=True)),
        bool(stalled_check),
        bool(others),
        tuple(sample for sample in (newest, next_one, active, paused, *(delayed or ())) if sample),
        (*(completed or ()), *(failed or ())),
    )


def _older(keys: QueueKeys, signs: _Signs) -> RoundTrips[OldBullMQ | None]:
    """What shows that a queue of BullMQ is one of BullMQ 3 or 4, of which few name themselves in `meta`."""
    version = ((signs.meta and signs.meta[0]) or b"").decode("utf-8", "replace")
    if version:
        is_old = re.match(r"bullmq:[1-4]\.", version)
        return OldBullMQ(version, f"its `meta.version` is {version}") if is_old else None
    shown, jobs = "", [*dict.fromkeys((*signs.finished, *signs.samples))]
    counters = yield from readable([("HMGET", keys.base.encode() + job, "ats", "attemptsMade") for job in jobs])
    for job, (started, old) in zip(jobs, (found or (None, None) for found in counters), strict=True):
        if started is not None:
            return None
        if old is not None:
            shown = f"its job {job.decode('utf-8', 'replace')} has counted its attempts as BullMQ 3 and 4 do"
    if signs.types["priority"] == b"zset":
        shown = shown or "it has a key `priority`"
    elif any(sample.startswith(b"0:") for sample in signs.samples):
        shown = shown or "its waiting jobs have the marker of BullMQ 3 and 4"
    return OldBullMQ(_OLD, shown) if shown else None


def _all_evidence(keys: QueueKeys) -> RoundTrips[list[_Evidence]]:
    return (yield from _evidence(keys, (yield from _look_for_signs(keys))))


def _evidence(
    keys: QueueKeys, signs: _Signs, is_enough: Callable[[Sequence[_Evidence]], bool] = lambda _: False
) -> RoundTrips[list[_Evidence]]:
    """The evidence, the strongest first; jobs are read only if the keys are not sufficient, or not `is_enough`."""
    found: list[_Evidence] = []
    if signs.open_write is not None:
        (written,) = yield [("HGET", keys.write(signs.open_write.decode()), "dialect")]
        if written:
            found.append(_Evidence(frozenset({written.decode()}), "a write of this dialect is unfinished"))
    is_bullmq = False
    for name, kind in _BULLMQ_KEYS.items():
        if signs.types[name] == kind:
            is_bullmq = True
            found.append(_Evidence(frozenset({"bullmq"}), f"it has a key `{name}`"))
    if any(signs.meta):
        is_bullmq = True
        found.append(_Evidence(frozenset({"bullmq"}), "its `meta` is BullMQ's"))
    finished = {name: signs.types[name] for name in ("completed", "failed")}
    for name, kind in finished.items():
        if kind == b"set":
            found.append(_Evidence(frozenset({"bull-1"}), f"`{name}` is a SET"))
        elif kind == b"zset":
            found.append(_Evidence(frozenset({"bull", "bullmq"}), f"`{name}` is a ZSET"))
    if signs.types["priority"] == b"zset":
        found.append(_Evidence(frozenset({"bull", "bullmq"}), "it has a key `priority`"))
    if is_bullmq:
        return found
    if signs.samples or b"zset" in finished.values() or b"set" in finished.values():
        found.append(_Evidence(frozenset({"bull", "bull-1"}), "it has jobs, but neither `events` nor `meta` of BullMQ"))
    for sample in () if is_enough(found) else signs.samples:
        # Nothing of a damaged job, whose key is not a hash.
        [fields] = yield from readable([("HMGET", keys.base.encode() + sample, "name", "attempts")])
        if fields is None:
            continue
        name, attempts = fields
        if name is not None:
            found.append(_Evidence(frozenset({"bull"}), "its jobs have names"))
            break
        if attempts is not None:
            found.append(_Evidence(frozenset({"bull-1"}), "its jobs have no names"))
            break
    return found
