"""Checks of one queue, and of how compactly Redis keeps its jobs.

Checks of leftovers read all keys of queues once: orphaned jobs, remnants, and ledgers of queries that run no more.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from shlex import join, quote
from statistics import fmean
from typing import Final, NamedTuple

from spark_bull.core.clock import DELAYED_SCALE, duration
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.dialects.registry import conflicts
from spark_bull.core.embedded import COMPACT_SETTING, COMPACT_UP_TO
from spark_bull.core.errors import SparkBullError, StagedDataLost
from spark_bull.core.queue.collect.verbs import RESULTS_TTL_MS
from spark_bull.core.queue.dispatch.roll_forward import advance_all
from spark_bull.core.queue.dispatch.write_records import DEAD_AFTER_MS, open_writes, read_record, records
from spark_bull.core.queue.events.event_log import trim_events
from spark_bull.core.queue.handle.admission import is_intake_open
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.walk import ids_from
from spark_bull.core.queue.jobs.read import counts
from spark_bull.core.queue.manage.leftovers import OrphanSearch, remove_orphans, remove_remnants
from spark_bull.core.queue.manage.manage import is_paused
from spark_bull.core.queue.monitor.find import scan_keys, scan_queues
from spark_bull.core.queue.schedule.schedulers import without_next_job
from spark_bull.core.queue.work.claim import rescue, unlocked
from spark_bull.core.queue.work.verbs import CLAIMS_TTL_MS
from spark_bull.core.store.round_trips import readable, run
from spark_bull.ops.cli.doctor.finding import Finding, Repair, number_of, ok, problem, some, unchecked, warning
from spark_bull.ops.cli.doctor.server import config

#: Writes, unfinished ones and the last that have ended, among which broken ones are looked for.
_NEWEST_WRITES: Final = 1_000
#: How late delayed jobs may be: a Promoter that is idle pauses for 5 s.
_OVERDUE_MS: Final = 30_000
#: Factor of the maximum length of an event stream, which is approximate, and BullMQ's default.
_FAR_ABOVE: Final = 2
_MAX_EVENTS: Final = 10_000
#: Interval of the two checks that return stalled jobs, ms.
_CHECK_MS: Final = 1_000


def dialect(handle: QueueHandle) -> Iterator[Finding]:
    """Whether all keys belong to one dialect."""
    found = conflicts(handle.connection, handle.keys)
    if found:
        yield problem(
            f"libraries of different dialects use this queue: {'; '.join(found)}",
            "give each library a prefix or queue of its own; jobs of one are damaged by the other",
        )
        return
    try:
        handle.dialect.check_work(handle.keys.queue)
    except SparkBullError as error:
        yield warning(str(error), "upgrade its programs to BullMQ 5 or 6, and use names without ':'")
    else:
        yield ok(handle.dialect.name)


def state(handle: QueueHandle) -> Iterator[Finding]:
    """Whether the queue takes jobs, and workers get them."""
    jobs = ", ".join(f"{count:,} {name}" for name, count in counts(handle).items() if count)
    paused, intake_open, queue = is_paused(handle), is_intake_open(handle), quote(handle.keys.queue)
    if paused:
        yield warning(f"paused: workers claim no jobs ({jobs or 'no jobs'})", f"spark-bull resume {queue}")
    if not intake_open:
        yield warning("its intake is closed: Spark and this command add no jobs", f"spark-bull open-intake {queue}")
    if not paused and intake_open:
        yield ok(jobs or "no jobs")


def writes(handle: QueueHandle) -> Iterator[Finding]:
    """Writes that are registered, and whose jobs are not all added; of those that have ended, the newest ones."""
    now = handle.connection.now_ms()
    found = [(write_id, read_record(handle, write_id)) for write_id in open_writes(handle)]
    lost = [write_id for write_id, record in found if record is None]
    # Another program commits the others right now.
    old = [record for _, record in found if record and now - (record.started_on or 0) > DEAD_AFTER_MS]
    if lost:
        yield problem(
            f"lost in Redis after they were registered: {number_of(len(lost), 'write')}, {some(lost)}",
            "run these writes again; jobs with a `jobId` are not added twice",
        )
    if old:
        left = sum(record.jobs - record.done for record in old)
        ids = [record.id for record in old]
        yield problem(
            f"unfinished: {number_of(len(old), 'write')}, {number_of(left, 'job')} not added yet: {some(ids)}",
            f"spark-bull recover {quote(handle.keys.queue)}",
            Repair(f"finish {number_of(len(old), 'write')}", lambda: _finish(handle)),
        )
    broken = [record for record in islice(records(handle), _NEWEST_WRITES) if record.state == "broken"]
    if broken:
        left = sum(record.jobs - record.done for record in broken)
        yield problem(
            f"broken, as Redis has lost staged jobs: {number_of(len(broken), 'write')}, {number_of(left, 'job')} not "
            f"added: {some([record.id for record in broken])}",
            f"compare the queue with the sources of these writes, and add what is missing; for their times and "
            f"applications: spark-bull writes {quote(handle.keys.queue)} --limit {_NEWEST_WRITES}",
        )
    if not lost and not old and not broken:
        yield ok(f"{number_of(len(found), 'write')} in progress" if found else "no unfinished writes")


def _finish(handle: QueueHandle) -> str:
    lost: list[StagedDataLost] = []
    records = advance_all(handle, lost.append)
    finished = sum(record.state == "finished" for record in records)
    waiting = [f"write {record.id} waits for room in the queue" for record in records if record.state == "open"]
    return "; ".join([f"finished {number_of(finished, 'write')}", *map(str, lost), *waiting])


def stalled(handle: QueueHandle) -> Iterator[Finding]:
    """Active jobs whose worker has died."""
    found = unlocked(handle)
    if not found:
        yield ok("no stalled jobs")
        return
    next_check_ms = handle.connection.call("PTTL", handle.keys["stalled_check"])
    what = f"active without a lock: {number_of(len(found), 'job')}, {some(found)}"
    advice = f"start a worker, or run: spark-bull promote {quote(handle.keys.queue)}"
    repair = Repair(f"return {number_of(len(found), 'stalled job')} to the queue", lambda: _return(handle))
    if next_check_ms > 0:
        yield warning(f"{what}; a worker checks for them, again in {duration(next_check_ms, 1)}", advice, repair)
    else:
        yield problem(f"{what}; no worker checks for them", advice, repair)


def _return(handle: QueueHandle) -> str:
    """Two checks, as workers make them: the first marks the active jobs, the second returns those without a lock.

    When a worker is faster, its check takes the place of this one.
    """
    returned = failed = 0
    for _ in range(2):
        left_ms = handle.connection.call("PTTL", handle.keys["stalled_check"])
        if left_ms >= 0:
            time.sleep((left_ms + 1) / 1_000)
        rescued = rescue(handle, check_ms=_CHECK_MS)
        returned, failed = returned + len(rescued.stalled), failed + len(rescued.failed)
    left = len(unlocked(handle))
    also = f", {failed:,} failed because they stalled too often" if failed else ""
    rest = f"; {left:,} are left" if left else ""
    return f"returned {number_of(returned, 'stalled job')} to the queue{also}{rest}"


def overdue(handle: QueueHandle) -> Iterator[Finding]:
    """Delayed jobs that are due, but that no process promotes."""
    now, key = handle.connection.now_ms(), handle.keys["delayed"]
    late = handle.connection.call("ZCOUNT", key, "-inf", (now - _OVERDUE_MS) * DELAYED_SCALE)
    if not late:
        yield ok("no delayed job is overdue")
        return
    ((_, score),) = handle.connection.call("ZRANGE", key, 0, 0, "WITHSCORES")
    late_by = duration(now - int(float(score)) // DELAYED_SCALE)
    yield problem(
        f"{number_of(late, 'delayed job')}, the first late by {late_by}: no process promotes delayed jobs",
        f"start a worker, or run: spark-bull promote {quote(handle.keys.queue)}",
    )


def schedulers(handle: QueueHandle) -> Iterator[Finding]:
    """Job schedulers whose next job does not exist: they never continue."""
    if not handle.dialect.has("schedulers"):
        return
    number = handle.connection.call("ZCARD", handle.keys["repeats"])
    without = list(without_next_job(handle))
    stopped = [scheduler.id for scheduler in without]
    if stopped:
        missing = f"{number_of(len(stopped), 'job scheduler')} of {number:,}, {some(stopped)}"
        found = f"stopped, the next job is missing: {missing}"
        advice = f"create them again: spark-bull schedule {quote(handle.keys.queue)} {quote(stopped[0])} …"
        if any(scheduler.iteration_count is not None for scheduler in without):
            yield problem(found, advice)
        else:
            yield warning(
                found,
                f"{advice}; or do nothing if they have reached their `limit`, which repeatable jobs do not keep",
            )
    elif number:
        yield ok(number_of(number, "job scheduler"))


def events(handle: QueueHandle) -> Iterator[Finding]:
    """Whether the stream of events is much longer than its maximum."""
    if not handle.dialect.has("event-stream"):
        return
    length, given = handle.connection.pipeline(
        [("XLEN", handle.keys["events"]), ("HGET", handle.keys["meta"], "opts.maxLenEvents")]
    )
    most = integer_of(given) or _MAX_EVENTS
    if length > _FAR_ABOVE * max(most, 100):
        yield warning(
            f"{number_of(length, 'event')} with a maximum of about {most:,}",
            f"spark-bull trim-events {quote(handle.keys.queue)} {most}",
            Repair(f"remove the oldest {number_of(length - most, 'event')}", lambda: _trim(handle, most)),
        )
    else:
        yield ok(f"{number_of(length, 'event')} with a maximum of about {most:,}")


def _trim(handle: QueueHandle, most: int) -> str:
    return f"removed {number_of(trim_events(handle, most), 'event')}"


def damaged(handle: QueueHandle) -> Iterator[Finding]:
    """Jobs that were removed from their state because their key is not a hash."""
    found = handle.connection.call("HLEN", handle.keys["damaged"])
    if found:
        yield warning(
            f"set aside, as another program has overwritten the key: {number_of(found, 'job')}",
            f"see docs/reference/messages.md, and run: redis-cli HGETALL {quote(handle.keys['damaged'])}",
        )


#: Jobs of a state that are looked at, those that have entered it last.
_OF_STATE: Final = 20
#: The least part of the jobs for which a longer limit is worth a change of the server's settings.
_WORTH: Final = 0.1
#: Bytes that a compact hash takes beside its texts: for its key, and for each name and value.
_OF_HASH, _OF_TEXT = 60, 2


class _Job(NamedTuple):
    """A job of the sample. longest: bytes of its longest field. size: bytes that it takes in Redis; compact: that it
    would take in a compact hash.
    """

    fields: int
    longest: int
    size: int
    compact: int


def payloads(handle: QueueHandle) -> Iterator[Finding]:
    """The limit up to which Redis keeps the fields of a hash compactly, against the fields of some jobs."""
    jobs = _sample(handle)
    if not jobs:
        yield ok("no jobs whose size could be looked at")
        return
    settings = config(handle.connection.at(handle.keys["meta"]), "hash-max-*")
    name = next((name for name in ("hash-max-listpack-value", COMPACT_SETTING) if name in settings), None)
    if name is None:
        yield unchecked("CONFIG GET knows no hash-max-listpack-value")
        return
    now, entries = int(settings[name]), int(settings[name.replace("value", "entries")])
    gain = [job for job in jobs if now < job.longest <= COMPACT_UP_TO and job.fields <= entries]
    sampled = f"of {number_of(len(jobs), 'sampled job')}"
    if len(gain) < _WORTH * len(jobs):
        compact = sum(job.longest <= now and job.fields <= entries for job in jobs)
        yield ok(f"{compact} {sampled} have no field over {now:,} bytes, so that Redis keeps them compactly")
        return
    yield ok(
        f"{len(gain)} {sampled} have a field over {now:,} bytes: they take {fmean(job.size for job in gain):,.0f} "
        f"bytes each in Redis, about {fmean(job.compact for job in gain):,.0f} if {name} were {COMPACT_UP_TO}",
        f"for jobs that are added later, set it in redis.conf, and run: redis-cli CONFIG SET {name} {COMPACT_UP_TO}",
    )


def _sample(handle: QueueHandle) -> list[_Job]:
    """Some jobs of each state, without those that are removed meanwhile. Reads no values, which may be large."""
    base = handle.keys.base.encode()
    found = [ids_from(handle, key, window=_OF_STATE).ids[:_OF_STATE] for key in handle.dialect.states.values()]
    keys = [base + job_id for job_id in dict.fromkeys(job_id for ids in found for job_id in ids)]
    names = dict(zip(keys, run(handle.connection, readable([("HKEYS", key) for key in keys])), strict=True))
    sizes = handle.connection.pipeline([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys])
    lengths = handle.connection.pipeline([("HSTRLEN", key, name) for key in keys for name in names[key] or ()])
    jobs, rest = [], iter(lengths)
    for key, size in zip(keys, sizes, strict=True):
        texts = [*map(len, names[key] or ()), *islice(rest, len(names[key] or ()))]
        if texts and size:
            compact = _OF_HASH + len(key) + sum(texts) + _OF_TEXT * len(texts)
            jobs.append(_Job(len(texts) // 2, max(texts), int(size), compact))
    return jobs


#: Time without a batch after which the query of a ledger counts as given up, ms. A query may run once a day.
_ABANDONED_MS: Final = 2 * 86_400_000
#: What follows `spark:` in the keys of ledgers, and their time to live after a batch, ms.
_LEDGERS: Final = {b"results": RESULTS_TTL_MS, b"claims": CLAIMS_TTL_MS}


def leftovers(handles: Sequence[QueueHandle], *, removes: bool) -> Iterator[Finding]:
    """The findings of these checks. removes: whether orphaned jobs are to be removed."""
    if not handles:
        return
    connection, prefix = handles[0].connection, handles[0].keys.prefix
    searches = {handle.keys.queue.encode(): OrphanSearch(handle) for handle in handles}
    readers: dict[bytes, set[tuple[bytes, bytes]]] = defaultdict(set)
    # All queues, since the name of one may be the beginning of another name.
    names = {queue.encode() for queue in scan_queues(connection, prefix)} | searches.keys()
    for part in scan_keys(connection, prefix, names):
        for queue in part.keys() & searches.keys():
            searches[queue].look(part[queue])
            readers[queue].update(_readers(part[queue]))
    for queue, search in searches.items():
        orphans = [job_id for job_id in search.finish() if job_id not in search.remnants]
        yield replace(_orphans(search.handle, orphans, removes=removes), check="orphans", queue=queue.decode())
        yield replace(_remnants(search.handle, sorted(search.remnants)), check="remnants", queue=queue.decode())
        yield replace(_ledgers(search.handle, readers[queue]), check="ledgers", queue=queue.decode())


def _orphans(handle: QueueHandle, orphans: Sequence[bytes], *, removes: bool) -> Finding:
    if not orphans:
        return ok("no orphaned jobs")
    return warning(
        f"in no state, so that no worker gets them: {_some_jobs(orphans)}",
        f"look at one: spark-bull job {join([handle.keys.queue, orphans[0].decode('utf-8', 'replace')])}; "
        f"then remove them: spark-bull doctor {quote(handle.keys.queue)} --fix --remove-orphans",
        Repair(
            f"remove {number_of(len(orphans), 'orphaned job')}",
            lambda: f"removed {number_of(remove_orphans(handle, orphans), 'job')}",
        )
        if removes
        else None,
    )


def _remnants(handle: QueueHandle, remnants: Sequence[bytes]) -> Finding:
    if not remnants:
        return ok("no remnants of removed jobs")
    return warning(
        f"without a payload, as they were removed while they ran: {_some_jobs(remnants)}",
        f"spark-bull doctor {quote(handle.keys.queue)} --fix",
        Repair(
            f"remove {number_of(len(remnants), 'remnant')}",
            lambda: f"removed {number_of(remove_remnants(handle, remnants), 'remnant')}",
        ),
    )


def _some_jobs(ids: Sequence[bytes]) -> str:
    return f"{number_of(len(ids), 'job')}, {some([job_id.decode('utf-8', 'replace') for job_id in ids])}"


def _readers(suffixes: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Kinds and names of the readers that have a ledger: `spark:claims:<reader>`, `spark:results:<reader>:track`."""
    for suffix in suffixes:
        private, _, rest = suffix.partition(b":")
        kind, _, reader = rest.partition(b":")
        if private == b"spark" and kind in _LEDGERS:
            yield kind, reader.partition(b":")[0]


def _ledgers(handle: QueueHandle, readers: set[tuple[bytes, bytes]]) -> Finding:
    idle: Mapping[str, int] = {reader.decode(): _idle_ms(handle, kind, reader.decode()) for kind, reader in readers}
    abandoned = {reader: ms for reader, ms in idle.items() if ms > _ABANDONED_MS}
    if not abandoned:
        return ok(f"ledgers of {len(readers)} readers" if readers else "no ledgers of queries")
    shown = some([f"{reader} for {duration(ms, 1)}" for reader, ms in sorted(abandoned.items())])
    return warning(
        f"readers whose query has not run for long: {shown}; Redis deletes a ledger after 7 days, after which "
        "the query can not continue",
        "start these queries with their checkpoints, or do nothing if they are not needed any more",
    )


def _idle_ms(handle: QueueHandle, kind: bytes, reader: str) -> int:
    """The time since the last batch of a query."""
    keys = handle.keys
    own = [keys.results(reader)["track"]] if kind == b"results" else [keys.claims(reader), keys.claims_end(reader)]
    left_ms = max(handle.connection.pipeline([("PTTL", key) for key in own]))
    return _LEDGERS[kind] - int(left_ms) if left_ms > 0 else 0
