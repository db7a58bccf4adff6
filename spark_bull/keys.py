"""The only file that spells a Redis key.

A queue's keys start with `<prefix>:<queue>:` (called `base`). Names are those of the Node
libraries, with `-` as `_`; private keys of ours are `<base>spark:<kind>[:<id>]`, several
segments, because BullMQ's `removeOrphanedJobs` deletes unknown single-segment ones.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    "repeat": "repeat",
    "jobs": "jobs",
    "metrics_completed": "metrics:completed",
    "metrics_failed": "metrics:failed",
    # ours
    "open_writes": "spark:writes:open",
    "finished_writes": "spark:writes:finished",
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


def queue_of(meta_or_id_key: str, prefix: str) -> str | None:
    """The queue that a key such as `bull:mail:id` belongs to, or None when it is not one."""
    head, _, last = meta_or_id_key.rpartition(":")
    if last not in QUEUE_SIGNS or not head.startswith(prefix + ":"):
        return None
    return head[len(prefix) + 1 :] or None


#: Last segments that every queue has at least one of, whatever its dialect.
QUEUE_SIGNS = frozenset({"id", "meta", "wait", "active", "delayed", "completed", "failed", "paused", "prioritized"})


def has_hash_tag(prefix: str, queue: str) -> bool:
    """Whether all keys of the queue fall into one slot of a Redis Cluster."""
    base = f"{prefix}:{queue}"
    start = base.find("{")
    return start >= 0 and base.find("}", start) > start + 1
