"""The only file that spells a Redis key.

A queue's keys start with `<prefix>:<queue>:` (called `base`). Names are the Node
libraries' names, with `_` for `-`. Private keys are `<base>spark:<kind>[:<id>]`: they have several
segments because BullMQ's `removeOrphanedJobs` deletes unknown keys of a single segment.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final

from spark_bull.core.errors import OptionError, encodable, expected

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
    # private keys
    "open_writes": "spark:writes:open",
    "finished_writes": "spark:writes:finished",
    "intake_closed": "spark:intake:closed",
    "deleted": "spark:queue:deleted",
    "replica_mark": "spark:replicas:mark",
    "rescue_check": "spark:rescue:check",
    "rate_limited": "spark:rate:limited",
    "damaged": "spark:damaged:jobs",
    "interrupted": "spark:stalled:interrupted",
    "cancels": "spark:cancel:requests",
    "sequence_tails": "spark:sequence:tails",
    # the queue of the relays between jobs and several ones that depend on them, by its name and its keys
    "relays": "spark:relay",
    "relay_wait": "spark:relay:wait",
    "relay_waiting_children": "spark:relay:waiting-children",
    "relay_events": "spark:relay:events",
    "relay_marker": "spark:relay:marker",
    "expiry": "spark:expiry:times",
    "expired": "spark:expiry:waiting",
    "expiry_position": "spark:expiry:position",
    "group_active": "spark:group:active",
    "group_delayed": "spark:group:delayed",
    "group_promoted": "spark:group:promoted",
    "group_started": "spark:group:started",
    "group_windows": "spark:group:windows",
    "group_settings": "spark:group:settings",
    "group_own": "spark:group:own",
    "group_checks": "spark:group:checks",
    "open_callers": "spark:call:open",
    "shard_layout": "spark:shards:layout",
    "shard_server": "spark:shards:server",
}


@dataclass(frozen=True)
class QueueKeys:
    """The keys of one queue; `keys["wait"]` is the full name of the list of waiting jobs.

    Raises OptionError for a name of a queue, a prefix or an id that no key can have.
    """

    queue: str
    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if not isinstance(self.queue, str):
            raise expected("queue", "the name of a queue", self.queue)
        if not self.queue:
            raise OptionError("expected `queue` to be the name of a queue, got an empty one")
        encodable("queue", self.queue)
        encodable("prefix", self.prefix)

    @property
    def base(self) -> str:
        return f"{self.prefix}:{self.queue}:"

    def __getitem__(self, name: str) -> str:
        if name == "base":
            return self.base
        return self.base + SEGMENTS[name]

    @property
    def client_name(self) -> str:
        """Client name of a Node worker's connection; `:w:` and the worker's name may follow."""
        return f"{self.prefix}:{base64.b64encode(self.queue.encode()).decode()}"

    def channel(self, event: str) -> str:
        """Channel of an event of Bull 3 and 4; `@` and the token of a queue object may follow."""
        return self.base + event

    def plain_channel(self, event: str) -> str:
        """Channel of an event of Bull 1.1 and 2, which has no prefix."""
        return f"{event}@{self.queue}"

    def job(self, job_id: str) -> str:
        """HASH of one job."""
        return self.base + encodable("job_id", job_id)

    def logs(self, job_id: str) -> str:
        """LIST of a job's log lines."""
        return f"{self.base}{encodable('job_id', job_id)}:logs"

    def lock(self, job_id: str) -> str:
        """STRING with the lock token of the worker that processes the job."""
        return f"{self.base}{encodable('job_id', job_id)}:lock"

    def children(self, job_id: str) -> str:
        """SET of the keys of the unfinished children of a job."""
        return f"{self.base}{encodable('job_id', job_id)}:dependencies"

    def children_values(self, job_id: str) -> str:
        """HASH: key of a completed child of the job -> its return value, JSON text."""
        return f"{self.base}{encodable('job_id', job_id)}:processed"

    def children_failures(self, job_id: str) -> str:
        """HASH: key of a failed child whose failure does not fail the job -> the reason."""
        return f"{self.base}{encodable('job_id', job_id)}:failed"

    def call_details(self, parent_id: str) -> str:
        """HASH: key of a job that a parent of calls has gathered -> what it tells of the job."""
        return f"{self.base}{encodable('parent_id', parent_id)}:details"

    def kept_calls(self, parent_id: str) -> str:
        """SET of the keys of the calls of a parent whose jobs are kept until they are gathered."""
        return f"{self.base}{encodable('parent_id', parent_id)}:kept"

    def failed_children(self, job_id: str) -> str:
        """ZSET of the keys of the children whose failure fails the job."""
        return f"{self.base}{encodable('job_id', job_id)}:unsuccessful"

    def deduplication(self, deduplication_id: str) -> str:
        """STRING: the job that has a deduplication id."""
        return f"{self.base}de:{encodable('deduplication_id', deduplication_id)}"

    def scheduler(self, scheduler_id: str) -> str:
        """HASH of a job scheduler of BullMQ."""
        return f"{self['repeats']}:{encodable('scheduler_id', scheduler_id)}"

    def stage(self, attempt: str) -> str:
        """HASH chunk number -> packed chunk, written by one attempt of one task."""
        return f"{self.base}spark:stage:{attempt}"

    def write(self, write_id: str) -> str:
        """HASH: progress of one registered write; its record after it has finished."""
        return f"{self.base}spark:write:{encodable('write_id', write_id)}"

    @property
    def writes(self) -> str:
        """The beginning of the keys of all writes. Never a key."""
        return self.write("")

    def manifest(self, write_id: str) -> str:
        """LIST of the stage keys of one registered write that are not committed yet."""
        return f"{self.base}spark:manifest:{write_id}"

    def outcomes(self, write_id: str) -> str:
        """LIST of packed outcomes of one registered write that changes jobs."""
        return f"{self.base}spark:outcomes:{encodable('write_id', write_id)}"

    def kept_ids(self, write_id: str) -> str:
        """LIST of the ids of the jobs of one write; see core/lua/lib/add_jobs.lua."""
        return f"{self.base}spark:ids:{write_id}"

    def watermark(self, app_id: str) -> str:
        """STRING: the highest version that this application (or query) has written."""
        return f"{self.base}spark:watermark:{app_id}"

    def receipt(self, sender: str) -> str:
        """STRING: a sender's last call and its packed reply, which a repeated call gets without changing anything."""
        return f"{self.base}spark:receipt:{sender}"

    def callback(self, job_id: str) -> str:
        """STRING that shows that the callback of a write was added, for as long as the write can be repeated."""
        return f"{self.base}spark:callback:{job_id}"

    def pending(self, job_id: str) -> str:
        """Member of the dependencies of a write's callback until all jobs of the queue are added. Never a key."""
        return f"{self.base}spark:pending:{job_id}"

    @property
    def never_ends(self) -> str:
        """Member of the dependencies of the parents of calls that is no job, so that they never start. Never a key."""
        return self.pending("call")

    def call_parent_id(self, caller: str, number: int) -> str:
        """Id of a parent of a caller's calls: `job` gives its key, and `children_values`, … the keys of results."""
        return f"spark:call:{encodable('caller', caller)}:{number}"

    def guard(self, guard_id: str) -> str:
        """STRING: packed looks of a guard at the queue; see core/lua/lib/guard.lua."""
        return f"{self.base}spark:guard:{guard_id}"

    def control(self, worker: str) -> str:
        """STRING that tells the slots of a worker to stop, to return their jobs or to pause."""
        return f"{self.base}spark:control:{worker}"

    def idle(self, worker: str) -> str:
        """LIST that stays empty: slots block on it while a rate limit lasts, and can be unblocked to stop."""
        return f"{self.base}spark:idle:{worker}"

    def slots(self, worker: str) -> str:
        """HASH slot -> its counters, as JSON."""
        return f"{self.base}spark:slots:{worker}"

    def counters(self, worker: str) -> str:
        """HASH: numbers of jobs that the slots of a worker have claimed, completed, …"""
        return f"{self.base}spark:counters:{worker}"

    def claims(self, reader: str) -> str:
        """ZSET of the claims of a claiming query, packed as (token of the locks, ids of the jobs), without the
        claims of committed batches. Scores: number of jobs claimed up to then.
        """
        return f"{self.base}spark:claims:{reader}"

    def claims_end(self, reader: str) -> str:
        """STRING: number of jobs that a claiming query has claimed."""
        return f"{self.base}spark:claims:{reader}:end"

    def results(self, reader: str) -> dict[str, str]:
        """The keys of a reader of results, by their names in scripts.

        `ledger`: LIST of finished jobs, oldest first, without the jobs of committed batches. `track`: HASH with the
        reader's positions. `seen_<state>`: ZSET (bull-1: SET) of jobs that a later scan can meet again.
        `slices_<state>`: HASH time slice -> its number of jobs at the last scan. `delivered_early`: HASH of jobs found
        by a scan before their events (BullMQ) were read.
        """
        base = f"{self.base}spark:results:{reader}"
        own = {"ledger": base, "track": f"{base}:track", "delivered_early": f"{base}:early"}
        for state in ("completed", "failed"):
            own |= {f"seen_{state}": f"{base}:{state}:seen", f"slices_{state}": f"{base}:{state}:slices"}
        return own

    def settled(self, reader: str) -> str:
        """HASH: numbers of jobs of a claiming query that have completed, failed, …"""
        return f"{self.base}spark:settled:{reader}"

    def settled_again(self, lock_token: str) -> str:
        """SET of the ids of those jobs of one claim of a query that were settled and run again."""
        return f"{self.base}spark:again:{lock_token}"


