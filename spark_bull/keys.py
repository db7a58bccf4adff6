"""The only file that spells a Redis key.

A queue's keys start with `<prefix>:<queue>:` (called `base`). Names are those of the Node
libraries, with `-` as `_`; private keys of ours are `<base>spark:<kind>[:<id>]`, several
segments, because BullMQ's `removeOrphanedJobs` deletes unknown single-segment ones.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final

DEFAULT_PREFIX = "bull"

#: Contract name of a script key -> last segment of the Redis key.
SEGMENTS = {
    "wait": "wait",
    "active": "active",
    "paused": "paused",
    "delayed": "delayed",
    "prioritized": "prioritized",
    "priority": "priority",
    "waiting_children": "waiting-children",
    "completed": "completed",
    "failed": "failed",
    "stalled": "stalled",
    "stalled_check": "stalled-check",
    "meta": "meta",
    "meta_paused": "meta-paused",
    "id": "id",
    "pc": "pc",
    "events": "events",
    "marker": "marker",
    "limiter": "limiter",
    "limiter_index": "limiter:index",
    "repeats": "repeat",
    "metrics_completed": "metrics:completed",
    "metrics_completed_data": "metrics:completed:data",
    "metrics_failed": "metrics:failed",
    "metrics_failed_data": "metrics:failed:data",
    # channels
    "jobs": "jobs",
    "resumed": "resumed",
    # ours
    "open_writes": "spark:writes:open",
    "finished_writes": "spark:writes:finished",
    "rescue_check": "spark:rescue:check",
    "rate_limited": "spark:rate:limited",
    "damaged": "spark:damaged:jobs",
}


@dataclass(frozen=True)
class QueueKeys:
    """The keys of one queue; `keys["wait"]` is the full name of the list of waiting jobs."""

    queue: str
    prefix: str = DEFAULT_PREFIX

    @property
    def base(self) -> str:
        return f"{self.prefix}:{self.queue}:"

    def __getitem__(self, name: str) -> str:
        if name == "base":
            return self.base
        return self.base + SEGMENTS[name]

    @property
    def client_name(self) -> str:
        """What a Node worker calls its connection; `:w:` and its own name may follow."""
        return f"{self.prefix}:{base64.b64encode(self.queue.encode()).decode()}"

    def job(self, job_id: str) -> str:
        """HASH of one job."""
        return self.base + job_id

    def logs(self, job_id: str) -> str:
        """LIST of a job's log lines."""
        return f"{self.base}{job_id}:logs"

    def lock(self, job_id: str) -> str:
        """STRING with the token of the worker that holds the job."""
        return f"{self.base}{job_id}:lock"

    def stage(self, attempt: str) -> str:
        """HASH chunk number -> packed chunk, written by one attempt of one task."""
        return f"{self.base}spark:stage:{attempt}"

    def write(self, write_id: str) -> str:
        """HASH: progress of one registered write, and its record once finished."""
        return f"{self.base}spark:write:{write_id}"

    def manifest(self, write_id: str) -> str:
        """LIST of the stage keys of one registered write that are still to be committed."""
        return f"{self.base}spark:manifest:{write_id}"

    def watermark(self, app_id: str) -> str:
        """STRING: the highest version that this application (or query) has written."""
        return f"{self.base}spark:watermark:{app_id}"

    def receipt(self, sender: str) -> str:
        """HASH chunk number -> packed answer, so that a chunk sent twice is added once."""
        return f"{self.base}spark:receipt:{sender}"

    def control(self, worker: str) -> str:
        """STRING that exists when the slots of a worker are to stop."""
        return f"{self.base}spark:control:{worker}"

    def idle(self, worker: str) -> str:
        """LIST that is never filled: slots block on it until a rate limit has passed, or they are unblocked to stop."""
        return f"{self.base}spark:idle:{worker}"

    def slots(self, worker: str) -> str:
        """HASH slot -> what it has done so far, as JSON."""
        return f"{self.base}spark:slots:{worker}"

    def claims(self, reader: str) -> str:
        """LIST of the ids that a claiming query has taken, oldest first; those of committed batches are cut off."""
        return f"{self.base}spark:claims:{reader}"

    def claims_base(self, reader: str) -> str:
        """STRING: how many ids have been cut off that LIST."""
        return f"{self.base}spark:claims:{reader}:base"

    def claims_begun(self, reader: str) -> str:
        """STRING: how many of the jobs that it has taken were dealt out to tasks."""
        return f"{self.base}spark:claims:{reader}:begun"

    def results(self, reader: str) -> dict[str, str]:
        """What a reader of results has, by the names that scripts call it.

        `ledger`: LIST of finished jobs, oldest first, those of committed batches cut off; `track`: HASH, how far the
        reader is; `seen_<state>`: ZSET (bull-1: SET) of jobs that could be found again; `slices_<state>`: HASH slice of
        time -> how many jobs it had; `told`: HASH of jobs that were found, and whose events (BullMQ) may still be read.
        """
        base = f"{self.base}spark:results:{reader}"
        own = {"ledger": base, "track": f"{base}:track", "told": f"{base}:told"}
        for state in ("completed", "failed"):
            own |= {f"seen_{state}": f"{base}:{state}:seen", f"slices_{state}": f"{base}:{state}:slices"}
        return own

    def settled(self, reader: str) -> str:
        """HASH: how many jobs of a claiming query have completed, failed, …"""
        return f"{self.base}spark:settled:{reader}"


#: Last segments that every queue has at least one of, whatever its dialect, and the types that such keys have. (A
#: BullMQ job's `<id>:failed` and the metrics are HASHes.)
QUEUE_SIGNS = {
    "id": "string",
    "meta": "hash",
    "wait": "list",
    "active": "list",
    "paused": "list",
    "delayed": "zset",
    "prioritized": "zset",
    "completed": "zset or set",
    "failed": "zset or set",
}


#: How the ids of jobs start that a schedule has made: `repeat:<scheduler>:<ms since 1970>`.
SCHEDULED: Final = "repeat:"


def scheduled_id(scheduler: str, due_ms: int) -> str:
    """The id of the job that a schedule has made for a time."""
    return f"{SCHEDULED}{scheduler}:{due_ms}"


def scheduler_of(job_id: str) -> str:
    """The scheduler that has made a job with such an id."""
    return job_id.removeprefix(SCHEDULED).rpartition(":")[0]


def queue_of(key: str, prefix: str) -> str | None:
    """The queue that a key such as `bull:mail:id` belongs to, or None when it is not one, or a private one of ours."""
    head, _, last = key.rpartition(":")
    if last not in QUEUE_SIGNS or not head.startswith(prefix + ":") or ":spark:" in head:
        return None
    return head[len(prefix) + 1 :] or None


def pattern_of(prefix: str) -> str:
    """The pattern for SCAN that all keys with this prefix match."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + ":*"


def has_hash_tag(prefix: str, queue: str) -> bool:
    """Whether all keys of the queue fall into one slot of a Redis Cluster."""
    base = f"{prefix}:{queue}"
    start = base.find("{")
    return start >= 0 and base.find("}", start) > start + 1
