"""Whether Redis keeps the jobs of a queue compactly, which a longer limit of the fields of a hash would make it do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from statistics import fmean
from typing import Final, NamedTuple

from spark_bull.core.embedded import COMPACT_SETTING, COMPACT_UP_TO
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.walk import ids_from
from spark_bull.core.store.steps import readable, run
from spark_bull.ops.cli.doctor.finding import Finding, number_of, ok, unchecked
from spark_bull.ops.cli.doctor.server import config

#: Jobs of a state that are looked at, those that have entered it last.
_OF_STATE: Final = 20
#: The least part of the jobs for which a longer limit is worth a change of the server's settings.
_WORTH: Final = 0.1
#: Bytes that a compact hash takes beside its texts, those of its key and of each name and value.
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
    sampled = f"of {number_of(len(jobs), 'job')} that were looked at"
    if len(gain) < _WORTH * len(jobs):
        compact = sum(job.longest <= now and job.fields <= entries for job in jobs)
        yield ok(f"{compact} {sampled} have no field over {now:,} bytes, so that Redis keeps them compactly")
        return
    yield ok(
        f"{len(gain)} {sampled} have a field over {now:,} bytes: they take {fmean(job.size for job in gain):,.0f} "
        f"bytes each in Redis, about {fmean(job.compact for job in gain):,.0f} if {name} were {COMPACT_UP_TO}",
        f"redis-cli CONFIG SET {name} {COMPACT_UP_TO}, and the same in redis.conf: jobs that are added then take less "
        "memory",
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