#: End -> type of keys that show that a queue exists: in every dialect, each queue has at least one of them; a new one
#: whose first write is unfinished may have the last only. (A BullMQ job's `<id>:failed` and the metrics are HASHes.)
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
    SEGMENTS["open_writes"]: "zset",
}


def queue_registry(prefix: str) -> str:
    """ZSET of the queues with this prefix that this package has written or worked. It is no key of a queue."""
    return f"{prefix}::spark-queues"


#: First part of the ids of jobs that a job scheduler has made: `repeat:<scheduler>:<ms since 1970>`.
SCHEDULED: Final = "repeat:"


def scheduled_id(scheduler: str, due_ms: int) -> str:
    """The id of the job that a job scheduler has made for a time."""
    return f"{SCHEDULED}{scheduler}:{due_ms}"


def scheduler_of(job_id: str) -> str:
    """The scheduler that has made a job with such an id."""
    return job_id.removeprefix(SCHEDULED).rpartition(":")[0]


def priority_queue(queue: str, priority: str) -> str:
    """The queue of a priority, by its name, of a PriorityQueue of Bull 1."""
    return f"{queue}:prio:{priority}"


def queue_of(key: str, prefix: str) -> str | None:
    """The queue that a key such as `bull:mail:id` belongs to; None for a key that shows no queue.

    A name with `:spark:` in it cannot be told from a private key.
    """
    sign = next((one for one in QUEUE_SIGNS if key.endswith(f":{one}")), None)
    if sign is None or not key.startswith(f"{prefix}:"):
        return None
    queue = key[len(prefix) + 1 : -len(sign) - 1]
    return None if ":spark:" in queue else queue or None


