"""A queue handle: connection, keys and dialect of one queue, as every verb needs them.

A handle notes its queue in the registry of its prefix: queues that this package has written or worked are found without
a scan of all keys. The registry is a ZSET: name of a queue -> when it was last noted, ms since 1970. A name whose queue
is gone stays for FORGET_MS, as a process that has noted it does not do so again within NOTE_S, and may write to it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from math import inf
from os import getpid
from threading import get_ident
from typing import Any, Final, NamedTuple
from uuid import uuid4

from spark_bull.core.clock import epoch_ms, monotonic_s
from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.registry import DIALECTS, checked_dialect, dialect_of
from spark_bull.core.errors import OptionError, PermissionDenied, SparkBullError
from spark_bull.core.keys import QUEUE_SIGNS, SEGMENTS, QueueKeys, hash_tag, queue_registry, shard, shard_number
from spark_bull.core.options.parts import ALL_EVENTS, Eventful, Options
from spark_bull.core.options.redis_settings import RedisSettings, urls_of
from spark_bull.core.payloads.policy import PLAIN, Kind, PayloadPolicy, policy_of
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import RoundTrips, groups_of, run
from spark_bull.core.store.scripts import Command, RepeatedKeys

#: A process notes a queue again after this time; after an error, later.
NOTE_S: Final = 60.0
AFTER_ERROR_S: Final = 600.0
#: A queue that is gone is forgotten when it was not noted for so long.
FORGET_MS: Final = 3_600_000
#: Queues whose keys one round trip looks for.
_CHECKED: Final = 1_000

#: When this process notes a queue again.
_next_at: Final[dict[tuple[RedisSettings, QueueKeys], float]] = {}


class Noted(NamedTuple):
    """A queue of the registry, when it was last noted, ms since 1970, and whether it exists."""

    queue: str
    at: int
    exists: bool


def note_queues(connection: Connection, queues: Iterable[QueueKeys]) -> None:
    """Notes queues of one prefix, unless this process did so within NOTE_S. Never fails: without it, jobs run, too."""
    now = monotonic_s()
    due = [keys for keys in queues if now >= _next_at.get((connection.settings, keys), 0.0)]
    if not due:
        return
    pause, at = NOTE_S, epoch_ms()
    try:
        connection.call("ZADD", queue_registry(due[0].prefix), *(part for keys in due for part in (at, keys.queue)))
    except SparkBullError as error:
        log.debug("could not note queues in their registry: %s", error)
        pause = inf if isinstance(error, PermissionDenied) else AFTER_ERROR_S
    _next_at.update({(connection.settings, keys): now + pause for keys in due})


def noted_queues(connection: Connection, prefix: str) -> Iterator[Noted]:
    """The queues of the registry."""
    replies = connection.call("ZRANGE", queue_registry(prefix), 0, -1, "WITHSCORES")
    entries = [(name.decode("utf-8", "replace"), int(score)) for name, score in replies]
    for first in range(0, len(entries), _CHECKED):
        part = entries[first : first + _CHECKED]
        found = connection.pipeline([existence_check(QueueKeys(name, prefix)) for name, _ in part], raw=True)
        for (name, at), is_there in zip(part, found, strict=True):
            yield Noted(name, at, bool(is_there))


def forget_gone(connection: Connection, prefix: str) -> int:
    """Removes queues from the registry that do not exist any more and were not noted for long; returns how many."""
    before = epoch_ms() - FORGET_MS
    gone = [one for one in noted_queues(connection, prefix) if not one.exists and one.at < before]
    entries = [part for one in gone for part in (one.queue, one.at)]
    return int(connection.script("queues/forget", {"registry": queue_registry(prefix)}, {"entries": entries}))


def existence_check(keys: QueueKeys) -> Command:
    """The command that returns more than 0 if the queue has a characteristic key, an unfinished write or a group."""
    return ("EXISTS", *[keys.base + sign for sign in QUEUE_SIGNS], keys["group_own"])


log = logging.getLogger("spark_bull")

#: Default number of jobs per script call.
CHUNK_SIZE: Final = 250
#: Jobs that one script removes: among ten million jobs, it takes four times as long per job as to add some.
REMOVE_SIZE: Final = 100
#: Ids that one script moves from one list to another.
MOVE_SIZE: Final = 5_000
#: Writes whose kept ids one script removes.
WRITES_SIZE: Final = 1_000
#: Default of the maximum number of children whose results are read.
MAX_CHILDREN: Final = 100_000
#: Defaults of the bounds of a tree: levels, as in BullMQ, and jobs.
DEFAULT_DEPTH: Final = 10
DEFAULT_JOBS: Final = 1_000
#: Of statistics: the period of finished jobs and rates, ms, and the number of jobs read of each state.
WINDOW_MS: Final = 3_600_000
SAMPLE: Final = 10_000
#: Age from which objects that no job has are deleted, ms: longer than it takes from storing one to adding its job.
SWEEP_AFTER_MS: Final = 2 * 86_400_000
#: TTL of the reply to a sender's last call, for when the call is repeated.
RECEIPT_TTL_MS: Final = 3_600_000
#: TTL of the record of a finished write.
RECORD_TTL_MS: Final = 30 * 86_400_000
#: Verbs that write or work a queue, which is noted in the registry of queues then.
_NOTING: Final = frozenset(
    {
        *("add", "add_flows", "commit", "commit_flows", "commit_schedules", "schedule"),
        *("work", "work_and_add", "promote_due"),
    }
)
#: Verbs that a process runs again and again with the same keys.
_REPEATING: Final = frozenset({"work"})


@dataclass(frozen=True)
class QueueHandle:
    """Picklable. `token`: sender of pub/sub messages, as the token of a Node queue. `payloads`: how they are kept.
    `events`: those that its calls write, as the option says.
    """

    connection: Connection
    keys: QueueKeys
    dialect: Dialect
    bullmq_version: str = "auto"
    payloads: PayloadPolicy = PLAIN
    events: str = ALL_EVENTS
    token: str = field(default_factory=lambda: str(uuid4()))

    @cached_property
    def _common_keys(self) -> dict[str, Any]:
        return _named(self.keys)

    @cached_property
    def _common_args(self) -> dict[str, Any]:
        return {
            "base": self.keys.base,
            "queue": self.keys.queue,
            "token": self.token,
            "bullmq_version": self.bullmq_version,
            "events": self.events,
        }

    def run(self, verb: str, args: Mapping[str, Any] | None = None, **keys: str | list[str] | None) -> Any:
        """Runs the script of a verb with the keys and names of the queue, and these. A key that is None is absent."""
        if verb in _NOTING:
            self.dialect.check_work(self.keys.queue)
            # Before the call, as claimed jobs would wait for a lost node of a cluster that has the registry.
            note_queues(self.connection, [self.keys])
        named = _repeated(self.keys, tuple(keys.items())) if verb in _REPEATING else self._common_keys | keys
        return self.connection.script(self.dialect.script(verb), named, self._common_args | dict(args or {}))

    def run_once(self, verb: str, args: Mapping[str, Any], **keys: str | list[str]) -> Any:
        """Runs a script that stores its reply, so that a call repeated after a lost reply changes nothing."""
        receipt = self.keys.receipt(self.sender)
        return self.run(verb, {**args, "call": uuid4().hex, "ttl_ms": RECEIPT_TTL_MS}, receipt=receipt, **keys)

    def sealed(self, kind: Kind, text: str, source: str | None = None) -> str:
        """What Redis has of a payload or result; see PayloadPolicy.sealed."""
        return self.payloads.sealed(self.keys, kind, text, source)

    def opened(self, kind: Kind, job_id: str, text: str) -> str:
        """A payload or result as it was before it was kept. Raises PayloadUnreadable."""
        return self.payloads.opened(self.keys, kind, job_id, text)

    @property
    def site(self) -> int:
        """Queues with the same number can be reached by one script."""
        return self.connection.site_of(self.keys.base)

    @property
    def hub(self) -> int:
        """One subscription can have channels of queues with the same number."""
        return self.connection.hub_of(self.keys.base)

    @property
    def sender(self) -> str:
        """Identifies the caller: a thread, which makes one call at a time. Forked and unpickled copies are others."""
        return f"{self.token}:{getpid()}:{get_ident()}"


def deletion_args(handle: QueueHandle) -> dict[str, Any]:
    """What scripts need to delete a queue: how much they remove at once, and where writes have kept ids."""
    kept = {"kept_ids": handle.keys.kept_ids(""), "records": handle.keys.writes}
    return {"limit": REMOVE_SIZE, "move": MOVE_SIZE, "writes": WRITES_SIZE, **kept}


def _named(keys: QueueKeys) -> dict[str, Any]:
    """The keys of a queue by their names in scripts."""
    return {"base": keys.base} | {name: keys[name] for name in SEGMENTS}


@lru_cache(maxsize=1_024)
def _repeated(keys: QueueKeys, own: tuple[tuple[str, Any], ...]) -> RepeatedKeys:
    """The keys of a queue and of a call."""
    return RepeatedKeys(_named(keys) | dict(own))


def by_hub(handles: Iterable[QueueHandle]) -> list[list[QueueHandle]]:
    """The queues whose channels one subscription can have."""
    return groups_of(handles, lambda handle: handle.hub)


def open_handle(options: Options, queue: str) -> QueueHandle:
    """Opens a queue and detects its dialect.

    Raises OptionError for a name that no queue can have, QueueDamaged if a damaged key hides the dialect.
    """
    return run(Connection(options.redis), opening(options, queue, guesses=False))


def opening(options: Options, queue: str, *, guesses: bool = True) -> RoundTrips[QueueHandle]:
    """The steps of `open_handle`. guesses: see `dialect_of`."""
    keys, settings = QueueKeys(queue, options.prefix), options.redis
    if shard_number(queue) is None and len(urls_of(settings.url)) > 1:
        raise OptionError(
            f"expected a shard, such as {shard(queue, 0)}, as `{options.spelled('shardUrls')}` has several servers, "
            f"got: {queue!r}; set `shards`"
        )
    dialect = yield from dialect_of(keys, options.protocol, guesses=guesses)
    return handle_of(Connection(settings, keys.base), keys, dialect, options)


def handle_of(connection: Connection, keys: QueueKeys, dialect: Dialect, options: Options) -> QueueHandle:
    """The handle of a queue whose dialect was found. A given version of BullMQ counts more than what keys show."""
    version = options.bullmq_version
    if version != "auto":
        dialect = DIALECTS[dialect.name]
    elif dialect.older:
        _warn_of_older(keys, dialect.older)
    events = options.events if isinstance(options, Eventful) else ALL_EVENTS
    return QueueHandle(connection, keys, dialect, version, policy_of(options), events)


@cache
def _warn_of_older(keys: QueueKeys, shown: str) -> None:
    log.warning("queue %s is one of BullMQ 3 or 4, to which no jobs are added: %s", keys.queue, shown)


def keys_of(handle: QueueHandle, queue: str, of: str, prefix: str | None = None) -> QueueKeys:
    """The keys of the queue of `of`, such as "a follow-up". prefix: of its keys; None: as in `handle`.

    Raises OptionError for a queue that no script can reach together with the queue of `handle`, and DialectError for
    one of another dialect.
    """
    there = QueueKeys(queue, prefix or handle.keys.prefix)
    return handle.keys if there == handle.keys else _checked_keys(handle, there, of)


@lru_cache(maxsize=1024)
def _checked_keys(handle: QueueHandle, there: QueueKeys, of: str) -> QueueKeys:
    """Reads the signs of the queue's dialect in Redis, once per process."""
    handle.dialect.check_work(there.queue)
    tag = hash_tag(handle.keys.prefix, handle.keys.queue)
    if tag and tag != hash_tag(there.prefix, there.queue):
        raise OptionError(
            f"expected the queue of {of} to have the hash tag {{{tag}}} of queue {handle.keys.queue}, as one script "
            f"writes to both, got: {there.queue!r}"
        )
    found = checked_dialect(handle.connection, there, handle.dialect.name)
    if handle.bullmq_version == "auto":
        found.check_work(there.queue)
    return there


def touched_keys(handle: QueueHandle, queues: Iterable[str], names: Iterable[str] = SEGMENTS) -> list[str]:
    """The keys of other queues that a script may touch, which are noted in the registry of queues.

    names: of the keys of each; by default all that have names.
    """
    there = [keys for queue in queues if (keys := QueueKeys(queue, handle.keys.prefix)) != handle.keys]
    note_queues(handle.connection, there)
    return [keys[name] for keys in there for name in names]
