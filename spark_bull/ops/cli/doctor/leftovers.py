"""Checks that read all keys of queues once: orphaned jobs, remnants, and ledgers of queries that run no more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import join, quote
from typing import Final

from spark_bull.core.clock import duration
from spark_bull.core.queue.collect.verbs import RESULTS_TTL_MS
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.leftovers import OrphanSearch, remove_orphans, remove_remnants
from spark_bull.core.queue.monitor.find import scan_keys, scan_queues
from spark_bull.core.queue.work.verbs import CLAIMS_TTL_MS
from spark_bull.ops.cli.doctor.finding import Finding, Repair, number_of, ok, some, warning

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
    shown = some([job_id.decode("utf-8", "replace") for job_id in orphans])
    return warning(
        f"in no state, so that no worker gets them: {number_of(len(orphans), 'job')}, {shown}",
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
    shown = some([job_id.decode("utf-8", "replace") for job_id in remnants])
    return warning(
        f"without a payload, as they were removed while they ran: {number_of(len(remnants), 'job')}, {shown}",
        f"spark-bull doctor {quote(handle.keys.queue)} --fix",
        Repair(
            f"remove {number_of(len(remnants), 'remnant')}",
            lambda: f"removed {number_of(remove_remnants(handle, remnants), 'remnant')}",
        ),
    )


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