def shard(queue: str, number: int) -> str:
    """The queue that is a shard of a logical one: `mail{0}`."""
    return f"{queue}{{{number}}}"


def shard_number(key: str) -> int | None:
    """The number of the shard that a key, or the name of a queue, belongs to; None for another one."""
    found = re.search(r"\{(\d+)\}", key)
    return int(found[1]) if found else None


def logical_queue(name: str) -> str | None:
    """The logical queue of a shard, by the name of the shard, `mail` for `mail{0}`; None for another name."""
    found = re.fullmatch(r"(.+)\{\d+\}", name)
    return found[1] if found else None


def whole_queue(name: str) -> str:
    """The logical queue of a shard; another queue itself."""
    return logical_queue(name) or name


def pattern_of(prefix: str) -> str:
    """The SCAN pattern of all keys with this prefix."""
    return f"{literal_glob(prefix)}:*"


def stages_of(prefix: str) -> str:
    """The SCAN pattern of the stage keys of all queues with this prefix."""
    return f"{pattern_of(prefix)}:spark:stage:*"


def literal_glob(text: str) -> str:
    """A glob of Redis that matches only this text."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def hash_tag(prefix: str, queue: str) -> str:
    """The hash tag of the keys of the queue: keys with the same one are in one slot of a Redis Cluster. "": none."""
    _, _, rest = f"{prefix}:{queue}".partition("{")
    tag, end, _ = rest.partition("}")
    return tag if end else ""
